"""Synthetic tasks whose truths are curves that all tasks share, with deviations of their own."""

from collections.abc import Callable, Sequence

import numpy as np
from sklearn.utils import Bunch

from mssl._typing import Array, Seed
from mssl._validation import check_choice, check_number, check_whole_number
from mssl.datasets._generators import sample_sizes
from mssl.datasets._layout import bunch, made, names

_REFERENCE = 20_000  # rows that the components' means and variances are computed from


def _friedman(X: Array) -> tuple[Array, Array]:
    """The two parts of Friedman's circuit: resistance and reactance."""
    frequency = (40.0 + 520.0 * X[:, 1]) * np.pi
    return 100.0 * X[:, 0], frequency * X[:, 2] - 1.0 / (frequency * (1.0 + 10.0 * X[:, 3]))


def _additive(X: Array) -> list[Array]:
    return [np.sin(2 * np.pi * X[:, 0]), (X[:, 1] - 0.5) ** 2, np.exp(3.0 * X[:, 2]), np.abs(X[:, 3] - 0.4), X[:, 4]]


# The columns that the components need, the components, and what each counts in the part that tasks share.
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

    *tested, fits = draw(testing, test)
    means_test = np.concatenate(fits) if layout == "long" else np.stack(fits, axis=1)
    return bunch(
        made("make_curved_tasks"),
        draw(training, train)[:2],
        (tested[0], tested[1]),
        text=f"{n_tasks} tasks, {n_features} columns, curves of kind {kind}.",
        layout=layout,
        as_frame=as_frame,
        task_names=names("task", n_tasks),
        feature_names=names("x", n_features),
        known={"mean_test": means_test, "weights": weights, "intercept": intercept},
    )
