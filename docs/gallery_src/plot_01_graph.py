"""
The graph that made the data, and the one that was learned
==========================================================

Thirteen tasks in two clusters and three loners. On the left the relations that generated the data, on the right those that
can be told from chance at a false discovery rate of 10 %, drawn in the same places.
"""

import matplotlib.pyplot as plt

from mssl import MSSLRegressorCV, TaskGraph
from mssl.datasets import make_clustered_tasks
from mssl.graph.geometry import graph_layout

data = make_clustered_tasks(n_samples=60, random_state=0)
model = MSSLRegressorCV(cv=3).fit(data.X, data.y, tasks=data.tasks)
relations = model.graph_.relations(fdr=0.1)
print(relations)
known = TaskGraph.from_precision(data.precision, tasks=model.tasks_.tolist())
places = graph_layout(known)
number = {task: k for k, task in enumerate(known.tasks)}

figure, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
for ax, pairs, title in (
    (axes[0], [edge[:2] for edge in known.support()], "known"),
    (axes[1], relations.pairs, f"learned: {len(relations)} relations"),
):
    for i, j in pairs:
        ax.plot(*places[[number[i], number[j]]].T, color="C0", lw=1)
    ax.scatter(*places.T, color="black", s=18, zorder=3)
    for task, (x, y) in zip(known.tasks, places, strict=True):
        ax.annotate(task, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7)
    ax.set_title(title)
    ax.axis("off")
plt.show()
