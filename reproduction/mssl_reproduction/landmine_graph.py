"""Figure 9 of the paper: the task graph of the landmine fields, overgrown ones and bare ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from mssl.plots.support import NORMAL, SMALL, panels
from mssl_reproduction import sets
from mssl_reproduction.figures import graph_panels, lines_with_bars
from mssl_reproduction.page import Claim, Page, published
from mssl_reproduction.runner import Experiment, Key, Record, Results
from mssl_reproduction.stats import ALPHA, density_test
from mssl_reproduction.tables import Cell, Table

STABLE = "stability selection"
SHOWN = 0.4  # share of λ_max whose graph is drawn: in the middle of the path


def protocol(quick: bool) -> dict[str, Any]:
    """Six penalties and stability selection, with and without a shared mean; quick: three, without."""
    sets.load("landmine")
    return {
        "shares": [0.6, SHOWN, 0.2] if quick else [0.8, 0.6, SHOWN, 0.3, 0.2, 0.1],
        "shared means": [False] if quick else [False, True],
        "subsamples": 30 if quick else 100,
    }


def pieces(settings: dict[str, Any]) -> list[Key]:
    """One piece a kind of mean and choice of the graph."""
    choices = [*(f"{share:g} λ_max" for share in settings["shares"]), STABLE]
    return [{"shared mean": mean, "choice": choice} for mean in settings["shared means"] for choice in choices]


def run_piece(key: Key, settings: dict[str, Any]) -> Record:
    """Edges, partial correlations, and the densities within and between the two kinds of ground."""
    from mssl import MSSLClassifier, StabilitySelection

    data = sets.load("landmine")
    model = MSSLClassifier(0.05, shared_mean=key["shared mean"])
    if key["choice"] == STABLE:
        selection = StabilitySelection(model, n_subsamples=settings["subsamples"], random_state=0)
        graph = selection.fit(data.X, data.y, tasks=data.tasks).graph_
    else:
        limit = model.limits(data.X, data.y, tasks=data.tasks).graph_penalty
        model.set_params(graph_penalty=float(key["choice"].split()[0]) * limit)
        graph = model.fit(data.X, data.y, tasks=data.tasks).graph_
    i, j = graph.edge_indices()
    return {
        "edges": [[int(a), int(b), round(float(graph.weights[a, b]), 5)] for a, b in zip(i, j, strict=True)],
        "test": density_test(graph.adjacency, data.groups),
        "weighted": density_test(graph.weights, data.groups)["p_value"],
    }


def present(results: Results) -> Page:
    """The graph with the two grounds coloured, densities along the path, and the permutation test."""
    page = Page("landmine-graph", "The landmine fields' task graph (Figure 9)")
    page.text(
        "p-MSSL with the logistic loss on all rows of the 19 fields; fields 1–10 are overgrown (foliage), 11–19 bare "
        "(desert). If the graph knows the ground, fields of one kind are joined more densely than fields of two. The "
        "exact permutation test looks at all 92 378 ways to call ten of the fields overgrown: its p-value is the share "
        "of them for which the density inside the two kinds less that between them is at least as large as for the "
        "true kinds. λ is given as a share of λ_max, from which on the graph is empty. *Weighted p* is the same test "
        "with partial correlations instead of edges.",
    )
    page.heading("What was measured").table(_table(results))
    page.heading("Published beside measured").claims([_claim(results, mean) for mean in _means(results)])
    page.text(
        "The paper's graph comes from one λ chosen by stability selection; ours is shown along the whole path, so that "
        "the answer does not hang on a choice. Overgrown fields are joined first; the bare ones' edges come later on "
        "the path, later still with a shared mean, and stability selection, which stops early, does not reach them."
    )
    page.heading("Figures")
    _draw(page, results)
    return page


def _means(results: Results) -> list[bool]:
    return list(results.protocol["shared means"])


def _table(results: Results) -> Table:
    rows = []
    for record in results.records:
        test = record["test"]
        densities = [Cell(100 * test[name], digits=0) for name in ("first", "second", "between")]
        p = [f"{value:.2g}" for value in (test["p_value"], record["weighted"])]
        mean = "yes" if record["shared mean"] else "no"
        rows.append([mean, record["choice"], str(len(record["edges"])), *densities, *p])
    columns = ["shared mean", "graph", "edges", "within foliage (%)", "within desert (%)", "between (%)", "p"]
    return Table("densities", "Density of edges within and between the two kinds of ground",
                 [*columns, "weighted p"], rows)  # fmt: skip


def _claim(results: Results, mean: bool) -> Claim:
    found = [r for r in results.where(**{"shared mean": mean}) if r["edges"]]
    dense = [r for r in found if min(r["test"]["first"], r["test"]["second"]) > r["test"]["between"]]
    significant = [r for r in found if r["test"]["p_value"] < ALPHA]
    stable = results.where(**{"shared mean": mean, "choice": STABLE})[0]["test"]
    both = f"in {len(dense)} of {len(found)} graphs with edges both kinds are denser inside than between"
    return Claim(
        f"{published()['landmine-graph']['clusters']} [{'with' if mean else 'without'} a shared mean]",
        len(significant) == len(found) and len(dense) > 0,
        f"Permutation tests reject at α = 0.05 for {len(significant)} of {len(found)} graphs; {both}. Stability "
        f"selection: {100 * stable['first']:.0f} % within foliage, {100 * stable['second']:.0f} % within desert, "
        f"{100 * stable['between']:.0f} % between (p = {stable['p_value']:.2g}).",
    )


def _draw(page: Page, results: Results) -> None:
    data = sets.load("landmine")
    names = [str(k + 1) for k in range(len(data.task_names))]
    weights = {}
    for choice in (f"{SHOWN:g} λ_max", STABLE):
        matrix = np.zeros((len(names), len(names)))
        for i, j, weight in results.where(**{"shared mean": False, "choice": choice})[0]["edges"]:
            matrix[i, j] = matrix[j, i] = weight or 1e-3
        weights[choice.replace("λ_max", r"$\lambda_{\max}$")] = matrix
    figure = graph_panels(weights, names, [str(ground) for ground in data.groups])
    page.figure(
        "graph",
        figure,
        "Task graph of the landmine fields, without a shared mean, at one λ and by stability selection.",
    )
    figure, axes = panels(3.5 * len(_means(results)), 2.8, 1, len(_means(results)), squeeze=False, sharey=True)
    shares = results.protocol["shares"]
    words = {"first": "within foliage", "second": "within desert", "between": "between"}
    for ax, mean in zip(axes[0], _means(results), strict=True):
        tests = [results.where(**{"shared mean": mean, "choice": f"{s:g} λ_max"})[0]["test"] for s in shares]
        curves = {word: ([100 * t[name] for t in tests], np.zeros(len(tests))) for name, word in words.items()}
        lines_with_bars(ax, shares, curves, x_label=r"$\lambda\,/\,\lambda_{\max}$", y_label="density of edges (%)")
        ax.set_title(f"{'with' if mean else 'without'} a shared mean", fontsize=NORMAL)
    axes[0, 0].legend(fontsize=SMALL, frameon=False)
    page.figure("densities", figure, "Density of edges within and between the two kinds of ground along the path.")


EXPERIMENT = Experiment(
    "landmine-graph", "Task graph of the landmine fields, and a permutation test", protocol, pieces, run_piece, present
)
