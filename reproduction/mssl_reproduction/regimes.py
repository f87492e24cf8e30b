"""A grid with three known regimes: whether the certain edges of r-MSSL stop at the mountain range."""

from __future__ import annotations

from typing import Any

import numpy as np

from mssl.graph.geometry import PALETTE
from mssl.plots.support import NORMAL, SMALL, panels
from mssl_reproduction.page import Claim, Page
from mssl_reproduction.regime_grid import make_regime_grid
from mssl_reproduction.runner import Experiment, Key, Record, Results, crossed
from mssl_reproduction.tables import Cell, Table

_DRAWN = 249  # cells whose graph is drawn: of more the edges cannot be told apart
_REGIMES = ("west of the range", "north-east", "south-east")


def protocol(quick: bool) -> dict[str, Any]:
    """Grids of 249 and 2 426 cells with 1 200 occasions; quick: the smaller one, once."""
    return {"cells": [_DRAWN] if quick else [_DRAWN, 2426], "seeds": 1 if quick else 3, "occasions": 1200, "λ": 0.1}


def pieces(settings: dict[str, Any]) -> list[Key]:
    """One piece a grid."""
    return crossed(cells=settings["cells"], seed=range(settings["seeds"]))


def run_piece(key: Key, settings: dict[str, Any]) -> Record:
    """Shares of neighbours that certain edges join, inside regimes and across, and all edges."""
    from mssl import MSSLRegressor

    grid = make_regime_grid(key["cells"], n_samples=settings["occasions"], random_state=key["seed"])
    model = MSSLRegressor(relation="residual", graph_penalty=settings["λ"]).fit(grid.X, grid.y)
    i, j = model.graph_.selected(0.1, "edges").edge_indices()
    found = np.zeros(grid.adjacency.shape, dtype=bool)
    found[i, j] = found[j, i] = True
    across = grid.neighbours & ~grid.adjacency
    apart = grid.regime[:, None] != grid.regime
    return {
        "inside": float(found[grid.adjacency].mean()),
        "across": float(found[across].mean()),
        "pairs across": int(np.triu(found & apart).sum()),
        "false": float(1 - grid.adjacency[i, j].mean()),
        "edges": np.stack([i, j], axis=1).tolist(),
    }


def present(results: Results) -> Page:
    """The shares, and a map."""
    page = Page("regimes", "A grid with three known regimes")
    page.text(
        f"Cells of a grid in three regimes: neighbours of one regime are related given all other cells, neighbours on "
        f"two sides of a border are not. r-MSSL (λ = {results.protocol['λ']:g}) is fitted to "
        f"{results.protocol['occasions']} occasions; an edge is certain at a false discovery rate of 10 %."
    )
    page.heading("What was measured").table(_table(results))
    page.heading("Set beforehand beside measured").claims(
        [_claim(results, cells) for cells in results.protocol["cells"]]
    )
    page.heading("Figures")
    _draw(page, results)
    return page


def _table(results: Results) -> Table:
    rows = []
    for cells in results.protocol["cells"]:
        found = results.where(cells=cells)
        shares = [
            Cell(*_summary([100 * record[name] for record in found]), digits=digits)
            for name, digits in (("inside", 1), ("across", 1), ("false", 1))
        ]
        pairs = Cell(*_summary([record["pairs across"] for record in found]), digits=1)
        rows.append([str(cells), str(len(found)), *shares, pairs])
    columns = [
        "cells",
        "grids",
        "neighbours inside joined (%)",
        "neighbours across joined (%)",
        "edges that are false (%)",
    ]
    return Table("regimes", "What certain edges join", [*columns, "edges between regimes"], rows)


def _claim(results: Results, cells: int) -> Claim:
    inside, across = (100 * np.asarray(results.column(name, cells=cells)) for name in ("inside", "across"))
    return Claim(
        f"{cells} cells: certain edges join at least 95 % of neighbours inside a regime and at most 1 % across",
        bool(np.mean(inside) >= 95 and np.mean(across) <= 1),
        f"{np.mean(inside):.1f} % inside, {np.mean(across):.1f} % across.",
    )


def _summary(values: list[float]) -> tuple[float, float | None]:
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def _draw(page: Page, results: Results) -> None:
    from matplotlib.collections import LineCollection

    record = results.where(cells=results.protocol["cells"][0], seed=0)[0]
    grid = make_regime_grid(record["cells"], n_samples=1, random_state=0)
    place = grid.coordinates[:, ::-1]
    figure, axes = panels(7.0, 4.0, 1, 2, sharex=True, sharey=True)
    truth = np.argwhere(np.triu(grid.adjacency))
    for ax, title, edges in zip(axes, ("truth", "certain edges"), (truth, np.asarray(record["edges"])), strict=True):
        right = grid.adjacency[edges[:, 0], edges[:, 1]]
        for which, color in ((right, "#8C8C8C"), (~right, PALETTE[5])):
            ax.add_collection(LineCollection(place[edges[which]], colors=color, linewidths=0.8, zorder=1))
        for number, name in enumerate(_REGIMES):
            ax.scatter(*place[grid.regime == number].T, s=9, color=PALETTE[number], label=name, zorder=2)
        ax.set_title(title, fontsize=NORMAL)
        ax.set_xlabel("longitude (°)", fontsize=NORMAL)
    axes[0].set_ylabel("latitude (°)", fontsize=NORMAL)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=SMALL, frameon=False)
    page.figure(
        "map",
        figure,
        f"A grid of {record['cells']} cells: joined neighbours, and r-MSSL's certain edges (false ones red).",
    )


EXPERIMENT = Experiment("regimes", "A grid with three known regimes", protocol, pieces, run_piece, present)
