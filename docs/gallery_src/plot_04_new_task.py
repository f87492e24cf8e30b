"""
A task that was never seen, and its first rows
==============================================

Before its first row a new task is predicted from what all tasks share. ``adapt`` lets it join with a few rows, without a
refit; its own least squares needs many more.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LinearRegression

from mssl import BayesianMSSLRegressor

rng = np.random.default_rng(0)
mean = rng.normal(size=8)
weights = mean + 0.3 * rng.normal(size=(13, 8))
X = rng.normal(size=(13, 230, 8))
y = np.einsum("knd,kd->kn", X, weights) + 0.5 * rng.normal(size=(13, 230))
ids = np.repeat(np.arange(12), 30)
model = BayesianMSSLRegressor("mean+ard", features="linear").fit(
    X[:12, :30].reshape(-1, 8), y[:12, :30].ravel(), tasks=ids
)
test, target = X[12, 30:], y[12, 30:]
counts = [1, 2, 4, 8, 12, 16, 24, 30]
joined, alone = [], []
for n in counts:
    name = f"new {n}"
    model.adapt(X[12, :n], y[12, :n], task=name)
    joined.append(np.sqrt(np.mean((model.predict(test, tasks=[name] * len(test)) - target) ** 2)))
    own = LinearRegression().fit(X[12, :n], y[12, :n])
    alone.append(np.sqrt(np.mean((own.predict(test) - target) ** 2)))

figure, ax = plt.subplots(figsize=(5, 3.6), layout="constrained")
ax.plot(counts, joined, "o-", label="joined with adapt")
ax.plot(counts, alone, "s--", label="its own least squares")
ax.axhline(0.5, color="0.6", lw=1)
ax.set_ylim(0.4, 3)
ax.set_xlabel("rows of the new task")
ax.set_ylabel("RMSE on new rows")
ax.legend(frameon=False)
plt.show()
