"""Figures of fitted models and task graphs with matplotlib (extra ``plot``).

Every function takes ``ax=None`` and returns the axes (:func:`plot_effects` draws several and returns all of them).
Without `ax` it makes a new figure. ``plt.show()`` shows the figure if pyplot is in use, and ``ax.figure.savefig(…)``
saves it. The functions take plain data or a fitted model.

Examples
--------
>>> import numpy as np
>>> precision = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
>>> plot_precision(precision, tasks=["a", "b", "c"]).get_ylabel()
'tasks, by community'
>>> len(plot_chord(precision).texts)
3
>>> plot_map(precision, coordinates=[[0, -60], [5, -55], [10, -50]], coast=False).get_xlabel()
'longitude (°E)'
>>> plot_coefficients(np.eye(3)).get_xlabel()
'features'
>>> plot_path([1.0, 0.1], [[0.0, 0.0], [0.5, -0.2]]).get_xlabel()
'penalty strength λ'
>>> plot_stability([1.0, 0.1], [[0.1, 0.2], [0.95, 0.4]]).get_ylabel()
'selection frequency of an edge'
>>> plot_transfer({"a": 3.0, "b": -1.0}).get_xlabel()
'gain over single-task fit (%)'
"""

from mssl.plots.fits import (
    plot_box,
    plot_coefficients,
    plot_convergence,
    plot_effects,
    plot_path,
    plot_stability,
    plot_transfer,
)
from mssl.plots.graphs import plot_chord, plot_graph, plot_precision
from mssl.plots.maps import plot_map

__all__ = [
    "plot_box",
    "plot_chord",
    "plot_coefficients",
    "plot_convergence",
    "plot_effects",
    "plot_graph",
    "plot_map",
    "plot_path",
    "plot_precision",
    "plot_stability",
    "plot_transfer",
]
