"""Figure 8 of the paper: error against the number of labelled samples, Spam with 15 users."""

from __future__ import annotations

from typing import Any

import numpy as np

from mssl.plots.support import SMALL, panels
from mssl_reproduction import methods, sets
from mssl_reproduction.figures import lines_with_bars
from mssl_reproduction.page import Claim, Page, published
from mssl_reproduction.runner import Experiment, Key, Record, Results, can_be_had, crossed
from mssl_reproduction.stats import mean_and_spread, over_runs, paired_p_value
from mssl_reproduction.tables import Table

_SHOWN = (*methods.PAPERS, methods.DEFAULT, "Pooled")


def protocol(quick: bool) -> dict[str, Any]:
    """5 runs of five sizes; quick: 2 runs of two. Without the mails, the bundled digits take their place."""
    return {
        "set": "spam-15" if can_be_had(sets.load, "spam-15") else "digits",
        "sizes": [10, 20] if quick else [10, 20, 40, 80, 160],
        "seeds": 2 if quick else 5,
        "methods": list(_SHOWN if not quick else ["LR", methods.PAPER, methods.DEFAULT]),
        **methods.search_grid(quick),
    }


def pieces(settings: dict[str, Any]) -> list[Key]:
    """One piece a size, seed and method."""
    return crossed(size=settings["sizes"], seed=range(settings["seeds"]), method=settings["methods"])


def run_piece(key: Key, settings: dict[str, Any]) -> Record:
    """Error and AUC on the test rows."""
    return methods.measure(key["method"], sets.split(settings["set"], key["size"], key["seed"]), settings)


def present(results: Results) -> Page:
    """The curves, a table, and the paper's two claims."""
    protocol = results.protocol
    title = sets.TITLES[protocol["set"]]
    page = Page("sample-size", "Error against sample size (Figure 8)")
    page.text(
        f"{title}: error against the number of training rows a task, {over_runs(protocol['seeds'], 'random split')}. "
        "Methods, features and tuning are those of the classification experiment. The paper's figure has no numbers, "
        "so shapes are compared.",
    )
    if protocol["set"] != "spam-15":
        page.text("The mails of the paper's figure could not be had here; the bundled digits take their place.")
    page.heading("What was measured").table(_table(results, "error")).table(_table(results, "auc"))
    edges = {
        str(size): {m: _runs(results, size, m, "edges") for m in methods.LEARNED if m in protocol["methods"]}
        for size in protocol["sizes"]
    }
    page.table(methods.edges_table(edges, "rows a task"))
    page.heading("Published beside measured").claims(_claims(results))
    page.text(
        "Exact duplicate mails (377 of 6000) make random splits optimistic for all methods alike."
        if protocol["set"] == "spam-15"
        else ""
    )
    page.heading("Figures")
    figure, ax = panels(4.6, 3.4)
    curves = {
        m: tuple(np.array([mean_and_spread(_runs(results, s, m)) for s in protocol["sizes"]]).T)
        for m in protocol["methods"]
    }
    lines_with_bars(ax, protocol["sizes"], curves, x_label="training rows a task", y_label="error (%)")
    ax.legend(fontsize=SMALL, frameon=False, ncols=2)
    page.figure(
        "error",
        figure,
        f"Error against the number of training rows a task ({title}), {over_runs(protocol['seeds'], 'run')}.",
    )
    return page


def _runs(results: Results, size: int, method: str, what: str = "error") -> list[float]:
    return results.column(what, size=size, method=method)


def _overlap(results: Results, size: int) -> float:
    """Share of a task's rows that are for training, and so in common to two runs."""
    data = sets.load(results.protocol["set"])
    return size * len(data.task_names) / len(data.y)


def _p_value(results: Results, size: int, rival: str) -> float:
    """Of the paired difference between the paper's form and a rival."""
    ours, theirs = _runs(results, size, methods.PAPER), _runs(results, size, rival)
    return paired_p_value(ours, theirs, overlap=_overlap(results, size))


def _table(results: Results, what: str) -> Table:
    rows, names = [], results.protocol["methods"]
    for size in results.protocol["sizes"]:
        found = {m: _runs(results, size, m, what) for m in names}
        rows.append([str(size), *methods.score_cells(found, what, _overlap(results, size))])
    caption = f"{methods.MEASURES[what]} by training rows a task, mean ± sd"
    return Table(what, caption, ["rows a task", *names], rows, methods.BOLD)


def _claims(results: Results) -> list[Claim]:
    texts, names = published()["sample-size"], results.protocol["methods"]
    mean = {s: {m: float(np.mean(_runs(results, s, m))) for m in names} for s in results.protocol["sizes"]}
    small = min(results.protocol["sizes"])
    others = [m for m in (*methods.PAPERS[1:], methods.DEFAULT) if m in names]
    beaten = [m for m in others if mean[small][m] < mean[small]["LR"]]
    failing = [m for m in others if m not in beaten]
    papers = [m for m in methods.PAPERS if m in names]
    lost = {s: min(papers, key=mean[s].__getitem__) for s in mean}
    behind = [
        f"{s} rows: {best} {mean[s][best]:.2f} %, {methods.PAPER} {mean[s][methods.PAPER]:.2f} % "
        f"(p = {_p_value(results, s, best):.2g})"
        for s, best in lost.items()
        if best != methods.PAPER
    ]
    return [
        Claim(
            texts["few"],
            not failing,
            f"At {small} rows LR errs on {mean[small]['LR']:.2f} %; below it: "
            + (", ".join(f"{m} {mean[small][m]:.2f} %" for m in beaten) or "none")
            + (f"; not below it: {', '.join(f'{m} {mean[small][m]:.2f} %' for m in failing)}." if failing else "."),
        ),
        Claim(
            texts["all"],
            not behind,
            "p-MSSL has the lowest error of the paper's five at every size."
            if not behind
            else "Another of the paper's five is ahead at " + "; ".join(behind) + ".",
        ),
    ]


EXPERIMENT = Experiment(
    "sample-size", "Error against the number of labelled samples", protocol, pieces, run_piece, present
)
