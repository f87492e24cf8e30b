r"""Which settings to try, in which order: one coordinate after the other, not the product of all grids.

The grids come from the data, and rivals of multi-task learning are among their settings. There are two parts:

A. *No graph* (λ = ∞): one ridge for all tasks, around zero or around a shared mean of variance τ². A strong ridge
   around a mean pools all tasks, a weak one leaves each task to itself. Ridge and τ² are searched by decades, then by
   halves and quarters of a decade about the best. Of ridges that are equally good (within half a standard error of the
   paired difference) the strongest is taken, which pools most.
B. *Learned variances and graphs*: λ = 1 is the empty graph, λ = 0 the dense low-rank prior, γ gives the Lasso. Every
   stage keeps the best of what was found and varies what matters next. A stage that adds freedom (γ, shrinkage) has to
   improve the score by a standard error of the paired difference, since the best of many settings looks better than it
   is:

   1. shared mean × coupling (× variance floor where several are given), at a few λ;
   2. λ on a finer path;
   3. γ × coupling, with and without the graph: sparse weights need another coupling;
   4. shrinkage of the tasks' covariance, where there are more tasks than features;
   5. where γ or the shrinkage has changed: mean and coupling, λ, and γ between its neighbours once more;
   6. the strength of a chosen mean.

Along a falling λ graphs become denser and fits slower. A path ends where two graphs in a row, each with no fewer edges
than tasks, are sure not to gain a thousandth of the score (:func:`mssl.model_selection.scores.no_gain_left`).

In the paper's formulation there is λ and γ alone, part A is left out, and so is λ = 0, where the objective has no
minimum; the path begins at λ_max, found by fits.

The winner of B is taken if it is better than that of A by a standard error of their paired difference: it was found
among more settings, and estimates more from the data.

The grids were set by hand and the stages judged by replaying recorded searches with each of them switched off; what
that cost is said beside the constants, as the change of the error on test rows (docs/rivals.md, "Which stages pay").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from mssl.exceptions import ParameterError
from mssl.model_selection.chains import EMPTY, Params, grid_values

if TYPE_CHECKING:
    from mssl.model_selection.scores import ScoreTable

# Grids trade time for accuracy.
COUPLINGS = (0.5, 1.0, 2.0, 20.0, 100.0)  # with three of them the error is 0.3 % ± 0.2 % larger
POOLING = 2.0  # above it little but a shared mean is left, and the empty and the full graph are all that is tried
SHRINKAGES = (0.0, 0.5, 2.0)  # tried where tasks outnumber features; without them 0.2 % ± 0.1 %
FLOOR = "auto"  # variance floor; trying larger ones as well gained 0.1 % ± 0.1 % for a sixth of the settings
COARSE = (0.3, 0.05)  # shares of λ_max for a first look, beside the empty and the full graph; without 0.1 % ± 0.1 %
FINE = tuple(np.geomspace(0.8, 0.02, 8).tolist())  # shares of λ_max; without this path 0.2 % ± 0.1 %
GAMMAS = tuple(np.geomspace(0.4, 0.004, 7).tolist())  # shares of γ_max; with four of them 0.3 % ± 0.2 %
RIDGES = (1e5, 1e4, 1e3, 1e2, 1e1, 1.0, 0.1, 0.01)  # one ridge for all tasks, in rows: from pooled to least squares
MEANS = (10.0, 1.0, 0.1, 0.01)  # variances of a shared mean, in units of their estimate, which is off by such factors
REFINEMENTS = (10**0.5, 10**0.25)  # steps about the best ridge and mean; without the second one 0.4 % ± 0.2 %
STRONG = tuple(np.geomspace(1e5, 1e1, 9).tolist())  # ridges that pool, by half decades
MEAN_STEP = 3.0  # factor between variances of a shared mean in B; without this stage 0.1 % ± 0.1 %

# Margins, in standard errors of the paired difference, trade gains that are real for gains that are luck.
TIE = 0.5  # ridges within this are equally good; docs/rivals.md has what 0 and 1 would do
CLEAR = 1.0  # for more freedom (γ, shrinkage) and for B over A: the rule of one standard error; docs/rivals.md has 2
STAGES = 12  # how many stages a coordinate search has, at most

# What the paper's objective does not have, and is therefore not searched over.
ABSENT: dict[str, list[Any]] = {
    "couplings": [1.0],
    "shrinkages": [0.0],
    "shared_means": [False],
    "variance_floors": [FLOOR],
}
GRIDS = ("graph_penalties", "coef_penalties", *ABSENT)


@dataclass(frozen=True)
class SearchSpace:
    """What may be tried.

    Attributes
    ----------
    given : dict of str → list
        Grids that the user gave, or that the formulation fixes; all others come from the data.
    graph_limit : callable
        λ_max for given settings.
    coef_limit : float
        γ_max.
    mean_variance : float
        Estimated variance of a shared mean, 0 where the data show none.
    many_tasks : bool
        More tasks than features.
    without_graph : bool
        Whether one ridge for all tasks is among the settings.
    normalised : bool
        Whether λ is on the correlation scale; in the paper's formulation it is not.
    """

    given: dict[str, list[Any]]
    graph_limit: Callable[[Params], float]
    coef_limit: float
    mean_variance: float
    many_tasks: bool
    without_graph: bool
    normalised: bool = True

    @classmethod
    def read(cls, estimator: Any, **facts: Any) -> SearchSpace:
        """The grids among an estimator's parameters, checked."""
        given: dict[str, list[Any]] = {}
        for name in GRIDS:
            value = getattr(estimator, name)
            if value is not None:
                given[name] = list(value) if name == "shared_means" else grid_values(value, name)
                if not given[name]:
                    raise ParameterError(f"{name} is empty; give at least one value, or None for the default grid.")
        if estimator.formulation == "paper":
            # One λ_max for all settings, found once: γ alone moves it, and downwards.
            largest = cache(lambda: facts["graph_limit"]({"coef_penalty": 0.0}))
            return cls(ABSENT | given, **facts | {"graph_limit": lambda params: largest()}, normalised=False)
        return cls(given, **facts)

    def values(self, name: str) -> list[Any]:
        """A grid: as given, or the default."""
        if name in self.given:
            return self.given[name]
        defaults: dict[str, list[Any]] = {
            "couplings": list(COUPLINGS),
            "shrinkages": list(SHRINKAGES) if self.many_tasks else [0.0],
            "shared_means": [True, False] if self.mean_variance > 0 else [False],
            "variance_floors": [FLOOR],
            "coef_penalties": [self.coef_limit * share for share in GAMMAS],
        }
        return defaults[name]

    def first(self) -> Params:
        """Settings of the first stages that later ones vary."""
        shrinkages = self.given.get("shrinkages", [0.5 if self.many_tasks else 0.0])
        gamma = min(self.given.get("coef_penalties", [0.0]))
        floor = self.values("variance_floors")[0]
        return {"coef_penalty": gamma, "shrinkage": float(shrinkages[0]), "variance_floor": floor}

    def priors(self) -> list[Params]:
        """Shared mean × coupling × variance floor; without a mean a strong coupling would only shrink all weights."""
        return [
            {"shared_mean": mean, "coupling": float(coupling), "variance_floor": floor}
            for mean, coupling, floor in product(*map(self.values, ("shared_means", "couplings", "variance_floors")))
            if "couplings" in self.given or mean or coupling <= POOLING
        ]

    def ends(self, params: Params) -> list[float]:
        """λ of the empty and of the full graph, the latter where there is one."""
        return [EMPTY, 0.0] if self.normalised else [self.graph_limit(params)]

    def path(self, params: Params, shares: Sequence[float]) -> list[Params]:
        """A chain over λ with everything else fixed: empty, shares of λ_max, full."""
        rest = {name: value for name, value in params.items() if name != "graph_penalty"}
        if "graph_penalties" in self.given:
            lambdas = set(self.given["graph_penalties"])
        else:
            ends = self.ends(rest)
            limit = min(self.graph_limit(rest), ends[0]) if shares else 0.0
            lambdas = {*ends, *(limit * share for share in shares)}
        return [{**rest, "graph_penalty": float(value)} for value in sorted(lambdas, reverse=True)]

    def with_and_without_graph(self, params: Params) -> list[Params]:
        """The settings with the empty graph and with their own."""
        if "graph_penalties" in self.given:
            return [params]
        values = {self.ends(params)[0], params["graph_penalty"]}
        return [{**params, "graph_penalty": value} for value in sorted(values, reverse=True)]


def coordinate_search(table: ScoreTable, space: SearchSpace) -> None:
    """Search without a graph, then with learned graphs, one coordinate after the other."""
    simple = None
    if space.without_graph and not {"graph_penalties", "couplings"} & set(space.given):
        _one_ridge(table, space)
        simple = table.restart()
    _means_and_couplings(table, space)
    table.evaluate("graph penalty", [space.path(table.best().params, FINE)])
    _coefficients(table, space)
    _shrinkage(table, space)
    _neighbours(table, space)
    _mean_strength(table, space)
    if simple is not None:
        table.take_simple_unless_beaten(simple, CLEAR)


def _one_ridge(table: ScoreTable, space: SearchSpace) -> None:
    """One ridge for all tasks around each mean by decades, then by halves and quarters of a decade about the best."""
    means = space.given.get("shared_means")
    if means is None:
        means = [*(space.mean_variance * share for share in MEANS if space.mean_variance > 0), False]
    fixed = {**space.first(), "graph_penalty": np.inf}
    table.evaluate("no graph", [_ridges({**fixed, "shared_mean": mean}, RIDGES) for mean in means])
    for step in REFINEMENTS:
        best = table.best().params
        ratios = (step, 1.0, 1 / step)
        tau = best["shared_mean"]
        taus = [tau] if tau is False or "shared_means" in space.given else [tau * ratio for ratio in ratios]
        ridges = [best["coupling"] * ratio for ratio in ratios]
        table.evaluate("no graph, refined", [_ridges({**best, "shared_mean": tau}, ridges) for tau in taus])
    best = table.best().params
    if best["shared_mean"] is not False:
        stronger = _ridges(best, [ridge for ridge in STRONG if ridge > best["coupling"]])
        table.evaluate("no graph, pooled", [stronger])
        table.prefer(stronger, TIE)


def _ridges(params: Params, ridges: Sequence[float]) -> list[Params]:
    return [{**params, "coupling": float(ridge)} for ridge in ridges]


def _means_and_couplings(table: ScoreTable, space: SearchSpace) -> None:
    settings = [{**space.first(), **prior} for prior in space.priors()]
    chains = [space.path(params, COARSE if params["coupling"] <= POOLING else ()) for params in settings]
    table.evaluate("shared mean and coupling", chains)


def _coefficients(table: ScoreTable, space: SearchSpace) -> None:
    best = table.best().params
    couplings = sorted({best["coupling"], *(c for c in space.values("couplings") if c <= POOLING)})
    pairs = product(couplings, space.values("coef_penalties"))
    chains = [
        space.with_and_without_graph({**best, "coef_penalty": float(gamma), "coupling": coupling})
        for coupling, gamma in pairs
    ]
    table.evaluate("coefficient penalty", chains, margin=CLEAR)


def _shrinkage(table: ScoreTable, space: SearchSpace) -> None:
    best = table.best().params
    others = [float(value) for value in space.values("shrinkages") if value != best["shrinkage"]]
    table.evaluate("shrinkage", [space.path({**best, "shrinkage": value}, COARSE) for value in others], margin=CLEAR)


def _neighbours(table: ScoreTable, space: SearchSpace) -> None:
    """What a chosen γ or shrinkage may have changed."""
    best = table.best().params
    chains = []
    if best["coef_penalty"] > 0 or best["shrinkage"] != space.first()["shrinkage"]:
        chains += [space.with_and_without_graph({**best, **prior}) for prior in space.priors()]
        chains.append(space.path(best, FINE))
    if "coef_penalties" not in space.given and best["coef_penalty"] > 0:
        third = (GAMMAS[0] / GAMMAS[1]) ** (1 / 3)
        gammas = [best["coef_penalty"] * third**power for power in (-2, -1, 1, 2)]
        chains += [space.with_and_without_graph({**best, "coef_penalty": gamma}) for gamma in gammas]
    table.evaluate("neighbours", chains, margin=TIE)


def _mean_strength(table: ScoreTable, space: SearchSpace, steps: int = 3) -> None:
    """Climb along the variance of a shared mean."""
    for _ in range(steps):
        best = table.best().params
        if best["shared_mean"] is False or "shared_means" in space.given:
            return
        tau = space.mean_variance if best["shared_mean"] is True else best["shared_mean"]
        taus = (tau / MEAN_STEP, tau * MEAN_STEP)
        table.evaluate(
            "strength of the mean", [space.with_and_without_graph({**best, "shared_mean": value}) for value in taus]
        )
        if table.best().params == best:
            return


def full_search(table: ScoreTable, space: SearchSpace) -> None:
    """Score the product of all grids."""
    gammas = space.given.get("coef_penalties", [0.0, *space.values("coef_penalties")])
    names = ("shared_mean", "coupling", "shrinkage", "coef_penalty", "variance_floor")
    means, couplings, shrinkages, floors = map(
        space.values, ("shared_means", "couplings", "shrinkages", "variance_floors")
    )
    settings = product(means, couplings, shrinkages, gammas, floors)
    table.evaluate("grid", [space.path(dict(zip(names, values, strict=True)), FINE) for values in settings])
