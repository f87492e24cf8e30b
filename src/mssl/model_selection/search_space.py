r"""Which settings to try, in which order: the family's members one coordinate after the other, not their product.

The grid comes from the data and nests the rivals of multi-task learning. Two contests are held:

A. *No graph* (λ = ∞): one ridge for all tasks, around zero or around a shared mean of variance τ². A strong ridge
   around a mean pools all tasks, a weak one leaves them alone. Ridge and τ² are searched by decades, then by halves
   and quarters of a decade about the best; of ridges that are equally good (within half a standard error of the paired
   difference) the strongest is taken, which pools most.
B. *Learned variances and graphs*: λ = 1 is the empty graph, λ = 0 the dense low-rank prior, γ gives the Lasso. Every
   stage keeps the best of what was found and varies what matters next; a stage that adds freedom (γ, shrinkage) has to
   improve the score by a standard error of the paired difference, since the best of many is lucky:

   1. shared mean × coupling × variance floor, at a few λ: how much the tasks have in common;
   2. λ on a finer path;
   3. γ × coupling, with and without the graph: sparse weights want another temperature;
   4. shrinkage of the tasks' covariance, where there are more tasks than features;
   5. the strength of a chosen mean, and what a chosen γ or shrinkage may have changed: mean and coupling, λ, and γ
      between its neighbours.

Along a falling λ graphs become denser and dear. A path is left where two graphs in a row, each with no fewer edges than
tasks, are sure not to gain a thousandth of the score (`mssl.model_selection.scores.no_gain_left`).

In the paper's formulation there is λ and γ alone, A is not held, and λ = 0, where the objective has no minimum, is left
out; the path begins at λ_max, found by fits.

The winner of B is taken if it is better than that of A by a standard error of their paired difference: it was found
among more settings, and estimates more from the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from mssl.exceptions import ParameterError
from mssl.model_selection.path import EMPTY, Params, grid_values

if TYPE_CHECKING:
    from mssl.model_selection.scores import ScoreTable

COUPLINGS = (0.5, 1.0, 2.0, 20.0, 100.0)
POOLING = 2.0  # above this coupling a shared mean is what is left of the tasks, and their graph matters little
SHRINKAGES = (0.0, 0.5, 2.0)
FLOOR = 0.125  # the floor under which variances are learned
RIGID = (1.0, 8.0)  # high floors: variances hardly learned, and hardly at all; the latter where A is not held
FIRM = (0.5, 1.0, 2.0, 5.0)  # couplings that go with high floors
LASSO = 0.1  # a coupling so weak that with γ > 0 hardly anything but the ℓ1 penalty acts
COARSE = (0.3, 0.05)  # shares of λ_max for a first look, beside the empty and the full graph
FINE = tuple(np.geomspace(0.8, 0.02, 8).tolist())
GAMMAS = tuple(np.geomspace(0.4, 0.004, 7).tolist())  # shares of γ_max
RIDGES = (1e5, 1e4, 1e3, 1e2, 1e1, 1.0, 0.1, 0.01)  # one ridge for all tasks, in rows
MEANS = (10.0, 1.0, 0.1, 0.01)  # variances of a shared mean, in units of their estimate
STRONG = tuple(np.geomspace(1e5, 1e1, 9).tolist())  # the same by half decades, where they pool
HALVED = (10**0.5, 10**0.25)  # steps between the neighbours of the best ridge and mean
TIE = 0.5  # standard errors within which ridges count as equally good
DEMAND = 1.0  # standard errors by which a learned prior has to be better than one ridge for all
STAGES = 13  # how many stages a coordinate search has, at most
# What the paper's objective does not have, and is therefore not searched over.
ABSENT: dict[str, list[Any]] = {
    "couplings": [1.0],
    "shrinkages": [0.0],
    "shared_means": [False],
    "variance_floors": [FLOOR],
}


@dataclass(frozen=True)
class SearchSpace:
    """What may be tried; None stands for values from the data.

    Attributes
    ----------
    graph_penalties, coef_penalties, couplings, shrinkages, shared_means, variance_floors : list or None
        Given grids.
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

    graph_penalties: list[float] | None
    coef_penalties: list[float] | None
    couplings: list[float] | None
    shrinkages: list[float] | None
    shared_means: list[Any] | None
    variance_floors: list[float] | None
    graph_limit: Callable[[Params], float]
    coef_limit: float
    mean_variance: float
    many_tasks: bool
    without_graph: bool
    normalised: bool = True

    @classmethod
    def read(cls, estimator: Any, **facts: Any) -> SearchSpace:
        """The grids among an estimator's parameters, checked."""
        names = ("graph_penalties", "coef_penalties", "couplings", "shrinkages", "shared_means", "variance_floors")
        given: dict[str, Any] = {}
        for name in names:
            value = getattr(estimator, name)
            given[name] = (
                None if value is None else (list(value) if name == "shared_means" else grid_values(value, name))
            )
            if given[name] is not None and not given[name]:
                raise ParameterError(f"{name} is empty; give at least one value, or None for the default grid.")
        normalised = estimator.formulation != "paper"
        if not normalised:
            given = {name: ABSENT.get(name) if value is None else value for name, value in given.items()}
            facts["graph_limit"] = _without_coef_penalty(facts["graph_limit"])
        return cls(**given, **facts, normalised=normalised)

    def ends(self, fixed: Params) -> list[float]:
        """λ of the empty and of the full graph, the latter where there is one."""
        return [EMPTY, 0.0] if self.normalised else [self.graph_limit(fixed)]

    def lambdas(self, fixed: Params, shares: Sequence[float]) -> list[Params]:
        """A chain over λ with everything else fixed: empty, shares of λ_max, full."""
        if self.graph_penalties is not None:
            values = set(self.graph_penalties)
        else:
            ends = self.ends(fixed)
            limit = min(self.graph_limit(fixed), ends[0])
            values = {*ends, *(limit * share for share in shares)}
        return [{**fixed, "graph_penalty": float(value)} for value in sorted(values, reverse=True)]

    def means(self) -> list[Any]:
        """Shared means to try: estimated, and none."""
        return (
            ([True, False] if self.mean_variance > 0 else [False]) if self.shared_means is None else self.shared_means
        )

    def first_shrinkage(self) -> float:
        """Shrinkage of the first stages."""
        if self.shrinkages is not None:
            return float(self.shrinkages[0])
        return 0.5 if self.many_tasks else 0.0


def _without_coef_penalty(limit: Callable[[Params], float]) -> Callable[[Params], float]:
    """One λ_max for all settings, found once: in the paper's formulation γ alone moves it, and downwards."""

    @cache
    def largest() -> float:
        return limit({"coef_penalty": 0.0})

    return lambda params: largest()


def coordinate_search(table: ScoreTable, space: SearchSpace) -> None:
    """Search without a graph, then with learned graphs, one coordinate after the other."""
    first_gamma = 0.0 if space.coef_penalties is None else min(space.coef_penalties)
    floor = FLOOR if space.variance_floors is None else float(space.variance_floors[0])
    fixed = {"coef_penalty": first_gamma, "shrinkage": space.first_shrinkage(), "variance_floor": floor}
    if not (space.without_graph and space.graph_penalties is None and space.couplings is None):
        _learned(table, space, fixed)
        return
    _one_ridge(table, space, fixed)
    simple = table.restart()
    _learned(table, space, fixed)
    table.take_simple_unless_beaten(simple, DEMAND)


def _one_ridge(table: ScoreTable, space: SearchSpace, fixed: Params) -> None:
    """One ridge for all tasks around each mean by decades, then by halves and quarters of a decade about the best."""
    means = space.shared_means
    if means is None:
        means = [*(space.mean_variance * share for share in MEANS if space.mean_variance > 0), False]
    fixed = {**fixed, "graph_penalty": np.inf}
    table.evaluate("no graph", [_ridges({**fixed, "shared_mean": mean}, RIDGES) for mean in means])
    for step in HALVED:
        best = table.best().params
        free = space.shared_means is None and best["shared_mean"] is not False
        taus = [best["shared_mean"] * ratio for ratio in (step, 1.0, 1 / step)] if free else [best["shared_mean"]]
        ridges = [best["coupling"] * ratio for ratio in (step, 1.0, 1 / step)]
        table.evaluate("no graph, refined", [_ridges({**best, "shared_mean": tau}, ridges) for tau in taus])
    best = table.best().params
    if best["shared_mean"] is not False:
        stronger = _ridges(best, [ridge for ridge in STRONG if ridge > best["coupling"]])
        table.evaluate("no graph, pooled", [stronger])
        table.prefer(stronger, TIE)


def _ridges(params: Params, ridges: Sequence[float]) -> list[Params]:
    return [{**params, "coupling": float(ridge)} for ridge in ridges]


def _learned(table: ScoreTable, space: SearchSpace, fixed: Params) -> None:
    """Graphs and variances learned from the data."""
    chains = [_first(space, {**fixed, **prior}) for prior in _priors(space)]
    table.evaluate("shared mean, coupling and floor", [*chains, *_floors(space, fixed)])
    table.evaluate("graph penalty", [space.lambdas(without(table.best().params, "graph_penalty"), FINE)])
    _coefficients(table, space)
    _shrinkage(table, space)
    _again(table, space)


def _priors(space: SearchSpace) -> list[Params]:
    """Pairs of shared mean and coupling; without a mean a strong coupling would only draw all weights to zero."""
    couplings = list(COUPLINGS) if space.couplings is None else space.couplings
    return [
        {"shared_mean": mean, "coupling": float(coupling)}
        for mean, coupling in product(space.means(), couplings)
        if space.couplings is not None or mean or coupling <= POOLING
    ]


def _floors(space: SearchSpace, fixed: Params) -> list[list[Params]]:
    """The same with other floors, without and with the full graph."""
    couplings = list(COUPLINGS if space.variance_floors else FIRM) if space.couplings is None else space.couplings
    rigid = RIGID[:1] if space.couplings is None else RIGID
    floors = list(rigid) if space.variance_floors is None else space.variance_floors[1:]
    chains = []
    means = space.means()
    if space.shared_means is None and space.mean_variance > 0:
        # Where little is known the estimated mean is too free as well.
        means = [True, space.mean_variance / 8, space.mean_variance / 64, False]
    for mean, floor, coupling in product(means, floors, couplings):
        params = {**fixed, "shared_mean": mean, "coupling": float(coupling), "variance_floor": float(floor)}
        lambdas = space.ends(params) if space.graph_penalties is None else sorted(space.graph_penalties, reverse=True)
        chains.append([{**params, "graph_penalty": float(value)} for value in lambdas])
    return chains


def _first(space: SearchSpace, fixed: Params) -> list[Params]:
    """A first look at a prior; where tasks are pooled, without and with the full graph only."""
    if space.graph_penalties is None and fixed["coupling"] > POOLING:
        return [{**fixed, "graph_penalty": value} for value in space.ends(fixed)]
    return space.lambdas(fixed, COARSE)


def _coefficients(table: ScoreTable, space: SearchSpace) -> None:
    best = table.best().params
    couplings = list(COUPLINGS) if space.couplings is None else space.couplings
    gammas = space.coef_penalties
    if gammas is None:
        gammas = [space.coef_limit * share for share in GAMMAS]
    near = sorted({best["coupling"], *(c for c in couplings if c <= POOLING)})
    near = [LASSO, *near] if space.couplings is None else near
    chains = [
        _two(space, {**best, "coef_penalty": float(gamma), "coupling": coupling})
        for coupling, gamma in product(near, gammas)
    ]
    table.evaluate("coefficient penalty", chains, margin=1.0)


def _two(space: SearchSpace, params: Params) -> list[Params]:
    """The settings with the empty graph and with their own."""
    if space.graph_penalties is not None:
        return [params]
    values = {space.ends(params)[0], params["graph_penalty"]}
    return [{**params, "graph_penalty": value} for value in sorted(values, reverse=True)]


def _shrinkage(table: ScoreTable, space: SearchSpace) -> None:
    best = table.best().params
    values = (list(SHRINKAGES) if space.many_tasks else []) if space.shrinkages is None else space.shrinkages
    chains = [space.lambdas({**without(best, "graph_penalty"), "shrinkage": float(value)}, COARSE) for value in values]
    table.evaluate("shrinkage", chains, margin=1.0)


def _again(table: ScoreTable, space: SearchSpace) -> None:
    best = table.best().params
    chains = []
    if best["coef_penalty"] > 0 or best["shrinkage"] != space.first_shrinkage():
        chains += [_two(space, {**best, **prior}) for prior in _priors(space)]
        chains.append(space.lambdas(without(best, "graph_penalty"), FINE))
    if space.coef_penalties is None and best["coef_penalty"] > 0:
        ratio = (GAMMAS[0] / GAMMAS[1]) ** (1 / 3)
        chains += [
            _two(space, {**best, "coef_penalty": best["coef_penalty"] * ratio**power}) for power in (-2, -1, 1, 2)
        ]
    table.evaluate("neighbours", chains, margin=0.5)
    _mean_strength(table, space)


def _mean_strength(table: ScoreTable, space: SearchSpace, steps: int = 3) -> None:
    """Climb along the variance of a shared mean, a factor of 3 at a time."""
    if space.shared_means is not None:
        return
    for _ in range(steps):
        best = table.best().params
        if best["shared_mean"] is False:
            return
        tau = space.mean_variance if best["shared_mean"] is True else best["shared_mean"]
        table.evaluate("strength of the mean", [_two(space, {**best, "shared_mean": tau * r}) for r in (1 / 3, 3.0)])
        if table.best().params == best:
            break
    best = table.best().params
    if space.couplings is None and isinstance(best["shared_mean"], float):
        chains = [_two(space, {**best, "coupling": coupling}) for coupling in COUPLINGS]
        table.evaluate("coupling around that mean", chains)


def full_search(table: ScoreTable, space: SearchSpace) -> None:
    """Score the product of all grids."""
    gammas = space.coef_penalties
    if gammas is None:
        gammas = [0.0, *(space.coef_limit * share for share in GAMMAS)]
    couplings = list(COUPLINGS) if space.couplings is None else space.couplings
    shrinkages = (list(SHRINKAGES) if space.many_tasks else [0.0]) if space.shrinkages is None else space.shrinkages
    floors = [FLOOR] if space.variance_floors is None else space.variance_floors
    names = ("shared_mean", "coupling", "shrinkage", "coef_penalty", "variance_floor")
    chains = [
        space.lambdas(dict(zip(names, values, strict=True)), FINE)
        for values in product(space.means(), couplings, shrinkages, gammas, floors)
    ]
    table.evaluate("grid", chains)


def without(params: Params, name: str) -> Params:
    """The settings less one of them."""
    return {key: value for key, value in params.items() if key != name}
