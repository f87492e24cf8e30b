r"""What a fit's data say about the relations of its tasks; the tests are those of :mod:`mssl.graph.tests`.

**The likelihood** of a group. The weights of p tasks in each direction of the feature space are draws of
:math:`N(0, \Sigma)`. The data know them with the information J, so that with
:math:`\mathbf\Sigma = \Sigma\otimes I` their scores
:math:`h \sim N(0, J\mathbf\Sigma J + J)`. The log-likelihood

.. math:: \ell(\Sigma) = \tfrac12 h^\top (\mathbf\Sigma^{-1} + J)^{-1} h - \tfrac12\log|I + \mathbf\Sigma J|

has, with :math:`P = (\mathbf\Sigma + J^{-1})^{-1} = \mathbf\Sigma^{-1} - \mathbf\Sigma^{-1}(\mathbf\Sigma^{-1} +
J)^{-1}\mathbf\Sigma^{-1}` in blocks :math:`P_{kl}` and :math:`s = \mathbf\Sigma^{-1}(\mathbf\Sigma^{-1}+J)^{-1}h`, the
derivatives and the Fisher information

.. math:: \frac{\partial\ell}{\partial\Sigma_{kl}} = \tfrac12(s_k\cdot s_l - \operatorname{tr} P_{kl}), \qquad
          \mathcal I_{kl,mn} = \tfrac12\operatorname{tr}(P_{lm}P_{nk}).

It is climbed in the frame of Σ (:mod:`mssl.evidence.climb`). A tenth of an observation of unrelated tasks is added,
which keeps Σ from being singular and moves estimates by less than their error. The variance of a partial correlation
:math:`\rho` follows from the information; :math:`(1-\rho^2)^2` divided by it is the number of directions without error
that would tell as much. Without errors that is the number of directions, and ρ the partial correlation of the weights.
Estimates from few observations leave a task less variance of its own than it has, against which errors weigh more. So
that number is taken where one further observation of unrelated tasks moves the estimate (in the groups of
``docs/graph.md`` it is then right to a tenth, without it 10 to 60 % too small).

References
----------
Searle, Casella & McCulloch (1992), Variance Components, doi:10.1002/9780470316856.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpotri
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri

from mssl._typing import Array, Index, Mask
from mssl.data.columns import effective_columns
from mssl.data.layouts import TaskData
from mssl.evidence.climb import climb
from mssl.evidence.kernels import Dense, Form
from mssl.evidence.posterior import root
from mssl.exceptions import ParameterError
from mssl.graph.tables import FDR
from mssl.graph.tests import (
    Evidence,
    GraphEvidence,
    LazyEvidence,
    Residuals,
    Untested,
    adjusted_p,
    correlation_of,
    correlation_p,
    few_observations,
)
from mssl.kernels.threads import threads_for
from mssl.penalties import L1
from mssl.solvers.alternation import FitResult
from mssl.solvers.fit import Prepared
from mssl.solvers.quadratic import DesignQuadratic, GramQuadratic, without_rows
from mssl.solvers.residual import ResidualProblem
from mssl.solvers.start import Spectra, moderated_noise, variance_components
from mssl.structures.base import Structure
from mssl.structures.copula import normal_scores

_FEWEST_COLUMNS = 3  # Columns that vary within tasks; the weights of fewer can show no relation.
_FEWEST = 4  # Tasks; with fewer, a shared mean and relations of single pairs cannot be told apart.
_LOWER = 1.0  # z values up to this one show the common level of all pairs; stronger ones may be true relations
_ROUNDS = 3  # of the shared mean and the variances about it, each given the other
_GRID = np.concatenate([[0.0], np.geomspace(1e-4, 3.0, 60)])  # variance of the shared mean, by its own mean square
_ABSENT = 1e-10  # eigenvalues of a Gram below this share of its largest are rounding
_SMALLEST_EIGENVALUE = 0.02  # of the residuals' correlations
_FREE_ROWS = 1.5  # Rows per feature; with more, residuals are those of least squares, which hold no weights.
_NEGLIGIBLE = 0.9  # Shrinkage of the residuals' correlations; where it is larger, they are taken for chance.
_LARGEST = 5000  # weights of all tasks whose errors are whitened together: more take minutes
_MOST_PRODUCTS = 1000  # rows of the table of occasions' products: with more, the occasions are kept
_MOST_RESIDUALS = 250_000  # that are kept to be permuted; of more the evidence alone is kept: 2 MB
_MOST_WEIGHTS = 1000  # in a block of the likelihood of partial correlations: two seconds
_MOST_IN_GROUP = 50  # tasks of it: 1 275 entries of their covariance
_MOST_OPERATIONS = 3e10  # of all groups' likelihoods, each evaluated once: ten seconds
_PRIOR = 0.1  # observations of unrelated tasks: from 0.03 to 0.3 the tables of docs/graph.md are the same
_CLOSE = 1e-6  # Gain of −2 log-likelihood at which it is at its top; 1e-4 leaves partial correlations open by 2e-4.


@dataclass(frozen=True, eq=False)
class _Tasks:
    """Single tasks in the eigenbases of their Grams, padded with zeros to m directions.

    Attributes
    ----------
    values, projections : ndarrays of shape (K, m)
        Eigenvalues, and the products of the features with the targets.
    vectors : ndarray of shape (K, d, m)
        Eigenvectors.
    squares, freedom : ndarrays of shape (K,)
        Sums of squares of the centred targets and their degrees of freedom.
    noise : ndarray of shape (K,) or None
        Noise variances where they are known.
    """

    values: Array
    vectors: Array
    projections: Array
    squares: Array
    freedom: Array
    noise: Array | None

    def subset(self, keep: Index) -> _Tasks:
        """Some of the tasks."""
        parts: dict[str, Any] = {name: None if part is None else part[keep] for name, part in vars(self).items()}
        return replace(self, **parts)

    def variances(self, mean: Array | None = None) -> tuple[Array, Array]:
        """Noise and variance of the weights about a mean, by restricted maximum likelihood."""
        q, squares, d = self.projections, self.squares, self.vectors.shape[1]
        if mean is not None:
            along = np.einsum("kdm,d->km", self.vectors, mean)
            squares = squares - 2 * np.sum(q * along, axis=1) + np.sum(self.values * along**2, axis=1)
            q = q - self.values * along
        spectra = Spectra(self.values, q, np.maximum(squares, 1e-12 * self.squares), self.freedom, d)
        noise = self.noise
        if noise is None:
            noise = moderated_noise(spectra, *variance_components(spectra))
        return noise, variance_components(spectra, noise)[1]


class _Errors(NamedTuple):
    """Errors that tasks share because their rows are the same occasions.

    Attributes
    ----------
    rows : ndarray of shape (K or 1, d, n)
        Features by occasion, centred; 0 where a task has no row.
    correlation : ndarray of shape (K, K)
        Of the residuals, shrunk towards none.
    variance : ndarray of shape (K, K)
        Of these correlations.
    """

    rows: Array
    correlation: Array
    variance: Array


class _Statistics(NamedTuple):
    """Cosines of all pairs, task k in the role of the random one, their degrees of freedom, and reliabilities."""

    cosines: Array
    freedom: Array
    reliability: Array

    def signed_p(self) -> tuple[Array, Array]:
        """Signs and p-values of all pairs; of the two roles the larger p-value."""
        p = np.maximum(correlation_p(self.cosines, self.freedom), correlation_p(self.cosines.T, self.freedom.T))
        return np.sign(self.cosines + self.cosines.T), p


def evidence_of(prepared: Prepared, result: FitResult, structure: Structure, data: TaskData) -> Evidence | LazyEvidence:
    """The evidence behind the graph of a fit, computed when it is asked for from what is kept of the data.

    Parameters
    ----------
    prepared, result, structure
        The data as they were fitted, the fit, and what relates its tasks.
    data : TaskData
        The tasks.
    """
    ranks = structure.correlation != "pearson"
    if structure.relates == "residual":
        residuals = _residuals(prepared, result, ranks)
        evidence = LazyEvidence(residuals, len(residuals.values))
        return evidence.saved() or evidence if residuals.values.size > _MOST_RESIDUALS else evidence
    # Deviations from a mean that is not shared by all are related where the tasks are not: clusters repel each other
    # about their common mean. So a mean that helps to predict is no reason to test about it alone.
    return evidence_on_weights(prepared, data, bool(prepared.settings.shared_mean), ranks)


def evidence_on_weights(
    prepared: Prepared, data: TaskData, about_mean: bool = True, ranks: bool = False
) -> Untested | LazyEvidence:
    """The evidence on the relations of the tasks' weights; the parameters are those of :class:`RelationInput`."""
    number = effective_columns(data, _FEWEST_COLUMNS)
    if number >= _FEWEST_COLUMNS:
        return LazyEvidence(RelationInput.of(prepared, about_mean, ranks), len(prepared.noise))
    columns = f"{number} column{'' if number == 1 else 's'}"
    return Untested(
        f"the weights of {columns} cannot show relations: at least {_FEWEST_COLUMNS} columns that vary within tasks "
        "are needed"
    )


def _residuals(prepared: Prepared, result: FitResult, ranks: bool) -> Residuals:
    problem = prepared.problem(L1(1.0), "residual")  # residuals are the same with any penalty
    assert isinstance(problem, ResidualProblem)
    used = np.count_nonzero(result.W, axis=1).mean() + (1.0 if prepared.settings.fit_intercept else 0.0)
    residuals = problem.related(result.W)
    if prepared.gaps is not None:
        missing = prepared.gaps.missing
        residuals = np.where(missing, np.nan, residuals[:, : missing.shape[1]])
    return Residuals(normal_scores(residuals) if ranks else residuals, float(used))


class Occasions(NamedTuple):
    """Rows of different tasks that belong together, as far as products over all occasions tell them.

    Attributes
    ----------
    features : ndarray of shape (K or 1, d, r)
        Centred features; 0 where a task has no row.
    targets : ndarray of shape (K, r)
        Centred targets.
    counts : ndarray of shape (K, K)
        Occasions of both tasks.
    products : bool
        Whether these are not the occasions, but their products: of each row of features or targets with all of them.
    """

    features: Array
    targets: Array
    counts: Array
    products: bool

    @classmethod
    def of(cls, prepared: Prepared) -> Occasions | None:
        """Those of prepared data; None where no rows belong together."""
        data, design = prepared.data, prepared.design
        if data is None or design is None or design.is_sparse or data.n_tasks < 2 or data.paired is None:
            return None
        features, targets, known = _by_occasion(data, prepared)
        (B, d, n), K = features.shape, len(targets)
        counts = known.astype(float) @ known.T
        if not B * d + K <= min(n, _MOST_PRODUCTS):
            return cls(features, targets, counts, False)
        rows = np.concatenate([features.reshape(B * d, n), targets])
        features, targets = np.split(rows @ rows.T, [B * d])
        return cls(features.reshape(B, d, -1), targets, counts, True)

    def factors(self) -> tuple[Array, Array]:
        """Features (K or 1, d, r) and targets (K, r) with the products of the occasions."""
        if not self.products:
            return self.features, self.targets
        B, d, r = self.features.shape
        products = np.concatenate([self.features.reshape(B * d, r), self.targets])
        size = np.sqrt(np.diagonal(products))
        size = np.where(size > 0, size, 1.0)
        features, targets = np.split(size[:, None] * root(products / np.outer(size, size)), [B * d])
        return features.reshape(B, d, r), targets


@dataclass(frozen=True, eq=False)
class RelationInput:
    """What is kept of a fit's data, so that the relations of the weights can be tested: a source of evidence.

    Attributes
    ----------
    base : GramQuadratic or DesignQuadratic
        The loss of single tasks, noise precisions 1: Grams, or rows where these are fewer numbers.
    squares : ndarray of shape (K,) or None
        Sums of squares of the centred targets; None where the features explain them.
    freedom : ndarray of shape (K,)
        Degrees of freedom of the targets.
    noise : ndarray of shape (K,) or None
        Noise variances where they are known.
    occasions : Occasions or None
        Rows that tasks have in common.
    about_mean, ranks : bool
        As of :class:`Scores`.
    """

    base: GramQuadratic | DesignQuadratic
    squares: Array | None
    freedom: Array
    noise: Array | None
    occasions: Occasions | None
    about_mean: bool
    ranks: bool

    @classmethod
    def of(cls, prepared: Prepared, about_mean: bool = True, ranks: bool = False) -> RelationInput:
        """What is kept of prepared data."""
        base, spectra = prepared.base, prepared.spectra
        known = prepared.rows is not None or not isinstance(prepared.settings.noise, str) or spectra is None
        return cls(
            without_rows(base),
            None if spectra is None else spectra.target_squares,
            np.full(base.n_tasks, float(base.n_features)) if spectra is None else spectra.freedom,
            prepared.noise if known else None,
            Occasions.of(prepared),
            about_mean,
            ranks,
        )

    def read(self) -> Scores:
        """The tasks' scores."""
        with threads_for(max(self.base.n_features, self.base.n_tasks)):
            tasks = self._tasks()
            errors = None if self.occasions is None else _errors(self.occasions, tasks)
        return Scores(tasks, errors, self.about_mean, self.ranks)

    def _tasks(self) -> _Tasks:
        base = self.base
        K, d = base.n_tasks, base.n_features
        if isinstance(base, GramQuadratic):
            values, vectors = np.linalg.eigh(base.gram)
            values = base.task_scale[:, None] * values
            vectors = np.broadcast_to(vectors, (K, d, d))
        else:
            blocks = [np.linalg.svd(base.block(k), full_matrices=False)[1:] for k in range(K)]
            m = max(len(sizes) for sizes, _ in blocks)
            values, vectors = np.zeros((K, m)), np.zeros((K, d, m))
            for k, (sizes, rows) in enumerate(blocks):
                values[k, : len(sizes)], vectors[k, :, : len(sizes)] = sizes**2, rows.T
        values = np.where(values > _ABSENT * values.max(axis=1, keepdims=True), values, 0.0)
        projections = np.where(values > 0, np.einsum("kdm,kd->km", vectors, base.linear), 0.0)
        squares = self.squares
        if squares is None:
            squares = np.sum(np.divide(projections**2, values, out=np.zeros_like(values), where=values > 0), axis=1)
        return _Tasks(values, vectors, projections, squares, self.freedom, self.noise)


class Scores(NamedTuple):
    """The tasks' scores, as a source of evidence on the relations of their weights.

    Attributes
    ----------
    tasks, errors
        Single tasks, and what their errors have in common.
    about_mean : bool
        Whether relations have to hold about a mean as well as about zero, where all pairs have something in common.
    ranks : bool
        Compare the ranks of each task's weights, as normal quantiles, for heavy tails (a Gaussian copula).
    """

    tasks: _Tasks
    errors: _Errors | None
    about_mean: bool
    ranks: bool

    @property
    def size(self) -> int:
        """Rows of the largest matrices."""
        return max(self.tasks.vectors.shape[:2])

    def operations(self) -> float:
        """Roughly how many operations these take: cosines of all pairs, the mean, and whitened errors."""
        K, d, m = self.tasks.vectors.shape
        blocks = 0.0 if self.errors is None else m * K**3 if _one_design(self.tasks) else float(K * m) ** 3
        return 3.0 * K * d * m * (K + d) + 20 * blocks

    def _white(self, with_mean: bool) -> _White:
        return _white(self.tasks, self.errors, with_mean)

    def _about_zero(self) -> tuple[_White, _Statistics, bool]:
        """Scores and statistics about zero, and whether relations have to hold about a mean too."""
        white = self._white(False)
        found = self._statistics(white)
        several = self.about_mean and len(self.tasks.values) >= _FEWEST
        return white, found, several and _common_level(*found.signed_p(), found.freedom)

    def evidence(self) -> GraphEvidence:
        """What the scores say."""
        with threads_for(self.size):
            white, found, common = self._about_zero()
            sign, p = found.signed_p()
            relative_to = "zero"
            if common:
                white = self._white(True)
                found, relative_to = self._statistics(white), "both"
                other_sign, other_p = found.signed_p()
                p = np.where(sign == other_sign, np.maximum(p, other_p), 1.0)
            freedom = np.minimum(found.freedom, found.freedom.T)
            r = correlation_of(p, sign, freedom)
            np.fill_diagonal(r, 1.0)
            evidence = GraphEvidence(r, freedom, found.reliability, "coef", relative_to)
            return self._with_partial(evidence, white)

    def _with_partial(self, evidence: GraphEvidence, white: _White) -> GraphEvidence:
        """The evidence with the partial correlations of its groups, where they are small enough for a likelihood."""
        groups = [
            members
            for members in evidence.large_groups
            if len(members) <= _MOST_IN_GROUP and not few_observations(evidence.subset(members))
        ]
        if not groups:
            return evidence
        tasks, changed = self.tasks, np.zeros(len(self.tasks.values))
        if self.ranks:
            u = _ranked(tasks, white.scores)
            changed = 1 - np.einsum("km,km->k", _unit(u), _unit(white.scores)) ** 2
            tasks = _recoloured(tasks, self.errors, white, u)
        partial, observations = np.zeros((2, *evidence.correlation.shape))
        rank = np.maximum(np.count_nonzero(tasks.values, axis=1), 1)
        # Where no variance of the weights shows, the likelihood starts from one as large as that of the errors.
        errors = white.noise * rank / np.maximum(tasks.values.sum(axis=1), 1e-300)
        start = np.where(white.v > 0, white.v, errors)
        operations = 0.0
        for members in sorted(groups, key=len):
            known = _known(tasks, self.errors, white, members, changed[members])
            if known is None:
                continue
            operations += known.operations
            if operations > _MOST_OPERATIONS:
                break
            found = partial_correlations(known, start[members])
            if found is not None:
                block = np.ix_(members, members)
                # Features that are large in all tasks, and shared errors, count in the partial correlations alike.
                share = (evidence.freedom[block] - len(members) + 2) / np.minimum.outer(rank[members], rank[members])
                partial[block], observations[block] = found.correlation, np.maximum(found.observations * share, 2.0)
        return replace(evidence, partial=partial, partial_freedom=observations)

    def permuted(self, random: np.random.Generator) -> Scores:
        """Scores of tasks without relations beyond the mean: white ones change places and signs, task by task."""
        with threads_for(self.size):
            white, _, common = self._about_zero()
            if common:
                white = self._white(True)
            present = self.tasks.values > 0
            u = np.zeros_like(white.scores)
            for k, kept in enumerate(present):
                u[k, kept] = random.permutation(white.scores[k, kept]) * random.choice([-1.0, 1.0], size=kept.sum())
            return self._replace(tasks=_recoloured(self.tasks, self.errors, white, u))

    def _statistics(self, white: _White) -> _Statistics:
        tasks, u = self.tasks, white.scores
        if self.ranks:
            u = _ranked(tasks, u)
        a = tasks.values / white.noise[:, None]
        h = a / (1 + white.v[:, None] * a)
        return _cosines(u, h, tasks.vectors, white.v, self.errors, white.noise)


class _White(NamedTuple):
    """White scores.

    Attributes
    ----------
    noise, v : ndarrays of shape (K,)
        Variances of the noise and of the weights.
    scores : ndarray of shape (K, m)
        The scores, so much of a shared mean taken out that estimation error remains.
    expected : ndarray of shape (K, m)
        What the expected mean contributes to them.
    removed : ndarray of shape (d,)
        So much of a shared mean was taken out.
    """

    noise: Array
    v: Array
    scores: Array
    expected: Array
    removed: Array


def _white(tasks: _Tasks, errors: _Errors | None, with_mean: bool) -> _White:
    noise, v = tasks.variances()
    u, slopes = _whiten(tasks, noise, v, errors)
    if not with_mean:
        return _White(noise, v, u, np.zeros_like(u), np.zeros(slopes.shape[-1]))
    for _ in range(_ROUNDS):
        noise, v = tasks.variances(_mean(u, slopes)[0])
        u, slopes = _whiten(tasks, noise, v, errors)
    mean, removed = _mean(u, slopes)
    return _White(noise, v, u - slopes @ removed, slopes @ mean, removed)


def _ranked(tasks: _Tasks, u: Array) -> Array:
    """White scores as normal quantiles of their ranks, which are those of features; scores are in the eigenbases."""
    features = normal_scores(np.einsum("kdm,km->kd", tasks.vectors, u))
    return np.where(tasks.values > 0, np.einsum("kdm,kd->km", tasks.vectors, features), 0.0)


def _scale(tasks: _Tasks, noise: Array, v: Array) -> Array:
    """What makes the scores of single tasks white, (K, m)."""
    a = tasks.values / noise[:, None]
    spread = a * (1 + v[:, None] * a)
    return np.divide(1.0, np.sqrt(spread), out=np.zeros_like(a), where=spread > 0)


def _single(tasks: _Tasks, noise: Array, v: Array) -> tuple[Array, Array]:
    """Scores that are white in each task (K, m), and how they depend on the task's weights (K, m, d)."""
    scale = _scale(tasks, noise, v) / noise[:, None]
    return scale * tasks.projections, (scale * tasks.values)[:, :, None] * tasks.vectors.transpose(0, 2, 1)


def _whiten(tasks: _Tasks, noise: Array, v: Array, errors: _Errors | None) -> tuple[Array, Array]:
    """White scores (K, m), and how they depend on a mean that all tasks share (K, m, d)."""
    u, slopes = _single(tasks, noise, v)
    if errors is None:
        return u, slopes
    spread = _Spread.of(_error_covariance(tasks, noise, v, errors, np.ones_like(u)))
    return spread.times(u, -0.5), spread.times(slopes, -0.5)


def _recoloured(tasks: _Tasks, errors: _Errors | None, white: _White, u: Array) -> _Tasks:
    """The tasks whose white scores about the mean are u."""
    u = white.expected + u
    scale = _scale(tasks, white.noise, white.v)
    if errors is not None:
        N = _error_covariance(tasks, white.noise, white.v, errors, np.ones_like(u))
        u = _Spread.of(N).times(u, 0.5)
    q = white.noise[:, None] * np.divide(u, scale, out=np.zeros_like(u), where=scale > 0)
    more = np.divide(q**2 - tasks.projections**2, tasks.values, out=np.zeros_like(q), where=scale > 0)
    return replace(tasks, projections=q, squares=tasks.squares + more.sum(axis=1))


class _Spread(NamedTuple):
    """A covariance of all tasks' scores: eigenvalues (B, s) and eigenvectors (B, s, s) of its blocks.

    One block holds all scores, task by task; or there is a block for each of m directions that all tasks share.
    """

    values: Array
    vectors: Array

    @classmethod
    def of(cls, covariance: Array) -> _Spread:
        """That of a covariance (B, s, s)."""
        with threads_for(covariance.shape[-1]):
            values, vectors = np.linalg.eigh(covariance)
        return cls(np.maximum(values, 1e-3), vectors)

    def times(self, scores: Array, power: float) -> Array:
        """A power of the covariance times scores of shape (K, m, …)."""
        ordered = scores if len(self.values) == 1 else scores.swapaxes(0, 1)
        flat = ordered.reshape(*self.values.shape, -1)
        turned = self.values[:, :, None] ** power * (self.vectors.transpose(0, 2, 1) @ flat)
        out = (self.vectors @ turned).reshape(ordered.shape)
        return out if len(self.values) == 1 else out.swapaxes(0, 1)


def _one_design(tasks: _Tasks) -> bool:
    """Whether the tasks' directions are the same, so that scores along different ones are independent."""
    return np.array_equal(tasks.vectors, np.broadcast_to(tasks.vectors[0], tasks.vectors.shape))


def _error_covariance(tasks: _Tasks, noise: Array, v: Array, errors: _Errors, own: Array) -> Array:
    """The covariance of all tasks' scores that rows they share make, in blocks as of :class:`_Spread`.

    The scores are white in each task; `own`, of shape (K, m), is what stands on the diagonal.
    """
    scale = _scale(tasks, noise, v)
    K, m = scale.shape
    weight = scale / np.sqrt(noise)[:, None]
    if len(errors.rows) == 1 and _one_design(tasks):
        along = np.sum((tasks.vectors[0].T @ errors.rows[0]) ** 2, axis=1)
        N = weight.T[:, :, None] * weight.T[:, None, :] * along[:, None, None] * errors.correlation
        N[:, np.arange(K), np.arange(K)] = own.T
    else:
        Z = np.matmul(tasks.vectors.transpose(0, 2, 1), errors.rows) * weight[:, :, None]
        flat = Z.reshape(K * m, -1)
        N = (flat @ flat.T * np.repeat(np.repeat(errors.correlation, m, axis=0), m, axis=1))[None]
        for k in range(K):
            N[0, k * m : (k + 1) * m, k * m : (k + 1) * m] = np.diag(own[k])
    return N


def _known(
    tasks: _Tasks, errors: _Errors | None, white: _White, members: Index, changed: Array | float = 0.0
) -> Known | None:
    """Information and scores of some tasks' weights about the mean, or None where that is too much to compute with.

    What ranks have changed of the scores, `changed` of their variance in each task, counts as error.
    """
    chosen = tasks.subset(members)
    noise, v = white.noise[members], white.v[members]
    u, slopes = _single(chosen, noise, v)
    u = u - slopes @ white.removed
    p, m, d = slopes.shape
    own = 1 / (1 + (v / noise)[:, None] * chosen.values)  # share of the errors in the variance of a score, which is 1
    own = own + np.reshape(changed, (-1, 1)) * (1 - own)
    by_direction = _one_design(chosen)
    if errors is not None:
        rows, block = errors.rows if len(errors.rows) == 1 else errors.rows[members], np.ix_(members, members)
        by_direction = by_direction and len(rows) == 1
    if not by_direction and p * d > _MOST_WEIGHTS:
        return None
    if errors is not None:
        part = _Errors(rows, errors.correlation[block], errors.variance[block])
        N = np.linalg.inv(_error_covariance(chosen, noise, v, part, own))
    else:
        N = np.stack([np.diag(1 / shares) for shares in (own.T if by_direction else own.reshape(1, -1))])
    if by_direction:
        along = np.einsum("kmd,kdm->mk", slopes, chosen.vectors)
        scores = along * np.einsum("mkl,lm->mk", N, u)
        return Known((along[:, :, None] * N * along[:, None, :])[:, :, None, :, None], scores[:, :, None])
    N = N.reshape(p, m, p, m)
    information = np.einsum("kmd,kmln,lne->kdle", slopes, N, slopes, optimize=True)
    scores = np.einsum("kmd,kmln,ln->kd", slopes, N, u, optimize=True)
    return Known(information[None], scores[None])


def _mean(u: Array, slopes: Array) -> tuple[Array, Array]:
    """The expected shared mean, and what is taken out of the scores: so much that estimation error remains."""
    _, sizes, directions = np.linalg.svd(slopes.reshape(-1, slopes.shape[-1]), full_matrices=False)
    kept = sizes**2 > _ABSENT * sizes[0] ** 2
    if not kept.any():
        return np.zeros(slopes.shape[-1]), np.zeros(slopes.shape[-1])
    M, directions = sizes[kept] ** 2, directions[kept]
    estimate = directions @ np.einsum("kmd,km->d", slopes, u) / M
    squares = estimate**2
    total = _GRID[:, None] * np.mean(squares) + 1 / M
    tau = _GRID[np.argmin(np.sum(np.log(total) + squares / total, axis=1))] * np.mean(squares)
    expected = estimate * tau / (tau + 1 / M)
    return expected @ directions, (estimate * (1 - 1 / np.sqrt(1 + tau * M))) @ directions


def _cosines(u: Array, h: Array, vectors: Array, v: Array, errors: _Errors | None, noise: Array) -> _Statistics:
    K = len(u)
    root = np.sqrt(h)
    g = np.einsum("kdm,km->kd", vectors, root * u)
    rank = np.maximum(np.count_nonzero(h, axis=1), 1).astype(float)
    d = vectors.shape[1]
    cosines, shares = np.eye(K), np.zeros((2, K, K))
    for k in range(K):
        others, own = _unit((g @ vectors[k]) * root[k]), _unit(u[k : k + 1])
        cosines[k] = (others @ own.T)[:, 0]
        # What is large in all tasks may be features, or directions whose variances the model has wrong.
        by_feature = (others @ vectors[k].T) ** 2 @ (own @ vectors[k].T)[0] ** 2
        shares[:, k] = d * by_feature, rank[k] * (others**2 @ own[0] ** 2)
        shares[:, k] -= 2 * (cosines[k] ** 2 - 1 / rank[k])
    np.fill_diagonal(cosines, 1.0)
    off = ~np.eye(K, dtype=bool)
    kappa = max(1.0, *shares[:, off].mean(axis=1)) if K > 1 else 1.0
    inverse = np.broadcast_to(kappa / rank[:, None], (K, K))
    if errors is not None:
        inverse = inverse + errors.variance * _exposure(h, vectors, v, noise, errors.rows) ** 2
    reliability = v * np.sum(h, axis=1) / np.sqrt(rank * vectors.shape[1])
    return _Statistics(cosines, 1 / inverse, np.clip(reliability, 0.0, 1.0))


def _unit(rows: Array) -> Array:
    """Rows of length 1; zeros stay."""
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, sizes, out=np.zeros_like(rows), where=sizes > 0)


def _exposure(h: Array, vectors: Array, v: Array, noise: Array, rows: Array) -> Array:
    """By how much the cosine of a pair grows with the correlation of its errors, (K, K)."""
    K = len(h)
    shrunk = 1 - v[:, None] * h  # 1/(1 + v a)
    Y = np.matmul(vectors * shrunk[:, None, :], np.matmul(vectors.transpose(0, 2, 1), rows))
    Y = Y.reshape(K, -1) / np.sqrt(noise)[:, None]
    H = np.matmul(vectors * h[:, None, :], vectors.transpose(0, 2, 1)).reshape(K, -1)
    rank = np.maximum(np.count_nonzero(h, axis=1), 1)
    return np.asarray(Y @ Y.T / np.sqrt(np.maximum(rank[:, None] * (H @ H.T), 1e-300)))


def _common_level(sign: Array, p: Array, freedom: Array) -> bool:
    """Whether all pairs seem to have a correlation in common, judged by the lower part of their z values.

    The location of a normal distribution of unit variance is estimated from the values below a bound; relations above
    it have no influence. The values of (k, l) and (k', l') are correlated by R_kk' R_ll' + R_kl' R_lk': tasks that are
    related, at a false discovery rate of 10 %, are not counted as so many witnesses.
    """
    K = len(p)
    pairs = np.triu_indices(K, 1)
    z = -sign[pairs] * ndtri(np.clip(p[pairs], 1e-300, 1.0) / 2)
    lower = z <= _LOWER
    low = z[lower]
    if len(low) < 3:
        return True

    def mills(t: float) -> float:
        return float(np.exp(-0.5 * t**2 - log_ndtr(t)) / np.sqrt(2 * np.pi))

    def surplus(location: float) -> float:
        return float(low.mean()) - location + mills(_LOWER - location)

    if surplus(10.0) > 0:
        return True
    location = float(brentq(surplus, -20.0, 10.0))
    t = _LOWER - location
    R, used = np.zeros((K, K)), np.zeros((K, K))
    related = adjusted_p(p[pairs]) <= FDR
    R[pairs] = np.where(related, correlation_of(p[pairs], sign[pairs], freedom[pairs]), 0.0)
    used[pairs] = lower
    R, used = R + R.T + np.eye(K), used + used.T
    repeated = max(1.0, 0.5 * float(np.sum(used * (R @ used @ R))) / len(low))
    information = len(low) / repeated * max(1 - mills(t) * (t + mills(t)), 1e-6)
    return location > 1 / np.sqrt(information)


def _errors(occasions: Occasions, tasks: _Tasks) -> _Errors | None:
    """The errors that tasks share, or None where nothing shows."""
    K, m = tasks.values.shape
    if K * m > _LARGEST:
        raise ParameterError(
            f"There are {K} tasks with {m} features whose errors are related by common rows; relations of the weights "
            f"are computed for at most {_LARGEST} weights. Relate the residuals instead, with relation='residual'."
        )
    (rows, targets), counts = occasions.factors(), occasions.counts
    noise, v = tasks.variances()
    ratio = (v / noise)[:, None] * tasks.values
    ample = np.diagonal(counts) - 1 >= _FREE_ROWS * np.count_nonzero(tasks.values, axis=1)
    share = np.where(ample[:, None], (tasks.values > 0).astype(float), ratio / (1 + ratio))
    root = np.divide(1.0, np.sqrt(tasks.values), out=np.zeros_like(tasks.values), where=tasks.values > 0)
    F = np.matmul(tasks.vectors.transpose(0, 2, 1), rows) * root[:, :, None]
    E = targets - np.einsum("kmn,km->kn", F * share[:, :, None], np.einsum("kmn,kn->km", F, targets))
    shares = share.sum(axis=1)
    F *= np.sqrt(share)[:, :, None]
    if F.shape[2] ** 2 < K * m**2:  # traces of products of the tasks' hat matrices, the cheaper way
        hats = np.matmul(F.transpose(0, 2, 1), F).reshape(K, -1)
        common = hats @ hats.T
    else:
        flat = F.reshape(K * m, -1)
        common = np.sum((flat @ flat.T).reshape(K, m, K, m) ** 2, axis=(1, 3))
    freedom = np.maximum(counts - 1 - shares[:, None] - shares[None, :] + common, 2.0)
    products = E @ E.T / freedom
    sizes = np.sqrt(np.maximum(np.diagonal(products), 1e-300))
    rho = np.clip(products / np.outer(sizes, sizes), -0.98, 0.98)
    np.fill_diagonal(rho, 1.0)
    pairs = np.triu_indices(K, 1)
    chance = ((1 - rho**2) ** 2 / freedom)[pairs]
    shrinkage = min(1.0, float(chance.sum() / np.maximum(np.sum(rho[pairs] ** 2), 1e-300)))
    if shrinkage > _NEGLIGIBLE:
        return None
    rho = (1 - shrinkage) * rho + shrinkage * np.eye(K)
    values, vectors = np.linalg.eigh(rho)
    if values[0] < _SMALLEST_EIGENVALUE:
        rho = (vectors * np.maximum(values, _SMALLEST_EIGENVALUE)) @ vectors.T
    size = np.sqrt(np.diagonal(rho))
    variance = (1 - shrinkage) ** 2 * (1 - rho**2) ** 2 / freedom
    return _Errors(rows, rho / np.outer(size, size), variance)


def _by_occasion(data: TaskData, prepared: Prepared) -> tuple[Array, Array, Mask]:
    """Features (K or 1, d, n) and targets (K, n) of the least squares problem that tasks are read from, by occasion.

    Both are centred and times the roots of the rows' weights (other losses: of the curvatures near the fit); 0 where a
    task has no row, which the third array says.
    """
    weights = np.ones(len(data.y)) if data.weights is None else data.weights
    targets, near = data.y, prepared.rows
    if near is not None:
        predictor = near.design.predictor(
            np.zeros(prepared.base.linear.shape) if prepared.near is None else prepared.near
        )
        weights, targets = near.working(predictor, predictor + near.design.per_task(near.best_intercepts(predictor)))
    c, z = (data.by_occasion(values) for values in (weights, targets))
    known = np.isfinite(z)
    c, z = np.nan_to_num(c), np.nan_to_num(z)
    X = np.asarray(data.X, dtype=float) / prepared.scales
    features = X.T[None] if data.shared else np.nan_to_num(data.by_occasion(X)).transpose(0, 2, 1)
    own = c[:1] if data.shared and np.all(c == c[0]) else c
    z = np.sqrt(c) * (z - np.average(z, axis=1, weights=c)[:, None])
    means = np.einsum("kdn,kn->kd", np.broadcast_to(features, (len(own), *features.shape[1:])), own)
    features = np.sqrt(own)[:, None, :] * (features - (means / own.sum(axis=1)[:, None])[:, :, None])
    return np.ascontiguousarray(features), z, known


class Known(NamedTuple):
    """What data say about the weights of p tasks, in B blocks of q directions each.

    Attributes
    ----------
    information : ndarray of shape (B, p, q, p, q)
        J.
    scores : ndarray of shape (B, p, q)
        h.
    """

    information: Array
    scores: Array

    @property
    def operations(self) -> float:
        """Roughly how many operations one evaluation of the likelihood takes."""
        B, p, q = self.scores.shape
        return float(B * p**3 * q**2 * (p + q))


class Partial(NamedTuple):
    """Partial correlations (p, p), and the number of directions without error that would tell as much of each pair."""

    correlation: Array
    observations: Array


def partial_correlations(known: Known, variances: Array) -> Partial | None:
    """The partial correlations of the tasks' weights, or None where rounding leaves no likelihood to climb.

    Parameters
    ----------
    known : Known
        Information and scores.
    variances : ndarray of shape (p,)
        Variances of the weights, as a start.

    Examples
    --------
    >>> import numpy as np
    >>> weights = np.random.default_rng(0).standard_normal((500, 3, 1))
    >>> exact = np.broadcast_to(1e9 * np.eye(3).reshape(3, 1, 3, 1), (500, 3, 1, 3, 1))
    >>> found = partial_correlations(Known(exact, 1e9 * weights), np.ones(3))
    >>> found.observations.round()
    array([[  0., 500., 500.],
           [500.,   0., 500.],
           [500., 500.,   0.]])
    """
    size = np.sqrt(variances)
    J = known.information * size[:, None, None, None] * size[:, None]
    h = known.scores * size[:, None]
    if not (np.all(np.isfinite(J)) and np.all(np.isfinite(h))):
        return None
    try:
        top = _climb(J, h)
        found, sigma = _observed(top), np.linalg.inv(top.precision)
        count = float(np.median(found.observations[np.triu_indices(len(sigma), 1)]))
        moved = (count * sigma + np.diag(np.diagonal(sigma))) / (count + 1)
        return Partial(found.correlation, observations_at(moved, J))
    except LinAlgError:
        return None


def observations_at(covariance: Array, information: Array) -> Array:
    """How many directions without error would tell as much of each partial correlation, were the covariance known.

    Parameters
    ----------
    covariance : ndarray of shape (p, p)
        Σ.
    information : ndarray of shape (B, p, q, p, q)
        J.
    """
    return _observed(_evaluate(covariance, information, np.zeros(information.shape[:3]))).observations


def _observed(top: _Top) -> Partial:
    omega = top.precision
    p = len(omega)
    i, j = np.triu_indices(p)
    root = np.sqrt(np.diagonal(omega))
    rho = -omega / np.outer(root, root)
    np.fill_diagonal(rho, 1.0)
    pairs = np.triu_indices(p, 1)
    # One column for each pair: how its partial correlation changes with the entries of Σ.
    changes = np.stack([_slope(omega, rho, a, b)[i, j] for a, b in np.column_stack(pairs).tolist()], axis=1)
    changes[i == j] /= 2
    variance = np.einsum("ac,ac->c", changes, cho_solve(cho_factor(top.fisher), changes))
    observations = np.zeros((p, p))
    observations[pairs] = (1 - rho[pairs] ** 2) ** 2 / variance
    return Partial(rho, observations + observations.T)


def _slope(omega: Array, rho: Array, a: int, b: int) -> Array:
    """Derivative of a partial correlation by the symmetric entries of Σ, the diagonal's twice."""
    x, y = omega[:, a] / np.sqrt(omega[a, a]), omega[:, b] / np.sqrt(omega[b, b])
    slope = np.outer(x, y) + 0.5 * rho[a, b] * (np.outer(x, x) + np.outer(y, y))
    return np.asarray(slope + slope.T)


@dataclass(frozen=True, eq=False)
class _Top:
    """−2 log-likelihood, whose change is tr((A − C) dΣ), precision and the blocks P."""

    value: float
    A: Array
    C: Array
    precision: Array
    P: Array

    @cached_property
    def fisher(self) -> Array:
        """Fisher information of the upper triangle of Σ."""
        p = len(self.precision)
        return _fisher(self.P) + _PRIOR * _fisher(self.precision.reshape(1, p, 1, p, 1))


def _climb(J: Array, h: Array) -> _Top:
    """The covariance of highest likelihood, from that of unrelated tasks of unit variance."""

    def evaluate(place: Dense) -> tuple[float, Array, Array] | None:
        try:
            here = _evaluate(place.T, J, h)
        except LinAlgError:
            return None
        return (here.value, *place.slope(Form.of(here.A), Form.of(here.C)))

    return _evaluate(climb(evaluate, Dense(np.eye(h.shape[1])), gain=_CLOSE).point.T, J, h)


def _evaluate(sigma: Array, J: Array, h: Array) -> _Top:
    """The likelihood at a covariance."""
    B, p, q = h.shape
    root = np.linalg.inv(np.linalg.cholesky(sigma))
    omega = root.T @ root
    log_determinant = 2 * float(np.sum(np.log(np.diagonal(root))))
    prior = np.multiply.outer(omega, np.eye(q)).transpose(0, 2, 1, 3)
    inverse = np.empty((B, p, q, p, q))
    mean, value = np.empty(h.shape), 0.5 * B * q * log_determinant
    for block in range(B):
        factor = cho_factor((prior + J[block]).reshape(p * q, p * q), lower=True, overwrite_a=True, check_finite=False)
        mean[block] = cho_solve(factor, h[block].ravel(), check_finite=False).reshape(p, q)
        value += 0.5 * float(np.sum(h[block] * mean[block])) - float(np.sum(np.log(np.diagonal(factor[0]))))
        half = np.tril(dpotri(factor[0], lower=True, overwrite_c=True)[0])
        inverse[block] = (half + np.tril(half, -1).T).reshape(p, q, p, q)
    value += 0.5 * _PRIOR * float(log_determinant - np.trace(omega))
    P = prior - np.einsum("ik,zkalb,lj->ziajb", omega, inverse, omega, optimize=True)
    s = np.einsum("ik,zka->zia", omega, mean)
    A, C = np.einsum("ziaja->ij", P) + _PRIOR * omega, np.einsum("zia,zja->ij", s, s) + _PRIOR * omega @ omega
    return _Top(-2 * value, A, C, omega, P)


def _fisher(P: Array) -> Array:
    """The Fisher information of the upper triangle of Σ."""
    p = P.shape[1]
    blocks = P.transpose(1, 3, 0, 2, 4).reshape(p * p, -1)
    products = (blocks @ blocks.T).reshape(p, p, p, p)  # tr(P_kl P_mn) at [k, l, n, m]
    i, j = np.triu_indices(p)
    a, b = i[:, None], j[:, None]
    # Entries off the diagonal stand twice in Σ: 2 and 4 of the terms differ from one another in their order alone.
    terms = products[b, i, a, j] + products[b, j, a, i]
    single = np.where(i == j, 0.5, 1.0)
    return np.asarray(np.outer(single, single) * terms)
