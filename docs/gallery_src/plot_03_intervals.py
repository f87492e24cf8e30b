"""
Intervals that hold what they promise
=====================================

The share of new targets inside intervals of the Bayesian estimator, at many levels: on the diagonal is right.
"""

import matplotlib.pyplot as plt
import numpy as np

from mssl import BayesianMSSLRegressor
from mssl.datasets import make_clustered_tasks

data = make_clustered_tasks(n_features=10, n_samples=20, random_state=2)
model = BayesianMSSLRegressor(features="linear").fit(data.X, data.y, tasks=data.tasks)
levels = np.linspace(0.1, 0.95, 12)
inside = []
for level in levels:
    low, high = model.predict_interval(data.X_test, level, tasks=data.tasks_test).T
    inside.append(np.mean((low <= data.y_test) & (data.y_test <= high)))

figure, ax = plt.subplots(figsize=(4.2, 4), layout="constrained")
ax.plot([0, 1], [0, 1], color="0.6", lw=1)
ax.plot(levels, inside, "o-")
ax.set_xlabel("promised coverage")
ax.set_ylabel("share of new targets inside")
plt.show()
