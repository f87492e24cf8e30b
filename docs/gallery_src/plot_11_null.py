"""
No relation, no edge
====================

Independent tasks: the fitted precision has edges, because they served prediction by chance. The tables with error rates
are empty in nine of ten draws.
"""

import matplotlib.pyplot as plt
import numpy as np

from mssl import MSSLRegressor

fitted, relations = [], []
for seed in range(12):
    rng = np.random.default_rng(seed)
    X, tasks = rng.normal(size=(10 * 40, 20)), np.repeat(np.arange(10), 40)
    W = rng.normal(size=(10, 20))
    y = np.einsum("nd,nd->n", X, W[tasks]) + rng.normal(size=400)
    graph = MSSLRegressor(0.1).fit(X, y, tasks=tasks).graph_
    fitted.append(graph.n_edges)
    relations.append(len(graph.relations(fdr=0.1)))

figure, ax = plt.subplots(figsize=(5, 3.2), layout="constrained")
ax.bar(np.arange(12) - 0.2, fitted, 0.4, label="edges of the fitted precision")
ax.bar(np.arange(12) + 0.2, relations, 0.4, label="relations at a false discovery rate of 10 %")
ax.set_xlabel("draw")
ax.set_ylabel("of 45 pairs")
ax.set_ylim(0, 45)
ax.legend(frameon=False, fontsize=8)
plt.show()
