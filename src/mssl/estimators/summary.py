"""Summaries of fitted models for statisticians: weights with their errors, noise, scores and relations."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mssl._html import Html, tag
from mssl._typing import Array, Labels
from mssl._validation import check_number
from mssl.data.columns import feature_spreads
from mssl.estimators.fitted import Fitted, normal_ends
from mssl.exceptions import MSSLError, require
from mssl.graph.export import short_name
from mssl.graph.tables import SHOWN, RelationTable, html_table, text_table

# A printed table of weights has at most this many lines. If there are more weights, each line summarises a feature over
# tasks, so that the table stays readable.
_MOST_LINES = 2 * SHOWN


@dataclass(frozen=True, eq=False)
class Summary:
    """A summary of a fitted model, as text, as HTML (``_repr_html_``) or as a frame.

    Attributes
    ----------
    title : str
        Class of the model.
    facts : list of (str, str)
        Facts about the training data, the fit and its scores.
    tasks, features : ndarrays of shape (K,) and (D,)
        Names of tasks and features.
    estimate : ndarray of shape (K, D)
        Weights in the user's units.
    std_error, lower, upper : ndarrays of shape (K, D) or None
        Standard errors or posterior standard deviations of the weights, and intervals; None if the model has none.
    level : float
        Probability of the intervals.
    relations : RelationTable or None
        Pairs of tasks that are significantly related, at a false discovery rate of 10 %.
    notes : list of str
        Notes on the meaning of the numbers.
    spreads : ndarray of shape (D,) or None
        Standard deviations of the columns in training, if they are known. Features are sorted by mean absolute weight
        times these, so that their order does not depend on the columns' units.
    """

    title: str
    facts: list[tuple[str, str]]
    tasks: Labels
    features: Labels
    estimate: Array
    std_error: Array | None
    lower: Array | None
    upper: Array | None
    level: float
    relations: RelationTable | None
    notes: list[str] = field(default_factory=list)
    spreads: Array | None = None

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row per weight: task, feature, estimate, std_error, lower, upper."""
        pandas: Any = require("pandas", "tables", "Summary.to_frame")
        K, D = self.estimate.shape
        columns: dict[str, Any] = {"task": np.repeat(self.tasks, D), "feature": np.tile(self.features, K)}
        numbers = {"estimate": self.estimate, "std_error": self.std_error, "lower": self.lower, "upper": self.upper}
        columns |= {name: np.nan if part is None else part.ravel() for name, part in numbers.items()}
        return pandas.DataFrame(columns)

    def _lines(self) -> list[list[str]]:
        """Head and rows of the table of weights; if there are many, one row per feature with its range over tasks."""
        K, D = self.estimate.shape
        if K * D > _MOST_LINES:
            sizes = np.abs(self.estimate).mean(axis=0) * (1.0 if self.spreads is None else self.spreads)
            order = np.argsort(-sizes, kind="stable")[:_MOST_LINES]
            lines = [["feature", "mean over tasks", "smallest", "largest", "tasks whose interval is off 0"]]
            for j in order.tolist():
                own, sure = self.estimate[:, j], ""
                if self.lower is not None and self.upper is not None:
                    sure = f"{np.count_nonzero((self.lower[:, j] > 0) | (self.upper[:, j] < 0))} of {K}"
                numbers = (f"{value:.4g}" for value in (own.mean(), own.min(), own.max()))
                lines.append([short_name(self.features[j]), *numbers, sure])
            return lines
        parts = [part for part in (self.estimate, self.std_error, self.lower, self.upper) if part is not None]
        ends = [f"{100 * edge:g} %" for edge in (0.5 - self.level / 2, 0.5 + self.level / 2)]
        head = ["task", "feature", "estimate", *(["std. error", *ends] if len(parts) > 1 else [])]
        cells = [
            [short_name(self.tasks[k]), short_name(self.features[j]), *(f"{part[k, j]:.4g}" for part in parts)]
            for k, j in np.ndindex(K, D)
        ]
        return [head, *cells]

    def _hidden(self) -> str:
        if self.estimate.size <= _MOST_LINES:
            return ""
        hidden = self.estimate.shape[1] - _MOST_LINES
        more = f"… {hidden} more features; to_frame() has all. " if hidden > 0 else ""
        return f"{more}Sorted by mean |weight|{'' if self.spreads is None else ' × spread of the column'}."

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.facts)
        blocks = [self.title, "\n".join(f"{name.ljust(width)}  {value}" for name, value in self.facts)]
        blocks.append("\n".join([text_table(self._lines()), *filter(None, [self._hidden()])]))
        if self.relations is not None:
            blocks.append(repr(self.relations))
        return "\n\n".join([*blocks, *self.notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        facts = (tag("tr", tag("th", Html(name), scope="row"), tag("td", Html(value))) for name, value in self.facts)
        lines = self._lines()
        page = [tag("h4", Html(self.title)), tag("table", tag("tbody", *facts)), html_table(lines[0], lines[1:])]
        page += [tag("p", Html(self._hidden())), Html() if self.relations is None else self.relations._html()]
        return str(Html(*page, *(tag("p", Html(note)) for note in self.notes)))


def summarise(model: Any, level: float = 0.9) -> Summary:
    """Summarise a fitted estimator of this package, a search over one, or a pipeline that ends in one.

    Parameters
    ----------
    model : estimator
        The fitted model.
    level : float, default=0.9
        Probability of the weights' intervals.

    Returns
    -------
    Summary

    Examples
    --------
    >>> from mssl import MSSLRegressor
    >>> from mssl.datasets import make_clustered_tasks
    >>> data = make_clustered_tasks(n_features=5, random_state=0)
    >>> summary = MSSLRegressor().fit(data.X, data.y, tasks=data.tasks).summary()
    >>> summary.estimate.shape == summary.std_error.shape
    True
    """
    check_number("level", level, above=0, below=1)
    model = last_step(model)
    check_is_fitted(model)
    fitted = getattr(model, "best_estimator_", model)
    std = fitted.coef_std_
    lower, upper = (None, None) if std is None else normal_ends(fitted.coef_, std, level)
    notes = []
    if std is None:
        notes.append("This model has no standard errors, because of its penalty, its kind or its size.")
    elif hasattr(fitted, "candidates_"):
        chosen = len(fitted.candidates_) > 1
        more = "they include the choice among priors" if chosen else "they treat the hyperparameters as known"
        notes.append(f"Standard errors are posterior standard deviations; {more}.")
    else:
        sibling = "BayesianMSSLClassifier" if fitted.loss_.labels else "BayesianMSSLRegressor"
        notes.append(
            "Standard errors and intervals are conditional on the fitted penalties, graph and noise, so they are too "
            f"narrow; {sibling} learns its prior from the data, and its intervals include the choice among priors."
        )
    relations: RelationTable | None = None
    with suppress(AttributeError, MSSLError):
        model.graph_.test_overall()
        relations = model.graph_.relations()
    return Summary(
        title=type(model).__name__,
        facts=_facts(model, fitted),
        tasks=fitted.tasks_,
        features=fitted.features_,
        estimate=fitted.coef_,
        std_error=std,
        lower=lower,
        upper=upper,
        level=level,
        relations=relations,
        notes=notes,
        spreads=feature_spreads(fitted, fitted.coef_.shape[1]),
    )


def last_step(model: Any) -> Any:
    """The estimator at the end of a pipeline; any other model is returned unchanged."""
    return last_step(model.steps[-1][1]) if hasattr(model, "steps") else model


def _facts(model: Any, fitted: Any) -> list[tuple[str, str]]:
    known: Fitted = fitted.fitted_
    K, D = fitted.coef_.shape
    facts = {"tasks": f"{K}", "features": f"{D}", "loss": known.loss.name}
    if known.loss.has_dispersion and known.noise_variance is not None:
        facts["noise (std. deviation)"] = _range(np.sqrt(known.noise_variance))
    dof = known.effective_dof
    if dof is not None:
        facts["degrees of freedom per task"] = _range(np.asarray(dof))
    if known.ensemble is not None:
        facts |= {"prior": f"{known.structure}", "log evidence": f"{known.evidence:.6g}"}
    held_out = getattr(model, "held_out_", None)
    if held_out is not None:
        scores = {
            held_out.what: held_out.score,
            "of each task's base rate alone": held_out.base_rate,
            "area under the ROC curve of the same rows": held_out.auc,
            "R² within tasks of the same rows": held_out.explained,
        }
        facts |= {words: f"{score:.4g}" for words, score in scores.items() if score is not None}
    if hasattr(model, "best_params_"):
        chosen = {k: f"{v:.3g}" if isinstance(v, float) else f"{v}" for k, v in model.best_params_.items()}
        facts["chosen"] = ", ".join(f"{name}={value}" for name, value in chosen.items())
    likelihood = known.log_likelihood
    if likelihood is not None and dof is not None:
        used = float(np.sum(dof)) + (K if fitted.fit_intercept else 0)
        facts["log-likelihood (training rows)"] = f"{likelihood:.6g}"
        aic, bic = 2 * used - 2 * likelihood, np.log(known.figure("rows")) * used - 2 * likelihood
        facts["AIC, BIC"] = f"{aic:.6g}, {bic:.6g}"
    if known.result is not None:
        facts["certificate"] = f"relative gap {known.result.relative_gap:.1e}, {known.result.status}"
    return list(facts.items())


def _range(values: Array) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def estimator_html(model: Any, diagram: str) -> str:
    """Scikit-learn's diagram, followed by the facts and the graph of a fitted model."""
    if not hasattr(model, "result_"):
        return diagram
    result, (K, d), left = model.result_, model.coef_.shape, "text-align:left"
    facts = {
        "tasks": f"{K}",
        "features": f"{d}",
        "loss": model.loss_.name,
        "shared mean": f"variance {model.mean_variance_:.3g}" if model.mean_variance_ > 0 else "none",
        "support": f"{model.graph_.n_edges} of {K * (K - 1) // 2} pairs",
        "certificate": f"relative gap {result.relative_gap:.1e} after {len(result.history)} rounds",
        "status": str(result.status),
    }
    rows = [tag("tr", tag("th", Html(k), style=left), tag("td", Html(v), style=left)) for k, v in facts.items()]
    fit = tag("details", tag("summary", Html("Fit")), tag("table", *rows), model.graph_._html(), open=True)
    return f"{diagram}{fit!s}"
