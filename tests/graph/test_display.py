"""What is drawn of a graph: groups, certain edges, candidates, and what has to be said beside it."""

from __future__ import annotations

import numpy as np

from mssl import MSSLRegressor, TaskGraph
from mssl.datasets import make_clustered_tasks
from mssl.graph.geometry import display
from mssl.graph.tests import GraphEvidence
from mssl.plots import plot_graph


def graph_of(correlations, freedom, precision=None):
    r = np.asarray(correlations, dtype=float)
    K = len(r)
    evidence = GraphEvidence(r, np.full((K, K), float(freedom)), np.ones(K), "coef", "both")
    return TaskGraph.from_precision(np.eye(K) if precision is None else precision, evidence=evidence)


def test_certain_edges_are_drawn_and_fitted_ones_stay_as_candidates():
    r = np.eye(4)
    r[0, 1] = r[1, 0] = 0.8
    precision = np.eye(4)
    precision[2, 3] = precision[3, 2] = -0.3
    shown = display(graph_of(r, 30, precision))
    assert shown.certain is not None
    assert np.argwhere(np.triu(shown.certain)).tolist() == [[0, 1]]
    assert np.argwhere(np.triu(shown.graph.adjacency)).tolist() == [[0, 1], [2, 3]]
    assert shown.groups.tolist() == [0, 0, 1, 2]
    assert "mean that all tasks share" in shown.notes[-1]
    ax = plot_graph(graph_of(r, 30, precision))
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"positive", "candidate"}
    assert "expected to be false" in ax.get_xlabel().replace("\n", " ")


def test_nothing_certain_is_said():
    shown = display(graph_of(np.eye(3), 10))
    assert shown.notes[0] == "no relation between tasks can be told from chance at 10%"
    assert not shown.certain.any()


def test_graphs_without_evidence_are_drawn_as_before():
    graph = TaskGraph.from_edges([("a", "b", 0.5), ("b", "c", -0.2)])
    shown = display(graph)
    assert shown.graph is graph
    assert shown.certain is None
    assert shown.notes == []


def test_groups_are_the_clusters():
    data = make_clustered_tasks(n_features=60, n_samples=200, random_state=0)
    shown = display(MSSLRegressor().fit(data.X, data.y, tasks=data.tasks).graph_)
    groups = [shown.groups[data.clusters == cluster] for cluster in (0, 1)]
    assert all(len(set(group.tolist())) == 1 for group in groups)
