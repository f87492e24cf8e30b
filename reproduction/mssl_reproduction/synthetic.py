"""Figures 1 and 2 of the paper: 13 tasks in two clusters and three outliers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl.datasets import make_clustered_tasks
from mssl.graph.task_graph import partial_correlation
from mssl.paper import PaperMSSL
from mssl.plots.support import panels
from mssl_reproduction.alone import TaskByTask
from mssl_reproduction.figures import graph_panels, precision_panels
from mssl_reproduction.page import Claim, Page, published
from mssl_reproduction.runner import Experiment, Key, Record, Results, crossed
from mssl_reproduction.stats import ALPHA, mean_and_spread, over_runs, paired_p_value, rmse_by_task
from mssl_reproduction.tables import Cell, Table, compared_cells

Array = NDArray[np.float64]

METHODS = ("OLS", "ridge", "p-MSSL", "dense", "wrong graph", "true graph", "paper's form")
WORDS = {
    "OLS": "least squares, task by task",
    "ridge": "ridge, task by task, strength by leave-one-out",
    "p-MSSL": "λ and coupling by 5-fold cross-validation, graph by stability selection",
    "dense": "p-MSSL with λ = 0 and coupling 1",
    "wrong graph": "the true precision, but with tasks 11–13 as members of the second cluster",
    "true graph": "the true precision, which nobody knows",
    "paper's form": "the objective as printed (K/2, unit noise), λ from {0.01, …, 100} by cross-validation",
}
GROUPS = {"tasks 1–4": range(4), "tasks 5–10": range(4, 10), "tasks 11–13": range(10, 13)}
WRONG_CLUSTERS = (range(4), range(4, 13))
_RELATED, _OUTLIERS = list(range(10)), list(range(10, 13))
_PRIOR_STRENGTHS = (0.3, 1.0, 3.0)  # multiples of a given precision that cross-validation chooses among


def protocol(quick: bool) -> dict[str, Any]:
    """30 runs of three generators; quick: 3 runs of one."""
    return {
        "generators": ["centres"] if quick else ["centres", "equicorrelated", "chain"],
        "seeds": 3 if quick else 30,
        "methods": list(METHODS if not quick else METHODS[:-1]),
        "training rows": 60,
        "test rows": 40,
        "features": 30,
        "noise": 1.0,
    }


def pieces(settings: dict[str, Any]) -> list[Key]:
    """One piece a generator, seed and method."""
    return crossed(generator=settings["generators"], seed=range(settings["seeds"]), method=settings["methods"])


def problem(generator: str, seed: int, settings: dict[str, Any]) -> Any:
    """The data of one run."""
    return make_clustered_tasks(
        generator,
        n_features=settings["features"],
        n_samples=settings["training rows"],
        n_test=settings["test rows"],
        noise=settings["noise"],
        random_state=seed,
    )


def run_piece(key: Key, settings: dict[str, Any]) -> Record:
    """Test RMSE of every task, and for the methods that learn a graph how it compares with the true one."""
    data = problem(key["generator"], key["seed"], settings)
    model = estimator(key["method"], key["generator"], data).fit(data.X, data.y, tasks=data.tasks)
    rmse = rmse_by_task(data, model.predict(data.X_test, tasks=data.tasks_test))
    record: Record = {"rmse": rmse, "chosen": {}, "graph": None, "matrix": None}
    if hasattr(model, "best_params_"):
        record["chosen"] = {name: _plain(value) for name, value in model.best_params_.items()}
    if key["method"] == "p-MSSL":
        found = model.graph_.compare(data.adjacency)
        record["graph"] = {"f1": found.f1, "found": found.found, "missed": found.missed, "false": found.false}
        record["graph"]["edges"] = [[int(i), int(j)] for i, j in zip(*model.graph_.edge_indices(), strict=True)]
        record["matrix"] = np.round(model.precision_, 6).tolist()
    return record


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, int | float | np.number) and not isinstance(value, bool) else str(value)


def estimator(method: str, generator: str, data: Any) -> Any:
    """The estimator behind a method's name."""
    from mssl import MSSLRegressor, MSSLRegressorCV, StabilitySelection

    if method in ("OLS", "ridge"):
        return TaskByTask(method)
    if method == "dense":
        return MSSLRegressor(graph_penalty=0.0, shared_mean=False)
    if method in ("true graph", "wrong graph"):
        return GivenGraph(data.precision if method == "true graph" else wrong_precision(generator))
    if method == "paper's form":
        grid = [0.01, 0.1, 1.0, 10.0, 100.0]
        return MSSLRegressorCV(PaperMSSL(), {"graph_penalty": grid, "coef_penalty": [0.0], "prior_strength": [1.0]})
    return MSSLRegressorCV(
        param_grid={"prior_strength": [0.5, 1.0, 2.0], "coef_penalty": [0.0], "shared_mean": [False]},
        selection="both",
        stability=StabilitySelection(random_state=0),
    )


def wrong_precision(generator: str) -> Array:
    """The precision that the same generator has with the outliers as members of the second cluster."""
    tied = make_clustered_tasks(generator, clusters=WRONG_CLUSTERS, n_samples=2, n_test=1, random_state=0)
    return np.asarray(tied.precision)


class GivenGraph:
    """A fixed precision, its strength by 5-fold cross-validation."""

    def __init__(self, precision: Array) -> None:
        self.precision = precision

    def _model(self, strength: float) -> Any:
        from mssl import MultiTaskGLM
        from mssl.structures import FixedPrecision

        return MultiTaskGLM(FixedPrecision(self.precision, strength))

    def fit(self, X: Array, y: Array, tasks: NDArray[Any]) -> GivenGraph:
        """Choose the strength, then fit on all rows."""
        from mssl.data.folds import TaskKFold

        splits = list(TaskKFold(5).split(X, groups=tasks))

        def loss(strength: float) -> float:
            errors = []
            for train, test in splits:
                model = self._model(strength).fit(X[train], y[train], tasks=tasks[train])
                errors.append(np.mean((model.predict(X[test], tasks=tasks[test]) - y[test]) ** 2))
            return float(np.mean(errors))

        self.model_ = self._model(min(_PRIOR_STRENGTHS, key=loss)).fit(X, y, tasks=tasks)
        return self

    def predict(self, X: Array, tasks: NDArray[Any]) -> Array:
        """Predict with the fitted model."""
        return np.asarray(self.model_.predict(X, tasks=tasks))


def present(results: Results) -> Page:
    """Box plots, matrices, graphs, a table of errors and one of tests."""
    page = Page("synthetic", "Synthetic tasks (Figures 1 and 2)")
    generators = results.protocol["generators"]
    page.text(
        "13 tasks, 30 covariates, 60 training and 40 test rows of one design, unit noise; tasks 1–4 and 5–10 form two "
        "clusters, 11–13 stand alone. The paper does not say how related weights were drawn, so "
        f"{len(generators)} generator{'s are' if len(generators) > 1 else ' is'} shown: {', '.join(generators)} "
        "(see `mssl.datasets.make_clustered_tasks`). The paper prints box plots and no numbers for this experiment.",
        "Ridge, task by task, is the fair baseline that the paper leaves out: shrinkage alone may beat least squares.",
        "Methods: "
        + "; ".join(f"*{method}*: {WORDS[method]}" for method in results.protocol["methods"])
        + ". The strength of a given graph is chosen from {0.3, 1, 3} by cross-validation.",
    )
    page.heading("What was measured").table(_errors(results)).table(_graphs(results)).table(_tests(results))
    page.heading("Published beside measured").claims(_claims(results))
    page.heading("Figures")
    for generator in generators:
        _draw(page, results, generator)
    return page


def rmse(results: Results, generator: str, method: str) -> Array:
    """(runs, tasks) errors."""
    return np.array(results.column("rmse", generator=generator, method=method))


def _errors(results: Results) -> Table:
    rows = []
    for generator in results.protocol["generators"]:
        for name, members in GROUPS.items():
            means = {m: rmse(results, generator, m)[:, list(members)].mean(axis=1) for m in results.protocol["methods"]}
            rows.append([generator, name, *compared_cells(means, digits=3, unfair=["true graph"])])
    return Table(
        "errors",
        f"Test RMSE, {over_runs(results.protocol['seeds'], 'run')} (the noise alone gives 1)",
        ["generator", "tasks", *results.protocol["methods"]],
        rows,
        "Bold: lowest, or not significantly worse than the lowest (paired t-tests, Holm, α = 0.05); the true graph, "
        "which is not known in practice, does not take part. No cell is bold where no method is worse.",
    )


def _graphs(results: Results) -> Table:
    rows = []
    for generator in results.protocol["generators"]:
        graphs = results.column("graph", generator=generator, method="p-MSSL")
        counts = [[g[name] for g in graphs] for name in ("found", "missed", "false")]
        rows.append([generator, *(Cell(*mean_and_spread(c), digits=1) for c in counts)])
        rows[-1].append(Cell(*mean_and_spread([g["f1"] for g in graphs])))
    return Table(
        "graph",
        "Edges of the true task graph, by stability selection",
        ["generator", "found", "missed", "false", "F1"],
        rows,
    )


def _gain(results: Results, generator: str, rival: str, members: list[int]) -> tuple[float, float]:
    """Gain of p-MSSL over a rival in the mean RMSE of some tasks (%), and the p-value of a paired test over runs."""
    ours, theirs = (rmse(results, generator, m)[:, members].mean(axis=1) for m in ("p-MSSL", rival))
    return 100 * float(1 - ours.mean() / theirs.mean()), paired_p_value(ours, theirs)


def _tests(results: Results) -> Table:
    rows = []
    for generator in results.protocol["generators"]:
        for rival in ("OLS", "ridge"):
            row: list[Any] = [generator, rival]
            for members in (_RELATED, _OUTLIERS):
                gain, p = _gain(results, generator, rival, members)
                row += [Cell(gain, digits=1), f"{p:.2g}"]
            rows.append(row)
    columns = ["generator", "against", "gain on 1–10 (%)", "p", "gain on 11–13 (%)", "p "]
    note = "Paired t-tests over runs of the groups' mean RMSE."
    return Table("tests", "p-MSSL against single-task fits, by groups of tasks", columns, rows, note)


def _claims(results: Results) -> list[Claim]:
    texts, claims = published()["synthetic"], []
    enough = results.protocol["seeds"] >= 10
    for generator in results.protocol["generators"]:
        gain, p = _gain(results, generator, "OLS", _RELATED)
        claims.append(
            Claim(
                f"{texts['related']} [{generator}]",
                gain > 0 and p < ALPHA if enough else None,
                f"Mean RMSE of the ten related tasks {-gain:+.1f} % against OLS (p = {p:.2g}).",
            )
        )
        gain, p = _gain(results, generator, "OLS", _OUTLIERS)
        over_ridge, ridge_p = _gain(results, generator, "ridge", _OUTLIERS)
        improved = gain > 0 and p < ALPHA
        claims.append(
            Claim(
                f"{texts['outliers']} [{generator}]",
                not improved if enough else None,
                f"Mean RMSE of the three outliers {-gain:+.1f} % against OLS (p = {p:.2g}), {-over_ridge:+.1f} % "
                f"against ridge (p = {ridge_p:.2g})"
                + ("; what little is gained over OLS is shrinkage, which ridge has too." if improved else "."),
            )
        )
        for name, method in (("dense", "dense"), ("wrong", "wrong graph")):
            claims.append(_against(results, generator, method, texts[name], enough))
        f1 = np.mean([g["f1"] for g in results.column("graph", generator=generator, method="p-MSSL")])
        why = " A chain is the hardest case: tasks two steps apart are still strongly correlated." if f1 < 0.9 else ""
        claims.append(
            Claim(f"{texts['structure']} [{generator}]", bool(f1 >= 0.9), f"F1 of the selected edges: {f1:.2f}.{why}")
        )
    return claims


def _against(results: Results, generator: str, method: str, text: str, enough: bool) -> Claim:
    """Whether another precision raises the RMSE over all tasks."""
    ours, theirs = (rmse(results, generator, m).mean(axis=1) for m in ("p-MSSL", method))
    p = paired_p_value(theirs, ours)
    rise = 100 * (theirs.mean() / ours.mean() - 1)
    outliers = 100 * (
        rmse(results, generator, method)[:, _OUTLIERS].mean() / rmse(results, generator, "p-MSSL")[:, _OUTLIERS].mean()
        - 1
    )
    evidence = f"RMSE over all tasks {rise:+.2f} % (p = {p:.2g}), on tasks 11–13 {outliers:+.2f} %."
    holds = bool(rise > 0 and p < ALPHA)
    if not holds and method == "dense":
        evidence += " Cross-validation may itself choose a λ near 0: the graph is for reading more than for predicting."
    return Claim(f"{text} [{generator}]", holds if enough else None, evidence)


def _draw(page: Page, results: Results, generator: str) -> None:
    from mssl import plots

    names = [str(k) for k in range(1, 14)]
    figure, ax = panels(7.0, 2.8)
    shown = {"p-MSSL": "p-MSSL", "OLS": "OLS", "ridge": "ridge, CV"}
    plots.plot_box(
        {word: rmse(results, generator, method) for method, word in shown.items()}, ax, tasks=names, label="test RMSE"
    )
    page.figure(
        f"boxes-{generator}",
        figure,
        f"Test RMSE per task over {results.protocol['seeds']} runs ({generator}); the noise alone gives 1.",
    )
    record = results.where(generator=generator, method="p-MSSL", seed=0)[0]
    true = problem(generator, 0, results.protocol)
    matrices = {"true": true.precision, "learned, λ by cross-validation": np.array(record["matrix"])}
    figure = precision_panels(matrices, names)
    page.figure(
        f"precision-{generator}",
        figure,
        f"Partial correlations between the tasks' weights, true and learned (first run, {generator}).",
    )
    edges = np.array(record["graph"]["edges"], dtype=int).reshape(-1, 2).T
    found = np.zeros_like(true.precision)
    found[edges[0], edges[1]] = found[edges[1], edges[0]] = 1.0
    learned = partial_correlation(np.array(record["matrix"]))
    weights = {
        "true": true.adjacency * partial_correlation(true.precision),
        "learned, stability selection": found * np.where(learned == 0, 0.01, learned),
    }
    figure = graph_panels(weights, names, [group for group, members in GROUPS.items() for _ in members])
    page.figure(
        f"graph-{generator}",
        figure,
        f"Task graph, true and learned, with the tasks in the same places (first run, {generator}).",
    )


EXPERIMENT = Experiment(
    "synthetic", "Synthetic tasks: box plots, precision, graph", protocol, pieces, run_piece, present
)
