"""
A certificate for every fit
===========================

The duality gaps of weights and graph after each round of the alternation.
"""

import matplotlib.pyplot as plt

from mssl import MSSLRegressor
from mssl.datasets import make_clustered_tasks
from mssl.plots import plot_convergence

data = make_clustered_tasks(random_state=0)
model = MSSLRegressor(0.05, tol=1e-9).fit(data.X, data.y, tasks=data.tasks)
print(model.result_.message)
plot_convergence(model)
plt.show()
