"""Synthetic tasks whose truth is known: coefficients, intercepts and task graph, curves, or a climate ensemble.

The truth, the training rows and the test rows come from three independent random streams of one seed: another
``n_samples`` changes neither the truth nor the test set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Bunch

from mssl._typing import Array, Seed
from mssl._validation import check_array, check_choice, check_number, check_whole_number, refused
from mssl.datasets._layout import Part, bunch, by_month, calendar_from, made, names
from mssl.exceptions import LayoutError, ParameterError
from mssl.structures.laplacian import great_circle

PAPER_CLUSTERS = ((0, 1, 2, 3), (4, 5, 6, 7, 8, 9))


def cluster_graph(
    clusters: Sequence[Sequence[int]], n_tasks: int, *, kind: str, correlation: float, spread: float = 0.0
) -> dict[str, np.ndarray]:
    """Tasks in clusters that do not overlap; a task in none of them is an outlier.

    Returns
    -------
    dict
        ``covariance`` (K, K), with a block per cluster; outliers have variance one and no correlation. ``precision``,
        its inverse, with exact zeros where the graph has no edge. ``adjacency``, the edges: all pairs inside a cluster,
        or neighbours only for chains. ``clusters`` (K,), the cluster of every task, −1 for outliers.
    """
    labels, covariance, edges = np.full(n_tasks, -1), np.eye(n_tasks), np.eye(n_tasks, dtype=bool)
    for number, members in enumerate(clusters):
        for task in members:
            if not 0 <= task < n_tasks:
                raise refused("clusters", clusters, f"task {task} is none of 0 … {n_tasks - 1}")
            if labels[task] >= 0:
                raise refused("clusters", clusters, f"task {task} is named twice, but may be in one cluster only")
            labels[task] = number
        block, position = np.ix_(members, members), np.arange(len(members))
        apart = np.abs(position[:, None] - position).astype(float)
        edges[block] = apart <= 1 if kind == "chain" else True
        if kind in ("centres", "sparse"):
            covariance[block] = 1.0 + spread**2 * (apart == 0)
        else:
            covariance[block] = correlation ** (apart if kind == "chain" else apart > 0)
    smallest = float(np.linalg.eigvalsh(covariance)[0])
    if not smallest > 1e-12 * float(np.trace(covariance)) / n_tasks:
        raise ParameterError(
            f"The smallest eigenvalue of the tasks' covariance is {smallest:.2g}; it has to be positive definite. "
            "Choose spread > 0, and a correlation below 1 and above −1/(m − 1) for clusters of m tasks "
            "(above −1 for chains)."
        )
    inverse = np.linalg.inv(covariance)
    precision = np.where(edges, (inverse + inverse.T) / 2, 0.0)
    adjacency = (precision != 0) & ~np.eye(n_tasks, dtype=bool)
    return {"covariance": covariance, "precision": precision, "adjacency": adjacency, "clusters": labels}


def _scaled(graph: dict[str, np.ndarray], scale: float) -> dict[str, np.ndarray]:
    """The graph of tasks whose covariance is multiplied by a scale."""
    return graph | {"covariance": scale * graph["covariance"], "precision": graph["precision"] / scale}


def sample_sizes(name: str, value: int | Sequence[int], n_tasks: int) -> list[int]:
    """Rows of each task, from one number or one for each."""
    if np.ndim(value) == 0:
        return [check_whole_number(name, value, low=1)] * n_tasks
    sizes = [check_whole_number(f"{name}[{task}]", size, low=1) for task, size in enumerate(np.asarray(value).tolist())]
    if len(sizes) != n_tasks:
        raise refused(name, value, f"give one number, or one for each of the {n_tasks} tasks")
    return sizes


def _coefficients(
    rng: np.random.Generator, kind: str, graph: dict[str, np.ndarray], n_features: int, spread: float, n_nonzero: int
) -> Array:
    """(K, d) coefficients whose feature-wise covariance is that of the graph, before the amplitude."""
    labels = graph["clusters"]
    coef = rng.standard_normal((len(labels), n_features))
    if kind in ("equicorrelated", "chain"):
        return np.linalg.cholesky(graph["covariance"]) @ coef
    groups = [labels == cluster for cluster in range(labels.max() + 1)]
    for members in groups:
        centre = rng.standard_normal(n_features)
        coef[members] = centre + spread * coef[members]
    if kind == "sparse":
        for members in [*groups, *np.eye(len(coef), dtype=bool)[labels < 0]]:
            silent = rng.permutation(n_features)[n_nonzero:]
            coef[np.ix_(members, silent)] = 0.0
    return coef


def _respond(rng: np.random.Generator, predictor: np.ndarray, family: str, noise: float) -> np.ndarray:
    if family == "binary":
        return (rng.random(predictor.shape) < 1 / (1 + np.exp(-predictor))).astype(int)
    if family == "poisson":
        largest = np.floor(np.log(np.iinfo(np.int64).max))  # what NumPy draws
        if predictor.max() > largest:
            raise ParameterError(
                f"The largest log rate of the counts is {predictor.max():.3g}; at most {largest:g} "
                "is allowed. Choose a smaller amplitude (about 1/√n_features) or intercept_scale."
            )
        return rng.poisson(np.exp(predictor))
    return predictor + noise * rng.standard_normal(predictor.shape)


def _designs(rng: np.random.Generator, sizes: list[int], n_features: int, *, shared: bool) -> list[Array]:
    """Standard normal features of each task, or one X for all tasks."""
    if shared:
        return [rng.standard_normal((sizes[0], n_features))] * len(sizes)
    return [rng.standard_normal((size, n_features)) for size in sizes]


def make_clustered_tasks(
    kind: str = "centres",
    *,
    n_tasks: int = 13,
    n_features: int = 30,
    n_samples: int | Sequence[int] = 60,
    n_test: int | Sequence[int] = 40,
    clusters: Sequence[Sequence[int]] = PAPER_CLUSTERS,
    spread: float = 0.3,
    correlation: float = 0.8,
    n_nonzero: int = 8,
    amplitude: float = 1.0,
    noise: ArrayLike = 1.0,
    shared_design: bool = True,
    family: str = "gaussian",
    intercept_scale: float = 0.0,
    layout: str = "long",
    as_frame: bool = False,
    random_state: Seed = None,
) -> Bunch:
    r"""Tasks in clusters, with outliers, whose true task graph is known.

    The default is the synthetic problem of the paper: 13 tasks, 60 training and 40 test rows, 30 covariates,
    unit noise, tasks 1–4 and 5–10 in two clusters and three outliers. The paper does not say how related
    tasks were drawn, so there are four kinds. Every feature's K coefficients are a draw of zero mean and
    covariance :math:`a^2 \Sigma`, with a the amplitude, independent over clusters and features:

    - ``"centres"``: :math:`w_k = c + \text{spread} \cdot N(0, I)` with a centre :math:`c \sim N(0, I)` per
      cluster, so :math:`\Sigma_{kk} = 1 + \text{spread}^2` and :math:`\Sigma_{kl} = 1` inside; outliers are
      :math:`N(0, I)`;
    - ``"equicorrelated"``: Gaussian, :math:`\Sigma_{kl}` = correlation inside a cluster, unit variances;
    - ``"chain"``: Gaussian, :math:`\Sigma_{kl} = \text{correlation}^{|k-l|}` along each cluster, whose
      precision is tridiagonal: only neighbours are joined;
    - ``"sparse"``: as ``"centres"``, on ``n_nonzero`` features drawn per cluster (per task for outliers).

    Parameters
    ----------
    kind : {"centres", "equicorrelated", "chain", "sparse"}
    n_tasks, n_features : int
    n_samples, n_test : int or sequence of K int
        Rows per task for training and for testing.
    clusters : sequence of sequences of int
        Task numbers from 0; tasks in no cluster are outliers.
    spread : float
        Deviation of a task from its centre ("centres", "sparse").
    correlation : float
        Correlation inside clusters ("equicorrelated", "chain").
    n_nonzero : int
        Features in use ("sparse").
    amplitude : float
        Multiplies all coefficients.
    noise : float or array of shape (K,)
        Standard deviation of Gaussian noise; not used by the other families.
    shared_design : bool
        One X for all tasks; False draws a standard normal X for each.
    family : {"gaussian", "binary", "poisson"}
        Real targets; labels 0 and 1 with the logistic link; counts with the log link.
    intercept_scale : float
        Intercepts are :math:`N(0, \text{intercept\_scale}^2)`.
    layout : {"long", "shared", "aligned"}
        "shared" needs ``shared_design=True``, "aligned" equal sizes.
    as_frame : bool
        pandas tables; a long X has the column ``task``.
    random_state : None, int or numpy.random.Generator

    Returns
    -------
    sklearn.utils.Bunch
        ``X, y, tasks, X_test, y_test, tasks_test`` in the layout (``tasks`` is None outside the long one),
        ``coef`` (K, d), ``intercept`` (K,), ``covariance`` and ``precision`` (K, K) over tasks,
        ``adjacency`` (K, K) bool, ``clusters`` (K,) with −1 for outliers, ``task_names``, ``feature_names``,
        ``target_names`` (binary), ``DESCR``, ``licence``, ``source``.

    References
    ----------
    Gonçalves, Das, Chatterjee, Sivakumar, Von Zuben, Banerjee (2014), Multi-task sparse structure learning,
    CIKM, 451–460.
    https://doi.org/10.1145/2661829.2662091

    Examples
    --------
    >>> from mssl.datasets import make_clustered_tasks
    >>> problem = make_clustered_tasks(random_state=0)
    >>> problem.X.shape, problem.y.shape, problem.coef.shape
    ((780, 30), (780,), (13, 30))
    >>> int(problem.adjacency.sum()) // 2
    21
    >>> make_clustered_tasks(family="binary", layout="shared", random_state=0).y.shape
    (60, 13)
    """
    check_choice("kind", kind, ("centres", "equicorrelated", "chain", "sparse"))
    check_choice("family", family, ("gaussian", "binary", "poisson"))
    n_tasks = check_whole_number("n_tasks", n_tasks, low=1)
    n_features = check_whole_number("n_features", n_features, low=1)
    train, test = sample_sizes("n_samples", n_samples, n_tasks), sample_sizes("n_test", n_test, n_tasks)
    if shared_design and (len(set(train)) > 1 or len(set(test)) > 1):
        raise LayoutError(
            "shared_design is True, and n_samples or n_test differ among tasks; give one number for each of the two. "
            "Use shared_design=False for tasks of different size."
        )
    if kind == "sparse":
        check_whole_number("n_nonzero", n_nonzero, low=1, high=n_features)
    check_number("amplitude", amplitude, above=0)
    deviations = np.broadcast_to(check_array("noise", noise, (), (1,), (n_tasks,), low=0), n_tasks)

    graph = cluster_graph(clusters, n_tasks, kind=kind, correlation=correlation, spread=spread)
    truth, training, testing = np.random.default_rng(random_state).spawn(3)
    coef = amplitude * _coefficients(truth, kind, graph, n_features, spread, n_nonzero)
    intercept = intercept_scale * truth.standard_normal(n_tasks)
    # A feature is in a support of m of d features with probability m/d, which thins the covariance.
    scale = amplitude**2 * (n_nonzero / n_features if kind == "sparse" else 1.0)
    labels = np.array([0, 1]) if family == "binary" else None
    known = {**_scaled(graph, scale), "coef": coef, "intercept": intercept, "target_names": labels}
    text = f"{n_tasks} tasks, {n_features} features, {len(clusters)} clusters ({kind}), {family} targets."

    def part(rng: np.random.Generator, sizes: list[int]) -> Part:
        designs = _designs(rng, sizes, n_features, shared=shared_design)
        fits = [X @ w + b for X, w, b in zip(designs, coef, intercept, strict=True)]
        return designs, [_respond(rng, fit, family, size) for fit, size in zip(fits, deviations, strict=True)]

    parts = part(training, train), part(testing, test)
    return bunch(made("make_clustered_tasks"), *parts, text=text, known=known, layout=layout, as_frame=as_frame)


def make_residual_graph(
    *,
    kind: str = "equicorrelated",
    n_tasks: int = 13,
    n_features: int = 30,
    n_samples: int = 60,
    n_test: int = 200,
    clusters: Sequence[Sequence[int]] = PAPER_CLUSTERS,
    correlation: float = 0.8,
    density: float = 0.3,
    noise: float = 1.0,
    shared_design: bool = True,
    intercept_scale: float = 0.0,
    layout: str = "shared",
    as_frame: bool = False,
    random_state: Seed = None,
) -> Bunch:
    r"""Unrelated sparse tasks whose residuals are correlated: the ground of r-MSSL.

    .. math:: Y_{ik} = x_{ik}^\top w_k + b_k + E_{ik}, \qquad E_{i\cdot} \sim N(0, \text{noise}^2 \Sigma)

    with unit variances in Σ, and a share ``density`` of the K·d coefficients N(0, 1), the others 0.

    Parameters
    ----------
    kind : {"equicorrelated", "chain"}
        Residuals of a cluster all correlated alike, or as a chain (see :func:`make_clustered_tasks`).
    n_tasks, n_features, n_samples, n_test : int
    clusters : sequence of sequences of int
        Task numbers from 0; tasks in no cluster have residuals of their own.
    correlation : float
        Correlation of residuals inside clusters.
    density : float
        Share of coefficients that are not zero, in [0, 1].
    noise : float
        Standard deviation of the residuals.
    shared_design : bool
        One X for all tasks, or an own standard normal one for each (rows still belong together).
    intercept_scale : float
        Standard deviation of the intercepts.
    layout : {"shared", "aligned", "long"}
        "shared" needs ``shared_design=True``.
    as_frame : bool
        pandas tables (not for the aligned layout).
    random_state : None, int or numpy.random.Generator

    Returns
    -------
    sklearn.utils.Bunch
        As :func:`make_clustered_tasks`; ``covariance``, ``precision`` and ``adjacency`` are the residuals'.

    References
    ----------
    Rothman, Levina, Zhu (2010), Sparse multivariate regression with covariance estimation, Journal of
    Computational and Graphical Statistics 19, 947–962. https://doi.org/10.1198/jcgs.2010.09188

    Examples
    --------
    >>> from mssl.datasets import make_residual_graph
    >>> problem = make_residual_graph(random_state=0)
    >>> problem.X.shape, problem.y.shape
    ((60, 30), (60, 13))
    >>> int((problem.coef != 0).sum())
    117
    """
    check_choice("kind", kind, ("equicorrelated", "chain"))
    sizes = {"n_samples": n_samples, "n_test": n_test, "n_tasks": n_tasks, "n_features": n_features}
    for name, value in sizes.items():
        check_whole_number(name, value, low=1)
    check_number("density", density, low=0, high=1)
    check_number("noise", noise, above=0)

    graph = cluster_graph(clusters, n_tasks, kind=kind, correlation=correlation)
    truth, training, testing = np.random.default_rng(random_state).spawn(3)
    coef = np.zeros((n_tasks, n_features))
    chosen = truth.permutation(coef.size)[: round(density * coef.size)]
    coef.flat[chosen] = truth.standard_normal(chosen.size)
    intercept = intercept_scale * truth.standard_normal(n_tasks)
    known = _scaled(graph, noise**2) | {"coef": coef, "intercept": intercept}
    root = np.linalg.cholesky(known["covariance"])

    def part(rng: np.random.Generator, size: int) -> Part:
        designs = _designs(rng, [size] * n_tasks, n_features, shared=shared_design)
        fits = np.stack([X @ w + b for X, w, b in zip(designs, coef, intercept, strict=True)])
        rng.standard_normal((n_tasks, size))  # Earlier versions drew these numbers too; a seed keeps its data.
        return designs, list(fits + root @ rng.standard_normal((n_tasks, size)))

    text = f"{n_tasks} tasks, {n_features} features, residuals in {len(clusters)} clusters ({kind})."
    parts = part(training, n_samples), part(testing, n_test)
    return bunch(made("make_residual_graph"), *parts, text=text, known=known, layout=layout, as_frame=as_frame)


# The components' means and variances are computed from this many rows. More rows cost time and change them little.
_REFERENCE = 20_000


def _friedman(X: Array) -> tuple[Array, Array]:
    """The two parts of Friedman's circuit: resistance and reactance."""
    frequency = (40.0 + 520.0 * X[:, 1]) * np.pi
    return 100.0 * X[:, 0], frequency * X[:, 2] - 1.0 / (frequency * (1.0 + 10.0 * X[:, 3]))


def _additive(X: Array) -> list[Array]:
    return [np.sin(2 * np.pi * X[:, 0]), (X[:, 1] - 0.5) ** 2, np.exp(3.0 * X[:, 2]), np.abs(X[:, 3] - 0.4), X[:, 4]]


# The number of columns that the components need, the components, and their weights in the part that tasks share.
_COMPONENTS: dict[str, tuple[int, Callable[[Array], Sequence[Array]], Sequence[float]]] = {
    "friedman1": (
        5,
        lambda X: [np.sin(np.pi * X[:, 0] * X[:, 1]), (X[:, 2] - 0.5) ** 2, X[:, 3], X[:, 4]],
        (10.0 * 0.28, 20.0 * 0.0745, 10.0 * 0.289, 5.0 * 0.289),
    ),
    "friedman2": (4, lambda X: [np.hypot(*_friedman(X)), *X.T[:4]], (1.0, 0.0, 0.0, 0.0, 0.0)),
    "friedman3": (4, lambda X: [np.arctan2(*_friedman(X)[::-1]), *X.T[:4]], (1.0, 0.0, 0.0, 0.0, 0.0)),
    "additive": (5, _additive, (1.0, 1.0, 1.0, 1.0, 1.0)),
    "step": (3, lambda X: list((X[:, :3] > (0.5, 0.3, 0.7)).T.astype(float)), (1.0, 1.0, 1.0)),
    "linear": (5, lambda X: list(X.T[:5]), (1.0, -1.0, 0.5, 0.5, -0.25)),
    "noise": (1, lambda X: [], ()),
}
CURVES = tuple(_COMPONENTS)


def make_curved_tasks(
    kind: str = "additive",
    *,
    n_tasks: int = 10,
    n_features: int = 10,
    n_samples: int | Sequence[int] = 50,
    n_test: int | Sequence[int] = 200,
    deviation: float = 0.2,
    noise: float = 0.5,
    level: float = 1.0,
    layout: str = "long",
    as_frame: bool = False,
    random_state: Seed = None,
) -> Bunch:
    r"""Tasks whose targets are curves of the columns: one shape for all tasks, and deviations of each.

    .. math:: y_{ki} = b_k + \sum_j (c_j + \text{deviation} \cdot s\, \varepsilon_{kj})\, \varphi_j(x_{ki})
              + \text{noise} \cdot e_{ki}, \qquad \varepsilon, e \sim N(0, 1), \quad b_k \sim N(0, \text{level}^2)

    Columns are uniform on (0, 1), and the components φ have mean 0 and variance 1. The shared part has a variance of
    about 1, s is the root mean square of the c that are not zero.

    - ``"friedman1"``: sin(π x₁x₂), (x₃ − ½)², x₄, x₅, in Friedman's proportions;
    - ``"friedman2"``, ``"friedman3"``: impedance and phase of a circuit, with straight lines as deviations;
    - ``"additive"``: a sine, a parabola, an exponential, a kink and a line, of one column each;
    - ``"step"``: three jumps; ``"linear"``: five lines; ``"noise"``: nothing.

    Parameters
    ----------
    kind : {"friedman1", "friedman2", "friedman3", "additive", "step", "linear", "noise"}
    n_tasks : int
    n_features : int
        Columns; those that no component uses are noise.
    n_samples, n_test : int or sequence of K int
        Rows per task for training and for testing.
    deviation : float
        How much tasks differ.
    noise : float
        Standard deviation of the noise.
    level : float
        Standard deviation of the tasks' intercepts.
    layout : {"long", "aligned"}
        "aligned" needs equal sizes.
    as_frame : bool
        pandas tables; a long X has the column ``task``.
    random_state : None, int or numpy.random.Generator

    Returns
    -------
    sklearn.utils.Bunch
        ``X, y, tasks, X_test, y_test, tasks_test`` in the layout, ``mean_test`` (``y_test`` without its noise),
        ``weights`` (K, number of components), ``task_names``, ``feature_names``, ``DESCR``, ``licence``, ``source``.

    References
    ----------
    Friedman (1991), Multivariate adaptive regression splines, Annals of Statistics 19, 1–67.
    https://doi.org/10.1214/aos/1176347963

    Examples
    --------
    >>> from mssl.datasets import make_curved_tasks
    >>> problem = make_curved_tasks("friedman1", random_state=0)
    >>> problem.X.shape, problem.X_test.shape, problem.weights.shape
    ((500, 10), (2000, 10), (10, 4))
    """
    check_choice("kind", kind, CURVES)
    least, components, sizes = _COMPONENTS[kind]
    n_tasks = check_whole_number("n_tasks", n_tasks, low=1)
    n_features = check_whole_number("n_features", n_features, low=least)
    train, test = sample_sizes("n_samples", n_samples, n_tasks), sample_sizes("n_test", n_test, n_tasks)
    for name, value in (("deviation", deviation), ("noise", noise), ("level", level)):
        check_number(name, value, low=0)

    shared = np.asarray(sizes) / np.linalg.norm(sizes)
    size = 1.0 / np.sqrt(max(int(np.count_nonzero(shared)), 1))
    truth, training, testing = np.random.default_rng(random_state).spawn(3)
    weights = shared + deviation * size * truth.standard_normal((n_tasks, len(shared)))
    intercept = level * truth.standard_normal(n_tasks)

    def curves(X: Array) -> Array:
        return np.reshape(components(X), (len(shared), len(X)))

    reference = curves(np.random.default_rng(0).uniform(size=(_REFERENCE, n_features)))
    centre, spread = reference.mean(axis=1, keepdims=True), reference.std(axis=1, keepdims=True)

    def draw(rng: np.random.Generator, sizes: list[int]) -> tuple[list[Array], list[Array], list[Array]]:
        designs = [rng.uniform(size=(rows, n_features)) for rows in sizes]
        fits = [b + w @ ((curves(X) - centre) / spread) for b, w, X in zip(intercept, weights, designs, strict=True)]
        return designs, [fit + noise * rng.standard_normal(len(fit)) for fit in fits], fits

    designs, targets, _ = draw(training, train)
    designs_test, targets_test, fits = draw(testing, test)
    means = np.concatenate(fits) if layout == "long" else np.stack(fits, axis=1)
    known = {"mean_test": means, "weights": weights, "intercept": intercept}
    text = f"{n_tasks} tasks, {n_features} columns, curves of kind {kind}."
    parts: tuple[Part, Part] = (designs, targets), (designs_test, targets_test)
    return bunch(made("make_curved_tasks"), *parts, text=text, known=known, layout=layout, as_frame=as_frame)


def grid_adjacency(n_lat: int, n_lon: int) -> np.ndarray:
    """Four-neighbour graph of a latitude × longitude grid, cells numbered row by row."""
    down, along = (np.eye(n, k=1) + np.eye(n, k=-1) for n in (n_lat, n_lon))
    return (np.kron(down, np.eye(n_lon)) + np.kron(np.eye(n_lat), along)).astype(bool)


def laplacian_precision(weights: np.ndarray) -> np.ndarray:
    """Precision I + L of a weighted graph, rescaled so that every variance is one.

    With L the graph Laplacian, I + L is positive definite and has the graph's zero pattern, which the
    rescaling by the square roots of the variances keeps.
    """
    precision = np.eye(len(weights)) + np.diag(weights.sum(axis=1)) - weights
    deviation = np.sqrt(np.diag(np.linalg.inv(precision)))
    return precision * np.outer(deviation, deviation)


def _grid(n_lat: int, n_lon: int, box: tuple[float, float, float, float]) -> np.ndarray:
    south, north, west, east = box
    if not (-90 <= south <= north <= 90 and west <= east <= west + 360):
        allowed = "give (south, north, west, east) in degrees, −90 ≤ south ≤ north ≤ 90 and west ≤ east ≤ west + 360"
        raise refused("box", box, allowed)
    latitudes, longitudes = np.meshgrid(np.linspace(south, north, n_lat), np.linspace(west, east, n_lon), indexing="ij")
    return np.column_stack([latitudes.ravel(), longitudes.ravel()])


def _long_range(rng: np.random.Generator, coordinates: np.ndarray, neighbours: np.ndarray, n_links: int) -> np.ndarray:
    """(n_links, 2) pairs of cells drawn from the more distant half of all pairs that are no neighbours."""
    left, right = np.nonzero(np.triu(~neighbours, k=1))
    distance = great_circle(coordinates)[left, right]
    far = np.flatnonzero(distance >= np.median(distance)) if distance.size else np.zeros(0, dtype=int)
    check_whole_number("n_links", n_links, low=0, high=far.size, remedy="The grid has so many distant pairs.")
    chosen = np.sort(rng.permutation(far)[:n_links])
    return np.column_stack([left[chosen], right[chosen]])


def make_climate_like(
    *,
    n_lat: int = 5,
    n_lon: int = 5,
    n_members: int = 10,
    n_samples: int = 600,
    n_test: int = 120,
    box: tuple[float, float, float, float] = (-50.0, 10.0, -80.0, -35.0),
    n_links: int = 4,
    coupling: float = 1.0,
    noise: float = 0.5,
    bias: float = 1.5,
    variability: float = 1.0,
    trend: float = 0.2,
    first_month: str = "1901-01",
    layout: str = "aligned",
    as_frame: bool = False,
    random_state: Seed = None,
) -> Bunch:
    r"""Ensemble of climate models on a grid, with a known combination and a known graph of residuals.

    Member m in cell k and month t has the cell's mean and seasonal cycle (colder and wider towards the
    poles, reversed in the south) times a gain near one, a trend, a bias of member and cell, and weather of
    its own.
    The observation combines the members, with weights around 1/M that are alike in neighbouring cells:

    .. math:: y_{tk} = x_{tk}^\top w_k + b_k + e_{tk}, \qquad e_{t\cdot} \sim N(0, \text{noise}^2 \Omega^{-1})

    where Ω is I + coupling · L rescaled to unit variances and L is the Laplacian of the four-neighbour grid
    with ``n_links`` links between distant cells. The test months follow the training months.

    Parameters
    ----------
    n_lat, n_lon, n_members : int
        Grid and number of models; K = n_lat · n_lon tasks.
    n_samples, n_test : int
        Months for training and testing.
    box : (south, north, west, east)
        In degrees.
    n_links : int
        Links between distant cells.
    coupling : float
        Weight of an edge, at least 0; stronger means more correlated residuals.
    noise, bias, variability : float
        Standard deviations in °C of residuals, member biases and members' own weather.
    trend : float
        Warming in °C per ten years.
    first_month : str
        "YYYY-MM".
    layout : {"aligned", "long"}
    as_frame : bool
        pandas tables (long layout only).
    random_state : None, int or numpy.random.Generator

    Returns
    -------
    sklearn.utils.Bunch
        As :func:`load_climate`, with the test part ``X_test, y_test, tasks_test, months_test, calendar_test``,
        and the truth: ``coef`` (K, M), ``intercept`` (K,), ``precision``, ``covariance`` and ``adjacency``
        of the residuals, ``links`` (n_links, 2).

    Examples
    --------
    >>> from mssl.datasets import make_climate_like
    >>> world = make_climate_like(random_state=0)
    >>> world.X.shape, world.y.shape, world.coordinates.shape, world.links.shape
    ((600, 25, 10), (600, 25), (25, 2), (4, 2))
    """
    sizes = {"n_lat": n_lat, "n_lon": n_lon, "n_members": n_members, "n_samples": n_samples, "n_test": n_test}
    for name, value in sizes.items():
        check_whole_number(name, value, low=1)
    check_number("noise", noise, above=0)
    for name, deviation in {"coupling": coupling, "bias": bias, "variability": variability}.items():
        check_number(name, deviation, low=0)
    truth, training, testing = np.random.default_rng(random_state).spawn(3)
    coordinates, neighbours = _grid(n_lat, n_lon, box), grid_adjacency(n_lat, n_lon)
    links = _long_range(truth, coordinates, neighbours, n_links)
    joined = neighbours.copy()
    joined[links[:, 0], links[:, 1]] = joined[links[:, 1], links[:, 0]] = True
    precision = laplacian_precision(coupling * joined) / noise**2
    covariance = np.linalg.inv(precision)
    root = np.linalg.cholesky(covariance)
    latitude, K = coordinates[:, 0], len(coordinates)
    mean, amplitude = 28 - 0.45 * np.abs(latitude), np.sign(latitude) * (1 + 0.2 * np.abs(latitude))
    gain = 1 + 0.05 * truth.standard_normal(n_members)
    biases = bias * (truth.standard_normal(n_members) + 0.5 * truth.standard_normal((K, n_members)))
    # Weights that vary smoothly over the grid: the residuals' graph relates the coefficients too.
    coef = (1 + 0.5 * (root @ truth.standard_normal((K, n_members)) / noise)) / n_members
    # The observation has the cell's mean, so the members' biases have to be corrected.
    intercept = mean - (coef * (mean[:, None] * gain + biases)).sum(axis=1)
    months = calendar_from(first_month, n_samples + n_test)
    season = -np.cos(2 * np.pi * (months.astype(int) % 12) / 12)[:, None] * amplitude
    warming = trend * np.arange(len(months))[:, None, None] / 120
    forced = (mean + season)[:, :, None] * gain + warming + biases

    def part(rng: np.random.Generator, rows: slice) -> Part:
        X = forced[rows] + variability * rng.standard_normal(forced[rows].shape)
        residuals = rng.standard_normal(X.shape[:2]) @ root.T
        return by_month(X, np.einsum("nkm,km->nk", X, coef) + intercept + residuals, months[rows])

    members = names("member", n_members)
    known = {"coef": coef, "intercept": intercept, "covariance": covariance, "precision": precision}
    known |= {"adjacency": joined & (coupling > 0), "links": links, "coordinates": coordinates, "member_names": members}
    text = f"{n_lat} × {n_lon} grid cells, {n_members} members, {n_links} long-range links, °C."
    return bunch(
        made("make_climate_like", "observed"),
        part(training, slice(n_samples)),
        part(testing, slice(n_samples, None)),
        text=text,
        layout=layout,
        as_frame=as_frame,
        task_names=names("cell", K),
        feature_names=members,
        known=known,
    )
