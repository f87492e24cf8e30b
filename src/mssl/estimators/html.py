"""What a fitted estimator says about itself."""

from __future__ import annotations

from html import escape
from typing import Any


def facts(model: Any) -> list[tuple[str, str]]:
    """The few lines a reader wants first: tasks, certificate, edges."""
    result = model.result_
    return [
        ("tasks", f"{len(model.tasks_)}"),
        ("features", f"{model.coef_.shape[1]}"),
        ("loss", model.loss_.name),
        ("shared mean", f"variance {model.mean_variance_:.3g}" if model.mean_variance_ > 0 else "none"),
        ("edges", f"{model.graph_.n_edges} of {len(model.tasks_) * (len(model.tasks_) - 1) // 2}"),
        ("certificate", f"relative gap {result.relative_gap:.1e} after {len(result.history)} rounds"),
        ("status", result.status.value),
    ]


def estimator_html(model: Any, diagram: str) -> str:
    """Scikit-learn's diagram, and below it for a fitted model its facts and its graph."""
    if not hasattr(model, "result_"):
        return diagram
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in facts(model)
    )
    graph = model.graph_._repr_html_()
    return f"{diagram}<details open><summary>Fit</summary><table>{rows}</table>{graph}</details>"
