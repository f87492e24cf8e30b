r"""Selection of a graph without cross-validation: stability selection, and an information criterion.

*Stability selection* keeps the edges that are selected in most random halves of the data.

Subsamples are drawn without replacement and contain half of the data. The selection frequency of an edge at λ is the
share of subsamples whose graph contains it. The stable graph contains the edges whose frequency reaches the threshold π
at some point of the path. Let q be the mean number of edges that a subsample selects along the path, out of p =
K(K−1)/2. Under exchangeability the expected number of false edges is

.. math:: E[V] \le \frac{q^2}{(2\pi - 1)\, p}

The bound is reported but not enforced: with a bound below 1, only the few strongest edges of a dense cluster would
remain.

There are two kinds of subsamples:

- ``"features"``: the rows of :math:`\hat W - m1^\top` (features), or blocks of rows of the residuals for r-MSSL. This
  needs one fit and then only graphical lassos.
- ``"samples"``: half of each task's rows, with new fits along the path, as in the paper. It needs n_k/2 well above d.
  All halves contain the chance correlations of the d weights, so that more edges are false than the bound says
  (``docs/graph.md``). For classifiers a subsample contains half of each class in each task. If the tasks share their
  rows, it contains half of the rows with the same labels in all tasks or, if some labels occur only once, half of the
  rows with the same rarest class.

*The extended Bayesian information criterion* chooses a graph without resampling:

.. math:: \mathrm{EBIC}_\gamma(E) = r\,[\operatorname{tr}(S\hat\Omega_E) - \log\det\hat\Omega_E]
          + |E| \log r + 4 |E| \gamma \log K,

where :math:`\hat\Omega_E` is the maximum-likelihood precision with the edges E that the graphical lasso selected at λ.

References
----------
Foygel & Drton (2010), Extended Bayesian information criteria for Gaussian graphical models, arXiv:1011.6640,
doi:10.48550/arXiv.1011.6640.
Meinshausen & Bühlmann (2010), doi:10.1111/j.1467-9868.2010.00740.x.
Shah & Samworth (2013), doi:10.1111/j.1467-9868.2011.01034.x (complementary pairs).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from scipy.spatial.distance import squareform
from sklearn.base import clone

from mssl._progress import Progress
from mssl._typing import Array, ArrayLike, BaseEstimator, Index, Mask, Seed, TaskMatrix
from mssl._validation import check_array, check_choice, check_number, check_whole_number, finite, refused, warn
from mssl.data.folds import class_rows, deal_groups, deal_rows
from mssl.data.layouts import TaskData
from mssl.estimators.base import MultiTaskEstimator
from mssl.estimators.mssl import MSSLRegressor
from mssl.exceptions import DataError, ParameterError, all_or_nothing
from mssl.files.checkpoint import Checkpoint
from mssl.glasso.solver import graphical_lasso
from mssl.graph.information import evidence_of
from mssl.graph.task_graph import TaskGraph, partial_correlation
from mssl.judge.parallel import Workers
from mssl.kernels.threads import SingleThreaded, single_threaded
from mssl.model.objective import lambda_max
from mssl.model.task_matrix import entries_at
from mssl.model_selection.scores import Dataset, Params, follow, graph_limit
from mssl.structures import KnownEdges, Structure
from mssl.structures.base import numeric
from mssl.structures.sparse import CORRELATIONS, row_moment

_LOG = logging.getLogger("mssl")
# Tolerance (relative gap) of a subsample's graphical lasso: a smaller one takes more time and changes only edges with a
# weight near zero.
_GRAPH_TOL = 1e-4


@dataclass(eq=False, repr=False)
class StabilitySelection(SingleThreaded, BaseEstimator):
    """Select the edges between tasks that most random halves of the data contain.

    Parameters
    ----------
    estimator : MSSLRegressor, MSSLClassifier or MultiTaskGLM with a SparsePrecision, optional
        The estimator. By default ``MSSLRegressor(graph_penalty=0.05, shared_mean=False)``, which estimates weights that
        predict well. With a shared mean the centre of one cluster would be subtracted from the weights of all others.
    subsample : {"features", "samples"}, default="features"
        Whether to halve the rows of the fitted weights (or blocks of residuals), or the rows of each task's data.
    threshold : float, default=0.9
        π in (0.5, 1]: selection frequency from which an edge is stable.
    n_subsamples : int, default=100
        Number of subsamples.
    path : (float, float), default=(0.3, 0.9)
        Smallest and largest λ on the correlation scale. Pairs with a correlation below the smallest are never selected.
        (A path that started at λ_max of the data would always select the strongest pair, even if no tasks are related.)
        With :class:`mssl.paper.PaperMSSL` the values are shares of λ_max.
    n_points : int, default=20
        Number of points of the path.
    complementary_pairs : bool, default=True
        Whether subsamples are drawn in disjoint pairs, which leave out one of an odd number of rows.
    block_length : int, optional
        Number of consecutive rows of residuals that stay together; n^(1/3) by default. With "samples" the number of
        consecutive rows that tasks share, 1 by default; with longer blocks a half may lack a class.
    random_state : int, Generator or None, default=None
        Seed of the subsamples.
    n_jobs : int, optional
        Number of workers, as for joblib.
    checkpoint : path, optional
        File that records finished subsamples.
    verbose : int, default=0
        1 shows progress bars on a terminal.

    Attributes
    ----------
    graph_ : TaskGraph
        The stable edges, weighted by the partial correlations of the model restricted to them. ``confidence`` holds
        the largest frequency of each pair.
    frequencies_ : ndarray of shape (L, K, K)
        Selection frequency of each edge at each λ.
    lambdas_ : ndarray of shape (L,)
        The path of λ.
    mean_frequency_ : ndarray of shape (K, K)
        Mean frequency over the path, the best criterion to rank edges.
    expected_false_edges_ : float
        Upper bound on the expected number of false edges.
    n_selected_ : float
        q, the mean number of edges that a subsample selects along the path.

    Examples
    --------
    >>> from mssl import StabilitySelection
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(random_state=0)
    >>> selection = StabilitySelection(n_subsamples=20, random_state=0).fit(data.X, data.y, tasks=data.tasks)
    >>> selection.graph_.compare(data.adjacency).f1 > 0.8
    True
    """

    estimator: MultiTaskEstimator | None = None
    _: KW_ONLY
    subsample: str = "features"
    threshold: float = 0.9
    n_subsamples: int = 100
    path: tuple[float, float] = (0.3, 0.9)
    n_points: int = 20
    complementary_pairs: bool = True
    block_length: int | None = None
    random_state: Seed = None
    n_jobs: int | None = None
    checkpoint: str | PathLike[str] | None = None
    verbose: int = 0

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        tasks: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        order: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> StabilitySelection:
        """Select the stable edges.

        Parameters
        ----------
        X, y, tasks, sample_weight, offset
            Data in any layout, as for :meth:`mssl.MSSLRegressor.fit`.
        groups, order : str or array of shape (N,) or (n,), optional
            Group and time of each row, as for :meth:`mssl.MSSLRegressorCV.fit`. With ``subsample="samples"`` groups are
            not split, and times are drawn in blocks of `block_length`.
        """
        given = MSSLRegressor(graph_penalty=0.05, shared_mean=False) if self.estimator is None else self.estimator
        graph_penalty_name(given)
        template = clone(given)
        data = template._map_features(template._read(X, y, tasks, sample_weight, offset, groups, order))
        template.to_spec(data).check(data)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(template, name):
                setattr(self, name, getattr(template, name))
        if self.checkpoint is not None and self.random_state is None:
            remedy = "Without a seed later runs draw other subsamples."
            raise refused("random_state", None, "give a seed to continue from a checkpoint", remedy)
        record = Checkpoint.of(self, data, clone(template))
        return self.fit_whole(Dataset(data), template, record)

    def fit_whole(self, whole: Dataset, template: MultiTaskEstimator, record: Checkpoint) -> StabilitySelection:
        """Select the stable edges for prepared data and a template, with an open checkpoint."""
        self.check()
        structure = template.to_spec(whole).structure
        if not structure.prices_edges:
            raise refused("structure", structure, "stability selection needs a learned graph, a SparsePrecision")
        try:
            random = np.random.default_rng(self.random_state)
        except (TypeError, ValueError) as error:
            raise refused("random_state", self.random_state, "give a whole number, a Generator, or None") from error
        (point,) = follow(whole, template, [{}])
        Q = point.prepared.problem(point.spec.penalty, structure.relates).related(point.result.W)
        Q = Q if structure.relates == "residual" else Q - point.result.mean
        S, floors = row_moment(Q, structure.correlation), structure.floors(point.result.scale)
        self.lambdas_ = np.geomspace(self.path[1], self.path[0], self.n_points)
        if len(Q) == 1:  # A single task has no pairs.
            self.graph_ = self._summarise(["00"], S, floors, list(whole.data.tasks), None)
            return self
        with Progress(self.verbose, "stability selection", 1) as progress:
            select: Callable[..., str]
            work: Sequence[tuple[Any, ...]]
            if self.subsample == "samples":
                select, work = select_refitted, self._halve_samples(whole, template, random)
            else:
                halves = self._halve_rows(Q, structure, random)
                select, work = select_rows, [(Q, rows, floors, self.lambdas_, structure) for rows in halves]
            pieces = [(f"subsample {number}", arguments) for number, arguments in enumerate(work)]
            words = list(Workers(self.n_jobs, record, progress).run(select, "subsamples", pieces).values())
        found = self._summarise(words, S, floors, list(whole.data.tasks), structure.edge_constraints)
        self.graph_ = replace(found, evidence=evidence_of(point.prepared, point.result, structure, whole.data))
        if 0 < found.n_edges <= self.expected_false_edges_:
            _LOG.warning(
                "The bound on false edges, %.2g, is no less than the %d stable edges: by it, they may all be chance. "
                "Raise threshold or the weakest λ of path, or take edges by false discoveries (graph_.edges(fdr=0.1)).",
                self.expected_false_edges_,
                found.n_edges,
            )
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    def check(self) -> None:
        """Raise for an invalid parameter."""
        if self.subsample == "coefficients":
            warn("`subsample='coefficients'` of StabilitySelection is now 'features'; it goes with 0.3.", FutureWarning)
        else:
            check_choice("subsample", self.subsample, ("features", "samples"))
        check_number("threshold", self.threshold, above=0.5, high=1)
        check_whole_number("n_subsamples", self.n_subsamples, low=2)
        check_whole_number("n_points", self.n_points, low=1)
        shares = list(self.path) if np.iterable(self.path) else []
        if len(shares) != 2 or not all(map(finite, shares)) or not 0 < shares[0] <= shares[1] <= 1:
            raise refused("path", self.path, "give two correlations, 0 < weakest ≤ strongest ≤ 1")
        if self.block_length is not None:
            check_whole_number("block_length", self.block_length, low=1, also="None")

    def check_halves(self, n: int, what: str, remedy: str) -> None:
        """Raise if there are too few rows or features to halve."""
        if self.subsample != "samples" and n // 2 < 2:  # A correlation needs at least two rows.
            raise ParameterError(
                f"There are {n} {what} to halve; subsample='features' needs at least 4 {what}." + remedy
            )

    def _drawn(self, deal: Callable[[], Index], *, disjoint: bool) -> list[Mask]:
        """Return the halves of all subsamples; ``deal`` divides the rows into part 0, part 1 and a rest.

        Disjoint halves leave the rest out; otherwise it is in both of them.
        """
        masks: list[Mask] = []
        while len(masks) < self.n_subsamples:
            part = deal()
            pair = [part == 0, part == 1] if disjoint else [part != 1, part != 0]
            masks += pair if self.complementary_pairs else pair[:1]
        return masks[: self.n_subsamples]

    def _halves(self, n: int, random: np.random.Generator, block: int = 1) -> list[Mask]:
        """Return half of n rows, in whole blocks, for each subsample; an odd block is left out."""
        sizes = [len(rows) for rows in np.array_split(np.arange(n), min(n, max(2, n // block)))]
        block_of = np.repeat(np.arange(len(sizes)), sizes)

        def deal() -> Index:
            place = np.argsort(random.permutation(len(sizes)))
            return (place // (len(sizes) // 2))[block_of]

        return self._drawn(deal, disjoint=True)

    def _halve_rows(self, Q: Array, structure: Structure, random: np.random.Generator) -> list[Mask]:
        """Return halves of the rows of weights, or of blocks of residuals."""
        n, on_residuals = Q.shape[1], structure.relates == "residual"
        remedy = "" if on_residuals else " Or halve each task's rows: subsample='samples'."
        self.check_halves(n, "rows" if on_residuals else "features", remedy)
        block = max(1, round(n ** (1 / 3))) if self.block_length is None else int(self.block_length)
        return self._halves(n, random, block if on_residuals else 1)

    def _halve_samples(
        self, whole: Dataset, template: MultiTaskEstimator, random: np.random.Generator
    ) -> list[tuple[Dataset, MultiTaskEstimator, list[Params]]]:
        """Return halves of each task's rows, with the template and the settings along the path."""
        data = whole.data
        smallest = int(data.n_rows.min())
        if smallest / 2 < 2 * data.n_features:
            warn(
                f"subsample='samples' refits on half of every task's rows: {smallest // 2} in the smallest task, for "
                f"{data.n_features} features. Halves need many more rows than features for a reliable graph; "
                "subsample='features' does not halve the rows."
            )
        structure = template.to_spec(whole).structure
        if not structure.free_units:  # The paper's λ has other units, so that the path consists of shares of λ_max.
            self.lambdas_ = self.lambdas_ * graph_limit(whole, template)
        labels = (data.y > 0.5).astype(np.intp) if template._loss().labels else None
        masks = self._half_samples(data, labels, random)
        if labels is not None:
            _warn_lost_classes(masks, labels)
        chain = [{graph_penalty_name(template): float(value)} for value in self.lambdas_]
        return [(Dataset(data, mask), template, chain) for mask in masks]

    def _half_samples(self, data: TaskData, labels: Index | None, random: np.random.Generator) -> list[Mask]:
        """Return masks of half of each task's rows, by two folds that use labels only so that no half lacks a class.

        Groups and blocks of consecutive times are not split. If the tasks share their rows, all tasks have the same
        half.
        """
        task, together = data.task_of_row, data.shared or data.aligned
        by_groups, classes = data.groups is not None or data.order is not None, class_rows(labels, len(task))
        unit, of_unit = np.arange(len(task)), task
        if by_groups:
            times = np.zeros(1, dtype=np.int64) if data.order is None else data.order
            length = round((times.max() + 1) ** (1 / 3)) if self.block_length is None else self.block_length
            groups = times // max(1, int(length)) if data.groups is None else data.groups
            deal = partial(deal_groups, groups, task, classes, data.tasks, 2, random, by_size=False)
        else:
            if data.n_rows.min() < 2 and (together or self.complementary_pairs):
                name = data.tasks.tolist()[np.argmin(data.n_rows)]
                raise ParameterError(
                    f"Task {name!r} has 1 row; give at least 2 rows per task, so that the halves do not overlap."
                )
            if together:
                n, block = int(data.n_rows[0]), self.block_length or 1
                n_units = min(n, max(2, n // block))
                unit, of_unit = (unit - data.offsets[task]) * n_units // n, np.zeros(n_units, dtype=np.intp)
                classes = [] if labels is None or n_units < n else class_rows(labels.reshape(-1, n).T, n)
            deal = partial(deal_rows, of_unit, classes, 2, random, even=True)
        # Complementary pairs of rows leave out those that no fold holds out.
        return self._drawn(lambda: deal()[unit], disjoint=self.complementary_pairs and not by_groups)

    def _summarise(
        self, words: Sequence[str], S: Array, floors: Array, tasks: list[Hashable], known: KnownEdges | None
    ) -> TaskGraph:
        """Return the stable graph; supports are counted one subsample at a time, which saves memory."""
        K, L = len(tasks), len(self.lambdas_)
        off = ~np.eye(K, dtype=bool)
        # Forbidden edges are never selected and free edges always, so that the bound does not count them.
        priced = off if known is None else off & ~known.zeros(K) & (known.factors(K) > 0)
        counted = squareform(priced, checks=False)
        counts, selected = np.zeros((L, len(counted)), dtype=np.int32), 0
        for word in words:
            chosen = unpack(word, L, K)
            counts += chosen
            selected += int(np.count_nonzero(chosen.any(axis=0) & counted))
        self.frequencies_ = np.stack([squareform(shares) for shares in counts / len(words)])
        self.mean_frequency_ = self.frequencies_.mean(axis=0)
        self.tasks_ = np.asarray(tasks)
        confidence = self.frequencies_.max(axis=0)
        # The margin allows for rounding: 90/100 may differ from 0.9 in binary.
        adjacency = (confidence >= self.threshold - 1e-12) & off
        self.n_selected_ = selected / len(words)
        pairs = max(1, int(counted.sum()))
        self.expected_false_edges_ = self.n_selected_**2 / ((2 * self.threshold - 1) * pairs)
        restricted = graphical_lasso(S, 0.0, zeros=~adjacency & off, diagonal_penalty=floors)
        weights = partial_correlation(restricted.precision)
        return TaskGraph(tuple(tasks), adjacency, weights, confidence, false_edges=self.expected_false_edges_)

    def plot(self, ax: Any = None) -> Any:
        """Draw the frequencies along the path; see :func:`mssl.plots.plot_stability`."""
        from mssl.plots import plot_stability

        return plot_stability(self.lambdas_, self.frequencies_, ax, threshold=self.threshold)


def _warn_lost_classes(masks: Sequence[Mask], labels: Index) -> None:
    """Warn if a subsample has rows of only one class over all tasks."""
    lost = sum(len(np.unique(labels[mask])) < len(np.unique(labels)) for mask in masks)
    if lost:
        warn(
            f"{lost} of {len(masks)} subsamples have rows of one class only; the rarer class has "
            f"{np.bincount(labels).min()} rows. subsample='features' needs no halves of the rows."
        )


def graph_penalty_name(estimator: MultiTaskEstimator) -> str:
    """Return the name of an estimator's parameter λ, or raise if it has none."""
    names = {} if isinstance(estimator, type) or not hasattr(estimator, "get_params") else estimator.get_params()
    for needed, name in (("graph_penalty", "graph_penalty"), ("structure", "structure__alpha")):
        if needed in names:
            return name
    allowed = "give an MSSLRegressor, an MSSLClassifier or a MultiTaskGLM with a SparsePrecision"
    raise refused("estimator", estimator, allowed)


def graph_path(S: Array, floors: Array, lambdas: Array, known: KnownEdges | None = None) -> Iterator[Array]:
    """Yield precisions along a falling path of λ on the correlation scale of S, with warm starts."""
    scales = price_edges(S, floors) * (1.0 if known is None else known.factors(len(S)))
    warm = None
    for value in lambdas:
        warm = graphical_lasso(
            S,
            float(value),
            weights=scales,
            zeros=None if known is None else known.zeros(len(S)),
            diagonal_penalty=floors,
            tol=_GRAPH_TOL,
            warm_start=warm,
            check=False,
        )
        yield warm.precision


def price_edges(S: Array, floors: Array) -> Array:
    """Return a_ij = √((S_ii + e_i)(S_jj + e_j)), the penalty of each edge for λ = 1."""
    spread = np.sqrt(np.diagonal(S) + floors)
    return np.outer(spread, spread)


def select_rows(Q: Array, rows: Mask, floors: Array, lambdas: Array, structure: Structure) -> str:
    """Return the edges selected from some rows of weights or residuals along the path, as a packed text."""
    return pack(graph_path(row_moment(Q[:, rows], structure.correlation), floors, lambdas, structure.edge_constraints))


def select_refitted(part: Dataset, template: MultiTaskEstimator, chain: Sequence[Params]) -> str:
    """Return the edges selected by fits on a subsample along the path, as a packed text."""
    return pack(point.result.structure.precision for point in follow(part, template, chain))


def pack(precisions: Iterable[TaskMatrix]) -> str:
    """Pack the off-diagonal supports of precision matrices into a hexadecimal text."""
    bits = [entries_at(precision, *np.triu_indices(precision.shape[0], 1)) != 0 for precision in precisions]
    return np.packbits(np.concatenate(bits)).tobytes().hex()


def unpack(word: str, n_points: int, n_tasks: int) -> Mask:
    """Return supports (points, K(K−1)/2) from a packed text, with pairs in the order of ``triu_indices``."""
    count = n_points * (n_tasks * (n_tasks - 1) // 2)
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(word), dtype=np.uint8), count=count)
    return bits.astype(bool).reshape(n_points, -1)


@dataclass(frozen=True, eq=False)
class EBICPath:
    """Graphs along a path of λ with their information criterion.

    Attributes
    ----------
    lambdas, scores : ndarrays of shape (L,)
        The path, and the criterion (smaller is better).
    graphs : list of L TaskGraph
        The graph at each λ, weighted by the partial correlations of the model restricted to it.
    best : int
        Index of the graph with the smallest criterion.
    """

    lambdas: Array
    scores: Array
    graphs: list[TaskGraph]
    best: int

    @property
    def graph(self) -> TaskGraph:
        """The best graph."""
        return self.graphs[self.best]


@single_threaded
def ebic_path(
    rows: ArrayLike,
    *,
    tasks: Any = None,
    lambdas: ArrayLike | None = None,
    floors: ArrayLike | None = None,
    gamma: float = 0.5,
    n_points: int = 25,
    correlation: str = "pearson",
) -> EBICPath:
    """Choose a graph by the extended Bayesian information criterion.

    Parameters
    ----------
    rows : array of shape (K, r)
        One row per task with its fitted weights (``model.coef_``) or residuals.
    tasks : sequence of K names, optional
        Task names.
    lambdas : array of shape (L,), optional
        Path of λ ≥ 0 on the correlation scale; by default from λ_max down to 0.05 λ_max.
    floors : float or array of shape (K,), optional
        Variances ≥ 0 that are added to the diagonal; by default 1 % of each task's variance.
    gamma : float, default=0.5
        Weight of the term that grows with the number of tasks, in [0, 1].
    n_points : int, default=25
        Length of the default path.
    correlation : {"pearson", "spearman", "kendall"}, default="pearson"
        Kind of correlation; the rank correlations are robust to heavy tails.

    Returns
    -------
    EBICPath

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> common = random.standard_normal(200)
    >>> rows = np.vstack([common + 0.5 * random.standard_normal((2, 200)), random.standard_normal((2, 200))])
    >>> [edge[:2] for edge in ebic_path(rows).graph.support()]
    [(0, 1)]
    """
    Q, units = _in_unit_size(rows)
    K, r = Q.shape
    check_number("gamma", gamma, low=0, high=1)
    names = list(range(K)) if tasks is None else list(tasks)
    if len(names) != K:
        raise ParameterError(f"tasks holds {len(names)} names; give one for each of the {K} tasks of rows.")
    S = row_moment(Q, check_choice("correlation", correlation, CORRELATIONS))
    e = _read_floors(floors, S, units)
    path = _read_path(lambdas, lambda_max(S, price_edges(S, e)), n_points)
    # The units of a task add the same constant to the criterion of all graphs.
    shift = 2 * r * float(np.sum(np.log(units)))
    scores, graphs = [], []
    for precision in graph_path(S, e, path):
        restricted = graphical_lasso(S, 0.0, zeros=precision == 0, diagonal_penalty=e)
        edges = np.count_nonzero(np.triu(precision, 1))
        fit = float(np.vdot(S + np.diag(e), restricted.precision)) - restricted.log_determinant
        scores.append(shift + r * fit + edges * np.log(r) + 4 * edges * gamma * np.log(K))
        graphs.append(TaskGraph.from_precision(np.where(precision != 0, restricted.precision, 0.0), tasks=names))
    return EBICPath(path, np.asarray(scores), graphs, int(np.argmin(scores)))


def _in_unit_size(rows: ArrayLike) -> tuple[Array, Array]:
    """Divide each task's row by its root mean square, so that squares do not overflow; return both."""
    Q = numeric(rows, "rows")
    if Q.ndim != 2 or Q.shape[0] < 2 or Q.shape[1] < 2 or not np.all(np.isfinite(Q)):
        raise DataError(f"rows have shape {Q.shape}; give finite numbers of shape (K, r), at least two tasks and rows.")
    _, exponents = np.frexp(np.abs(Q).max(axis=1))
    Q = np.ldexp(Q, -exponents[:, None])
    sizes = np.sqrt(np.mean(Q**2, axis=1))
    sizes[sizes == 0] = 1.0
    return Q / sizes[:, None], np.ldexp(sizes, exponents)


def _read_floors(floors: ArrayLike | None, S: Array, units: Array) -> Array:
    """Return the variances that are added to the diagonal, in units of the scaled rows."""
    variances, K = np.diagonal(S), len(S)
    e = 0.01 * variances
    if floors is not None:
        e = check_array("floors", floors, (), (K,), low=0) / units / units
    if np.any(variances + e <= 0):
        raise DataError(
            f"The row of task {int(np.argmin(variances + e))} is all zeros, so that it has no correlations with other "
            "tasks; leave the task out, or give floors above 0."
        )
    return e


def _read_path(lambdas: ArrayLike | None, limit: float, n_points: int) -> Array:
    """Return the falling path of λ."""
    if lambdas is None:
        return limit * np.geomspace(0.999, 0.05, check_whole_number("n_points", n_points, low=1))
    path = np.sort(np.ravel(check_array("lambdas", lambdas, low=0, remedy="λ is on the correlation scale (0 to 1).")))
    if len(path) == 0:
        raise ParameterError("lambdas is empty; give at least one value, or None for the default path.")
    return path[::-1]
