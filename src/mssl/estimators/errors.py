r"""How sure a penalised fit is of its weights.

Given the graph, the noise and the ridge, the weights have a Gaussian posterior (for other losses than least squares to
second order at the fit) with the precision

.. math:: H = \operatorname{diag}_k(s_k G_k + \rho_k I) + C \otimes I_d,

the curvature of the objective: Grams :math:`G_k`, noise precisions :math:`s_k`, ridges :math:`\rho_k` and the coupling
C. The square roots of the diagonal of :math:`H^{-1}` are the standard errors, :math:`\operatorname{tr}(s_k G_k
(H^{-1})_{kk})` are the degrees of freedom that task k uses. That the graph was estimated too is not in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import linalg

from mssl._typing import Array
from mssl.graph.tests import Later
from mssl.solvers.alternation import FitResult
from mssl.solvers.fit import Prepared
from mssl.solvers.glm import GLMLoss
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic, without_rows
from mssl.solvers.weights import CoefficientProblem
from mssl.structures.base import Structure, StructureStep

if TYPE_CHECKING:
    from mssl.estimators.spec import FitSpec

LARGEST = 1500  # weights: their covariance costs half a second


NOTHING: dict[str, Any] = {"std": None, "dof": None, "log_likelihood": None, "rows": None}


def errors_of(spec: FitSpec, prepared: Prepared, result: FitResult) -> dict[str, Any] | LaterErrors:
    """Standard errors (K, d), degrees of freedom (K,) and log-likelihood of a fit, computed when they are asked for.

    All are None where the model has none: with an ℓ1 penalty, penalties that tie tasks together, or related residuals.
    """
    penalty, one = spec.penalty, np.ones(1)
    plain = penalty.separable and not penalty.thresholds(one).any() and not getattr(penalty, "positive", False)
    if spec.structure.relates != "coef" or not plain or result.W.size > LARGEST:
        return dict(NOTHING)
    problem = prepared.problem(penalty)
    assert isinstance(problem, CoefficientProblem)
    loss = problem.loss
    model = loss.model(loss.evaluate(result.W), observed=False) if isinstance(loss, GLMLoss) else loss
    rows = None if prepared.data is None else float(prepared.data.weight_sums().sum())
    if prepared.rows is not None:
        rows = float(prepared.rows.weights.sum())
    return LaterErrors(
        without_rows(model),
        (spec.structure, result.structure, prepared.mean_of(spec.structure)),
        penalty.ridges(prepared.noise_precisions),
        prepared.unit / prepared.scales,
        {"log_likelihood": log_likelihood(spec, prepared, result), "rows": rows},
    )


class LaterErrors(Later[dict[str, Any]]):
    """Standard errors and degrees of freedom, from the curvature of the loss at the fit.

    Parameters
    ----------
    model : GramQuadratic or DesignQuadratic
        The loss to second order, with ridges.
    prior : tuple of (Structure, StructureStep, float)
        What relates the tasks, its part of the fit, and the variance of the mean: they give the tasks' coupling.
    ridges : ndarray of shape (K,)
        The ridges in the loss.
    units : ndarray of shape (d,)
        What weights are multiplied by, to be in the user's units.
    others : dict
        What is known beside them.
    """

    def __init__(
        self,
        model: GramQuadratic | DesignQuadratic,
        prior: tuple[Structure, StructureStep, float],
        ridges: Array,
        units: Array,
        others: dict[str, Any],
    ) -> None:
        self._model, self._prior, self._ridges, self._units, self._others = model, prior, ridges, units, others

    def _compute(self) -> dict[str, Any]:
        K, d = self._model.n_tasks, self._model.n_features
        grams = np.stack([self._model.product(np.tile(row, (K, 1))) for row in np.eye(d)], axis=1)
        structure, step, mean_variance = self._prior
        H = np.kron(structure.couple(step, mean_variance).dense(), np.eye(d))
        for k in range(K):
            H[k * d : (k + 1) * d, k * d : (k + 1) * d] += grams[k]
        try:
            inverse = linalg.cho_solve(linalg.cho_factor(H), np.eye(K * d))
        except linalg.LinAlgError:
            return dict(NOTHING)
        own = [inverse[k * d : (k + 1) * d, k * d : (k + 1) * d] for k in range(K)]
        dof = [np.sum((grams[k] - self._ridges[k] * np.eye(d)) * own[k]) for k in range(K)]
        std = np.sqrt(np.diag(inverse).reshape(K, d)) * self._units
        return {"std": std, "dof": np.asarray(dof), **self._others}


def log_likelihood(spec: FitSpec, prepared: Prepared, result: FitResult) -> float | None:
    """Of the training rows, for the Gaussian and the Bernoulli loss."""
    if spec.loss.labels and prepared.rows is not None:
        rows = prepared.rows
        eta = rows.design.predictor(result.W) + rows.design.per_task(result.intercepts)
        return -float(np.sum(rows.weights * rows.loss.value(rows.y, eta)))
    if not spec.loss.quadratic or prepared.data is None:
        return None
    squares: Array = 2 * prepared.base.task_values(result.W)
    n = prepared.data.weight_sums()
    variance = prepared.unit**2 * prepared.noise
    return -0.5 * float(np.sum(n * np.log(2 * np.pi * variance) + squares / prepared.noise))
