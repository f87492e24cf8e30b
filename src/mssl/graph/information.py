r"""Statistics of a fit's data for the tests of the tasks' relations; :mod:`mssl.graph.tests` has the tests.

**The likelihood** of a group. In each direction of the feature space the weights of p tasks are draws from
:math:`N(0, \Sigma)`. The data have the information J about them. With
:math:`\mathbf\Sigma = \Sigma\otimes I` the scores are thus
:math:`h \sim N(0, J\mathbf\Sigma J + J)`. The log-likelihood

.. math:: \ell(\Sigma) = \tfrac12 h^\top (\mathbf\Sigma^{-1} + J)^{-1} h - \tfrac12\log|I + \mathbf\Sigma J|

has, with :math:`P = (\mathbf\Sigma + J^{-1})^{-1} = \mathbf\Sigma^{-1} - \mathbf\Sigma^{-1}(\mathbf\Sigma^{-1} +
J)^{-1}\mathbf\Sigma^{-1}` in blocks :math:`P_{kl}` and :math:`s = \mathbf\Sigma^{-1}(\mathbf\Sigma^{-1}+J)^{-1}h`, the
derivatives and the Fisher information

.. math:: \frac{\partial\ell}{\partial\Sigma_{kl}} = \tfrac12(s_k\cdot s_l - \operatorname{tr} P_{kl}), \qquad
          \mathcal I_{kl,mn} = \tfrac12\operatorname{tr}(P_{lm}P_{nk}).

It is maximised in the frame of Σ (:mod:`mssl.evidence.climb`). A tenth of an observation of unrelated tasks is added as
a prior. It prevents a singular Σ and changes the estimates by less than their error. The variance of a partial
correlation :math:`\rho` follows from the information. The ratio of :math:`(1-\rho^2)^2` to this variance is the
effective number of observations: the number of error-free directions with the same information. Without errors it is
the number of directions, and ρ is the partial correlation of the weights. With few observations the estimate of a
task's conditional variance is too small, so that errors weigh too much. The effective number is therefore evaluated
with one further observation of unrelated tasks. In the groups of ``docs/graph.md`` it is then correct to a tenth;
without this observation it is 10 to 60 % too small.

References
----------
Searle, Casella & McCulloch (1992), Variance Components, doi:10.1002/9780470316856.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpotri

from mssl._typing import Array, Index
from mssl.data.columns import effective_columns
from mssl.data.layouts import TaskData
from mssl.evidence.climb import Evaluated, Framed, climb
from mssl.evidence.posterior import LARGEST_FACTORED, root
from mssl.exceptions import ParameterError
from mssl.graph.tests import (
    MOST_SAVED,
    SMALLEST_EIGENVALUE,
    Evidence,
    GraphEvidence,
    LazyEvidence,
    Residuals,
    Untested,
    common_level,
    correlation_of,
    correlation_p,
)
from mssl.kernels.threads import threads_for
from mssl.model.task_matrix import DENSE_UP_TO
from mssl.penalties import L1
from mssl.solvers.alternation import FitResult
from mssl.solvers.base import NEGLIGIBLE
from mssl.solvers.fit import Prepared
from mssl.solvers.quadratic import KeptLoss, Quadratic
from mssl.solvers.residual import ResidualProblem
from mssl.solvers.start import Spectra, moderated_noise, spectra_of, variance_components
from mssl.structures.base import Structure
from mssl.structures.copula import nearest_correlation, normal_scores

# Smallest number of columns that vary within tasks: with fewer a test of the weights has almost no power.
_FEWEST_COLUMNS = 3
_FEWEST = 4  # Smallest number of tasks with which a shared mean can be distinguished from relations of single pairs.
_ROUNDS = 3  # Alternations between the shared mean and the variances about it: more cost time.
# Candidate variances of the shared mean relative to its mean square. A finer grid costs time; the likelihood is flat.
_GRID = np.concatenate([[0.0], np.geomspace(1e-4, 3.0, 60)])
# Rows per feature. Tasks with more have their residuals from least squares, which is unbiased; with fewer rows ridge
# residuals are less noisy.
_FREE_ROWS = 1.5
# Shrinkage of the residuals' correlations. If it is larger, the correlations are treated as chance: whitening would
# cost time and change little.
_NEGLIGIBLE = 0.9
# Largest number of rows of a matrix of products and of a block of the likelihood. A limit on time: two seconds.
_MOST_ROWS = DENSE_UP_TO // 2
_MOST_IN_GROUP = 50  # Largest group with a likelihood, a limit on time: its covariance has 1 275 entries.
_MOST_OPERATIONS = 3e10  # Limit on the operations of one evaluation of all groups' likelihoods: ten seconds.
# Prior observations of unrelated tasks. More keep Σ farther from singularity but bias it; from 0.03 to 0.3 the tables
# of docs/graph.md are the same.
_PRIOR = 0.1
# Tolerance of the maximum in −2 log-likelihood: a smaller one costs time; 1e-4 leaves partial correlations uncertain by
# 2e-4.
_CLOSE = 1e-6


def evidence_of(prepared: Prepared, result: FitResult, structure: Structure, data: TaskData) -> Evidence | LazyEvidence:
    """Return the evidence for the graph of a fit, which is computed on first use.

    Parameters
    ----------
    prepared, result, structure
        The prepared data, the fit, and the structure that relates the tasks.
    data : TaskData
        The tasks.
    """
    ranks = structure.correlation != "pearson"
    if structure.relates != "residual":
        # If not all tasks share the mean, deviations from it may be related though the tasks are not: clusters repel
        # each other about their common mean. Relations are thus never tested about the mean alone.
        return evidence_on_weights(prepared, data, bool(prepared.settings.shared_mean), ranks)
    problem = prepared.problem(L1(1.0), "residual")  # The penalty does not change the residuals.
    assert isinstance(problem, ResidualProblem)
    residuals = problem.related(result.W)
    if prepared.gaps is not None:
        missing = prepared.gaps.missing
        residuals = np.where(missing, np.nan, residuals[:, : missing.shape[1]])
    used = np.count_nonzero(result.W, axis=1).mean() + prepared.settings.fit_intercept
    kept = Residuals(normal_scores(residuals) if ranks else residuals, float(used))
    evidence = LazyEvidence(kept, len(residuals))
    # If the residuals are larger than the evidence, only the evidence is kept.
    return evidence.saved() or evidence if residuals.size > MOST_SAVED**2 else evidence


def evidence_on_weights(
    prepared: Prepared, data: TaskData, about_mean: bool = True, ranks: bool = False
) -> Untested | LazyEvidence:
    """Return the evidence on the relations of the weights; :class:`RelationInput` explains the last parameters."""
    number = effective_columns(data, _FEWEST_COLUMNS)
    if number < _FEWEST_COLUMNS:
        columns = f"{number} column{'' if number == 1 else 's'}"
        return Untested(
            f"the weights of {columns} cannot show relations: at least {_FEWEST_COLUMNS} columns that vary within "
            "tasks are needed"
        )
    base, spectra = prepared.base, prepared.spectra
    known = prepared.rows is not None or not isinstance(prepared.settings.noise, str) or spectra is None
    freedom = np.full(base.n_tasks, float(base.n_features)) if spectra is None else spectra.freedom
    noise = prepared.noise if known else None
    source = RelationInput(prepared.kept, freedom, noise, Occasions.of(prepared), about_mean, ranks)
    return LazyEvidence(source, base.n_tasks)


class Occasions(NamedTuple):
    """Rows of different tasks on the same occasions, or their cross products.

    The rows are those of the least squares problem: centred if intercepts are free, and multiplied by the square roots
    of the rows' weights (for other losses, of the curvatures near the fit).

    Attributes
    ----------
    rows : ndarray of shape (B d + K, n) or (B d + K, B d + K)
        Features by occasion, of one shared design (B = 1) or of B = K designs, followed by the targets; 0 if a task has
        no row on an occasion. If it has fewer numbers, the matrix of cross products replaces the rows.
    counts : ndarray of shape (K, K)
        Number of occasions that both tasks have.
    products : bool
        Whether ``rows`` holds cross products.
    """

    rows: Array
    counts: Array
    products: bool

    @classmethod
    def of(cls, prepared: Prepared) -> Occasions | None:
        """Return the occasions of prepared data; None without paired rows of different tasks, or if rows are sparse."""
        data, design, near = prepared.data, prepared.design, prepared.rows
        places = None if data is None or data.n_tasks == 1 or design.shift is not None else data.paired
        if data is None or places is None:
            return None
        weights, targets = data.row_weights, data.y
        if near is not None:
            predictor = design.predictor(
                np.zeros(prepared.base.linear.shape) if prepared.near is None else prepared.near
            )
            weights, targets = near.working(predictor, predictor + design.per_task(near.best_intercepts(predictor)))
        given = Quadratic.of_rows(design, weights, targets, prepared.settings.fit_intercept).rows
        common = design.common_weights(weights)
        K, d, n = data.n_tasks, design.n_features, int(places.max()) + 1
        B = K if common is None or np.any(common[1] != 1) else 1
        rows, known = np.zeros((B * d + K, n)), np.zeros((K, n))
        rows[B * d + data.task_of_row, places] = np.sqrt(given.c) * given.target
        known[data.task_of_row, places] = 1.0
        for k in range(B):
            rows[k * d : (k + 1) * d, places[data.offsets[k] : data.offsets[k + 1]]] = given.block(k).T
        products = len(rows) <= min(n, _MOST_ROWS)
        return cls(rows @ rows.T if products else rows, known @ known.T, products)

    def factors(self) -> tuple[Array, Array]:
        """Return features (B d, r) and targets (K, r) with the same cross products as the occasions."""
        rows = self.rows
        if self.products:
            size = np.sqrt(np.diagonal(rows))
            size = np.where(size > 0, size, 1.0)
            rows = size[:, None] * root(rows / np.outer(size, size))
        features, targets = np.split(rows, [-len(self.counts)])
        return features, targets


@dataclass(frozen=True, eq=False)
class RelationInput:
    """The data of a fit that the tests of the weights' relations need.

    Attributes
    ----------
    base : KeptLoss
        The loss of the single tasks with noise precision 1.
    freedom : ndarray of shape (K,)
        Degrees of freedom of the targets.
    noise : ndarray of shape (K,) or None
        Noise variances if they are known.
    occasions : Occasions or None
        Rows that tasks have in common.
    about_mean : bool
        Whether relations must be significant about the mean as well as about zero if all pairs are correlated.
    ranks : bool
        Whether the ranks of each task's weights are compared, as normal quantiles (a Gaussian copula), which is robust
        to heavy tails.
    """

    base: KeptLoss
    freedom: Array
    noise: Array | None
    occasions: Occasions | None
    about_mean: bool
    ranks: bool

    def read(self) -> Scores:
        """Return the tasks' scores."""
        base = self.base.read()
        with threads_for(max(base.n_features, base.n_tasks)):
            spectra = spectra_of(base, self.freedom, vectors=True)
            there, V = spectra.values > NEGLIGIBLE * spectra.values.max(axis=1, keepdims=True), spectra.vectors
            assert V is not None
            values, projections = (np.where(there, part, 0.0) for part in (spectra.values, spectra.projections))
            spectra = replace(spectra, values=values, projections=projections)
            scores = Scores(self, spectra, V, np.array_equal(V, np.broadcast_to(V[0], V.shape)))
            return scores if self.occasions is None else scores.with_errors(self.occasions)


class _Errors(NamedTuple):
    """Correlated errors of tasks whose rows are the same occasions.

    Attributes
    ----------
    along : ndarray of shape (K, m, n)
        Centred features by occasion in the directions of each task; 0 if a task has no row.
    variance : ndarray of shape (K, K)
        Variances of the residuals' correlations, which are shrunk towards 0.
    covariance : ndarray of shape (B, K, q, K, q)
        Covariance, in blocks, of the projections of different tasks due to the errors, for noise variance 1.
    """

    along: Array
    variance: Array
    covariance: Array


class _Statistics(NamedTuple):
    """Signs, p-values and degrees of freedom of all pairs (K, K), and reliabilities of the tasks (K,)."""

    sign: Array
    p: Array
    freedom: Array
    reliability: Array


@dataclass(frozen=True, eq=False)
class Scores:
    """The tasks' scores in the eigenbases of their Gram matrices.

    Attributes
    ----------
    given : RelationInput
        The data.
    spectra : Spectra
        The tasks in m directions each.
    vectors : ndarray of shape (K, d, m)
        Eigenvectors.
    shared : bool
        Whether all tasks have the same directions, so that scores along different directions are independent.
    errors : _Errors or None
        Correlated errors of the tasks.
    """

    given: RelationInput
    spectra: Spectra
    vectors: Array
    shared: bool
    errors: _Errors | None = None

    def operations(self) -> float:
        """Return the approximate number of operations for the cosines of all pairs, the mean and the whitening."""
        K, d, m = self.vectors.shape
        whitened = 0.0 if self.errors is None else m * K**3 if self.shared else float(K * m) ** 3
        return 3.0 * K * d * m * (K + d) + 20 * whitened

    def variances(self, mean: Array | None = None) -> tuple[Array, Array]:
        """Return noise variances and variances of the weights about a mean, by restricted maximum likelihood."""
        spectra = self.spectra
        if mean is not None:
            q, along = spectra.projections, np.einsum("kdm,d->km", self.vectors, mean)
            squares = np.sum(along * (spectra.values * along - 2 * q), axis=1) + spectra.target_squares
            squares = np.maximum(squares, 1e-12 * spectra.target_squares)
            spectra = replace(spectra, projections=q - spectra.values * along, target_squares=squares)
        noise = self.given.noise
        if noise is None:
            noise = moderated_noise(spectra, *variance_components(spectra))
        return noise, variance_components(spectra, noise)[1]

    def blocks(self, scores: Array) -> Array:
        """Return scores (K, m, …) in independent blocks (B, K, q, …): one per shared direction, or one in total."""
        return scores.swapaxes(0, 1)[:, :, None] if self.shared else scores[None]

    def by_task(self, blocks: Array) -> Array:
        """Return scores in blocks by task; the inverse of :meth:`blocks`."""
        return blocks[:, :, 0].swapaxes(0, 1) if self.shared else blocks[0]

    def with_errors(self, occasions: Occasions) -> Scores:
        """Return the scores with the correlations of the tasks' errors, unless these are negligible."""
        (K, m), d, values = self.spectra.values.shape, self.vectors.shape[1], self.spectra.values
        if K * m > LARGEST_FACTORED:
            raise ParameterError(
                f"There are {K} tasks with {m} features whose errors are related by common rows; relations of the "
                f"weights are computed for at most {LARGEST_FACTORED} weights. Use relation='residual' instead."
            )
        (rows, targets), counts = occasions.factors(), occasions.counts
        rows = rows.reshape(-1, d, rows.shape[1])
        scores = replace(self, shared=self.shared and len(rows) == 1)
        along = np.matmul(self.vectors[: 1 if scores.shared else K].transpose(0, 2, 1), rows)
        # Cross products, in blocks, of the directions of all tasks.
        if scores.shared:
            common = np.broadcast_to(np.sum(along[0] ** 2, axis=1)[:, None, None, None, None], (m, K, 1, K, 1))
        else:
            common = (along.reshape(K * m, -1) @ along.reshape(K * m, -1).T).reshape(1, K, m, K, m)
        along = np.broadcast_to(along, (K, *along.shape[1:]))
        noise, v = self.variances()
        ratio = (v / noise)[:, None]
        ratio = ratio / (1 + ratio * values)
        ample = np.diagonal(counts) - 1 >= _FREE_ROWS * np.count_nonzero(values, axis=1)
        ratio[ample] = np.divide(1.0, values[ample], out=np.zeros_like(values[ample]), where=values[ample] > 0)
        # The residuals of task k are (I − hat matrix) times its targets; traces of products of these matrices are the
        # degrees of freedom.
        E = targets - np.einsum("kmn,km->kn", along, ratio * np.einsum("kmn,kn->km", along, targets))
        shares, ratios = np.sum(ratio * values, axis=1), scores.blocks(ratio)
        traces = np.einsum("bkplq,bkp,blq->kl", common**2, ratios, ratios, optimize=True)
        freedom = np.maximum(counts - 1 - shares[:, None] - shares[None, :] + traces, 2.0)
        products = E @ E.T / freedom
        sizes = np.sqrt(np.maximum(np.diagonal(products), 1e-300))
        rho = np.clip(products / np.outer(sizes, sizes), -0.98, 0.98)
        np.fill_diagonal(rho, 1.0)
        pairs = np.triu_indices(K, 1)
        chance = ((1 - rho**2) ** 2 / freedom)[pairs]
        shrinkage = min(1.0, float(chance.sum() / np.maximum(np.sum(rho[pairs] ** 2), 1e-300)))
        if shrinkage > _NEGLIGIBLE:
            return self
        rho = (1 - shrinkage) * rho + shrinkage * np.eye(K)
        rho = nearest_correlation(rho, SMALLEST_EIGENVALUE)
        variance = (1 - shrinkage) ** 2 * (1 - rho**2) ** 2 / freedom
        return replace(scores, errors=_Errors(along, variance, common * (rho - np.eye(K))[:, None, :, None]))

    @cached_property
    def white(self) -> tuple[_White, ...]:
        """White scores about zero and, if all pairs have a common correlation, also about the mean."""
        zero = _White(self, *self.variances())
        found = zero.statistics
        if not self.given.about_mean or len(found.p) < _FEWEST or not common_level(found.sign, found.p, found.freedom):
            return (zero,)
        about = zero
        for _ in range(_ROUNDS):
            about = _White(self, *self.variances(about.mean[0]), about_mean=True)
        return zero, about

    def evidence(self) -> GraphEvidence:
        """Return the evidence on the relations of the weights."""
        with threads_for(max(self.vectors.shape[:2])):
            found = [white.statistics for white in self.white]
            sign, p, freedom, reliability = found[-1]
            if len(found) > 1:
                p = np.where(sign == found[0].sign, np.maximum(p, found[0].p), 1.0)
            r = correlation_of(p, sign, freedom)
            np.fill_diagonal(r, 1.0)
            relative_to = "zero" if len(found) == 1 else "both"
            return self.white[-1].with_partial(GraphEvidence(r, freedom, reliability, "coef", relative_to))

    def permuted(self, random: np.random.Generator) -> Scores:
        """Return scores without relations beyond the mean, by random permutations and signs of the white scores."""
        with threads_for(max(self.vectors.shape[:2])):
            white = self.white[-1]
            u = np.zeros_like(white.scores)
            for k, kept in enumerate(self.spectra.values > 0):
                u[k, kept] = random.permutation(white.scores[k, kept]) * random.choice([-1.0, 1.0], size=kept.sum())
            return white.recoloured(u)


class _White:
    """Scores that are whitened for given variances.

    Parameters
    ----------
    source : Scores
        The scores.
    noise, v : ndarrays of shape (K,)
        Variances of the noise and of the weights.
    about_mean : bool
        Whether the shared mean, apart from its estimation error, is subtracted from the scores.

    Attributes
    ----------
    error_share : ndarray of shape (K, m)
        Share of the estimation error in the variance of each score.
    information : ndarray of shape (K, m)
        Eigenvalues h of H.
    scale : ndarray of shape (K, m)
        Factors that whiten the scores of single tasks.
    single : ndarray of shape (K, m)
        Scores that are white within each task.
    slopes : ndarray of shape (K, m, d)
        Derivatives of these scores in the task's weights.
    rank : ndarray of shape (K,)
        Number of directions with information in the data.
    """

    def __init__(self, source: Scores, noise: Array, v: Array, about_mean: bool = False) -> None:
        self.source, self.noise, self.v, self.about_mean = source, noise, v, about_mean
        a = source.spectra.values / noise[:, None]
        self.error_share: Array = 1 / (1 + v[:, None] * a)
        self.information: Array = a * self.error_share
        self.rank: Array = np.maximum(np.count_nonzero(a, axis=1), 1).astype(float)
        half = np.sqrt(self.information)
        self.scale = np.divide(half, a, out=np.zeros_like(a), where=a > 0)
        self.single: Array = self.scale * source.spectra.projections / noise[:, None]
        self.slopes: Array = half[:, :, None] * source.vectors.transpose(0, 2, 1)

    def covariance(self, own: Array, members: Index | slice = slice(None)) -> Array:
        """Return, in blocks, the covariance of single tasks' scores by errors, with `own` (K, m) on the diagonal."""
        source, diagonal = self.source, self.source.blocks(own[members])
        N = np.zeros((*diagonal.shape, *diagonal.shape[1:]))
        if source.errors is not None:
            weight = source.blocks((self.scale / np.sqrt(self.noise)[:, None])[members])
            among = source.errors.covariance[:, members][:, :, :, members]
            N = among * weight[:, :, :, None, None] * weight[:, None, None]
        np.einsum("bkqkq->bkq", N)[...] = diagonal
        return N.reshape(len(N), diagonal[0].size, -1)

    @cached_property
    def spread(self) -> tuple[Array, Array]:
        """Eigenvalues (B, s) and eigenvectors (B, s, s) of this covariance with ones on the diagonal."""
        N = self.covariance(np.ones_like(self.scale))
        with threads_for(N.shape[-1]):
            values, vectors = np.linalg.eigh(N)
        return np.maximum(values, 1e-3), vectors

    def times(self, scores: Array, power: float) -> Array:
        """Multiply scores of shape (K, m, …) by a power of the covariance."""
        if self.source.errors is None:
            return scores
        (values, vectors), blocks = self.spread, self.source.blocks(scores)
        flat = blocks.reshape(*values.shape, -1)
        turned = vectors @ (values[:, :, None] ** power * (vectors.transpose(0, 2, 1) @ flat))
        return self.source.by_task(turned.reshape(blocks.shape))

    @cached_property
    def _slopes(self) -> Array:
        """Derivatives of the white scores in the shared mean, (K, m, d)."""
        return self.times(self.slopes, -0.5)

    @cached_property
    def mean(self) -> tuple[Array, Array]:
        """The expected shared mean, and the part of its estimate that is subtracted from the scores."""
        u, slopes = self.times(self.single, -0.5), self._slopes.reshape(-1, self.slopes.shape[2])
        M, directions = np.linalg.eigh(slopes.T @ slopes)
        kept = NEGLIGIBLE * M[-1] < M
        M, directions = M[kept], directions.T[kept]
        estimate = directions @ (u.ravel() @ slopes) / M
        squares = estimate**2
        level = np.sum(squares) / max(len(squares), 1)
        total = _GRID[:, None] * level + 1 / M
        tau = _GRID[np.argmin(np.sum(np.log(total) + squares / total, axis=1))] * level
        expected = estimate * tau / (tau + 1 / M)
        return expected @ directions, (estimate * (1 - 1 / np.sqrt(1 + tau * M))) @ directions

    @cached_property
    def scores(self) -> Array:
        """The white scores, (K, m)."""
        u = self.times(self.single, -0.5)
        return u - self._slopes @ self.mean[1] if self.about_mean else u

    def coloured(self, u: Array) -> Array:
        """Return the scores, white within each task, that belong to the white scores u about the mean."""
        return self.times(u + self._slopes @ self.mean[0] if self.about_mean else u, 0.5)

    def recoloured(self, u: Array) -> Scores:
        """Return the scores that belong to the white scores u about the mean."""
        spectra, q = self.source.spectra, self.coloured(u) * self.noise[:, None]
        q = np.divide(q, self.scale, out=np.zeros_like(q), where=self.scale > 0)
        more = np.divide(q**2 - spectra.projections**2, spectra.values, out=np.zeros_like(q), where=spectra.values > 0)
        squares = spectra.target_squares + more.sum(axis=1)
        return replace(self.source, spectra=replace(spectra, projections=q, target_squares=squares))

    @cached_property
    def ranked(self) -> Array:
        """The white scores; with ``ranks`` their entries by feature are replaced by normal quantiles of their ranks."""
        if not self.source.given.ranks:
            return self.scores
        vectors = self.source.vectors
        features = normal_scores(np.einsum("kdm,km->kd", vectors, self.scores))
        return np.where(self.source.spectra.values > 0, np.einsum("kdm,kd->km", vectors, features), 0.0)

    @cached_property
    def statistics(self) -> _Statistics:
        """Tests of the cosines of all pairs. Each task of a pair is once the random one; the larger p-value counts."""
        u, h, v, vectors = self.ranked, self.information, self.v, self.source.vectors
        (K, d, _), rank, errors = vectors.shape, self.rank, self.source.errors
        half = np.sqrt(h)
        g = np.einsum("kdm,km->kd", vectors, half * u)
        cosines, shares = np.eye(K), np.zeros((2, K, K))
        for k in range(K):
            others, own = _unit((g @ vectors[k]) * half[k]), _unit(u[k : k + 1])
            cosines[k] = (others @ own.T)[:, 0]
            # Features may be large in all tasks, or the model's variances may be wrong in some directions.
            by_feature = (others @ vectors[k].T) ** 2 @ (own @ vectors[k].T)[0] ** 2
            shares[:, k] = d * by_feature, rank[k] * (others**2 @ own[0] ** 2)
            shares[:, k] -= 2 * (cosines[k] ** 2 - 1 / rank[k])
        np.fill_diagonal(cosines, 1.0)
        off = ~np.eye(K, dtype=bool)
        kappa = max(1.0, *shares[:, off].mean(axis=1)) if K > 1 else 1.0
        inverse = np.broadcast_to(kappa / rank[:, None], (K, K))
        if errors is not None:
            # Derivative of each pair's cosine in the correlation of its errors.
            Y = np.matmul(vectors * self.error_share[:, None, :], errors.along).reshape(K, -1)
            Y /= np.sqrt(self.noise)[:, None]
            H = np.matmul(vectors * h[:, None, :], vectors.transpose(0, 2, 1)).reshape(K, -1)
            exposure = Y @ Y.T / np.sqrt(np.maximum(rank[:, None] * (H @ H.T), 1e-300))
            inverse = inverse + errors.variance * exposure**2
        reliability = v * np.sum(h, axis=1) / np.sqrt(rank * d)
        p = correlation_p(cosines, 1 / inverse)
        freedom = 1 / np.maximum(inverse, inverse.T)
        return _Statistics(np.sign(cosines + cosines.T), np.maximum(p, p.T), freedom, np.clip(reliability, 0.0, 1.0))

    def with_partial(self, evidence: GraphEvidence) -> GraphEvidence:
        """Return the evidence with partial correlations of all groups that are small enough for a likelihood."""
        large = evidence.large_groups
        groups = [tasks for tasks in large if len(tasks) <= _MOST_IN_GROUP and not evidence.subset(tasks).few]
        if not groups:
            return evidence
        partial, observations = np.zeros((2, *evidence.correlation.shape))
        # If the estimated variance of the weights is 0, the likelihood starts from the variance of the errors.
        errors = self.noise * self.rank / np.maximum(self.source.spectra.values.sum(axis=1), 1e-300)
        start, operations = np.where(self.v > 0, self.v, errors), 0.0
        for members in sorted(groups, key=len):
            known = self.known(members)
            if known is None:
                continue
            B, p, q = known.scores.shape
            operations += float(B * p**3 * q**2 * (p + q))  # of one evaluation of the likelihood
            if operations > _MOST_OPERATIONS:
                break
            found = partial_correlations(known, start[members])
            if found is not None:
                block = np.ix_(members, members)
                # Common large features and shared errors reduce the number of observations here in the same way.
                rank = self.rank[members]
                share = (evidence.freedom[block] - len(members) + 2) / np.minimum.outer(rank, rank)
                correlation, count = found
                partial[block], observations[block] = correlation, np.maximum(count * share, 2.0)
        return replace(evidence, partial=partial, partial_freedom=observations)

    def known(self, members: Index) -> Known | None:
        """Return information and scores of some tasks' weights about the mean, or None if there are too many.

        The change of the scores by their ranks is treated as error.
        """
        source, u, own = self.source, self.single, self.error_share
        if not source.shared and len(members) * self.slopes.shape[2] > _MOST_ROWS:
            return None
        if source.given.ranks:
            changed = 1 - np.einsum("km,km->k", _unit(self.ranked), _unit(self.scores)) ** 2
            u, own = self.coloured(self.ranked), own + changed[:, None] * (1 - own)
        if self.about_mean:
            u = u - self.slopes @ self.mean[1]
        N = self.covariance(1 / own, members) if source.errors is None else np.linalg.inv(self.covariance(own, members))
        # Shared directions are the blocks; otherwise the weights of all features are one block.
        along = source.blocks(np.sqrt(self.information)[:, :, None] if source.shared else self.slopes)[:, members]
        u, N = source.blocks(u)[:, members], N.reshape(*along.shape[:3], *along.shape[1:3])
        J = np.einsum("bkqe,bkqlr,blrf->bkelf", along, N, along, optimize=True)
        return Known(J, np.einsum("bkqe,bkqlr,blr->bke", along, N, u, optimize=True))


def _unit(rows: Array) -> Array:
    """Normalise rows to length 1; zero rows stay zero."""
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, sizes, out=np.zeros_like(rows), where=sizes > 0)


class Known(NamedTuple):
    """Information and scores of the weights of p tasks, in B blocks of q directions each.

    Attributes
    ----------
    information : ndarray of shape (B, p, q, p, q)
        J.
    scores : ndarray of shape (B, p, q)
        h.
    """

    information: Array
    scores: Array

    def likelihood(self, sigma: Array) -> tuple[float, Array, Array]:
        """Return −2 log-likelihood at a covariance, the blocks P, and s."""
        B, p, q = self.scores.shape
        root = np.linalg.inv(np.linalg.cholesky(sigma))
        omega = root.T @ root
        prior = np.multiply.outer(omega, np.eye(q)).transpose(0, 2, 1, 3)
        blocks = (prior + self.information).reshape(B, p * q, p * q)
        factor = np.linalg.cholesky(blocks)
        if B == 1:  # LAPACK's symmetric inverse takes a third of the time of the batched inverse.
            half = np.tril(dpotri(factor[0], lower=True)[0])
            inverse = (half + np.tril(half, -1).T)[None]
        else:
            inverse = np.linalg.inv(blocks)
        mean = np.matmul(inverse, self.scores.reshape(B, p * q, 1)).reshape(B, p, q)
        log_determinant = np.sum(np.log(np.einsum("bii->bi", factor))) - B * q * np.sum(np.log(np.diagonal(root)))
        P = prior - np.einsum("ik,zkalb,lj->ziajb", omega, inverse.reshape(B, p, q, p, q), omega, optimize=True)
        return 2 * float(log_determinant) - float(np.sum(self.scores * mean)), P, np.einsum("ik,zka->zia", omega, mean)


class Relations(Framed):
    """The covariance Σ of the weights of a group; its prior is a tenth of an observation of unrelated tasks."""

    def _centre(self) -> tuple[float, Array]:
        return _PRIOR, np.eye(len(self.T))

    def evaluated(self, known: Known) -> Evaluated | None:
        """Return −2 log-likelihood plus the price, gradient and metric, or None if they cannot be computed."""
        try:
            value, P, s = known.likelihood(self.T)
        except LinAlgError:
            return None
        return value + self.price(), *self.frame_slope(np.einsum("ziaja->ij", P), np.einsum("zia,zja->ij", s, s))


def partial_correlations(known: Known, variances: Array) -> tuple[Array, Array] | None:
    """Return the partial correlations of the tasks' weights, and their effective numbers of observations.

    The result is None if rounding errors prevent the maximisation.

    Parameters
    ----------
    known : Known
        Information and scores.
    variances : ndarray of shape (p,)
        Initial variances of the weights.

    Examples
    --------
    >>> import numpy as np
    >>> weights = np.random.default_rng(0).standard_normal((500, 3, 1))
    >>> exact = np.broadcast_to(1e9 * np.eye(3).reshape(3, 1, 3, 1), (500, 3, 1, 3, 1))
    >>> partial_correlations(Known(exact, 1e9 * weights), np.ones(3))[1].round()
    array([[  0., 500., 500.],
           [500.,   0., 500.],
           [500., 500.,   0.]])
    """
    size = np.sqrt(variances)
    J = known.information * size[:, None, None, None] * size[:, None]
    known = Known(J, known.scores * size[:, None])
    if not all(np.all(np.isfinite(part)) for part in known):
        return None
    try:
        # At variances that were estimated task by task the gradient may be exactly 0, and the climb would stop at once.
        start = Relations(1.1 * np.eye(len(size)))
        sigma = climb(lambda point: point.evaluated(known), start, gain=_CLOSE).point.T
        correlation, observations = partial_at(sigma, J)
        count = float(np.median(observations[np.triu_indices(len(size), 1)]))
        moved = (count * sigma + np.diag(np.diagonal(sigma))) / (count + 1)
        return correlation, partial_at(moved, J)[1]
    except LinAlgError:
        return None


def partial_at(covariance: Array, information: Array) -> tuple[Array, Array]:
    """Return the partial correlations, and the number of error-free directions with the same information about each.

    Parameters
    ----------
    covariance : ndarray of shape (p, p)
        Σ.
    information : ndarray of shape (B, p, q, p, q)
        J.
    """
    omega, information = np.linalg.inv(covariance), fisher(covariance, information)
    (i, j), (a, b) = np.triu_indices(len(omega)), np.triu_indices(len(omega), 1)
    slopes = omega / np.sqrt(np.diagonal(omega))
    rho = -slopes / np.sqrt(np.diagonal(omega))[:, None]
    np.fill_diagonal(rho, 1.0)
    # Each column holds the derivatives of one pair's partial correlation in the entries of Σ.
    (ia, ib), (ja, jb) = ((slopes[rows][:, a], slopes[rows][:, b]) for rows in (i, j))
    changes = ia * jb + ib * ja + rho[a, b] * (ia * ja + ib * jb)
    changes[i == j] /= 2
    variance = np.sum(changes * cho_solve(cho_factor(information), changes), axis=0)
    observations = np.zeros(rho.shape)
    observations[a, b] = observations[b, a] = (1 - rho[a, b] ** 2) ** 2 / variance
    return rho, observations


def fisher(covariance: Array, information: Array) -> Array:
    """Return the Fisher information of the upper triangle of Σ; :func:`partial_at` explains the parameters."""
    omega, p = np.linalg.inv(covariance), len(covariance)
    _, P, _ = Known(information, np.zeros(information.shape[:3])).likelihood(covariance)
    blocks = P.transpose(1, 3, 0, 2, 4).reshape(p * p, -1)
    products = blocks @ blocks.T + _PRIOR * np.outer(omega, omega)
    products = products.reshape(p, p, p, p)  # tr(P_kl P_mn) at [k, l, n, m]
    i, j = np.triu_indices(p)
    a, b = i[:, None], j[:, None]
    # Off-diagonal entries occur twice in Σ, so that 2 or 4 of the terms are equal up to their order.
    single = np.where(i == j, 0.5, 1.0)
    return np.asarray(np.outer(single, single) * (products[b, i, a, j] + products[b, j, a, i]))
