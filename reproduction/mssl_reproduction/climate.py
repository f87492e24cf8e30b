"""Table 2 and Figures 4–7 of the paper: combining climate models, one location a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl.climate.combination import month_means
from mssl.losses import Gaussian
from mssl_reproduction import climate_page
from mssl_reproduction.climate_cells import given_graph, load_cells
from mssl_reproduction.runner import Experiment, Key, Record, can_be_had, crossed

Array = NDArray[np.float64]

METHODS = ("Average", "Best member", "OLS", "S²M²R", "r-MSSL", "ridge", "p-MSSL", "p-MSSL, mean", "climatology")
# Years of training and testing; the atlas has 38 years only, which these windows use up.
WINDOWS = {"fiveloc": (50, 10), "south_america": (50, 10), "atlas": (18, 4), "simulated": (15, 5)}
STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # of S²M²R's Laplacian, by decades: a finer grid costs time


def protocol(quick: bool) -> dict[str, Any]:
    """All moving windows of every set that can be had; quick: one window of two small sets."""
    wanted = ["fiveloc", "atlas"] if quick else ["fiveloc", "atlas", "south_america"]
    found = [name for name in wanted if can_be_had(load_cells, name)]
    return {
        "param_grid": {"prior_strength": [2.0] if quick else [1.0, 2.0, 20.0]},
        "sets": found or ["simulated"],
        "not to be had": [name for name in wanted if name not in found],
        "years": {name: list(WINDOWS[name]) for name in found or ["simulated"]},
        "windows": 1 if quick else 5,
        "values": ["raw", "anomalies"],
        "methods": list(METHODS if not quick else [m for m in METHODS if m != "p-MSSL, mean"]),
        "strengths": list(STRENGTHS),
        "graph penalties": [0.3] if quick else [0.1, 0.3, 0.5, 0.7],
        "coef penalties": [0.0] if quick else [0.0, 1.0, 10.0],
    }


def pieces(settings: dict[str, Any]) -> list[Key]:
    """One piece a set, kind of values, window and method."""
    keys = []
    for name in settings["sets"]:
        parts = range(len(windows(name, settings)))
        keys += crossed(set=[name], values=settings["values"], window=parts, method=settings["methods"])
    return keys


def windows(name: str, settings: dict[str, Any]) -> list[tuple[slice, slice]]:
    """Training and test months of every window; the last test part may lack a month (fiveloc has 1199, not 1200)."""
    n = len(load_cells(name).y)
    train, test = (12 * years for years in settings["years"][name])
    starts = range(0, n - train - test + 2, test)
    return [
        (slice(start, start + train), slice(start + train, min(n, start + train + test)))
        for start in starts[: settings["windows"]]
    ]


def run_piece(key: Key, settings: dict[str, Any]) -> Record:
    """Test RMSE of every location (°C), and the precision for the methods that have one."""
    data = load_cells(key["set"])
    train, test = windows(key["set"], settings)[key["window"]]
    months = np.asarray(data.calendar)
    X, y = np.asarray(data.X, dtype=float), np.asarray(data.y, dtype=float)
    known = np.zeros(len(y), dtype=bool)
    known[train] = True
    climatology = month_means(y, months, known)
    base = climatology if key["values"] == "anomalies" else np.zeros_like(y)
    if key["values"] == "anomalies":
        X = X - month_means(X, months, known)
    record: Record = {"precision": None, "edges": None, "chosen": {}}
    if key["method"] == "climatology":
        prediction = climatology[test]
    else:
        fit_predict: Callable[..., Array] = _PLAIN.get(key["method"], _learned)
        prediction = fit_predict(key, settings, X[train], (y - base)[train], X[test], record) + base[test]
    errors = np.sqrt(np.mean((prediction - y[test]) ** 2, axis=0))
    return {"rmse": [float(error) for error in errors], **record}


def _named(key: Key, settings: Any, X: Array, y: Array, X_test: Array, record: Record) -> Array:
    """A preset that has nothing to choose."""
    from mssl import presets

    model = presets.make({"Average": "average_model", "Best member": "best_member", "OLS": "ols"}[key["method"]])
    return np.asarray(model.fit(X, y).predict(X_test))


def _ridge(key: Key, settings: Any, X: Array, y: Array, X_test: Array, record: Record) -> Array:
    """Ridge with its strength by leave-one-out, location by location."""
    from sklearn.linear_model import RidgeCV

    prediction = np.empty(X_test.shape[:2])
    for k in range(y.shape[1]):
        prediction[:, k] = RidgeCV(np.logspace(-2, 5, 15)).fit(X[:, k], y[:, k]).predict(X_test[:, k])
    return prediction


def _smoothed(key: Key, settings: dict[str, Any], X: Array, y: Array, X_test: Array, record: Record) -> Array:
    """S²M²R: a given Laplacian, its strength by cross-validation over blocks of time."""
    from sklearn.model_selection import KFold

    from mssl import MultiTaskGLM

    def model(strength: float) -> Any:
        return MultiTaskGLM(given_graph(key["set"], strength), loss=Gaussian(noise_variance=1.0))

    def loss(strength: float) -> float:
        parts = KFold(5).split(X)
        return float(np.mean([np.mean((model(strength).fit(X[a], y[a]).predict(X[b]) - y[b]) ** 2) for a, b in parts]))

    strength = min(settings["strengths"], key=loss)
    record["chosen"] = {"strength": strength}
    return np.asarray(model(strength).fit(X, y).predict(X_test))


def _learned(key: Key, settings: dict[str, Any], X: Array, y: Array, X_test: Array, record: Record) -> Array:
    """r-MSSL and p-MSSL, everything by cross-validation over blocks of time; the graph by stability selection."""
    from sklearn.model_selection import KFold

    from mssl import MSSLRegressor, MSSLRegressorCV, StabilitySelection

    residual = key["method"] == "r-MSSL"
    model = MSSLRegressorCV(
        MSSLRegressor(relation="residual" if residual else "coef"),
        {
            "graph_penalty": settings["graph penalties"] if residual else [*settings["graph penalties"], 0.0, 1.0],
            "coef_penalty": settings["coef penalties"] if residual else [0.0],
            "prior_strength": [1.0] if residual else settings["couplings"],
            "graph_penalty__shrinkage": [0.0] if residual else [0.5],
            "shared_mean": [False] if key["method"] != "p-MSSL, mean" else [True],
        },
        cv=KFold(5),
        selection="both" if residual else "prediction",
        stability=StabilitySelection(random_state=0) if residual else None,
    ).fit(X, y)
    record["chosen"] = {
        name: value if isinstance(value, str) else float(value) for name, value in model.best_params_.items()
    }
    if residual:
        record["precision"] = np.round(model.precision_, 5).tolist()
        ends = zip(*model.graph_.edge_indices(), strict=True)
        record["edges"] = [[int(i), int(j)] for i, j in ends]
    return np.asarray(model.predict(X_test))


_PLAIN: dict[str, Callable[..., Array]] = {
    "Average": _named,
    "Best member": _named,
    "OLS": _named,
    "ridge": _ridge,
    "S²M²R": _smoothed,
}

EXPERIMENT = Experiment(
    "climate", "Climate models combined, location by location", protocol, pieces, run_piece, climate_page.present
)
