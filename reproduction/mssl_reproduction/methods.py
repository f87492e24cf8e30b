"""The classifiers that the experiments compare, each with its parameters by cross-validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl._validation import check_choice
from mssl.paper import PaperMSSLClassifier
from mssl_reproduction.sets import Split
from mssl_reproduction.tables import Cell, Table, compared_cells

Array = NDArray[np.float64]

PAPER, STABLE, DEFAULT = "p-MSSL (paper)", "p-MSSL (stable λ)", "mssl default"
LEARNED = (PAPER, STABLE, DEFAULT)  # those that learn a graph
PAPERS = ("LR", "CMTL", "Low rank", "JFS", PAPER)
METHODS = (*PAPERS, STABLE, DEFAULT, "MTRL", "Dirty", "Mean", "Pooled")
WORDS = {
    "LR": "logistic regression with a ridge, task by task",
    "CMTL": "clustered tasks, convex relaxation, one cluster for every five tasks and at least two",
    "Low rank": "trace norm",
    "JFS": "joint feature selection, ℓ2,1 norm, with a ridge of 0.01",
    PAPER: "the paper's form (eq. 17; `PaperMSSL`), λ and γ by cross-validation",
    STABLE: "the same, λ the one whose graph agrees best with stability selection",
    DEFAULT: "`MSSLClassifierCV()`, which searches λ, coupling, shared mean and γ on grids of its own",
    "MTRL": "a task covariance learned with the weights",
    "Dirty": "the dirty model: features that tasks share beside features of their own",
    "Mean": "tasks around a common mean, which has a ridge of its own",
    "Pooled": "one weight vector for all tasks, own intercepts",
}
MEASURES = {"error": "Error (%)", "auc": "Area under the ROC curve (%)"}
BOLD = (
    "Bold: best, or not significantly worse than the best (paired t-tests, Holm, α = 0.05); none where no method is "
    "worse, or where there are fewer than five runs."
)
STRENGTHS = (100.0, 10.0, 1.0, 0.1, 0.01)  # the paper's grid, for every strength of every method
_NORMS = ("Low rank", "JFS", "Dirty")


def search_grid(quick: bool) -> dict[str, Any]:
    """What is searched, and how finely, as part of a protocol."""
    return {
        "strengths": [10.0, 1.0] if quick else list(STRENGTHS),
        "folds": 2 if quick else 3,
        "rounds": 20,  # of the paper's alternation, whose weakest penalties converge slowly
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
    from mssl import MSSLClassifier, MSSLClassifierCV, MSSLRegressorCV, StabilitySelection, presets

    check_choice("method", method, METHODS)
    common = {"cv": grid["folds"], "search_tol": grid["search tolerance"]}
    further: dict[str, Any] = {"tol": grid["tolerance"]}
    if method == DEFAULT:
        return MSSLClassifierCV(MSSLClassifier(**further), **common)
    if method in LEARNED:
        return MSSLClassifierCV(
            PaperMSSLClassifier(max_iter=grid["rounds"], **further),
            {"graph_penalty": grid["strengths"], "coef_penalty": grid["strengths"]},
            search="grid",
            selection="graph" if method == STABLE else "prediction",
            stability=StabilitySelection(random_state=0),
            **common,
        )
    loss = {"loss": "bernoulli", **further}
    made: dict[str, Callable[[], Any]] = {
        "LR": lambda: presets.logistic(**further),
        "CMTL": lambda: presets.cmtl(max(2, n_tasks // 5), **loss),
        "Low rank": lambda: presets.low_rank(**loss),
        # A feature that is constant in a task leaves its weight there open; the smallest ridge of the grid settles it.
        "JFS": lambda: presets.jfs(**loss).set_params(structure__alpha=STRENGTHS[-1]),
        "Dirty": lambda: presets.dirty(**loss).set_params(structure__alpha=STRENGTHS[-1]),
        "MTRL": lambda: presets.mtrl(**loss),
        "Mean": lambda: presets.mean_regularized(**loss),
        "Pooled": lambda: presets.pooled(**loss),
    }
    parameters = {"penalty__alpha" if method in _NORMS else "structure__alpha": grid["strengths"]}
    if method == "Mean":
        parameters["structure__mean_alpha"] = grid["strengths"]
    return MSSLRegressorCV(made[method](), parameters, refit="best", **common)


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
    chosen = {
        name: float(v) if not isinstance(v, bool | str) and np.isfinite(v) else str(v)
        for name, v in model.best_params_.items()
    }
    edges = model.graph_.n_edges if method in LEARNED else None
    return {**evaluate(model, data.X_test, data.y_test, data.tasks_test), "chosen": chosen, "edges": edges}


def score_cells(runs: dict[str, list[float]], what: str, overlap: float) -> list[Cell]:
    """One row of a table of ``MEASURES[what]``, the best methods in bold."""
    return compared_cells(runs, overlap=overlap, higher_is_better=what == "auc")


def edges_table(rows: dict[str, dict[str, list[float]]], what: str) -> Table:
    """How many edges the learned graphs have: one row for each entry of ``rows``, one column for each method."""
    names = [m for m in LEARNED if any(m in runs for runs in rows.values())]
    cells = [
        [
            row,
            *(
                f"{np.mean(runs[m]):.1f} ({sum(n == 0 for n in runs[m])} of {len(runs[m])} without)" if runs[m] else "–"
                for m in names
            ),
        ]
        for row, runs in rows.items()
    ]
    return Table("edges", f"Edges of the learned graphs, mean over runs, by {what}", [what, *names], cells)
