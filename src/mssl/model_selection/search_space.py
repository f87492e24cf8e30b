r"""The search space: which settings to try, and in which order.

The search does not score the product of all grids. It has three independent stages, here called contests. The grids
come from the data, and the rivals of multi-task learning are among the settings.

A. *One ridge for all tasks* (λ = ∞), around zero or around a shared mean of variance τ². A strong ridge around a mean
   pools all tasks; a weak ridge fits each task separately. The search varies the ridge and τ² by decades, then by
   halves and quarters of a decade around the best setting.
B. *Sparse weights* without a graph: γ × ridge, around zero and around the mean of A, then values between the best one
   and its neighbours. With a weak ridge this is the Lasso.
C. *Learned variances and graphs*: shared mean × prior strength (× variance floor and shrinkage if several are given) at
   three λ, from 1 (the empty graph) to 0 (the dense low-rank prior), then a finer path of λ at the best setting.

The best setting has the highest score in all contests. The score of the best of many settings is optimistic, and other
settings are often not significantly worse. Predictions are therefore averages over the settings within a standard error
of the best (:meth:`mssl.judge.held_out.ScoreTable.equals`).

Along a falling λ graphs become denser and fits slower. A path ends after two consecutive graphs with at least as many
edges as tasks that certainly gain less than a thousandth of the score
(:func:`mssl.judge.held_out.no_gain_left`).

Contests A and B are skipped if the user gives graph penalties or prior strengths, in the paper's formulation, and for
graphs of residuals. The search then tries γ together with the graph. In the paper's formulation λ and γ are the only
parameters. Its path starts at λ_max, which fits determine, and does not contain λ = 0, where the objective has no
minimum.

The grids were set by hand. The contests replaced eight stages of version 0.1.0 (graphs with γ, shrinkages, strengths of
the mean, neighbours, preferences by standard errors), which did not improve averages of settings. The choice is based
on replays of 123 recorded searches, on cuts 20 to 27 of the sets of benchmarks/rival_sets.py and on synthetic tasks
(docs/rivals.md, "Contests and averages").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain, product
from typing import Any

import numpy as np

from mssl.estimators.base import MultiTaskEstimator, check_targets
from mssl.model_selection.scores import Contest, Dataset, Grids, Params, configured, graph_limit
from mssl.penalties import L1

# Finer grids take more time and find better settings. All grids were set by hand.
COUPLINGS = (0.5, 1.0, 2.0, 20.0, 100.0)
# Above this prior strength the weights are close to the shared mean, and only the empty and the full graph are tried.
POOLING = COUPLINGS[2]
# Share of λ_max for the first stage, between the empty and the full graph. Denser graphs would take most of the time.
COARSE = 0.3
FINE = tuple(np.geomspace(0.8, 0.02, 8).tolist())  # Shares of λ_max.
GAMMAS = tuple(np.geomspace(0.4, 0.004, 7).tolist())  # Shares of γ_max.
RIDGES = (1e5, 1e4, 1e3, 1e2, 1e1, 1.0, 0.1, 0.01)  # Ridges for all tasks, in rows: from pooling to least squares.
NET_RIDGES = (30.0, 1.0)  # Ridges in combination with γ: weaker ones differ little and take far longer with few rows.
MEANS = RIDGES[4:]  # Variances of the shared mean, in units of its estimate, which may be wrong by such factors.
STAGES = 7  # Maximum number of stages of a search, for the progress bar.

# The paper's objective lacks these parameters, so that the search keeps them fixed.
FLOORS, SHRINKAGES = "graph_penalty__variance_floor", "graph_penalty__shrinkage"  # Names of parameters.
ABSENT: Grids = {"prior_strength": [1.0], SHRINKAGES: [0.0], "shared_mean": [False], FLOORS: ["auto"]}
GRIDS = ("graph_penalty", "coef_penalty", *ABSENT)  # Parameters of the search.


class SearchSpace:
    """The grids of a search.

    Parameters
    ----------
    contest : Contest
        The search, with its data and its estimator.

    Attributes
    ----------
    given : dict of str → list
        Grids of the user or of the formulation. All other grids come from the data.
    graph_limit : callable
        Returns λ_max for given settings.
    coef_limit : float
        γ_max.
    mean_variance : float
        Estimated variance of the shared mean; 0 if the data show no shared mean.
    many_tasks : bool
        Whether there are more tasks than observations of their relations (features or, for residuals, rows).
    without_graph : bool
        Whether one ridge for all tasks is among the settings.
    normalised : bool
        Whether λ is on the correlation scale, which it is not in the paper's formulation.
    """

    def __init__(self, contest: Contest) -> None:
        whole, template = contest.whole, contest.reader
        spec, plain = (configured(template, params).to_spec(whole) for params in ({}, {"shared_mean": False}))
        self.normalised, on_coef = spec.paper is None, spec.structure.relates == "coef"
        self.given = contest.given if self.normalised else ABSENT | contest.given
        self.without_graph, self.mean_variance = on_coef and self.normalised, 0.0
        if self.without_graph and whole.n_tasks > 1:
            known = whole.prepared(configured(template, {"shared_mean": True}).to_spec(whole))
            self.mean_variance = known.unit**2 * known.mean_variance
        # In the paper's formulation only γ changes λ_max, and γ reduces it: one value serves for all settings.
        largest = cache(lambda: graph_limit(whole, configured(template, {"coef_penalty": 0.0})))
        by_settings = (lambda params: graph_limit(whole, configured(template, params))) if on_coef else lambda _: 1.0
        self.graph_limit: Callable[[Params], float] = by_settings if self.normalised else lambda _: largest()
        self.coef_limit = plain.coef_penalty_limit(whole.prepared(plain))
        self.many_tasks = bool(whole.n_tasks > (whole.n_features if on_coef else whole.data.n_rows.min()))

    def values(self, name: str) -> list[Any]:
        """Return the user's grid of a parameter, or the default grid."""
        defaults: Grids = {
            "prior_strength": list(COUPLINGS),
            SHRINKAGES: [0.5 if self.many_tasks else 0.0],
            "shared_mean": [True, False] if self.mean_variance > 0 else [False],
            FLOORS: ["auto"],
            "coef_penalty": [self.coef_limit * share for share in GAMMAS],
        }
        return self.given[name] if name in self.given else defaults[name]

    def path(self, params: Params, shares: Sequence[float]) -> list[Params]:
        """Return a chain over λ with all else fixed: empty graph, shares of λ_max, and the full graph if it exists.

        Correlations are at most 1, so that at λ = 1 the graph of any data is empty.
        """
        rest = {name: value for name, value in params.items() if name != "graph_penalty"}
        if "graph_penalty" in self.given:
            lambdas = set(self.given["graph_penalty"])
        elif self.normalised:
            limit = min(self.graph_limit(rest), 1.0) if shares else 0.0
            lambdas = {1.0, 0.0, *(limit * share for share in shares)}
        else:
            lambdas = {self.graph_limit(rest) * share for share in (1.0, *shares)}
        return [{**rest, "graph_penalty": float(value)} for value in sorted(lambdas, reverse=True)]


def explore(contest: Contest, search: str) -> None:
    """Score settings: one coordinate after the other for MSSL estimators, else the product of the grids."""
    if not hasattr(contest.reader, "graph_penalty"):
        product_search(contest)
    elif search == "coordinate":
        coordinate_search(contest, SearchSpace(contest))
    else:
        full_search(contest, SearchSpace(contest))


def coordinate_search(contest: Contest, space: SearchSpace) -> None:
    """Search one ridge for all tasks, then sparse weights, then learned graphs."""
    contest.stop_early = True
    # Later stages vary these settings of the first stages.
    first = {"coef_penalty": min(space.given.get("coef_penalty", [0.0]))}
    first |= {name: space.values(name)[0] for name in (SHRINKAGES, FLOORS)}
    by_contests = space.without_graph and not {"graph_penalty", "prior_strength"} & set(space.given)
    if by_contests:
        _one_ridge(contest, space, {**first, "graph_penalty": np.inf})
        _sparse(contest, space, {**first, "graph_penalty": np.inf})
    _graphs(contest, space, first)
    if not by_contests:
        _sparse_graphs(contest, space)


def varied(fixed: Params, **grids: Iterable[Any]) -> list[Params]:
    """Return settings with all combinations of the values in the grids."""
    return [{**fixed, **dict(zip(grids, values, strict=True))} for values in product(*grids.values())]


def _one_ridge(contest: Contest, space: SearchSpace, fixed: Params) -> None:
    """Search one ridge for all tasks around each mean by decades, then by halves and quarters of a decade."""
    given, step = space.given.get("shared_mean"), RIDGES[0] / RIDGES[1]
    means = [*(space.mean_variance * share for share in MEANS if space.mean_variance > 0), False]
    contest.evaluate("no graph", varied(fixed, shared_mean=given or means, prior_strength=RIDGES))
    for _ in range(2):
        step, best = step**0.5, contest.best
        ratios, tau = (step, 1.0, 1 / step), best["shared_mean"]
        taus = [tau] if tau is False or given else [tau * ratio for ratio in ratios]
        ridges = [best["prior_strength"] * ratio for ratio in ratios]
        contest.evaluate("no graph, refined", varied(best, shared_mean=taus, prior_strength=ridges))


def _sparse(contest: Contest, space: SearchSpace, fixed: Params) -> None:
    """Search γ × ridge without a graph, around zero and around the best mean, or around the user's means."""
    means = space.given.get("shared_mean", list(dict.fromkeys([False, contest.best["shared_mean"]])))
    grids = {"shared_mean": means, "coef_penalty": space.values("coef_penalty"), "prior_strength": NET_RIDGES}
    tried = contest.evaluate("no graph, sparse", varied(fixed, **grids))
    best = contest.table.params[max(tried, key=contest.table.means().__getitem__)]
    if "coef_penalty" in space.given or best["coef_penalty"] == 0:
        return
    third = (GAMMAS[0] / GAMMAS[1]) ** (1 / 3)
    gammas = [best["coef_penalty"] * third**power for power in (2, 1, -1, -2)]
    contest.evaluate("no graph, sparse, refined", varied(best, coef_penalty=gammas))


def _graphs(contest: Contest, space: SearchSpace, first: Params) -> None:
    """Search means and prior strengths at a few λ, then a path of λ at the best of them.

    Without a shared mean a strong prior would only shrink all weights, so that it is not tried.
    """
    names = ("shared_mean", "prior_strength", FLOORS, SHRINKAGES)
    settings: list[Params] = []
    for params in varied(first, **{name: space.values(name) for name in names}):
        weak = params["prior_strength"] <= POOLING
        if weak or params["shared_mean"] or "prior_strength" in space.given:
            settings += space.path(params, (COARSE,) if weak else ())
    contest.evaluate("graph, mean and coupling", settings)
    best = contest.best_with_graph
    if best is not None:
        contest.evaluate("graph penalty", space.path(best, FINE))


def _sparse_graphs(contest: Contest, space: SearchSpace) -> None:
    """Search γ × prior strength, with and without the graph: sparse weights need another prior strength."""
    best = contest.best
    couplings = sorted({best["prior_strength"], *(c for c in space.values("prior_strength") if c <= POOLING)})
    lambdas = {best["graph_penalty"]}
    if "graph_penalty" not in space.given:
        lambdas.add(space.path(best, ())[0]["graph_penalty"])
    gammas = space.values("coef_penalty")
    settings = varied(best, prior_strength=couplings, coef_penalty=gammas, graph_penalty=lambdas)
    contest.evaluate("graph, sparse", settings)


def full_search(contest: Contest, space: SearchSpace) -> None:
    """Score the product of all grids."""
    names = ("shared_mean", "prior_strength", SHRINKAGES, "coef_penalty", FLOORS)
    grids = {name: space.values(name) for name in names}
    grids["coef_penalty"] = space.given.get("coef_penalty", [0.0, *grids["coef_penalty"]])
    contest.evaluate("grid", chain.from_iterable(space.path(params, FINE) for params in varied({}, **grids)))


def product_search(contest: Contest) -> None:
    """Score the product of a general estimator's grids."""
    settings = varied({}, **(contest.given or _strengths(contest.whole, contest.reader)))
    if any(map(is_of_loss, contest.given)):
        for params in settings:
            check_targets(contest.whole.data, configured(contest.reader, params)._loss())
    contest.evaluate("grid", settings)


def is_of_loss(name: str) -> bool:
    """Whether a parameter is the loss or a parameter of the loss."""
    return name.partition("__")[0] == "loss"


def _strengths(whole: Dataset, template: MultiTaskEstimator) -> Grids:
    """Return grids for the strength of the structure and of an ℓ1 penalty."""
    grid: Grids = {}
    spec = template.to_spec(whole)
    if "alpha" in spec.structure.get_params():
        grid["structure__alpha"] = np.geomspace(1e-2, 1e4, 13).tolist()
        if spec.structure.prices_edges:
            # In the paper's formulation λ has the units of S, and F has no minimum at λ = 0.
            free = spec.structure.starts_diagonal
            top = 1.0 if free else spec.graph_penalty_limit(whole.prepared(spec))
            grid["structure__alpha"] = [top, *(top * np.geomspace(0.7, 0.02, 7)).tolist(), *([0.0] if free else [])]
    if isinstance(spec.penalty, L1):
        limit = whole.prepared(spec).gamma_max()
        grid["penalty__alpha"] = [0.0, *(limit * np.geomspace(0.3, 0.01, 4)).tolist()]
    return grid
