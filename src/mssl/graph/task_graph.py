"""The graph that relates the tasks: partial correlations, edges, components, communities, exports."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from mssl._html import Html, tag
from mssl._typing import Array, TaskMatrix
from mssl._validation import check_number, check_whole_number, refused, warn
from mssl.exceptions import DataError, ModelFileError, require
from mssl.graph.communities import by_size, louvain, members
from mssl.graph.export import dot, graphml, json_text, parse_json, short_name, written
from mssl.graph.tables import Edge, EdgeTable, RelationTable
from mssl.graph.tests import Evidence, GlobalTest, LazyEvidence, Untested
from mssl.kernels.threads import single_threaded
from mssl.model.task_matrix import (
    DENSE_UP_TO,
    Places,
    count_entries,
    entries_at,
    largest_entry,
    pair_matrix,
    submatrix,
    upper_pairs,
    with_diagonal,
)

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Edge", "EdgeTable", "GraphComparison", "TaskGraph", "partial_correlation", "short_name"]

_SYMMETRY = 1e-8  # Asymmetry, relative to the largest entry, that rounding may cause: a safeguard for inputs.
# Tolerance for indefinite matrices and for weights beyond 1, a safeguard: matrices printed with three digits are
# accepted.
_ROUNDED = 1e-3


class GraphComparison(NamedTuple):
    """Comparison of a graph's edges with those of a reference graph: counts and rates."""

    found: int
    missed: int
    false: int
    precision: float
    recall: float
    f1: float


def partial_correlation(precision: ArrayLike) -> TaskMatrix:
    r"""Return the partial correlations of a precision matrix.

    .. math:: \rho_{ij} = -\Omega_{ij} / \sqrt{\Omega_{ii} \Omega_{jj}}, \qquad \rho_{ii} = 1.

    Parameters
    ----------
    precision : (K, K) array or SciPy sparse matrix
        Symmetric, with a positive diagonal.

    Returns
    -------
    (K, K) array; a csr_array for more than 2000 tasks

    Examples
    --------
    >>> partial_correlation([[2.0, -1.0], [-1.0, 2.0]])
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    omega = _matrix(precision, None, "precision")
    diagonal = omega.diagonal()
    if not (diagonal > 0).all():
        raise DataError(f"precision has {diagonal.min():g} on its diagonal; give a positive definite matrix.")
    if sparse.issparse(omega):
        root = sparse.diags_array(1 / np.sqrt(diagonal))
        return with_diagonal(sparse.csr_array(-(root @ omega @ root)), 1.0)
    # Scaling by powers of two, which is exact, prevents an overflow of products of large entries.
    half = np.frexp(diagonal)[1] // 2
    diagonal, omega = np.ldexp(diagonal, -2 * half), np.ldexp(omega, -np.add.outer(half, half))
    result = -omega / np.sqrt(np.outer(diagonal, diagonal)) + 0.0  # Adding 0.0 turns -0.0 into 0.0.
    np.fill_diagonal(result, 1.0)
    return result


@dataclass(frozen=True, eq=False, repr=False)
class TaskGraph:
    r"""An undirected graph over tasks with partial correlations as edge weights.

    Parameters
    ----------
    tasks : sequence of K distinct hashable names
    adjacency : (K, K) bool
        Symmetric, without self-loops.
    weights : (K, K)
        Symmetric, in [-1, 1]. Entries without an edge are set to 0. For a learned precision :math:`\Omega` the weight
        of edge (i, j) is the partial correlation
        :math:`-\Omega_{ij} / \sqrt{\Omega_{ii} \Omega_{jj}}`.
    confidence : (K, K), optional
        Selection frequency of each pair in [0, 1] (stability selection), also for pairs without an edge.

        For more than 2000 tasks `adjacency`, `weights` and `confidence` are SciPy csr_arrays.
    coordinates : (K, 2), optional
        Latitude and longitude of each task in degrees.
    evidence : GraphEvidence, optional
        Test statistics for `relations`, ``edges(fdr=…)`` and `selected`. Graphs of fitted estimators have them.
        Comparisons ignore them, and JSON does not contain them.
    false_edges : float, optional
        Upper bound on the expected number of false edges from stability selection. Tables of edges print it.

    References
    ----------
    Lauritzen, *Graphical Models*, Oxford, 1996. Meinshausen & Bühlmann, Stability selection, 2010,
    doi:10.1111/j.1467-9868.2010.00740.x.

    Examples
    --------
    >>> precision = [[2.0, -1.0, 0.0], [-1.0, 2.0, 0.0], [0.0, 0.0, 1.0]]
    >>> graph = TaskGraph.from_precision(precision, tasks=["a", "b", "c"])
    >>> graph
    TaskGraph(3 tasks, support of 1 pair, density 0.333, 2 components)
    >>> graph.support()[0]
    Edge(task_i='a', task_j='b', weight=0.5, confidence=None)
    >>> graph.components()
    [['a', 'b'], ['c']]
    """

    tasks: tuple[Hashable, ...]
    adjacency: TaskMatrix
    weights: TaskMatrix
    confidence: TaskMatrix | None = None
    coordinates: Array | None = None
    evidence: Evidence | LazyEvidence | None = None
    false_edges: float | None = None

    def __post_init__(self) -> None:
        tasks = _task_names(self.tasks)
        K, confidence = len(tasks), self.confidence
        adjacency = _matrix(self.adjacency, K, "adjacency") != 0
        if adjacency.diagonal().any():
            raise DataError(
                "adjacency has self-loops on its diagonal; a task graph has none. Set the diagonal to False."
            )
        weights = _matrix(self.weights, K, "weights", adjacency)
        if largest_entry(weights) > 1 + _ROUNDED:
            raise DataError(
                f"weights reach {largest_entry(weights):g} in size; give partial correlations, from -1 to 1. Use "
                "TaskGraph.from_precision for a precision matrix, or divide other weights by the largest."
            )
        entries = weights.data if sparse.issparse(weights) else weights
        np.clip(entries, -1.0, 1.0, out=entries)
        if confidence is not None:
            confidence = with_diagonal(_matrix(confidence, K, "confidence"), 0.0)
            if K and (confidence.min() < 0 or confidence.max() > 1):
                raise DataError(
                    f"confidence runs from {confidence.min():g} to {confidence.max():g}; give selection frequencies, "
                    "from 0 to 1."
                )
        coordinates = None if self.coordinates is None else _coordinates(self.coordinates, K)
        object.__setattr__(self, "tasks", tasks)
        kept = {"adjacency": adjacency, "weights": weights, "confidence": confidence, "coordinates": coordinates}
        for name, value in kept.items():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(self, name, value)

    @classmethod
    @single_threaded
    def from_precision(
        cls,
        precision: ArrayLike,
        tasks: Iterable[Hashable] | None = None,
        tol: float = 0.0,
        confidence: ArrayLike | None = None,
        coordinates: ArrayLike | None = None,
        evidence: Evidence | LazyEvidence | None = None,
    ) -> TaskGraph:
        """Build a graph from a precision matrix; pairs whose partial correlation exceeds `tol` in size are edges."""
        check_number("tol", tol, low=0, remedy="Pairs with a larger |partial correlation| are edges.")
        weights = partial_correlation(precision)
        _require_semidefinite(weights)
        weights = with_diagonal(weights, 0.0)
        names = range(weights.shape[0]) if tasks is None else tasks
        # The constructor converts its arguments; the fields are annotated with their types after the conversion.
        return cls(names, abs(weights) > tol, weights, confidence, coordinates, evidence)  # type: ignore[arg-type]

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[Sequence[Any]],
        tasks: Iterable[Hashable] | None = None,
        coordinates: ArrayLike | None = None,
    ) -> TaskGraph:
        """Build a graph from rows ``(task_i, task_j[, weight[, confidence]])``; a missing weight is 1.

        Without `tasks`, the tasks are those of the edges in order of appearance.
        """
        try:
            rows = [Edge(*row) for row in edges]
        except TypeError as error:
            raise DataError("An edge has another form; give rows (task_i, task_j[, weight[, confidence]]).") from error
        known = [row.confidence is not None for row in rows]
        measured = any(known)
        if measured and not all(known):
            raise DataError("Some edges have a confidence and others have none; give it for all or for none.")
        names = _task_names(dict.fromkeys(name for row in rows for name in row[:2]) if tasks is None else tasks)
        place = {name: index for index, name in enumerate(names)}
        ends: dict[tuple[int, int], None] = {}
        for row in rows:
            i, j = sorted((_index(place, row[0]), _index(place, row[1])))
            if i == j or (i, j) in ends:
                kind = "joins a task with itself" if i == j else "is given twice"
                raise DataError(f"The edge ({row[0]!r}, {row[1]!r}) {kind}; give each pair of distinct tasks once.")
            ends[i, j] = None
        pairs = np.array(list(ends), dtype=np.intp).reshape(-1, 2)
        linked = pair_matrix(pairs, [True] * len(rows), len(names))
        weights = pair_matrix(pairs, [row.weight for row in rows], len(names))
        frequencies = [row.confidence for row in rows if row.confidence is not None]
        confidence = pair_matrix(pairs, frequencies, len(names)) if measured else None
        return cls(names, linked, weights, confidence, coordinates)  # type: ignore[arg-type]  # as above

    @cached_property
    def _place(self) -> dict[Hashable, int]:
        return {name: index for index, name in enumerate(self.tasks)}

    @property
    def _tables(self) -> tuple[TaskMatrix, TaskMatrix, TaskMatrix | None]:
        return self.adjacency, self.weights, self.confidence

    def __len__(self) -> int:
        return len(self.tasks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaskGraph):
            return NotImplemented
        mine, theirs = ((*one._tables, one.coordinates) for one in (self, other))
        return self.tasks == other.tasks and all(map(_same, mine, theirs))

    def __hash__(self) -> int:
        return hash((self.tasks, self.n_edges, self.degree().tobytes()))

    @property
    def n_edges(self) -> int:
        """Number of edges of the graph."""
        return count_entries(self.adjacency) // 2

    def index(self, task: Hashable) -> int:
        """Return the index of a task in `tasks`."""
        return _index(self._place, task)

    def edge_indices(self) -> tuple[Places, Places]:
        """Return the ends (i < j) of each edge, strongest edges first; ties are ordered by position."""
        i, j = upper_pairs(self.adjacency)
        order = np.lexsort((j, i, -np.abs(entries_at(self.weights, i, j))))
        return i[order], j[order]

    @single_threaded
    def support(self, top: int | None = None) -> EdgeTable:
        """Return the pairs with a non-zero penalised precision, or the `top` strongest, by falling size of the weight.

        The penalty was chosen for prediction, so that the support is not the result of a test. `edges` and `relations`
        list the significant pairs. The graph of a Bayesian fit has no support.
        """
        if top is not None:
            top = check_whole_number("top", top, low=0, also="None for all pairs")
        i, j = (ends[:top] for ends in self.edge_indices())
        weight = entries_at(self.weights, i, j).tolist()
        confidence = [None] * len(i) if self.confidence is None else entries_at(self.confidence, i, j).tolist()
        names = self.tasks
        rows = [Edge(names[a], names[b], w, c) for a, b, w, c in zip(i, j, weight, confidence, strict=True)]
        return EdgeTable(rows, self.false_edges, untested="" if self.n_edges else self.untested)

    @overload
    def edges(self, top: int | None = None) -> EdgeTable: ...
    @overload
    def edges(self, top: int | None = None, *, fdr: float, method: str = "bh") -> RelationTable: ...
    @single_threaded
    def edges(
        self, top: int | None = None, *, fdr: float | None = None, method: str = "bh"
    ) -> EdgeTable | RelationTable:
        """Return the significant conditional edges: pairs of tasks that are correlated given all other tasks.

        Parameters
        ----------
        top : int, optional
            Maximum number of rows.
        fdr : float
            False discovery rate: the expected share of pairs in the table that are not edges. Without it the method
            returns `support`, for one more release.
        method : {"bh", "by"}
            As for `relations`. See `mssl.graph.tests`.
        """
        if fdr is None:
            warning = (
                "edges() without fdr= is now support(); from 0.3 on it lists the tested edges, as edges(fdr=0.1) does."
            )
            warn(warning, FutureWarning)
            return self.support(top)
        if top is not None:
            top = check_whole_number("top", top, low=0, also="None for all edges")
        return self._evidence().table(self.tasks, "edges", fdr, method)[:top]

    @single_threaded
    def relations(self, fdr: float = 0.1, method: str = "bh") -> RelationTable:
        """Return the pairs of tasks whose weights (or residuals) are significantly correlated.

        Parameters
        ----------
        fdr : float
            False discovery rate: the expected share of pairs in the table that are not related. 1 gives all pairs.
        method : {"bh", "by"}
            Benjamini and Hochberg's procedure, or Benjamini and Yekutieli's, which is valid under any dependence of the
            tests and has less power.

        Examples
        --------
        >>> from mssl import MSSLRegressor
        >>> from mssl.datasets import make_clustered_tasks
        >>> data = make_clustered_tasks(n_tasks=4, clusters=[[0, 1]], random_state=0)
        >>> model = MSSLRegressor().fit(data.X, data.y, tasks=data.tasks)
        >>> model.graph_.relations().pairs
        [('task 1', 'task 2')]
        """
        return self._evidence().table(self.tasks, "relations", fdr, method)

    @single_threaded
    def global_test(self, n_permutations: int = 199, random_state: int | np.random.Generator | None = 0) -> GlobalTest:
        """Test by permutations whether any tasks are related.

        A small p-value says that some tasks are related, but not which ones; `relations` lists them.

        Parameters
        ----------
        n_permutations : int
            Number of permutations. Each takes as long as the first call of `relations`.
        random_state : int, Generator or None
            Seed of the permutations.

        Returns
        -------
        GlobalTest
            ``p`` by permutation, ``analytic`` as in the tables, and ``n_permutations``.

        Examples
        --------
        >>> from mssl import MSSLRegressor
        >>> from mssl.datasets import make_clustered_tasks
        >>> data = make_clustered_tasks(n_tasks=4, clusters=[[0, 1]], random_state=0)
        >>> MSSLRegressor().fit(data.X, data.y, tasks=data.tasks).graph_.global_test(n_permutations=19).p
        0.05
        """
        self._evidence()
        if not isinstance(self.evidence, LazyEvidence | Untested):
            raise DataError(
                "This graph does not hold the data, which the test permutes. Use the graph_ of an estimator that was "
                "fitted in this process."
            )
        return self.evidence.global_test(n_permutations, random_state)

    @single_threaded
    def selected(self, fdr: float = 0.1, level: str = "relations", method: str = "bh") -> TaskGraph:
        """Return the graph of the significant pairs: all relations, or the conditional edges.

        Parameters
        ----------
        fdr : float
            False discovery rate.
        level : {"relations", "edges"}
            Correlations, or partial correlations.
        method : {"bh", "by"}
            As for `relations`.
        """
        table = self._evidence().table(self.tasks, level, fdr, method)
        chosen = TaskGraph.from_edges([row[:3] for row in table], tasks=self.tasks, coordinates=self.coordinates)
        return replace(chosen, evidence=self.evidence)

    @property
    def untested(self) -> str:
        """Reason why no pair of tasks is tested (too few columns vary within tasks); empty if pairs are tested."""
        return self.evidence.untested if isinstance(self.evidence, Untested) else ""

    def test_overall(self) -> None:
        """Run a short `global_test`, which tables then print, if there are relations and it takes under two seconds."""
        if isinstance(self.evidence, LazyEvidence):
            self.evidence.test_overall()

    def _evidence(self) -> Evidence:
        if self.evidence is None:
            raise DataError(
                "This graph holds no test statistics of the data. Use the graph_ of a fitted estimator, or of a model "
                "file of version 0.2 or later. With more than 500 tasks, call relations() before you save the model."
            )
        return self.evidence.resolve()

    def degree(self) -> Places:
        """Return the number of neighbours of each task, in the order of `tasks`."""
        return np.asarray(self.adjacency.sum(axis=1), dtype=np.intp)

    def density(self) -> float:
        """Return the number of edges divided by the number of pairs (0 for fewer than two tasks)."""
        pairs = len(self) * (len(self) - 1) // 2
        return self.n_edges / pairs if pairs else 0.0

    def neighbors(self, task: Hashable) -> list[Hashable]:
        """Return the neighbours of a task, strongest first."""
        i = self.index(task)
        near = self.adjacency[[i], :].nonzero()[1]
        order = np.argsort(-np.abs(entries_at(self.weights, np.full(len(near), i), near)), kind="stable")
        return [self.tasks[j] for j in near[order]]

    def component_labels(self) -> Places:
        """Return the component of each task as an integer; 0 is the largest."""
        return by_size(connected_components(self.adjacency, directed=False)[1])

    def components(self) -> list[list[Hashable]]:
        """Return the connected components, largest first."""
        return [[self.tasks[k] for k in nodes] for nodes in members(self.component_labels())]

    def community_labels(self, resolution: float = 1.0) -> Places:
        """Return the community of each task as an integer; 0 is the largest. See `communities`."""
        check_number("resolution", resolution, above=0, remedy="A larger one gives smaller communities.")
        sizes = abs(self.weights)
        labels, total = np.arange(len(self)), float(sizes.sum())
        for nodes in members(self.component_labels(), 2):
            labels[nodes] = nodes[louvain(submatrix(sizes, nodes), resolution, total)]
        return by_size(labels)

    def communities(self, resolution: float = 1.0) -> list[list[Hashable]]:
        r"""Return communities with a high modularity of the \|weights\|, largest first.

        The method is Louvain's with a fixed visiting order, so that the result is deterministic. An isolated task
        forms its own community, and no community spans two components.

        References
        ----------
        Blondel et al., Fast unfolding of communities in large networks, 2008,
        doi:10.1088/1742-5468/2008/10/P10008.
        """
        return [[self.tasks[k] for k in nodes] for nodes in members(self.community_labels(resolution))]

    def subgraph(self, tasks: Iterable[Hashable]) -> TaskGraph:
        """Return the graph on a subset of the tasks, in the given order."""
        keep = [self.index(task) for task in tasks]
        adjacency, weights, confidence = (None if table is None else table[keep][:, keep] for table in self._tables)
        names, places = tuple(self.tasks[k] for k in keep), None if self.coordinates is None else self.coordinates[keep]
        evidence = None if self.evidence is None or len(self) > DENSE_UP_TO else self._evidence().subset(keep)
        return TaskGraph(names, adjacency, weights, confidence, places, evidence, self.false_edges)

    def threshold(self, min_weight: float = 0.0, min_confidence: float = 0.0) -> TaskGraph:
        """Keep the edges with ``|weight| ≥ min_weight`` and ``confidence ≥ min_confidence``.

        Other edges have the confidence 0 in the result.
        """
        check_number("min_weight", min_weight, low=0)
        check_number("min_confidence", min_confidence, low=0)
        if min_confidence > 0 and self.confidence is None:
            remedy = "StabilitySelection measures the frequencies."
            raise refused("min_confidence", min_confidence, "without selection frequencies only 0 is allowed", remedy)
        i, j = upper_pairs(self.adjacency)
        keep = np.abs(entries_at(self.weights, i, j)) >= min_weight
        if self.confidence is not None:
            keep &= entries_at(self.confidence, i, j) >= min_confidence
        pairs = np.column_stack([i, j])[keep]
        kept = pair_matrix(pairs, np.ones(len(pairs), dtype=bool), len(self))
        confidence = self.confidence
        if confidence is not None:
            confidence = confidence - confidence * (1.0 * self.adjacency - 1.0 * kept)
        return replace(self, adjacency=kept, confidence=confidence)

    def compare(self, other: TaskGraph | ArrayLike) -> GraphComparison:
        """Compare the edges with those of a reference: a `TaskGraph` on the same tasks, or an adjacency matrix.

        Signs and weights are ignored. Without edges in this graph the precision is 1; without edges in the reference
        the recall is 1.
        """
        if isinstance(other, TaskGraph):
            if set(other.tasks) != set(self.tasks):
                raise DataError("The graphs are on different tasks; use subgraph() to bring both to the same ones.")
            truth = other.subgraph(self.tasks).adjacency
        else:
            truth = _matrix(other, len(self), "the reference adjacency") != 0
        i, j = upper_pairs(truth)
        found = int(np.count_nonzero(entries_at(self.adjacency, i, j)))
        missed, false = len(i) - found, self.n_edges - found
        shares = (found, found + false), (found, found + missed), (2 * found, 2 * found + false + missed)
        return GraphComparison(found, missed, false, *(part / whole if whole else 1.0 for part, whole in shares))

    def to_networkx(self) -> Any:
        """Return a ``networkx.Graph`` (extra ``plot``) with weights, confidence and coordinates."""
        networkx: Any = require("networkx", "plot", "TaskGraph.to_networkx")
        graph = networkx.Graph()
        graph.add_nodes_from(self.tasks)
        if self.coordinates is not None:
            for task, (latitude, longitude) in zip(self.tasks, self.coordinates.tolist(), strict=True):
                graph.add_node(task, latitude=latitude, longitude=longitude)
        for edge in self.support():
            extra = {} if edge.confidence is None else {"confidence": edge.confidence}
            graph.add_edge(edge.task_i, edge.task_j, weight=edge.weight, **extra)
        return graph

    def to_csv(self, path: str | os.PathLike[str] | None = None, *, safe: bool | None = None) -> str:
        """Return the edges as CSV text (isolated tasks have no row), and write it to `path` if one is given.

        Names that could act as formulas or terminal commands are made safe with a warning; see `EdgeTable.to_csv`.
        """
        return self.support().to_csv(path, safe=safe)

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the graph as JSON text for `from_json`, and write it to `path` if one is given."""
        return written(json_text(self), path)

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> TaskGraph:
        """Read a graph from JSON text, or from a file given as a `pathlib.Path`."""
        text = source if isinstance(source, str) else Path(source).read_text(encoding="utf-8")
        try:
            return cls(**parse_json(text))
        except DataError as error:
            raise ModelFileError(f"The JSON text holds no valid task graph. {error}") from error

    def to_graphml(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return GraphML (yEd, Gephi, Cytoscape, networkx), and write it to `path` if one is given."""
        return written(graphml(self), path)

    def to_dot(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return DOT text for Graphviz, and write it to `path` if one is given; negative edges are dashed."""
        return written(dot(self), path)

    def __repr__(self) -> str:
        counts = {"task": len(self), "pair": self.n_edges, "component": len(self.components())}
        tasks, pairs, components = (f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts.items())
        return f"TaskGraph({tasks}, support of {pairs}, density {self.density():.3f}, {components})"

    def _repr_html_(self) -> str:
        return str(self._html())

    def _html(self) -> Html:
        """Return the drawing and the edges as HTML."""
        from mssl.graph.geometry import graph_svg

        look = "display:flex;gap:1em;flex-wrap:wrap"
        both = tag("div", graph_svg(self), tag("div", self.support()._html()), style=look)
        return tag("div", tag("p", tag("strong", Html(repr(self)))), both)

    def __rich__(self) -> Table:
        table = self.support().__rich__()
        table.title = repr(self)
        return table


def _task_names(tasks: Iterable[Hashable]) -> tuple[Hashable, ...]:
    if isinstance(tasks, str | bytes):
        raise DataError(f"tasks is {tasks!r}; give a sequence of K names, not one text.")
    names = tuple(name.item() if isinstance(name, np.generic) else name for name in tasks)
    try:
        distinct = len(set(names))
    except TypeError as error:
        raise DataError(f"A task name is not hashable ({error}); give text, numbers or tuples.") from error
    if any(name != name for name in names):  # Only NaN differs from itself.
        raise DataError("A task is named NaN, which does not equal itself; give each task another name.")
    if distinct < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise DataError(f"The task name {twice!r} occurs more than once; give each task another name.")
    return names


def _matrix(values: ArrayLike, K: int | None, name: str, read: TaskMatrix | float = 1.0) -> TaskMatrix:
    """Return a copy of a parameter as a symmetric matrix of numbers: an array, or a csr_array for many tasks.

    Entries where ``read`` is zero are set to 0.
    """
    try:
        matrix: TaskMatrix = (
            sparse.csr_array(values, dtype=float) if sparse.issparse(values) else np.array(values, dtype=float)
        )
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} is not a matrix of numbers ({error}); give numbers.") from error
    expected = (matrix.shape[0] if matrix.ndim else 1) if K is None else K
    if matrix.shape != (expected, expected):
        raise DataError(f"{name} has shape {matrix.shape}; give K × K with one row per task, K = {expected}.")
    if not np.isfinite(largest_entry(matrix)):
        raise DataError(f"{name} holds NaN or infinite values; give finite numbers.")
    if expected > DENSE_UP_TO:
        matrix = sparse.csr_array(matrix)
    elif sparse.issparse(matrix):
        matrix = matrix.toarray()
    matrix = read * matrix + 0.0  # Adding 0.0 turns -0.0 into 0.0.
    gap = largest_entry(matrix - matrix.T)
    if gap > _SYMMETRY * largest_entry(matrix):
        raise DataError(f"{name} is not symmetric (largest difference {gap:.3g}); give a symmetric one: (A + A.T) / 2.")
    return (matrix + matrix.T) / 2


def _require_semidefinite(correlations: TaskMatrix) -> None:
    """Raise if 2I minus the partial correlations, which is the precision with a unit diagonal, is indefinite."""
    if sparse.issparse(correlations):
        for nodes in members(connected_components(correlations, directed=False)[1], 2):
            _require_semidefinite(submatrix(correlations, nodes))
        return
    scaled = 2.0 * np.eye(len(correlations)) - correlations
    try:
        np.linalg.cholesky(scaled + _ROUNDED * np.eye(len(scaled)))
    except np.linalg.LinAlgError:
        raise DataError(
            f"precision is indefinite (smallest eigenvalue {np.linalg.eigvalsh(scaled)[0]:.3g} with its diagonal "
            "scaled to 1), so that it has no covariance matrix; add to its diagonal, or give another matrix."
        ) from None


def _coordinates(values: ArrayLike, K: int) -> Array:
    try:
        places = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"coordinates are not numbers ({error}); give a (K, 2) array in degrees.") from error
    if places.shape != (K, 2):
        raise DataError(f"coordinates have shape {places.shape}; give ({K}, 2), latitude and longitude of each task.")
    if not ((np.abs(places[:, 0]) <= 90) & (places[:, 1] >= -180) & (places[:, 1] <= 360)).all():
        raise DataError(
            "coordinates are out of range; give latitudes from -90 to 90, then longitudes from -180 to 360."
        )
    return places


def _index(place: dict[Hashable, int], task: Hashable) -> int:
    try:
        return place[task]
    except (KeyError, TypeError):
        known = ", ".join(short_name(repr(name)) for name in list(place)[:8])
        more = ", …" if len(place) > 8 else ""
        raise DataError(f"No task is named {short_name(repr(task), 60)}; the tasks are: {known}{more}") from None


def _same(first: TaskMatrix | None, second: TaskMatrix | None) -> bool:
    return first is second if first is None or second is None else count_entries(first != second) == 0
