r"""Which settings to try, in which order: the family's members one coordinate after the other, not their product.

The grid comes from the data and nests the rivals of multi-task learning: λ = 1 is the empty graph (separate ridges,
or ridges around a shared mean), λ = 0 the dense low-rank prior, a large coupling with a shared mean pools all tasks,
γ gives the Lasso. Every stage keeps the best of what was found and varies what matters next; a stage that adds
freedom (γ, shrinkage) has to improve the score by a standard error of the paired difference, since the best of many
is lucky:

1. shared mean × coupling × variance floor, at a few λ: how much the tasks have in common. Learned variances are the
   tasks' own; a floor well above the sampling variance makes them nearly equal, as one ridge strength for all tasks
   does, which is what little data can afford;
2. λ on a finer path;
3. γ × coupling, with and without the graph: sparse weights want another temperature;
4. shrinkage of the tasks' covariance, where there are more tasks than features;
5. the strength of a chosen mean, and what a chosen γ or shrinkage may have changed: mean and coupling, λ, and γ
   between its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import numpy as np

from mssl.exceptions import ParameterError
from mssl.model_selection.path import EMPTY, Params, grid_values

COUPLINGS = (0.5, 1.0, 2.0, 20.0, 100.0)
POOLING = 2.0  # above this coupling a shared mean is what is left of the tasks, and their graph matters little
SHRINKAGES = (0.0, 0.5, 2.0)
FLOOR = 0.125  # the floor under which variances are learned
RIGID = (
    (1.0, (0.5, 1.0, 2.0, 5.0)),
    (8.0, (1.0, 3.0, 10.0, 30.0, 100.0)),
)  # high floors and couplings that go with them
LASSO = 0.1  # a coupling so weak that with γ > 0 hardly anything but the ℓ1 penalty acts
COARSE = (0.3, 0.05)  # shares of λ_max for a first look, beside the empty and the full graph
FINE = tuple(np.geomspace(0.8, 0.02, 8).tolist())
GAMMAS = tuple(np.geomspace(0.4, 0.004, 7).tolist())  # shares of γ_max
STAGES = 9  # how many stages a coordinate search has, at most


class Board(Protocol):
    """Where settings are scored; the best one so far is known."""

    def evaluate(self, stage: str, chains: Sequence[Sequence[Params]], demand: float = 0.0) -> None:
        """Score all settings of the chains (those not yet scored).

        The best of them becomes the best of all if it is better by ``demand`` standard errors of the difference.
        """
        ...

    def best(self) -> Params:
        """The best settings so far."""
        ...


@dataclass(frozen=True)
class Space:
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

    @classmethod
    def read(cls, estimator: Any, **facts: Any) -> Space:
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
        return cls(**given, **facts)

    def lambdas(self, fixed: Params, shares: Sequence[float], *extra: float) -> list[Params]:
        """A chain over λ with everything else fixed: empty, shares of λ_max, full."""
        if self.graph_penalties is not None:
            values = set(self.graph_penalties)
        else:
            limit = self.graph_limit(fixed)
            values = {EMPTY, 0.0, *extra, *(min(limit, EMPTY) * share for share in shares)}
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


def coordinate_search(board: Board, space: Space) -> None:
    """Search one coordinate after the other."""
    first_gamma = 0.0 if space.coef_penalties is None else min(space.coef_penalties)
    floor = FLOOR if space.variance_floors is None else float(space.variance_floors[0])
    fixed = {"coef_penalty": first_gamma, "shrinkage": space.first_shrinkage(), "variance_floor": floor}
    chains = [_first(space, {**fixed, **prior}) for prior in _priors(space)]
    board.evaluate("shared mean, coupling and floor", [*chains, *_floors(space, fixed)])
    board.evaluate("graph penalty", [space.lambdas(without(board.best(), "graph_penalty"), FINE)])
    _coefficients(board, space)
    _shrinkage(board, space)
    _again(board, space)


def _priors(space: Space) -> list[Params]:
    """Pairs of shared mean and coupling; without a mean a strong coupling would only draw all weights to zero."""
    couplings = list(COUPLINGS) if space.couplings is None else space.couplings
    return [
        {"shared_mean": mean, "coupling": float(coupling)}
        for mean, coupling in product(space.means(), couplings)
        if space.couplings is not None or mean or coupling <= POOLING
    ]


def _floors(space: Space, fixed: Params) -> list[list[Params]]:
    """The same with other floors, without and with the full graph."""
    if space.variance_floors is None:
        pairs = [(f, float(c)) for f, given in RIGID for c in (given if space.couplings is None else space.couplings)]
    else:
        couplings = COUPLINGS if space.couplings is None else space.couplings
        pairs = [(float(f), float(c)) for f, c in product(space.variance_floors[1:], couplings)]
    chains = []
    means = space.means()
    if space.shared_means is None and space.mean_variance > 0:
        # Where little is known the estimated mean is too free as well.
        means = [True, space.mean_variance / 8, space.mean_variance / 64, False]
    for mean, (floor, coupling) in product(means, pairs):
        params = {**fixed, "shared_mean": mean, "coupling": coupling, "variance_floor": floor}
        lambdas = (EMPTY, 0.0) if space.graph_penalties is None else sorted(space.graph_penalties, reverse=True)
        chains.append([{**params, "graph_penalty": float(value)} for value in lambdas])
    return chains


def _first(space: Space, fixed: Params) -> list[Params]:
    """A first look at a prior; where tasks are pooled, without and with the full graph only."""
    if space.graph_penalties is None and fixed["coupling"] > POOLING:
        return [{**fixed, "graph_penalty": value} for value in (EMPTY, 0.0)]
    return space.lambdas(fixed, COARSE)


def _coefficients(board: Board, space: Space) -> None:
    best = board.best()
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
    board.evaluate("coefficient penalty", chains, demand=1.0)


def _two(space: Space, params: Params) -> list[Params]:
    """The settings with the empty graph and with their own."""
    if space.graph_penalties is not None:
        return [params]
    return [{**params, "graph_penalty": value} for value in sorted({EMPTY, params["graph_penalty"]}, reverse=True)]


def _shrinkage(board: Board, space: Space) -> None:
    best = board.best()
    values = (list(SHRINKAGES) if space.many_tasks else []) if space.shrinkages is None else space.shrinkages
    chains = [space.lambdas({**without(best, "graph_penalty"), "shrinkage": float(value)}, COARSE) for value in values]
    board.evaluate("shrinkage", chains, demand=1.0)


def _again(board: Board, space: Space) -> None:
    best = board.best()
    chains = []
    if best["coef_penalty"] > 0 or best["shrinkage"] != space.first_shrinkage():
        chains += [_two(space, {**best, **prior}) for prior in _priors(space)]
        chains.append(space.lambdas(without(best, "graph_penalty"), FINE))
    if space.coef_penalties is None and best["coef_penalty"] > 0:
        ratio = (GAMMAS[0] / GAMMAS[1]) ** (1 / 3)
        chains += [
            _two(space, {**best, "coef_penalty": best["coef_penalty"] * ratio**power}) for power in (-2, -1, 1, 2)
        ]
    board.evaluate("neighbours", chains, demand=0.5)
    _mean_strength(board, space)


def _mean_strength(board: Board, space: Space, steps: int = 3) -> None:
    """Climb along the variance of a shared mean, a factor of 3 at a time."""
    if space.shared_means is not None:
        return
    for _ in range(steps):
        best = board.best()
        if best["shared_mean"] is False:
            return
        tau = space.mean_variance if best["shared_mean"] is True else best["shared_mean"]
        board.evaluate("strength of the mean", [_two(space, {**best, "shared_mean": tau * r}) for r in (1 / 3, 3.0)])
        if board.best() == best:
            break
    best = board.best()
    if space.couplings is None and isinstance(best["shared_mean"], float):
        chains = [_two(space, {**best, "coupling": coupling}) for coupling in COUPLINGS]
        board.evaluate("coupling around that mean", chains)


def full_search(board: Board, space: Space) -> None:
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
    board.evaluate("grid", chains)


def without(params: Params, name: str) -> Params:
    """The settings less one of them."""
    return {key: value for key, value in params.items() if key != name}
