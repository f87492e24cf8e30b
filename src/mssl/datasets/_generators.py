"""Synthetic tasks whose coefficients, intercepts and task graph are known.

The coefficients, the training rows and the test rows come from three independent random streams of one seed:
another ``n_samples`` changes neither the truth nor the test set.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Bunch

from mssl._typing import Array, Seed
from mssl._validation import check_array, check_choice, check_number, check_whole_number, refused
from mssl.datasets._graphs import PAPER_CLUSTERS, ClusterGraph
from mssl.datasets._layout import bunch, made, names
from mssl.exceptions import LayoutError, ParameterError

KINDS = ("centres", "equicorrelated", "chain", "sparse")
FAMILIES = ("gaussian", "binary", "poisson")
_LARGEST_LOG_RATE = 40.0  # of counts: NumPy draws them as 64-bit integers, which end near exp(43)


def sample_sizes(name: str, value: int | Sequence[int], n_tasks: int) -> list[int]:
    """Rows of each task, from one number or one for each."""
    if np.ndim(value) == 0:
        return [check_whole_number(name, value, low=1)] * n_tasks
    sizes = [check_whole_number(f"{name}[{task}]", size, low=1) for task, size in enumerate(np.asarray(value).tolist())]
    if len(sizes) != n_tasks:
        raise refused(name, value, f"give one number, or one for each of the {n_tasks} tasks")
    return sizes


def _coefficients(
    rng: np.random.Generator, kind: str, graph: ClusterGraph, n_features: int, spread: float, n_nonzero: int
) -> Array:
    """(K, d) coefficients whose feature-wise covariance is that of the graph, before the amplitude."""
    coef = rng.standard_normal((len(graph.labels), n_features))
    if kind in ("equicorrelated", "chain"):
        return np.linalg.cholesky(graph.covariance) @ coef
    groups = [graph.labels == cluster for cluster in range(graph.labels.max() + 1)]
    for members in groups:
        centre = rng.standard_normal(n_features)
        coef[members] = centre + spread * coef[members]
    if kind == "sparse":
        for members in [*groups, *np.eye(len(coef), dtype=bool)[graph.labels < 0]]:
            silent = rng.permutation(n_features)[n_nonzero:]
            coef[np.ix_(members, silent)] = 0.0
    return coef


def _respond(rng: np.random.Generator, predictor: np.ndarray, family: str, noise: float) -> np.ndarray:
    if family == "binary":
        return (rng.random(predictor.shape) < 1 / (1 + np.exp(-predictor))).astype(int)
    if family == "poisson":
        if predictor.max() > _LARGEST_LOG_RATE:
            raise ParameterError(
                f"The largest log rate of the counts is {predictor.max():.3g}; at most {_LARGEST_LOG_RATE:g} "
                "is allowed. Choose a smaller amplitude (about 1/√n_features) or intercept_scale."
            )
        return rng.poisson(np.exp(predictor))
    return predictor + noise * rng.standard_normal(predictor.shape)


def _draw(
    rng: np.random.Generator,
    sizes: list[int],
    coef: Array,
    intercept: Array,
    *,
    shared_design: bool,
    family: str = "gaussian",
    noise: Array | None = None,
) -> tuple[list[Array], list[np.ndarray]]:
    """One design and one target of each task; without noise the targets are the linear predictor."""
    n_tasks, n_features = coef.shape
    if shared_design:
        designs = [rng.standard_normal((sizes[0], n_features))] * n_tasks
    else:
        designs = [rng.standard_normal((size, n_features)) for size in sizes]
    noise = np.zeros(n_tasks) if noise is None else noise
    fits = [X @ w + b for X, w, b in zip(designs, coef, intercept, strict=True)]
    return designs, [_respond(rng, fit, family, size) for fit, size in zip(fits, noise, strict=True)]


def _known(graph: ClusterGraph, scale: float) -> dict[str, np.ndarray]:
    """What is known of tasks whose covariance is that of the graph, times a scale."""
    precision = graph.precision() / scale
    adjacency = (precision != 0) & ~np.eye(len(precision), dtype=bool)
    covariance = scale * graph.covariance
    return {"covariance": covariance, "precision": precision, "adjacency": adjacency, "clusters": graph.labels}


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
    check_choice("kind", kind, KINDS)
    check_choice("family", family, FAMILIES)
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

    graph = ClusterGraph.build(clusters, n_tasks, kind=kind, correlation=correlation, spread=spread)
    # A feature is in a support of m of d features with probability m/d, which thins the covariance.
    known = _known(graph, amplitude**2 * (n_nonzero / n_features if kind == "sparse" else 1.0))
    truth, training, testing = np.random.default_rng(random_state).spawn(3)
    coef = amplitude * _coefficients(truth, kind, graph, n_features, spread, n_nonzero)
    intercept = intercept_scale * truth.standard_normal(n_tasks)
    labels = np.array([0, 1]) if family == "binary" else None
    law = partial(_draw, coef=coef, intercept=intercept, shared_design=shared_design, family=family, noise=deviations)
    return bunch(
        made("make_clustered_tasks"),
        law(training, train),
        law(testing, test),
        text=f"{n_tasks} tasks, {n_features} features, {len(clusters)} clusters ({kind}), {family} targets.",
        layout=layout,
        as_frame=as_frame,
        task_names=names("task", n_tasks),
        feature_names=names("x", n_features),
        known={**known, "coef": coef, "intercept": intercept, "target_names": labels},
    )


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

    known = _known(ClusterGraph.build(clusters, n_tasks, kind=kind, correlation=correlation), noise**2)
    truth, training, testing = np.random.default_rng(random_state).spawn(3)
    coef = np.zeros((n_tasks, n_features))
    chosen = truth.permutation(coef.size)[: round(density * coef.size)]
    coef.flat[chosen] = truth.standard_normal(chosen.size)
    intercept = intercept_scale * truth.standard_normal(n_tasks)
    root = np.linalg.cholesky(known["covariance"])

    def part(rng: np.random.Generator, size: int) -> tuple[list[Array], list[Array]]:
        designs, fits = _draw(rng, [size] * n_tasks, coef, intercept, shared_design=shared_design)
        return designs, list(np.stack(fits) + root @ rng.standard_normal((n_tasks, size)))

    return bunch(
        made("make_residual_graph"),
        part(training, n_samples),
        part(testing, n_test),
        text=f"{n_tasks} tasks, {n_features} features, residuals in {len(clusters)} clusters ({kind}).",
        layout=layout,
        as_frame=as_frame,
        task_names=names("task", n_tasks),
        feature_names=names("x", n_features),
        known={**known, "coef": coef, "intercept": intercept},
    )
