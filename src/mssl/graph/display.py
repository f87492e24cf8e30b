"""What pictures and pages show of a graph: groups of related tasks, certain edges, and candidates beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mssl._typing import TaskMatrix
from mssl.exceptions import MSSLError
from mssl.graph.communities import by_size
from mssl.graph.tables import FDR, RelationTable
from mssl.graph.task_graph import TaskGraph
from mssl.graph.tests import GraphEvidence
from mssl.model.task_matrix import Places

_MOST_NAMED = 10  # edges of summaries


class Display(NamedTuple):
    """A graph as it is drawn.

    Attributes
    ----------
    graph : TaskGraph
        Tested edges, and the fitted support beside them.
    certain : ndarray or csr_array of bool of shape (K, K), or None
        The edges: conditional ones that can be told from chance. The rest is support, drawn as candidates: thin, grey
        and without a sign. None where the graph came without evidence.
    groups : ndarray of int of shape (K,)
        Group of each task, 0 the largest: tasks joined by relations that hold together, see
        :meth:`GraphEvidence.groups_at`, or communities where there is no evidence.
    notes : list of str
        What the picture's reader has to know: how many pairs were found, how many of them may be false, and relative to
        what.
    relations, edges : RelationTable or None
        The pairs that can be told from chance; None where the graph came without evidence.
    """

    graph: TaskGraph
    certain: TaskMatrix | None
    groups: Places
    notes: list[str]
    relations: RelationTable | None = None
    edges: RelationTable | None = None

    @property
    def strongest(self) -> RelationTable | None:
        """The first ten edges; none where no tasks are grouped, or where the global test supports no relation."""
        if self.edges is None or self.relations is None:
            return None
        return self.edges[: _MOST_NAMED if self.relations.supported and self.groups.max() < len(self.graph) - 1 else 0]


def display(graph: TaskGraph, fdr: float = FDR, method: str = "bh") -> Display:
    """What is drawn of a graph, with its error.

    Parameters
    ----------
    graph : TaskGraph
        The graph.
    fdr : float
        False discovery rate of relations and edges, family-wise error of groups.
    method : {"bh", "by"}
        How it is held, as for :meth:`TaskGraph.relations`.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl import TaskGraph
    >>> from mssl.graph.tests import (GraphEvidence)
    >>> r = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, -0.1], [0.1, -0.1, 1.0]])
    >>> evidence = GraphEvidence(r, np.full((3, 3), 30.0), np.ones(3))
    >>> shown = display(TaskGraph.from_precision(np.eye(3), tasks=["a", "b", "c"], evidence=evidence))
    >>> shown.groups.tolist(), shown.notes[0]
    ([0, 0, 1], '1 relation among 3 pairs at a false discovery rate of 10%: at most 0.1 of them are expected to be
    false')
    """
    try:
        graph.test_overall()
        relations, edges = graph.relations(fdr, method), graph.edges(fdr=fdr, method=method)
    except MSSLError:
        return Display(graph, None, graph.community_labels(), [])
    certain = graph.selected(fdr, "edges", method)
    candidates = graph.weights - graph.weights * certain.adjacency
    shown = replace(graph, adjacency=graph.adjacency + certain.adjacency, weights=candidates + certain.weights)
    notes = [relations.summary()]
    if len(relations):
        notes.append(edges.summary())
        notes.append(
            f"groups are tasks joined by relations; the chance that any of these is false is at most {fdr:.0%}"
        )
    assert graph.evidence is not None
    evidence, groups = graph.evidence.resolve(), np.arange(len(graph))
    if isinstance(evidence, GraphEvidence):
        groups = by_size(evidence.groups_at(fdr))
        if evidence.relative_to != "zero":
            notes.append("relations are those beyond a mean that all tasks share")
    return Display(shown, certain.adjacency, groups, notes, relations, edges)
