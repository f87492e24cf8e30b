"""Comparison of joint with separate learning: each task's error and that of its single-task fit on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline

from mssl._typing import Array, Index, Labels
from mssl.data.encoding import read_features
from mssl.data.inputs import listing
from mssl.data.layouts import TaskData, read_tasks
from mssl.estimators.mssl import MultiTaskClassifier, MultiTaskGLM
from mssl.exceptions import ParameterError, require
from mssl.judge.held_out import MARGIN
from mssl.kernels.threads import single_threaded
from mssl.losses import Loss
from mssl.structures import SparsePrecision


@dataclass(frozen=True, eq=False)
class TransferReport:
    """Gains and losses of learning together, with one row per task.

    Attributes
    ----------
    tasks : ndarray of shape (K,)
        Task names.
    rows : ndarray of shape (K,)
        Held-out rows of each task.
    together, alone : ndarrays of shape (K,)
        Mean deviance (squared error for the Gaussian loss) of the model and of the task's own fit.
    gain : ndarray of shape (K,)
        1 − together / alone, which is positive if learning together helped.
    error : ndarray of shape (K,)
        Standard error of ``alone − together``, from the differences of single rows.
    verdict : ndarray of shape (K,)
        "gain", "loss" or "even" (difference within two standard errors).
    """

    tasks: Labels
    rows: Index
    together: Array
    alone: Array
    gain: Array
    error: Array
    verdict: Labels

    def counts(self) -> dict[str, int]:
        """Numbers of tasks that gain, lose, or stay even."""
        return {word: int(np.sum(self.verdict == word)) for word in ("gain", "even", "loss")}

    def to_frame(self) -> Any:
        """The report as a pandas DataFrame with one row per task."""
        pandas: Any = require("pandas", "tables", "A transfer report as a table")
        return pandas.DataFrame(vars(self), index=list(self.tasks)).drop(columns="tasks")

    def __repr__(self) -> str:
        width = max([4, *(len(str(task)) for task in self.tasks)])
        lines = [f"{'task':<{width}}  {'rows':>6}  {'together':>10}  {'alone':>10}  {'gain':>7}  verdict"]
        lines += [
            f"{self.tasks[k]!s:<{width}}  {self.rows[k]:>6}  {self.together[k]:>10.4g}  {self.alone[k]:>10.4g}  "
            f"{self.gain[k]:>7.1%}  {self.verdict[k]}"
            for k in np.argsort(self.gain, kind="stable")
        ]
        counts = self.counts()
        return "\n".join([*lines, f"{counts['gain']} gain, {counts['even']} even, {counts['loss']} loss"])


@single_threaded
def transfer_report(
    model: Any,
    X: Any,
    y: Any,
    tasks: Any = None,
    *,
    X_test: Any = None,
    y_test: Any = None,
    tasks_test: Any = None,
    single: Any = None,
) -> TransferReport:
    """Compare a model with single-task fits, task by task.

    Parameters
    ----------
    model : estimator
        An unfitted or fitted multi-task estimator, a search over its parameters, or a pipeline that ends in one. A copy
        of it is fitted to the training rows.
    X, y, tasks
        Training data in any layout.
    X_test, y_test, tasks_test
        Held-out rows in the same layout.
    single : estimator, optional
        The estimator of the single-task fits. By default it is a ridge whose strength is estimated for each task: the
        model's own family with an empty graph and no shared mean.

    Returns
    -------
    TransferReport

    Examples
    --------
    >>> from mssl import MSSLRegressor
    >>> from mssl.datasets import make_clustered_tasks
    >>> d = make_clustered_tasks(random_state=0)
    >>> report = transfer_report(
    ...     MSSLRegressor(0.1), d.X, d.y, d.tasks, X_test=d.X_test, y_test=d.y_test, tasks_test=d.tasks_test
    ... )
    >>> report.counts()["loss"]
    0
    """
    if X_test is None or y_test is None:
        raise ParameterError(
            "X_test or y_test is None; give held-out rows for the comparison, X_test and y_test (and tasks_test)."
        )
    if isinstance(model, Pipeline):
        steps, model = clone(model[:-1]), model[-1]
        X, X_test = steps.fit_transform(X, y), steps.transform(X_test)
    named = {} if tasks is None else {"tasks": tasks}
    together = clone(model).fit(X, y, **named)
    fitted = getattr(together, "best_estimator_", together)
    # The models themselves decide about missing features.
    features = read_features(X_test, fitted.task_column, tasks_test, encoder=fitted.encoder_, missing="indicator")
    test = read_tasks(features, y_test, y_numeric=not is_classifier(model))
    alone = clone(_single(fitted) if single is None else single).fit(X, y, **named)
    # The deviance of the model's loss compares both.
    ours, theirs = (_deviances(one, fitted.loss_, test, X_test, tasks_test) for one in (together, alone))
    rows = test.n_rows
    few = test.tasks[rows < 2]
    if len(few):
        raise ParameterError(f"Tasks {listing(list(few))} have one held-out row; give two or more per task.")
    mean, single_mean = (test.task_sums(values) / rows for values in (ours, theirs))
    change = single_mean - mean
    centred = theirs - ours - np.repeat(change, rows)
    error = np.sqrt(test.task_sums(centred**2) / (rows - 1) / rows)
    gain = np.divide(change, single_mean, out=np.zeros_like(change), where=single_mean > 0)
    verdict = np.where(np.abs(change) <= MARGIN * error, "even", np.where(change > 0, "gain", "loss"))
    return TransferReport(test.tasks, rows, mean, single_mean, gain, error, verdict)


def _single(model: Any) -> Any:
    """A model with the same loss and features in which nothing relates the tasks; baselines have no loss."""
    family, own = (MultiTaskClassifier, "class_weight") if is_classifier(model) else (MultiTaskGLM, "loss")
    names = {"task_column", "fit_intercept", "penalty_factor", "missing", "categorical_features", own}
    given = model.get_params(deep=False)
    kept = {name: value for name, value in given.items() if name in names}
    kept |= {"fit_intercept": False} if given.get("intercepts") == "none" else {}
    features = given.get("features", "linear")
    if model.maps_ is not None or isinstance(features, str):  # A word: use the maps it led to.
        features = "linear" if model.maps_ is None else model.maps_.maps
    return family(SparsePrecision(1e6), features=features, **kept)


def _deviances(model: Any, loss: Loss, test: TaskData, X_test: Any, tasks_test: Any) -> Array:
    """Deviances of all held-out rows with a target, sorted by task."""
    classes = is_classifier(model)
    named = {} if tasks_test is None else {"tasks": tasks_test}
    answer = np.asarray((model.predict_proba if classes else model.predict)(X_test, **named))
    means = answer[..., 1] if classes else answer
    target = test.y == model.classes_[1] if classes else test.y
    rows = test.source_rows
    return loss.deviance(target.astype(float), means[rows] if means.ndim == 1 else means[rows, test.task_of_row])


def gain_over_separate(model: Any) -> float | None:
    """Relative gain in held-out deviance over the best separate models of a search.

    The deviance is that of ``held_out_``, which belongs to the model's own predictions. Separate models are the points
    of a search with an empty graph and no shared mean. The result is None if the model is not a search, was scored in
    another way, has no such point, or has one task only.

    Parameters
    ----------
    model : fitted estimator
        A search of :mod:`mssl.model_selection`, or any other estimator.
    """
    table, held_out = getattr(model, "cv_results_", {}), getattr(model, "held_out_", None)
    names = ("mean_test_score", "param_graph_penalty", "param_shared_mean")
    if not set(names) <= set(table) or len(model.tasks_) < 2 or held_out is None or model.scoring is not None:
        return None
    points = zip(*(table[name] for name in names), strict=True)
    separate = [score for score, penalty, mean in points if penalty >= 1 and mean is False]
    # The deviance of a label is twice its log loss.
    score = held_out.score if held_out.base_rate is None else -2 * held_out.score
    return float(1 - score / max(separate)) if separate and max(separate) else None


def lead_over_separate(model: Any) -> float | None:
    """Gain in log density per held-out row over Bayesian fits with separate weights for every task ("ridge").

    The result is None if folds judged no candidates or no candidate of that kind, if the model has one task only, and
    for counts with exposures, for which the folds judge rates.

    Parameters
    ----------
    model : fitted estimator
        A Bayesian estimator, or any other.
    """
    judged = getattr(model, "held_out_", None)
    if judged is None or judged.separate is None or len(model.tasks_) < 2:
        return None
    return float(judged.score - judged.separate) if judged.base_rate is None else float(judged.separate - judged.score)
