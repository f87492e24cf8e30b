"""The methods that are compared: each is fitted to the training rows of a cut and predicts the rows to test with.

Every method tunes itself by folds that keep groups and blocks of time together, where the data have them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Hyperparameter, Kernel, StationaryKernelMixin, WhiteKernel

import mssl
from benchmarks.rival_sets import Cut, Rows
from mssl import MSSLClassifierCV, MSSLRegressor, MSSLRegressorCV, MultiTaskClassifier, MultiTaskGLM
from mssl.data.folds import read_splits
from mssl.penalties import L1, Nuclear
from mssl.structures import Independent, TaskCovariance

LEVELS = (0.5, 0.9, 0.95)  # of intervals
STRENGTHS = np.geomspace(1e-2, 1e3, 11).tolist()
MEANS = np.geomspace(1e-4, 1e0, 7).tolist()
ONE = 1e6  # a ridge around the mean so strong that all tasks share one weight vector
MOST_SLOPES = 10  # random slopes; more of them take the mixed model minutes
MOST_GP_ROWS = 700  # beyond it a Gaussian process takes minutes

Answer = dict[str, Any]  # "mean": predictions or probabilities; "intervals": (…, 3, 2) or None; "chosen": settings


def folds_of(rows: Rows, n_splits: int = 5) -> list[tuple[np.ndarray, np.ndarray]]:
    """Folds that part neither groups nor blocks of time."""
    if rows.groups is not None:
        n_splits = min(n_splits, len(np.unique(rows.groups)))
    return read_splits(n_splits, rows.X, rows.y, rows.tasks, rows.groups, rows.order)


def fitted(model: Any, rows: Rows, *, occasions: bool = True) -> Any:
    """The model fitted to rows in their own layout."""
    named = {"tasks": rows.tasks, "groups": rows.groups, "order": rows.order} if occasions else {"tasks": rows.tasks}
    return model.fit(rows.X, rows.y, **{name: value for name, value in named.items() if value is not None})


def predicted(model: Any, rows: Rows, labels: bool) -> np.ndarray:
    """Means, or probabilities of the second class."""
    named = {} if rows.tasks is None else {"tasks": rows.tasks}
    return model.predict_proba(rows.X, **named)[..., 1] if labels else model.predict(rows.X, **named)


def conformal(refit: Callable[[Rows], Callable[[Rows], np.ndarray]], cut: Cut, mean: np.ndarray) -> np.ndarray | None:
    """Intervals from the residuals of folds, all tasks' together: the same width everywhere."""
    if cut.labels:
        return None
    residuals = []
    for train, test in folds_of(cut.train):
        part = cut.train.take(test)
        residuals.append(np.abs(refit(cut.train.take(train))(part) - part.y).ravel())
    sizes = np.sort(np.concatenate(residuals))
    places = [min(int(np.ceil((len(sizes) + 1) * level)), len(sizes)) - 1 for level in LEVELS]
    half = sizes[places]
    return np.stack([mean[..., None] - half, mean[..., None] + half], axis=-1)


def searched(make: Callable[[Cut], Any]) -> Callable[[Cut], Answer]:
    """A search of this package, its intervals by refits with the chosen settings."""

    def method(cut: Cut) -> Answer:
        model = fitted(make(cut), cut.train)

        def refit(rows: Rows) -> Callable[[Rows], np.ndarray]:
            again = fitted(clone(model.best_estimator_), rows, occasions=False)
            return lambda test: predicted(again, test, cut.labels)

        mean = predicted(model, cut.test, cut.labels)
        chosen = {name: str(value) for name, value in model.best_params_.items()}
        return {"mean": mean, "intervals": conformal(refit, cut, mean), "chosen": chosen}

    return method


def _kind(cut: Cut) -> Any:
    return MultiTaskClassifier if cut.labels else partial(MultiTaskGLM, fit_intercept=cut.intercept)


def ours(cut: Cut) -> Any:
    """The default search."""
    return MSSLClassifierCV() if cut.labels else MSSLRegressorCV(MSSLRegressor(fit_intercept=cut.intercept))


def single_ridge(cut: Cut) -> Any:
    """One ridge or logistic regression a task, one strength for all."""
    return MSSLRegressorCV(_kind(cut)(Independent()), {"structure__alpha": STRENGTHS}, refit="best")


def around_mean(cut: Cut) -> Any:
    """The same around a shared mean."""
    grid = {"structure__alpha": STRENGTHS[3:], "shared_mean": MEANS}
    return MSSLRegressorCV(_kind(cut)(Independent(), shared_mean=True), grid, refit="best")


def pooled(cut: Cut) -> Any:
    """One weight vector for all tasks, intercepts of their own."""
    return MSSLRegressorCV(_kind(cut)(Independent(ONE), shared_mean=True), {"shared_mean": MEANS}, refit="best")


def lasso(cut: Cut) -> Any:
    """One Lasso a task, one penalty for all."""
    size = cut.train.long().y.size / len(np.unique(cut.train.long().tasks))
    gammas = ((0.5 if cut.labels else 1.0) * size * np.geomspace(1.0, 1e-3, 12)).tolist()
    return MSSLRegressorCV(_kind(cut)(Independent(0.0), L1()), {"penalty__alpha": gammas}, refit="best")


def mtrl(cut: Cut) -> Any:
    """A learned dense covariance of tasks (Zhang & Yeung 2010)."""
    return MSSLRegressorCV(_kind(cut)(TaskCovariance(1.0)), {"structure__alpha": STRENGTHS}, refit="best")


def low_rank(cut: Cut) -> Any:
    """The nuclear norm of the weights."""
    size = cut.train.long().y.size / len(np.unique(cut.train.long().tasks))
    return MSSLRegressorCV(
        _kind(cut)(Independent(0.0), Nuclear()),
        {"penalty__alpha": (size * np.geomspace(1.0, 1e-3, 8)).tolist()},
        refit="best",
    )


def bayesian(cut: Cut) -> Answer:
    """Weights integrated out; intervals are the model's own."""
    family = mssl.BayesianMSSLClassifier if cut.labels else mssl.BayesianMSSLRegressor
    model = family() if cut.labels or cut.intercept else family(intercepts="none")
    model = fitted(model, cut.train)
    mean = predicted(model, cut.test, cut.labels)
    named = {} if cut.test.tasks is None else {"tasks": cut.test.tasks}
    intervals = None
    if not cut.labels:
        found = [np.asarray(model.predict_interval(cut.test.X, level=level, **named)) for level in LEVELS]
        intervals = np.stack(found, axis=-2)
    return {"mean": mean, "intervals": intervals, "chosen": {"structure": str(getattr(model, "structure_", ""))}}


def _back(flat: np.ndarray, rows: Rows) -> np.ndarray:
    return flat.reshape(rows.y.shape)


def by_long(make: Callable[[Rows, Cut], Callable[[Rows], np.ndarray]]) -> Callable[[Cut], Answer]:
    """A method that knows the long layout only, its intervals by refits."""

    def method(cut: Cut) -> Answer:
        def refit(rows: Rows) -> Callable[[Rows], np.ndarray]:
            predict = make(rows.long(), cut)
            return lambda test: _back(predict(test.long()), test)

        mean = refit(cut.train)(cut.test)
        return {"mean": mean, "intervals": conformal(refit, cut, mean), "chosen": {}}

    return method


def mixed(rows: Rows, cut: Cut) -> Callable[[Rows], np.ndarray]:
    """Fixed slopes, random intercepts and (for few features) uncorrelated random slopes, by restricted likelihood."""
    from statsmodels.regression.mixed_linear_model import MixedLM, MixedLMParams

    names, of_row = np.unique(rows.tasks, return_inverse=True)
    d = rows.X.shape[1]

    def columns(X: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones(len(X)), X]) if cut.intercept else X

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for slopes in (True, False) if d <= MOST_SLOPES else (False,):
            random = columns(rows.X) if slopes else np.ones((len(rows.X), 1))
            model = MixedLM(rows.y, columns(rows.X), groups=of_row, exog_re=random)
            free = MixedLMParams.from_components(np.ones(columns(rows.X).shape[1]), np.eye(random.shape[1]))
            try:
                found = model.fit(free=free, method=["bfgs", "lbfgs"], maxiter=200)
                effects = np.asarray([found.random_effects[k] for k in range(len(names))])
            except (np.linalg.LinAlgError, ValueError, KeyError):
                continue
            if np.all(np.isfinite(found.fe_params)) and np.all(np.isfinite(effects)):
                break
        else:
            raise RuntimeError("the mixed model did not converge")

    def predict(test: Rows) -> np.ndarray:
        Z = columns(test.X) if slopes else np.ones((len(test.X), 1))
        own = effects[np.searchsorted(names, test.tasks)]
        return columns(test.X) @ np.asarray(found.fe_params) + np.sum(Z * own, axis=1)

    return predict


def boosted(rows: Rows, cut: Cut) -> Callable[[Rows], np.ndarray]:
    """LightGBM with the task as a category; leaves and rounds chosen by folds."""
    import lightgbm

    names = np.unique(rows.tasks)

    def table(part: Rows) -> np.ndarray:
        return np.column_stack([np.searchsorted(names, part.tasks), part.X])

    family = lightgbm.LGBMClassifier if cut.labels else lightgbm.LGBMRegressor
    fixed = {"learning_rate": 0.05, "min_child_samples": 5, "n_jobs": 1, "random_state": 0, "verbose": -1}

    def fit(part: Rows, leaves: int, rounds: int) -> Callable[[Rows], np.ndarray]:
        model = family(num_leaves=leaves, n_estimators=rounds, **fixed)
        model.fit(table(part), part.y, categorical_feature=[0])
        if not cut.labels:
            return lambda test: model.predict(table(test))
        return lambda test: model.predict_proba(table(test))[:, 1]

    settings = [(leaves, rounds) for leaves in (4, 15) for rounds in (50, 200)]
    losses = np.zeros(len(settings))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for train, test in folds_of(rows, 3):
            part, held = rows.take(train), rows.take(test)
            for place, setting in enumerate(settings):
                losses[place] += deviance(held.y, fit(part, *setting)(held), cut.labels).sum()
        return fit(rows, *settings[int(losses.argmin())])


class TaskKernel(StationaryKernelMixin, Kernel):
    """(a + [same task]) exp(−‖x − x'‖² / 2ℓ²): features of all columns but the first, which holds the task."""

    def __init__(self, common: float = 1.0, length: float = 1.0) -> None:
        self.common = common
        self.length = length

    @property
    def hyperparameter_common(self) -> Hyperparameter:
        return Hyperparameter("common", "numeric", (1e-3, 1e3))

    @property
    def hyperparameter_length(self) -> Hyperparameter:
        return Hyperparameter("length", "numeric", (1e-1, 1e3))

    def __call__(self, X: np.ndarray, Y: np.ndarray | None = None, eval_gradient: bool = False) -> Any:
        other = X if Y is None else Y
        squares = np.maximum(
            np.sum(X[:, 1:] ** 2, axis=1)[:, None] + np.sum(other[:, 1:] ** 2, axis=1) - 2 * X[:, 1:] @ other[:, 1:].T,
            0.0,
        )
        near = np.exp(-0.5 * squares / self.length**2)
        K = (self.common + (X[:, :1] == other[:, 0])) * near
        if not eval_gradient:
            return K
        return K, np.stack([self.common * near, K * squares / self.length**2], axis=-1)

    def diag(self, X: np.ndarray) -> np.ndarray:
        return np.full(len(X), self.common + 1.0)


def process(cut: Cut) -> Answer:
    """A Gaussian process over features and tasks, by marginal likelihood; intervals are its own."""
    train, test = cut.train.long(), cut.test.long()
    if cut.labels or len(train.y) > MOST_GP_ROWS:
        raise NotApplicableError
    names, of_row = np.unique(train.tasks, return_inverse=True)
    level = np.bincount(of_row, weights=train.y) / np.bincount(of_row) if cut.intercept else np.zeros(len(names))
    spread = train.y.std()
    scale = 1.0 / np.sqrt(train.X.shape[1])

    def table(rows: Rows) -> np.ndarray:
        return np.column_stack([np.searchsorted(names, rows.tasks), rows.X * scale])

    kernel = ConstantKernel(1.0) * TaskKernel() + WhiteKernel(0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GaussianProcessRegressor(kernel, random_state=0).fit(table(train), (train.y - level[of_row]) / spread)
    mean, error = model.predict(table(test), return_std=True)
    mean = spread * mean + level[np.searchsorted(names, test.tasks)]
    half = stats.norm.ppf(0.5 + 0.5 * np.asarray(LEVELS)) * spread * error[:, None]
    intervals = np.stack([mean[:, None] - half, mean[:, None] + half], axis=-1)
    shape = cut.test.y.shape
    return {"mean": mean.reshape(shape), "intervals": intervals.reshape(*shape, len(LEVELS), 2), "chosen": {}}


class NotApplicableError(Exception):
    """The method is not for this set."""


_OLD = """
import sys, numpy as np
from mssl import MSSLClassifierCV, MSSLRegressorCV
given = np.load(sys.argv[1], allow_pickle=False)
labels = bool(given["labels"])
named = {"tasks": given["tasks"]} if "tasks" in given else {}
tested = {"tasks": given["tasks_test"]} if "tasks" in given else {}
folds = {}
if "fold" in given:
    fold = given["fold"]
    folds["cv"] = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in np.unique(fold)]
model = MSSLClassifierCV(**folds) if labels else MSSLRegressorCV(fit_intercept=bool(given["intercept"]), **folds)
model.fit(given["X"], given["y"], **named)
mean = model.predict_proba(given["X_test"], **tested)[..., 1] if labels else model.predict(given["X_test"], **tested)
np.save(sys.argv[2], mean)
"""


def earlier(folder: Path) -> Callable[[Cut], Answer]:
    """The default search of another version of this package, from its working tree, in a process of its own."""

    def method(cut: Cut) -> Answer:
        given = {"X": cut.train.X, "y": cut.train.y, "X_test": cut.test.X}
        given |= {"labels": np.asarray(cut.labels), "intercept": np.asarray(cut.intercept)}
        if cut.train.tasks is not None:
            given |= {"tasks": cut.train.tasks.astype(str), "tasks_test": cut.test.tasks.astype(str)}
        if cut.train.groups is not None:  # whole years, which it was always given
            fold = np.zeros(len(cut.train.X), dtype=int)
            for number, (_, test) in enumerate(folds_of(cut.train)):
                fold[test] = number
            given["fold"] = fold
        with tempfile.TemporaryDirectory() as there:
            source, target = Path(there) / "given.npz", Path(there) / "mean.npy"
            np.savez(source, **given)
            environment = os.environ | {"PYTHONPATH": str(folder / "src")}
            subprocess.run(
                [sys.executable, "-W", "ignore", "-c", _OLD, str(source), str(target)], check=True, env=environment
            )
            return {"mean": np.load(target), "intervals": None, "chosen": {}}

    return method


def deviance(y: np.ndarray, mean: np.ndarray, labels: bool) -> np.ndarray:
    """Squared error, or twice the logarithmic loss, of each row."""
    if not labels:
        return (y - mean) ** 2
    p = np.clip(mean, 1e-15, 1 - 1e-15)
    return -2 * np.where(y == 1, np.log(p), np.log1p(-p))


METHODS: dict[str, Callable[[Cut], Answer]] = {
    "mssl": searched(ours),
    "bayesian": bayesian,
    "single-task ridge": searched(single_ridge),
    "ridge around a mean": searched(around_mean),
    "pooled": searched(pooled),
    "Lasso": searched(lasso),
    "MTRL": searched(mtrl),
    "low rank": searched(low_rank),
    "mixed model": by_long(mixed),
    "LightGBM": by_long(boosted),
    "GP": process,
}
LINEAR = ("single-task ridge", "ridge around a mean", "pooled", "Lasso", "MTRL", "low rank", "mixed model")
