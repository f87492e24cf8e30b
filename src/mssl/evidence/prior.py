r"""The prior of the weights, its hyperparameters, and how they are improved.

The K weights of column j have covariance :math:`\psi_{p(j)} T_{g(j)}` over the tasks: columns come in *blocks* g
(linear parts, curves, the intercept), each with its own T, and in *relevance groups* p (one original column's part of a
block), each with its own ψ. T is one of

* :math:`v_g I + t_g 1 1^\top`: weights around a mean that all tasks share (t = 0: ridge);
* one dense T for all blocks, with an inverse-Wishart prior around :math:`T_0 = v I + t 1 1^\top`.

Hyperpriors are modes under the invariant measure. Written as a penalty of −2 log Z:

.. math:: a \sum_p \Bigl[\frac{b}{\psi_p} + \log\frac{\psi_p}{b}\Bigr], \qquad
          \nu_n \sum_k \Bigl[\frac{s_0}{\sigma_k^2} + \log\frac{\sigma_k^2}{s_0}\Bigr], \qquad
          \nu\,[\operatorname{tr} T^{-1} T_0 + \log|T| - \log|T_0|],

with b (one a block) and s₀ at their best values, harmonic means, and ν = K + ½. A GLM has no noise that would bound its
prior: the mean prior variance of its predictor, :math:`\bar v_f`, is priced by :math:`2 \log(1 + \bar v_f/s^2)`.

All are climbed at once (:mod:`mssl.evidence.climb`), priors being added to the derivatives A and C of −2 log Z.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mssl._typing import Array, Index, Mask
from mssl.evidence.climb import frame_moved, frame_slope

RELEVANCE_PRIOR = 4.0  # a: rows' worth of a priori knowledge that all columns of a block matter alike; 1 blew up
NOISE_PRIOR = 10.0  # ν_n: rows' worth of knowledge that tasks are about equally noisy
PREDICTOR_SCALE = 3.0  # s of a GLM: predictors beyond ± 2 s are out of the ordinary on the log-odds or log scale
SMALLEST = 1e-10  # least variance, of prior and noise, in units of the targets' variance
_LEAST_EIGENVALUE = 1e-7  # of a dense covariance over tasks, beside its largest
FLAT = 1e4  # prior variance of the mean intercept of shrunk intercepts, in the same units


@dataclass(frozen=True, eq=False)
class Columns:
    """What the columns of the features are to the prior.

    Attributes
    ----------
    block : ndarray of int of shape (d,)
        Block of each column.
    group : ndarray of int of shape (d,)
        Relevance group of each column; a group lies in one block.
    relevance : bool
        Whether the groups' relevances ψ are learned (ARD), or all one.
    with_mean : bool
        Whether tasks share a mean.
    intercept : bool
        Whether the last column is an intercept, whose block is the last and whose mean is free.
    """

    block: Index
    group: Index
    relevance: bool = True
    with_mean: bool = True
    intercept: bool = False

    @cached_property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return int(self.block.max(initial=-1)) + 1

    @cached_property
    def n_groups(self) -> int:
        """Number of relevance groups."""
        return int(self.group.max(initial=-1)) + 1

    @cached_property
    def block_of_group(self) -> Index:
        """Block of each relevance group."""
        of_group = np.zeros(self.n_groups, dtype=np.int64)
        of_group[self.group] = self.block
        return of_group

    @classmethod
    def plain(cls, d: int, *, relevance: bool = True, mean: bool = True) -> Columns:
        """One block of d columns, each a relevance group of its own."""
        return cls(np.zeros(d, dtype=np.int64), np.arange(d), relevance, mean)

    def with_intercept(self) -> Columns:
        """The same columns and an intercept after them."""
        block, group = np.append(self.block, self.n_blocks), np.append(self.group, self.n_groups)
        return Columns(block, group, self.relevance, self.with_mean, True)

    @property
    def learns_relevance(self) -> Mask:
        """Which groups' relevances are learned: all but the intercept's."""
        learned = np.full(self.n_groups, self.relevance)
        if self.intercept:
            learned[-1] = False
        return learned

    @property
    def learns_mean(self) -> Mask:
        """Which blocks' variances of the mean are learned."""
        learned = np.full(self.n_blocks, self.with_mean)
        if self.intercept:
            learned[-1] = False
        return learned

    def sum_blocks(self, values: Array) -> Array:
        """Sums over the columns of each block."""
        return np.asarray(np.bincount(self.block, values, self.n_blocks), dtype=float)

    def sum_groups(self, values: Array) -> Array:
        """Sums over the columns of each relevance group."""
        return np.asarray(np.bincount(self.group, values, self.n_groups), dtype=float)


@dataclass(frozen=True, eq=False)
class Hyper:
    """Hyperparameters.

    Attributes
    ----------
    v, t : ndarrays of shape (G,)
        Variances of the tasks' deviations and of the shared mean, block by block.
    psi : ndarray of shape (P,)
        Relevances; their harmonic mean within a block is 1.
    noise : ndarray of shape (K,) or (K, K)
        Noise variances of the tasks, or the covariance of errors that they share on one occasion.
    T : ndarray of shape (K, K) or None
        The dense covariance over tasks of all blocks but the intercept's; v of a block is then its scale, and
        ``centre`` the two parameters of T₀.
    centre : tuple of float
        v and t of T₀.
    """

    v: Array
    t: Array
    psi: Array
    noise: Array
    T: Array | None = None
    centre: tuple[float, float] = (1.0, 0.0)

    def deviation_variances(self, columns: Columns) -> Array:
        """Prior variance of every column's deviations from the mean."""
        return np.asarray(self.v[columns.block] * self.psi[columns.group])

    def mean_variances(self, columns: Columns) -> Array:
        """Prior variance of every column's mean."""
        return np.asarray(self.t[columns.block] * self.psi[columns.group])

    def covariance(self, block: int, K: int, intercept: bool) -> Array:
        """T of one block."""
        if self.T is None or intercept:
            return self.v[block] * np.eye(K) + self.t[block]
        return self.v[block] * self.T


@dataclass(frozen=True, eq=False)
class Statistics:
    r"""What an exact computation at given hyperparameters says; see :mod:`mssl.evidence.routes`.

    With :math:`\alpha = V^{-1} z`, :math:`P = V^{-1}`, :math:`g_{kj} = \sum_{i \in k} \alpha_i x_{ij}`:

    Attributes
    ----------
    value : float
        −2 log Z without constants.
    own, own_trace : ndarrays of shape (d,)
        :math:`\sum_k g_{kj}^2` and :math:`\sum_k x_{kj}^\top P_{kk} x_{kj}`: derivatives in a column's own variance.
    mean, mean_trace : ndarrays of shape (d,)
        :math:`(\sum_k g_{kj})^2` and :math:`x_j^\top P x_j`: derivatives in the variance of its mean.
    noise, noise_trace : ndarrays of shape (K,) or (K, K)
        :math:`\sum_{i \in k} \alpha_i^2 + \mathrm{rest}_k/\sigma_k^4` and
        :math:`\sum_{i \in k} P_{ii} + \mathrm{spare}_k/\sigma_k^2`, or their matrix forms for shared occasions.
    B, C : ndarrays of shape (K, K) or None
        Derivatives in a dense T: −2 log Z changes by tr((B − C) dT).
    dense, dense_trace : ndarrays of shape (d,) or None
        :math:`g_j^\top T g_j` and :math:`x_j^\top (P \circ T) x_j` for the columns under a dense T.
    alpha, diagonal : ndarrays of shape (R,) or None
        α and the diagonal of P, row by row.
    """

    value: float
    own: Array
    own_trace: Array
    mean: Array
    mean_trace: Array
    noise: Array
    noise_trace: Array
    B: Array | None = None
    C: Array | None = None
    dense: Array | None = None
    dense_trace: Array | None = None
    alpha: Array | None = None
    diagonal: Array | None = None


@dataclass(frozen=True, eq=False)
class Learner:
    """Objective and updates of the hyperparameters on one set of rows.

    Attributes
    ----------
    columns : Columns
        What the columns are.
    learn_noise : bool
        Whether the noise is learned, or kept.
    predictor : ndarray of shape (d,) or None
        For a GLM: mean over rows of every column's square, which turns prior variances into that of the predictor.
    target : ndarray of shape (K, K) or None
        For shared occasions: what their covariance is shrunk towards.
    free_intercepts : bool
        Whether the variance of the intercept column is kept as it is and costs nothing.
    """

    columns: Columns
    learn_noise: bool = True
    predictor: Array | None = None
    target: Array | None = None
    free_intercepts: bool = False

    # --- the penalised objective -------------------------------------------------------------------------------------
    def objective(self, hyper: Hyper, value: float) -> float:
        """−2 log Z plus the hyperpriors' share."""
        total = value
        columns = self.columns
        if columns.relevance:
            learned = columns.learns_relevance
            for block in np.unique(columns.block_of_group[learned]).tolist():
                psi = hyper.psi[learned & (columns.block_of_group == block)]
                b = len(psi) / np.sum(1 / psi)
                total += RELEVANCE_PRIOR * float(np.sum(b / psi + np.log(psi / b)))
        if self.learn_noise and hyper.noise.ndim == 1:
            s0 = _harmonic(hyper.noise)
            total += NOISE_PRIOR * float(np.sum(s0 / hyper.noise + np.log(hyper.noise / s0)))
        elif self.learn_noise and self.target is not None:
            total += self._occasion_prior * _wishart_distance(hyper.noise, self.target)
        if hyper.T is not None:
            K = len(hyper.T)
            v, t = hyper.centre
            total += (K + 0.5) * _wishart_distance(hyper.T, v * np.eye(K) + t)
        if self.predictor is not None:
            total += 2 * np.log1p(self._predictor_variance(hyper) / PREDICTOR_SCALE**2)
        return float(total)

    @property
    def _occasion_prior(self) -> float:
        return 0.0 if self.target is None else len(self.target) + 1.0

    def _predictor_variance(self, hyper: Hyper) -> float:
        assert self.predictor is not None  # for the type checker
        columns = self.columns
        spread = 1.0 if hyper.T is None else float(np.trace(hyper.T)) / len(hyper.T)
        variances = hyper.deviation_variances(columns)
        variances = np.where(self._dense(hyper), spread * variances, variances)
        if self.free_intercepts:
            variances = np.where(self._priced, variances, 0.0)
        return float(self.predictor @ (variances + np.where(self._priced, hyper.mean_variances(columns), 0.0)))

    @property
    def _priced(self) -> Mask:
        """Columns whose mean's variance counts in that of the predictor: that of the intercept is flat."""
        priced = np.ones(len(self.columns.block), dtype=bool)
        if self.columns.intercept:
            priced[-1] = False
        return priced

    def _dense(self, hyper: Hyper) -> Mask:
        """Columns under a dense T: all but the intercept."""
        return self._priced if hyper.T is not None else np.zeros(len(self.columns.block), dtype=bool)

    # --- slopes and steps ---------------------------------------------------------------------------------------------
    def derivatives(self, hyper: Hyper, s: Statistics) -> tuple[Array, Array]:
        """Slope of the objective in the coordinates of :meth:`moved`, and its minorise–maximise curvature."""
        columns = self.columns
        price = 0.0
        if self.predictor is not None:
            price = 2.0 / (PREDICTOR_SCALE**2 + self._predictor_variance(hyper))
        psi_of = hyper.psi[columns.group]
        dense = self._dense(hyper)
        cost = np.zeros(len(psi_of)) if self.predictor is None else price * self.predictor
        v, t = hyper.v, hyper.t
        own, own_trace = s.own, s.own_trace
        if s.dense is not None and s.dense_trace is not None and hyper.T is not None:
            own, own_trace = np.where(dense, s.dense, own), np.where(dense, s.dense_trace, own_trace)
            cost = np.where(dense, float(np.trace(hyper.T)) / len(hyper.T), 1.0) * cost
        own_trace, mean_trace = np.maximum(own_trace, 0.0) + cost, np.maximum(s.mean_trace, 0.0) + cost
        # Variances of blocks. Under a dense T that of the first block is T's own scale.
        keep = columns.sum_blocks(dense.astype(float)) > 0
        fixed = keep & (np.arange(columns.n_blocks) == 0)
        if self.free_intercepts:
            fixed[-1] = True
        parts = [
            _in_logs(v, v * columns.sum_blocks(psi_of * own_trace), v * columns.sum_blocks(psi_of * own), ~fixed),
            _in_logs(
                t,
                t * columns.sum_blocks(psi_of * mean_trace),
                t * columns.sum_blocks(psi_of * s.mean),
                columns.learns_mean & ~keep,
            ),
        ]
        if columns.relevance:
            shared = np.where(dense, 0.0, t[columns.block])
            down = columns.sum_groups(v[columns.block] * own_trace + shared * mean_trace)
            up = columns.sum_groups(v[columns.block] * own + shared * s.mean)
            b = self._harmonic_by_group(hyper.psi)
            down, up = hyper.psi * down + RELEVANCE_PRIOR, hyper.psi * up + RELEVANCE_PRIOR * b / hyper.psi
            parts.append(_in_logs(np.ones(len(up)), down, up, columns.learns_relevance))
        noise = hyper.noise
        if self.learn_noise and noise.ndim == 1:
            level = _harmonic(noise)
            down, up = noise * s.noise_trace + NOISE_PRIOR, noise * s.noise + NOISE_PRIOR * level / noise
            parts.append(_in_logs(noise, down, up, np.ones(len(noise), dtype=bool)))
        elif self.learn_noise:
            inverse, prior = np.linalg.inv(noise), self._occasion_prior
            centre = noise if self.target is None else self.target
            parts.append(
                frame_slope(noise, s.noise_trace + prior * inverse, s.noise + prior * inverse @ centre @ inverse)
            )
        if hyper.T is not None and s.B is not None and s.C is not None:
            parts.append(self._dense_derivatives(hyper, s.B, s.C, price, dense))
        return np.concatenate([slope for slope, _ in parts]), np.concatenate([metric for _, metric in parts])

    def _dense_derivatives(self, hyper: Hyper, B: Array, C: Array, price: float, dense: Mask) -> tuple[Array, Array]:
        assert hyper.T is not None  # for the type checker
        K = len(hyper.T)
        nu, (v, t) = K + 0.5, hyper.centre
        inverse = np.linalg.inv(hyper.T)
        A = B + nu * inverse
        if self.predictor is not None:
            variances = np.where(dense, hyper.deviation_variances(self.columns), 0.0)
            A = A + price * float(self.predictor @ variances) / K * np.eye(K)
        return frame_slope(hyper.T, A, C + nu * inverse @ (v * np.eye(K) + t) @ inverse)

    def moved(self, hyper: Hyper, step: Array) -> Hyper:
        """The hyperparameters at the end of a step: logarithms of v, t, ψ and noise, matrices in their own frames."""
        at, noise, T = 0, hyper.noise, hyper.T

        def take(count: int) -> Array:
            nonlocal at
            at += count
            return step[at - count : at]

        v, t, psi = hyper.v * np.exp(take(len(hyper.v))), hyper.t * np.exp(take(len(hyper.t))), hyper.psi
        if self.columns.relevance:
            psi = psi * np.exp(take(len(psi)))
        if self.learn_noise and noise.ndim == 1:
            noise = np.maximum(noise * np.exp(take(len(noise))), SMALLEST)
        elif self.learn_noise:
            noise = frame_moved(noise, take(len(noise) * (len(noise) + 1) // 2))
        if T is not None:
            T = frame_moved(T, take(len(T) * (len(T) + 1) // 2))
        return self.normalised(replace(hyper, v=v, t=t, psi=psi, noise=noise, T=T))

    def _harmonic_by_group(self, psi: Array) -> Array:
        """The harmonic mean of the learned relevances of each group's block."""
        columns = self.columns
        learned = columns.learns_relevance
        counts = np.bincount(columns.block_of_group, learned.astype(float), columns.n_blocks)
        sums = np.bincount(columns.block_of_group, learned / psi, columns.n_blocks)
        harmonic = np.divide(counts, sums, out=np.ones_like(counts), where=sums > 0)
        return np.asarray(harmonic[columns.block_of_group])

    def normalised(self, hyper: Hyper) -> Hyper:
        """The same prior with relevances of harmonic mean 1 in each block, whose variances take over their scale."""
        columns = self.columns
        v, t, psi, T = hyper.v, hyper.t, hyper.psi, hyper.T
        if columns.relevance:
            learned = columns.learns_relevance
            counts = np.bincount(columns.block_of_group, learned.astype(float), columns.n_blocks)
            sums = np.bincount(columns.block_of_group, learned / psi, columns.n_blocks)
            scale = np.divide(counts, sums, out=np.ones_like(counts), where=sums > 0)
            psi = np.where(learned, psi / scale[columns.block_of_group], psi)
            v, t = v * scale, np.where(columns.learns_mean, t * scale, t)
        v, t = np.maximum(v, SMALLEST), np.where(columns.learns_mean, np.maximum(t, SMALLEST), t)
        if T is not None:
            factor = v[0]
            T, v = _floored(T * factor), v / factor
            if columns.intercept:
                v[-1] *= factor
            return replace(hyper, v=v, t=t, psi=psi, T=T, centre=_centre(T))
        return replace(hyper, v=v, t=t, psi=psi)


def _in_logs(theta: Array, down: Array, up: Array, learned: Mask) -> tuple[Array, Array]:
    """Slope and metric of variances in logarithms; 0 and 1 where they are kept, or would fall below the least one."""
    slope = np.where(learned, down - up, 0.0)
    slope = np.where((theta <= SMALLEST * (1 + 1e-9)) & (slope > 0), 0.0, slope)
    return slope, np.where(learned & (down + up > 0), down + up, 1.0)


@dataclass(frozen=True, eq=False)
class Placed:
    """Hyperparameters as a point of a climb."""

    hyper: Hyper
    learner: Learner

    def moved(self, step: Array) -> Placed:
        """The hyperparameters at the end of a step."""
        return Placed(self.learner.moved(self.hyper, step), self.learner)

    def evaluated(self, route: Any) -> tuple[float, Array, Array] | None:
        """Objective, slope and metric, or None where they cannot be computed."""
        try:
            s = route.statistics(self.hyper)
        except np.linalg.LinAlgError:
            return None
        objective = self.learner.objective(self.hyper, s.value) if np.isfinite(s.value) else np.inf
        return (objective, *self.learner.derivatives(self.hyper, s)) if np.isfinite(objective) else None


def _harmonic(values: Array) -> float:
    return float(len(values) / np.sum(1 / values))


def _centre(T: Array) -> tuple[float, float]:
    """The v and t of the T₀ that suits T best: 1/(v + Kt) = 1ᵀT⁻¹1/K, (K − 1)/v = tr T⁻¹ − 1ᵀT⁻¹1/K, t ≥ 0."""
    K = len(T)
    inverse = np.linalg.inv(T)
    along = float(inverse.sum()) / K
    across = (float(np.trace(inverse)) - along) / max(K - 1, 1)
    if K == 1 or along >= across:
        return K / float(np.trace(inverse)), 0.0
    v = 1 / across
    return v, (1 / along - v) / K


def _wishart_distance(T: Array, centre: Array) -> float:
    """How far T is from T₀: tr T⁻¹T₀ + log |T| − log |T₀|."""
    return float(np.trace(np.linalg.solve(T, centre)) + np.linalg.slogdet(T)[1] - np.linalg.slogdet(centre)[1])


def _floored(T: Array) -> Array:
    """T with no direction much smaller than the others: inverses of T must keep their digits."""
    values, vectors = np.linalg.eigh(T)
    least = _LEAST_EIGENVALUE * max(float(values[-1]), SMALLEST)
    if values[0] >= least:
        return T
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)
