"""
Curves whose shape is shared
============================

Splines of every column, chosen by folds. Thin lines are the tasks, the thick one their mean with its band.
"""

import matplotlib.pyplot as plt

from mssl import BayesianMSSLRegressor
from mssl.datasets import make_curved_tasks
from mssl.plots import plot_effects

data = make_curved_tasks("additive", random_state=0)
model = BayesianMSSLRegressor("mean+ard").fit(data.X, data.y, tasks=data.tasks)
plot_effects(model)
plt.show()
