"""
Which columns matter, task by task
==================================

An ℓ1 penalty chosen by folds sets weights to zero exactly; tasks are sorted by community.
"""

import matplotlib.pyplot as plt
import numpy as np

from mssl import MSSLRegressorCV
from mssl.plots import plot_coefficients

rng = np.random.default_rng(1)
W = rng.normal(size=(8, 25)) * (rng.random(25) < 0.3) * np.repeat([1.0, -1.0], 4)[:, None]
X, tasks = rng.normal(size=(8 * 40, 25)), np.repeat(np.arange(8), 40)
y = np.einsum("nd,nd->n", X, W[tasks]) + rng.normal(size=320)
model = MSSLRegressorCV(cv=3).fit(X, y, tasks=tasks)
print(model.best_params_)
plot_coefficients(model)
plt.show()
