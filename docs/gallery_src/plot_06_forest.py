"""
Weights with their intervals
============================

A forest plot of the largest weights; blue where the interval leaves out zero.
"""

import matplotlib.pyplot as plt

from mssl import BayesianMSSLRegressor
from mssl.datasets import make_clustered_tasks
from mssl.plots import plot_coefficients

data = make_clustered_tasks(n_features=6, n_samples=25, random_state=0)
model = BayesianMSSLRegressor("mean+ard", features="linear").fit(data.X, data.y, tasks=data.tasks)
print(model.summary())
plot_coefficients(model, kind="forest")
plt.show()
