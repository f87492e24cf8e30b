r"""The smallest penalties that leave nothing: no edge in the graph (λ), no weight (γ).

**λ.** The diagonal fixed point is stationary from :math:`\max_{i\ne j}|S_{ij}|/a_{ij}` on
(:func:`mssl.model.objective.lambda_max`). That is where a graph *may* be empty, not yet where a fit's graph *is*: F
is not convex in weights and graph together, and a fit that starts a little off the fixed point (a shared mean, an ℓ1
penalty, another loss than least squares) can end at a better point with an edge. In the paper's formulation there is
no closed form at all: λ is the penalty of the diagonal as well, so that the weights from which S comes depend on it.
In both cases fits find the limit. λ falls from a value without edges until a fit has an edge; bisection narrows the
interval between the last λ without and the first with an edge; then the search is repeated just above the result, since
a fit that stops within its tolerance may keep a tiny edge.

**γ.** See :func:`mssl.model.objective.gamma_max`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from sklearn.base import clone

from mssl.exceptions import ParameterError
from mssl.model.task_matrix import count_entries
from mssl.penalties import Penalty
from mssl.solvers.fit import Prepared, diagonal_lambda_max, fit_prepared, start_lambda_max
from mssl.structures.base import Structure, StructureStep

if TYPE_CHECKING:
    from mssl.estimators.spec import FitSpec

_ACCURACY = 1e-4  # relative distance of the limit from a λ whose graph has an edge; each halving costs one more fit
_NEAR = (1.1, 1.03, 1.01, 1.003, 1.001, 1.0003, 1.0)  # multiples of a λ without edges at which edges are looked for
_ABOVE = (1.3, *_NEAR)  # multiples of the λ of stationarity at which edges are looked for
_HALVINGS = 2.0 ** -np.arange(0.0, 12.0, 0.5)  # multiples of λ_max at the start, where no λ of stationarity is known
_DOUBLINGS = 60  # at most, where the first λ has an edge already: eighteen decades, which no data need


def graph_penalty_limit(prepared: Prepared, spec: FitSpec) -> float:
    """The λ, in the estimator's units, from which on its fits have an empty graph, but for edges that are free.

    Parameters
    ----------
    prepared, spec
        The data, and what the estimator's parameters stand for: a learned sparse precision.
    """
    structure, penalty = spec.structure, spec.penalty
    if not structure.prices_edges:
        raise ParameterError(f"structure is {structure!r}; λ_max needs a learned sparse precision.")
    first = spec.first_step(len(prepared.noise))
    scale = 1.0 if spec.paper is None else spec.paper.graph_penalty
    if structure.starts_diagonal:
        stationary = diagonal_lambda_max(prepared, structure, penalty)
        ladder = [multiple * stationary for multiple in _ABOVE]
    else:
        ladder = list(start_lambda_max(prepared, structure, penalty, first) * _HALVINGS)
    if ladder[0] == 0:
        return 0.0
    has_edges = _edge_finder(prepared, structure, penalty, first)
    limit = border(has_edges, ladder)
    if not structure.starts_diagonal and limit == ladder[-1]:
        return ladder[0] / scale  # no edge anywhere: weights that collapse
    limit = border(has_edges, [multiple * limit for multiple in _NEAR])
    return limit / scale


def coef_penalty_limit(prepared: Prepared, spec: FitSpec) -> float:
    """The γ, in the estimator's units, from which on all weights are zero."""
    limit = prepared.gamma_max(spec.structure)
    return limit if spec.paper is None else limit / spec.paper.coef_penalty


def border(has_edges: Callable[[float], bool], ladder: Sequence[float]) -> float:
    """The λ down to which graphs are empty: the last one of a falling ladder, or just above the first with an edge.

    Parameters
    ----------
    has_edges : callable
        Whether the graph at λ has an edge.
    ladder : sequence of float
        Falling λ; where there is an edge at the first one already, it is doubled until there is none.
    """
    above, below = ladder[0], 0.0
    for _ in range(_DOUBLINGS):
        if not has_edges(above):
            break
        above, below = 2.0 * above, above
    for value in ladder[1:] if below == 0.0 else ():
        if has_edges(value):
            below = value
            break
        above = value
    while below > 0.0 and above > (1.0 + _ACCURACY) * below:
        middle = float(np.sqrt(above * below))
        above, below = (above, middle) if has_edges(middle) else (middle, below)
    return float(above)


def _edge_finder(
    prepared: Prepared, structure: Structure, penalty: Penalty, first: StructureStep | None
) -> Callable[[float], bool]:
    """Whether a fit with a given λ has an edge among those that λ prices."""

    @cache
    def has_edges(value: float) -> bool:
        # The fits share nothing, so that each equals the estimator's fit to the last bit.
        result = fit_prepared(prepared, clone(structure).set_params(alpha=value), penalty, first=first)
        graph = structure.graph(result.structure)
        if sparse.issparse(graph):
            return count_entries(graph) > result.scale.n_tasks
        priced = np.triu(structure.edge_scales(result.scale) > 0, 1)
        return bool(np.any(graph[priced] != 0))

    return has_edges
