"""
What each task gains from the others
====================================

Held-out error of every task against a model of its own: most gain, and the report says which lose.
"""

import matplotlib.pyplot as plt

from mssl import MSSLRegressor, transfer_report
from mssl.datasets import make_clustered_tasks
from mssl.plots import plot_transfer

data = make_clustered_tasks("centres", n_samples=40, random_state=1)
model = MSSLRegressor(graph_penalty=0.05).fit(data.X, data.y, tasks=data.tasks)
report = transfer_report(
    model, data.X, data.y, data.tasks, X_test=data.X_test, y_test=data.y_test, tasks_test=data.tasks_test
)
print(report)
plot_transfer(report)
plt.show()
