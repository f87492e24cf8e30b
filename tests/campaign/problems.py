"""Random problems and estimators, each a function of one generator of random numbers: ordinary, odd and hostile ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

import mssl
from mssl import penalties, structures
from mssl.features import Linear
from mssl.paper import PaperMSSL, PaperMSSLClassifier

FAMILIES = ("gaussian", "bernoulli", "poisson", "gamma")


@dataclass
class Problem:
    """Features, targets and tasks in one of the three layouts, and what they are like."""

    X: Any
    y: Any
    tasks: Any
    weights: Any
    family: str
    layout: str
    kind: str
    shape: tuple[int, int]
    groups: Any = None  # of rows, for searches

    def fit(self, model: Any) -> Any:
        """Fit an estimator to it."""
        given = {"tasks": self.tasks, "sample_weight": self.weights, "groups": self.groups}
        return model.fit(self.X, self.y, **{name: value for name, value in given.items() if value is not None})

    def predict(self, model: Any) -> Any:
        """What a fitted estimator predicts for its rows."""
        return model.predict(self.X) if self.tasks is None else model.predict(self.X, tasks=self.tasks)

    def __str__(self) -> str:
        return f"{self.family} {self.layout} {self.kind} K={self.shape[0]} d={self.shape[1]} rows={len(self.y)}"


def _power(random: np.random.Generator, low: float, high: float) -> float:
    return float(10.0 ** random.uniform(low, high))


def _columns(random: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, str]:
    Z = random.standard_normal((n, d))
    kinds = {
        "plain": lambda: Z,
        "whole": lambda: random.integers(-3, 4, (n, d)).astype(float),
        "heavy": lambda: random.standard_t(1.2, (n, d)),
        "collinear": lambda: Z[:, :1] @ random.standard_normal((1, d)) + _power(random, -12, -1) * Z,
        "low rank": lambda: Z[:, : (d + 1) // 2] @ random.standard_normal(((d + 1) // 2, d)),
        "powers": lambda: np.linspace(0, 1, n)[:, None] ** np.arange(1, d + 1),
        "shifted": lambda: Z + _power(random, 1, 7),
        "indicators": lambda: np.eye(d)[random.integers(0, d, n)],
        "sizes": lambda: Z * 10.0 ** random.uniform(-9, 9, d),
        "extreme": lambda: Z * 10.0 ** random.uniform(-90, 90, d),
        "constant": lambda: np.where(random.random(d) < 0.5, 1.0, Z),
        "nearly constant": lambda: 1 + _power(random, -13, -5) * Z,
        "outlier": lambda: Z * np.where(np.arange(n) == 0, 1e6, 1.0)[:, None],
    }
    shares = np.array([6, 2, 1, 2, 2, 1, 2, 1, 2, 1, 1, 1, 1], dtype=float)
    kind = str(random.choice(list(kinds), p=shares / shares.sum()))
    X = kinds[kind]()
    if d > 1 and random.random() < 0.1:
        X[:, 0] = X[:, 1]
    return X, kind


def _targets(random: np.random.Generator, family: str, eta: np.ndarray, task: np.ndarray) -> np.ndarray:
    noise = float(random.choice([1.0, 0.1, 1e-8, 0.0, 30.0], p=[0.6, 0.15, 0.05, 0.05, 0.15]))
    if family == "gaussian":
        y = eta + noise * (
            random.standard_normal(eta.shape) if random.random() < 0.8 else random.standard_t(1.1, eta.shape)
        )
        changes = {
            "units": lambda: y * _power(random, -90, 90),
            "level": lambda: y + _power(random, 2, 9),
            "constant": lambda: np.full(y.shape, 2.5),
            "sizes": lambda: y * (10.0 ** random.uniform(-6, 6, task.max() + 1))[task],
            "whole": lambda: np.round(y),
        }
        name = str(random.choice([*changes, "none"], p=[0.06, 0.05, 0.03, 0.05, 0.05, 0.76]))
        return changes[name]() if name in changes else y
    if family == "bernoulli":
        odds = eta if random.random() < 0.8 else 1e3 * eta
        y = (random.random(eta.shape) < 1 / (1 + np.exp(-np.clip(odds, -500, 500)))).astype(float)
        y.flat[0], y.flat[-1] = 0.0, 1.0
        return y
    mean = np.exp(np.clip(eta / 2, -8, 8))
    if family == "poisson":
        return random.poisson(mean).astype(float) * (1e6 if random.random() < 0.05 else 1.0)
    return (
        mean
        * np.maximum(random.gamma(1.0, 1.0, eta.shape), 1e-9)
        * (_power(random, -40, 40) if random.random() < 0.1 else 1)
    )


def problem(random: np.random.Generator, *, large: bool = False) -> Problem:
    """One problem; small unless asked otherwise."""
    K, d = (
        (int(random.integers(1, 41)), int(random.integers(1, 61)))
        if large
        else (int(random.integers(1, 9)), int(random.integers(1, 11)))
    )
    n = int(random.integers(2, 80 if large else 31))
    layout = str(random.choice(["long", "shared", "aligned"], p=[0.6, 0.25, 0.15]))
    family = str(random.choice(FAMILIES, p=[0.58, 0.18, 0.13, 0.11]))
    if layout == "long":
        sizes = np.full(K, n) if random.random() < 0.5 else random.integers(1, n + 1, K)
        tasks = random.permutation(np.repeat(np.arange(K), sizes))
        X, kind = _columns(random, len(tasks), d)
        rows, task = X, tasks
    else:
        X, kind = _columns(random, n if layout == "shared" else n * K, d)
        tasks, task = None, np.tile(np.arange(K), n)
        rows = np.repeat(X, K, axis=0) if layout == "shared" else X
    centre = random.standard_normal(d)
    relation = str(random.choice(["same", "two", "none", "zero"]))
    own = random.standard_normal((K, d))
    W = {
        "same": centre + 0.1 * own,
        "two": np.where(np.arange(K)[:, None] % 2, -centre, centre) + 0.3 * own,
        "none": own,
        "zero": 0 * own,
    }[relation]
    with np.errstate(all="ignore"):
        sizes_of = np.abs(rows).max(axis=0)
        eta = np.einsum("nd,nd->n", rows / np.where(sizes_of > 0, sizes_of, 1.0), 3 * W[task])
    y = _targets(random, family, eta, task)
    weights = None
    if random.random() < 0.12:
        weights = random.integers(0, 3, y.shape).astype(float) if random.random() < 0.5 else random.random(y.shape)
    if layout != "long":
        y = y.reshape(-1, K)
        X = X.reshape(n, K, d) if layout == "aligned" else X
        weights = None if weights is None else weights.reshape(-1, K)
        if family != "bernoulli" and random.random() < 0.2:
            y = np.where(random.random(y.shape) < 0.15, np.nan, y)
    elif random.random() < 0.1:
        X = sparse.csr_array(X)
    elif random.random() < 0.05 and kind != "extreme":
        X = X.astype(np.float32)
    return Problem(X, y, tasks, weights, family, layout, kind, (K, d))


def _common(random: np.random.Generator, family: str) -> dict[str, Any]:
    """Parameters that every estimator has."""
    chosen: dict[str, Any] = {
        "fit_intercept": bool(random.random() < 0.88),
        "features": Linear(scale=bool(random.random() < 0.9)),
        "tol": float(random.choice([1e-6, 1e-3, 1e-9], p=[0.85, 0.08, 0.07])),
        "shared_mean": [False, True, "auto", _power(random, -4, 4)][int(random.choice(4, p=[0.3, 0.15, 0.4, 0.15]))],
    }
    if family != "bernoulli":
        chosen["loss"] = family
        if random.random() < 0.15:
            chosen["loss__noise_variance"] = _power(random, -3, 3) ** 2
    return chosen


def _graph_penalty(random: np.random.Generator) -> float:
    return float(random.choice([0.0, 1e-8, 0.02, 0.1, 0.3, 0.7, 1.0, 1e3, np.inf, _power(random, -6, 2)]))


def estimator(random: np.random.Generator, given: Problem) -> Any:
    """An estimator with random parameters that suits the problem's family and layout."""
    pick = float(random.random())
    if pick < 0.7:
        return _mssl(random, given)
    return _glm(random, given)


def _mssl(random: np.random.Generator, given: Problem) -> Any:
    parameters = _common(random, given.family) | {
        "graph_penalty": _graph_penalty(random),
        "coef_penalty": 0.0 if random.random() < 0.5 else _power(random, -4, 4),
        "prior_strength": 1.0 if random.random() < 0.6 else _power(random, -6, 6),
        "graph_penalty__variance_floor": "auto" if random.random() < 0.7 else _power(random, -6, 2),
        "graph_penalty__shrinkage": 0.0 if random.random() < 0.8 else _power(random, -3, 2),
        "coef_penalty__ridge": 0.0 if random.random() < 0.8 else _power(random, -4, 4),
    }
    form = str(random.choice(["unified", "paper", "residual"], p=[0.7, 0.15, 0.15]))
    if form == "paper" or not np.isfinite(parameters["graph_penalty"]):
        parameters["graph_penalty"] = _power(random, -3, 2)
    printed = form == "paper"
    if given.family == "bernoulli":
        return (PaperMSSLClassifier if printed else mssl.MSSLClassifier)().set_params(**parameters)
    if form == "residual" and given.family == "gaussian" and given.layout != "long":
        parameters |= {"relation": "residual", "shared_mean": False}
    if random.random() < 0.06:
        parameters["graph_penalty__correlation"] = str(random.choice(["spearman", "kendall"]))
    return (PaperMSSL if printed else mssl.MSSLRegressor)().set_params(**parameters)


def _glm(random: np.random.Generator, given: Problem) -> Any:
    K, strength = given.shape[0], _power(random, -4, 4)
    adjacency = np.triu(random.random((K, K)) < 0.5, 1).astype(float)
    root = random.standard_normal((K, K))
    makers = [
        lambda: structures.Independent(0.0 if random.random() < 0.2 else strength),
        lambda: structures.FixedPrecision(root @ root.T + np.eye(K), strength),
        lambda: structures.GraphLaplacian(strength, adjacency=adjacency + adjacency.T),
        lambda: structures.MeanRegularized(strength, 0.0 if random.random() < 0.5 else 1.0),
        lambda: structures.Pooled(strength),
        lambda: structures.TaskCovariance(strength),
        lambda: structures.Clustered(int(random.integers(1, K + 1)), strength),
        lambda: structures.SparsePrecision(min(_graph_penalty(random), 10.0)),
    ]
    structure = makers[int(random.integers(len(makers)))]()
    alpha = _power(random, -3, 3)
    kinds = [
        lambda: penalties.L1(0.0 if random.random() < 0.5 else alpha),
        lambda: penalties.ElasticNet(alpha, _power(random, -3, 3)),
        lambda: penalties.L21(alpha),
        lambda: penalties.Nuclear(alpha),
        lambda: penalties.MCP(alpha),
    ]
    penalty = kinds[
        0 if isinstance(structure, structures.Pooled) else int(random.choice(5, p=[0.5, 0.2, 0.1, 0.1, 0.1]))
    ]()
    parameters = _common(random, given.family)
    if random.random() < 0.7:
        parameters["shared_mean"] = False
    make = mssl.MultiTaskClassifier if given.family == "bernoulli" else mssl.MultiTaskGLM
    return make(structure, penalty).set_params(**parameters)


def search(random: np.random.Generator, given: Problem) -> Any:
    """A cross-validated or Bayesian estimator for the problem's family; its rows may come in groups."""
    classifies = given.family == "bernoulli"
    kind = "Classifier" if classifies else "Regressor"
    names = (
        [f"MSSL{kind}CV", f"BayesianMSSL{kind}"] if classifies or given.family == "gaussian" else ["MSSLRegressorCV"]
    )
    make = getattr(mssl, str(random.choice(names)))
    chosen: dict[str, Any] = {"cv": 2}
    if not classifies:
        chosen["loss"] = given.family
    elif random.random() < 0.3:
        chosen["class_weight"] = "balanced"
    if random.random() < 0.25:
        chosen["features"] = str(random.choice(["linear", "spline", "spline+interactions"]))
    if random.random() < 0.25:
        given.groups = random.integers(0, 4, len(given.y))
    known = make().get_params(deep=False)
    return make(**{name: value for name, value in chosen.items() if name in known})
