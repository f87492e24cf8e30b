"""The classifiers that the experiments compare, each with its parameters by cross-validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl._validation import check_choice
from mssl.experiments.sets import Split
from mssl.experiments.tables import Cell, compared_cells

Array = NDArray[np.float64]

METHODS = ("LR", "CMTL", "Low rank", "JFS", "p-MSSL", "MTRL", "Mean", "Pooled")
PAPERS = METHODS[:5]
WORDS = {
    "LR": "logistic regression with a ridge, task by task",
    "CMTL": "clustered tasks, convex relaxation, one cluster for every five tasks and at least two",
    "Low rank": "trace norm",
    "JFS": "joint feature selection, ℓ2,1 norm, with a ridge of 0.01",
    "p-MSSL": "sparse precision over the weights; λ, coupling and shared mean searched one after the other",
    "MTRL": "a task covariance learned with the weights",
    "Mean": "tasks around a common mean, which has a ridge of its own",
    "Pooled": "one weight vector for all tasks, own intercepts",
}
MEASURES = {"error": "Error (%)", "auc": "Area under the ROC curve (%)"}
BOLD = (
    "Bold: best, or not significantly worse than the best (paired t-tests, Holm, α = 0.05); none where no method is "
    "worse."
)
STRENGTHS = (100.0, 10.0, 1.0, 0.1, 0.01)  # of ridges and priors, by decades: a finer grid costs time
# Strengths of norms of whole matrices: weaker ones hardly change the weights, and take long.
NORM_STRENGTHS = (100.0, 30.0, 10.0, 3.0)
_NORMS = ("Low rank", "JFS")


def search_grid(quick: bool) -> dict[str, Any]:
    """What is searched, and how finely, as part of a protocol."""
    return {
        "strengths": [10.0, 1.0] if quick else list(STRENGTHS),
        "norm strengths": [10.0] if quick else list(NORM_STRENGTHS),
        "mean strengths": [10.0] if quick else [10.0, 1.0],
        "couplings": [2.0, 20.0] if quick else [1.0, 2.0, 20.0],
        "coef penalties": [0.0],
        "folds": 2 if quick else 3,
        "tolerance": 1e-4,
        "search tolerance": 1e-3,
    }


def classifier(method: str, n_tasks: int, grid: dict[str, Any]) -> Any:
    """A cross-validated classifier by its name in the tables.

    Parameters
    ----------
    method : str
        One of ``METHODS``.
    n_tasks : int
        Number of tasks.
    grid : dict
        As from :func:`search_grid`.
    """
    from mssl import MSSLClassifierCV, MultiTaskGLMCV, presets

    common = {"cv": grid["folds"], "search_tol": grid["search tolerance"]}
    if method == "p-MSSL":
        return MSSLClassifierCV(
            couplings=grid["couplings"], coef_penalties=grid["coef penalties"], tol=grid["tolerance"], **common
        )
    further: dict[str, Any] = {"loss": "bernoulli", "tol": grid["tolerance"]}
    made: dict[str, Callable[[], Any]] = {
        "LR": lambda: presets.logistic(tol=grid["tolerance"]),
        "CMTL": lambda: presets.cmtl(max(2, n_tasks // 5), **further),
        "Low rank": lambda: presets.low_rank(**further),
        # A feature that is constant in a task leaves its weight there open; the smallest ridge of the grid settles it.
        "JFS": lambda: presets.jfs(**further).set_params(structure__alpha=STRENGTHS[-1]),
        "MTRL": lambda: presets.mtrl(**further),
        "Mean": lambda: presets.mean_regularized(**further),
        "Pooled": lambda: presets.pooled(**further),
    }
    check_choice("method", method, METHODS)
    values = grid["norm strengths"] if method in _NORMS else grid["strengths"]
    name = "penalty__alpha" if method in _NORMS else "structure__alpha"
    parameters = {name: values}
    if method == "Mean":
        parameters["structure__mean_alpha"] = grid["mean strengths"]
    return MultiTaskGLMCV(made[method](), parameters, **common)


def evaluate(model: Any, X: Any, y: NDArray[Any], tasks: NDArray[Any]) -> dict[str, Any]:
    """Error (%) and area under the ROC curve (%), means over tasks, and the errors of all tasks.

    Tasks whose test part holds one class only have no AUC and are left out of its mean.
    """
    from sklearn.metrics import roc_auc_score

    scores = np.asarray(model.decision_function(X, tasks=tasks))
    wrong = (scores > 0).astype(int) != y
    names = np.unique(tasks)
    errors = [100 * float(wrong[tasks == task].mean()) for task in names]
    both = [task for task in names if 0 < y[tasks == task].mean() < 1]
    areas = [100 * float(roc_auc_score(y[tasks == task], scores[tasks == task])) for task in both]
    return {"error": float(np.mean(errors)), "auc": float(np.mean(areas)) if areas else None, "errors": errors}


def measure(method: str, data: Split, grid: dict[str, Any]) -> dict[str, Any]:
    """Fit a method to the training part, evaluate it on the test part, and say what cross-validation chose."""
    model = classifier(method, len(np.unique(data.tasks)), grid).fit(data.X, data.y, tasks=data.tasks)
    chosen = {name: v if isinstance(v, bool | str) else float(v) for name, v in model.best_params_.items()}
    return {**evaluate(model, data.X_test, data.y_test, data.tasks_test), "chosen": chosen}


def score_cells(runs: dict[str, list[float]], what: str, overlap: float) -> list[Cell]:
    """One row of a table of ``MEASURES[what]``, the best methods in bold."""
    return compared_cells(runs, overlap=overlap, higher_is_better=what == "auc")
