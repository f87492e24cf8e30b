"""Tables and figures of the climate experiment."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl.plots.support import NORMAL, SMALL, dots_with_bars, panels
from mssl_reproduction.climate_cells import given_graph, load_cells
from mssl_reproduction.figures import one_scale
from mssl_reproduction.page import Claim, Comparison, Page, published
from mssl_reproduction.runner import Results
from mssl_reproduction.stats import mean_and_spread, over_runs
from mssl_reproduction.tables import FEWEST_RUNS, Cell, Table

Array = NDArray[np.float64]

WORDS = {
    "fiveloc": "25 cells in five regions, CRU observations, 1901–2000",
    "atlas": "46 land regions of the IPCC's sixth report, W5E5 observations, 1979–2016",
    "south_america": "the paper's 250 cells of South America, 1901–2000",
    "simulated": "a simulated ensemble, since no real set could be had",
}
_PAPERS = ("Average", "Best member", "OLS", "S²M²R", "r-MSSL")


def present(results: Results) -> Page:
    """Table 2 and Figures 4–7, for every set."""
    protocol = results.protocol
    page = Page("climate", "Combining climate models (Table 2, Figures 4–7)")
    page.text(
        "Each location is a task, each of ten climate models a feature; windows of years move through the record, "
        "training on one part and testing on what follows. Errors are RMSE in °C, the mean over locations, "
        "then over test windows. Sets: "
        + "; ".join(
            f"*{name}* ({WORDS[name]}; {protocol['years'][name][0]} years of training, "
            f"{protocol['years'][name][1]} of testing)"
            for name in protocol["sets"]
        )
        + ".",
        "The paper combines raw values. These mostly carry the season, which a month-of-year mean of the training "
        "years, the *climatology*, knows already: the paper has no such baseline. So everything is done twice, on raw "
        "values and on *anomalies* from the training years' month-of-year means (of the observation and of each "
        "model), with the climatology added back before errors are taken.",
        "Best member: at each location the model with the lowest training RMSE there. Ridge is tuned by leave-one-out; "
        "S²M²R (strength), r-MSSL (λ, γ) and p-MSSL (λ, coupling) by 5-fold cross-validation over blocks of time "
        "inside the training window. S²M²R is given the Laplacian of the four nearest regions (atlas) or of the cells "
        "of a region (fiveloc, whose file has no coordinates).",
    )
    if protocol["not to be had"]:
        page.text(
            f"Not run, since the file could not be had here: {', '.join(protocol['not to be had'])}. "
            "The published figures are for that set, so that they and ours are not of the same cells."
        )
    page.heading("What was measured")
    for name in protocol["sets"]:
        page.table(_errors(results, name))
    page.heading("Published beside measured")
    for name in protocol["sets"]:
        page.compare(f"published-{name}", f"RMSE (°C) on raw values, published beside {name}", _beside(results, name))
        if name == "fiveloc":
            page.compare(
                "published-fiveloc-south-america",
                "The same for the five South American cells of fiveloc alone (fitted with all 25)",
                _beside(results, name, region="South America"),
            )
    page.claims(_claims(results))
    page.text(*_footnotes(protocol["sets"]))
    page.heading("Figures")
    for name in protocol["sets"]:
        _draw(page, results, name)
    return page


def rmse(results: Results, name: str, values: str, method: str) -> Array:
    """(windows, locations) errors."""
    return np.array(results.column("rmse", set=name, values=values, method=method))


def _errors(results: Results, name: str) -> Table:
    rows = []
    kinds = results.protocol["values"]
    means = {
        (kind, method): rmse(results, name, kind, method).mean(axis=1)
        for kind in kinds
        for method in results.protocol["methods"]
    }
    low = {kind: min(float(means[kind, m].mean()) for m in results.protocol["methods"]) + 5e-4 for kind in kinds}
    windows = len(next(iter(means.values())))
    told = {
        kind: windows >= FEWEST_RUNS and any(means[kind, m].mean() > low[kind] for m in results.protocol["methods"])
        for kind in kinds
    }
    for method in results.protocol["methods"]:
        row: list[Any] = [method]
        for kind in kinds:
            mean, spread = mean_and_spread(means[kind, method])
            row.append(Cell(mean, spread, digits=3, bold=told[kind] and mean <= low[kind]))
        rows.append(row)
    return Table(
        f"rmse-{name}",
        f"RMSE (°C) on {name}, {over_runs(windows, 'test window')}",
        ["method", *kinds],
        rows,
        "Bold: lowest mean of five or more windows. Windows share years, so that no test of significance is made. The "
        "climatology is the same in both columns.",
    )


_ELSEWHERE = "Other places: errors follow a place's own variability, and South America's is among the least."
_SAME_CONTINENT = "Five cells of the same continent instead of 250"
_REASONS = {
    "Average": "the average's error is the models' common bias there.",
    "Best member": "the model that was best in training need not be best later.",
    "OLS": "the season explains most of what is explained.",
    "S²M²R": "as for OLS; smoothing over neighbours changes little, as in the paper.",
    "r-MSSL": "as for OLS: with windows this long the residual graph changes the weights little.",
}


def _beside(results: Results, name: str, region: str | None = None) -> list[Comparison]:
    """The paper's five methods, over all locations or those of one region."""
    part = (
        np.ones(load_cells(name).y.shape[1], dtype=bool)
        if region is None
        else np.asarray(load_cells(name).regions) == region
    )
    rows = []
    for method in _PAPERS:
        if method not in results.protocol["methods"]:
            continue
        why = f"{_ELSEWHERE[:-1]}; {_REASONS[method]}" if region is None else f"{_SAME_CONTINENT}; {_REASONS[method]}"
        if name == "south_america":
            why = "The same cells; how the paper tuned its methods is not stated."
        known = published()["climate"]["South America"][method]
        mean, spread = mean_and_spread(rmse(results, name, "raw", method)[:, part].mean(axis=1))
        rows.append(Comparison(method, Cell(known["mean"], known["sd"], 3), Cell(mean, spread, digits=3), why))
    return rows


def _claims(results: Results) -> list[Claim]:
    texts, claims = published()["climate"]["claims"], []
    for name in results.protocol["sets"]:
        mean = {m: float(rmse(results, name, "raw", m).mean()) for m in results.protocol["methods"]}
        best = min(_PAPERS, key=lambda m: mean[m])
        gap = 100 * (mean["r-MSSL"] / mean["OLS"] - 1)
        known = published()["climate"]["South America"]
        published_gap = 100 * (known["r-MSSL"]["mean"] / known["OLS"]["mean"] - 1)
        claims.append(
            Claim(
                f"{texts['best']} [{name}]",
                best == "r-MSSL",
                f"Lowest of the paper's five: {best} ({mean[best]:.3f}); r-MSSL {mean['r-MSSL']:.3f}, {gap:+.1f} % "
                f"against OLS (published: {published_gap:+.1f} %); ridge {mean['ridge']:.3f}, climatology "
                f"{mean['climatology']:.3f}.",
            )
        )
        close = 100 * abs(mean["S²M²R"] / mean["OLS"] - 1)
        claims.append(
            Claim(f"{texts['similar']} [{name}]", close < 1, f"They differ by {close:.2f} % (we call < 1 % similar).")
        )
        worst = max(_PAPERS, key=lambda m: mean[m])
        claims.append(
            Claim(
                f"{texts['average']} [{name}]",
                worst == "Average",
                f"Highest of the paper's five: {worst} ({mean[worst]:.3f}); average {mean['Average']:.3f}.",
            )
        )
        season = 100 * (1 - mean["climatology"] / mean["OLS"])
        claims.append(
            Claim(
                f"Expected: the climatology, which uses no model at all, beats OLS on raw values. [{name}]",
                season > 0,
                f"It is {season:.1f} % below OLS.",
            )
        )
        claims.append(_anomalies(results, name))
    return claims


def _anomalies(results: Results, name: str) -> Claim:
    mean = {m: float(rmse(results, name, "anomalies", m).mean()) for m in results.protocol["methods"]}
    rivals = [m for m in ("r-MSSL", "p-MSSL", "p-MSSL, mean") if m in mean]
    best = min(rivals, key=lambda m: mean[m])
    gain = 100 * (1 - mean[best] / mean["climatology"])
    return Claim(
        f"Expected: on anomalies, multi-task learning improves on the climatology. [{name}]",
        gain >= 0.5,
        f"{best}: {mean[best]:.3f}, a gain of {round(gain, 1) + 0.0:.1f} % over the climatology "
        f"({mean['climatology']:.3f}); ridge {mean['ridge']:.3f}."
        + (
            ""
            if gain >= 0.5
            else " Free-running models do not follow the weather of a given month, so that their "
            "anomalies say little beyond the trend (we call a gain of 0.5 % an improvement)."
        ),
    )


def _footnotes(sets: list[str]) -> list[str]:
    notes = []
    if "fiveloc" in sets:
        notes.append("fiveloc has 1199 months, so that the last test window lacks December 2000.")
    if "atlas" in sets:
        notes.append(
            "atlas: HadGEM2-ES has no December 2005; its value is the mean of the Decembers before and after. The "
            "record is 38 years long, hence shorter windows than the paper's."
        )
    return notes


def _draw(page: Page, results: Results, name: str) -> None:
    data = load_cells(name)
    figure, axes = panels(7.0, 2.6, 1, 2, sharey=True)
    known = (
        {m: published()["climate"]["South America"][m]["mean"] for m in _PAPERS} if name == "south_america" else None
    )
    for ax, kind in zip(axes, results.protocol["values"], strict=True):
        means = {m: mean_and_spread(rmse(results, name, kind, m).mean(axis=1)) for m in results.protocol["methods"]}
        dots_with_bars(ax, means, label="RMSE (°C)", marks=known).set_title(kind, fontsize=NORMAL)
    runs = len({record["window"] for record in results.where(set=name)})
    page.figure(f"rmse-{name}", figure, f"RMSE by method, {over_runs(runs, 'test window')} ({name}).")
    precision, edges = _last_graph(results, name)
    _matrices(page, name, precision, data)
    _locations(page, results, name, data)
    _connections(page, name, precision, edges, data)


def _last_graph(results: Results, name: str) -> tuple[Array, list[list[int]]]:
    """Precision and stable edges of r-MSSL in the last window, on raw values."""
    record = results.where(set=name, values="raw", method="r-MSSL")[-1]
    return np.array(record["precision"]), record["edges"]


def _matrices(page: Page, name: str, precision: Array, data: Any) -> None:
    from mssl import plots

    K = len(precision)
    figure, axes = panels(7.0, 3.2, 1, 2)
    names = [str(task) for task in data.task_names]
    given = given_graph(name).laplacian(K)
    proper = given + np.diag(np.where(given.diagonal() > 0, 1e-9, 1.0))
    for ax, matrix, title in ((axes[0], proper, "given to S²M²R"), (axes[1], precision, "learned by r-MSSL")):
        plots.plot_precision(matrix, ax, tasks=names, ordered=False).set_title(title, fontsize=NORMAL)
        _region_ticks(ax, [str(region) for region in data.regions], both=ax is axes[0])
    one_scale(axes)
    page.figure(
        f"precision-{name}",
        figure,
        f"Partial correlations: of the Laplacian given to S²M²R, and of the residual precision learned by r-MSSL in "
        f"the last window ({name}, raw values).",
    )


def _region_ticks(ax: Any, regions: list[str], *, both: bool) -> None:
    """Name the regions at the middle of their locations, instead of the locations; the y-axis only for the first."""
    starts = [k for k in range(len(regions)) if k == 0 or regions[k] != regions[k - 1]]
    stops = [*starts[1:], len(regions)]
    middles = [(start + stop - 1) / 2 for start, stop in zip(starts, stops, strict=True)]
    words = [regions[start].replace("-", " ").title()[:16] for start in starts]
    for axis, turn, shown in ((ax.xaxis, 90, True), (ax.yaxis, 0, both)):
        axis.set_ticks(middles, words if shown else [""] * len(words), fontsize=SMALL, rotation=turn)
        axis.set_label_text("locations, by region" if shown else "", fontsize=NORMAL)


def _locations(page: Page, results: Results, name: str, data: Any) -> None:
    methods = ("Average", "r-MSSL", "climatology")
    errors = {method: rmse(results, name, "raw", method).mean(axis=0) for method in methods}
    caption = f"RMSE per location, mean over windows ({name}, raw values)."
    if data.coordinates is None:
        figure, ax = panels(7.0, 3.0)
        names = [str(task) for task in data.task_names]
        if len(names) > 60:
            ax.set_xlabel(f"{len(names)} locations", fontsize=NORMAL)
        else:
            ax.set_xticks(range(len(names)), names, rotation=90, fontsize=SMALL)
        for (method, values), color, marker in zip(
            errors.items(), ("#0072B2", "#E69F00", "#000000"), "os^", strict=True
        ):
            ax.plot(values, color=color, marker=marker, ms=4, lw=0, label=method)
        ax.set_ylabel("RMSE (°C)", fontsize=NORMAL)
        ax.set_ylim(bottom=0)
        ax.legend(fontsize=SMALL, frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        page.figure(f"locations-{name}", figure, caption)
        return
    draw = _maps if hasattr(data, "polygons") else _points
    page.figure(f"locations-{name}", draw(errors, data), caption)


def _points(errors: dict[str, Array], data: Any) -> Any:
    """One map a method, locations as points coloured by their error."""
    from mssl import plots
    from mssl.graph.task_graph import TaskGraph

    figure, axes = panels(7.0, 2.8, 1, len(errors))
    alone = TaskGraph.from_edges([], tasks=[str(task) for task in data.task_names])
    for ax, (method, values) in zip(axes, errors.items(), strict=True):
        plots.plot_map(alone, ax, coordinates=data.coordinates, values=values, label="RMSE (°C)")
        ax.set_title(method, fontsize=NORMAL)
    return figure


def _maps(errors: dict[str, Array], data: Any) -> Any:
    """One map a method, regions filled by their error."""
    from matplotlib.collections import LineCollection, PolyCollection

    from mssl.graph.geometry import coastlines

    figure, axes = panels(5.4, 7.2, len(errors), 1, sharex=True)
    highest = max(float(values.max()) for values in errors.values())
    coast = coastlines((-90.0, 85.0, -180.0, 180.0), 0.5)
    for ax, (method, values) in zip(axes, errors.items(), strict=True):
        shapes, colors = [], []
        for task, value in zip(data.task_names, values, strict=True):
            parts = data.polygons[str(task)]
            shapes += [(part + np.array([shift, 0])) for part in parts for shift in (0.0, -360.0)]
            colors += [value] * (2 * len(parts))
        fill = PolyCollection(shapes, array=np.array(colors), cmap="cividis", edgecolors="white", lw=0.4)
        fill.set_clim(0, highest)
        ax.add_collection(fill)
        ax.add_collection(LineCollection(coast, colors="#444444", lw=0.4))
        ax.set(xlim=(-180, 180), ylim=(-90, 85), aspect=1.1)
        ax.set_title(method, fontsize=NORMAL)
        ax.set_ylabel("latitude (°N)", fontsize=NORMAL)
    axes[-1].set_xlabel("longitude (°E)", fontsize=NORMAL)
    bar = figure.colorbar(fill, ax=list(axes), shrink=0.6)
    bar.set_label("RMSE (°C)", fontsize=NORMAL)
    bar.ax.tick_params(labelsize=SMALL)
    return figure


def _connections(page: Page, name: str, precision: Array, edges: list[list[int]], data: Any) -> None:
    from mssl import plots
    from mssl.graph.task_graph import TaskGraph, partial_correlation

    weights = partial_correlation(precision)
    names = [str(task) for task in data.task_names]
    joined = [(names[i], names[j], float(weights[i, j]) or 1e-3) for i, j in edges]
    graph = TaskGraph.from_edges(joined, tasks=names)
    figure, ax = panels(4.6, 4.6)
    plots.plot_chord(graph, ax, groups=[str(region) for region in data.regions])
    inside = np.mean([data.regions[i] == data.regions[j] for i, j in edges]) if edges else 0.0
    page.figure(
        f"chord-{name}",
        figure,
        f"Stable edges of r-MSSL in the last window, by region ({name}, raw values); {inside:.0%} of {len(edges)} "
        "edges join locations of one region.",
    )
    if data.coordinates is not None:
        figure, ax = panels(7.0, 3.8)
        plots.plot_map(graph, ax, coordinates=data.coordinates)
        page.figure(f"map-{name}", figure, f"The same edges on a map ({name}).")
