r"""Significance tests of the relations between tasks: marginal correlations and partial correlations.

**What is tested.** *Relations* are pairs of tasks whose weights (or residuals) are correlated. *Conditional edges* are
pairs that are correlated given all other tasks; they are the edges of a graph of partial correlations. With d features
there are at most d observations per pair. Marginal correlations need far fewer observations than partial ones to become
significant.

**Weights.** Task k has the information :math:`A_k = X_k^\top X_k/\sigma_k^2` and the score
:math:`b_k = X_k^\top y_k/\sigma_k^2`. For other losses than least squares they are those of the quadratic expansion at
the fit. If the weights are :math:`w_k \sim N(0, v_k I)`, the score :math:`g_k = (I + v_kA_k)^{-1}b_k` has the
covariance :math:`H_k = (I + v_kA_k)^{-1}A_k`. Then :math:`u_k = H_k^{-1/2}g_k` is white; it accounts for both the prior
and the estimation error. Directions without information drop out, so that the test is valid with fewer rows than
features. The statistic of a pair is the score test of its covariance,

.. math:: r_{kl} = \frac{g_k \cdot g_l}{\|u_k\|\,\|H_k^{1/2} g_l\|}.

Given task l the statistic is the cosine between a fixed vector and a white one. Without a relation
:math:`r\sqrt{\nu-1}/\sqrt{1-r^2}` has Student's t distribution with :math:`\nu-1` degrees of freedom, where ν is the
rank of :math:`A_k`. This is exact for Gaussian weights. Each task can have either role; the test uses the larger of the
two p-values. If the same features are large in all tasks, the effective number of observations is smaller. Then ν is
divided by :math:`\kappa = \operatorname{mean}_{kl}\, \nu\sum_i u_{ki}^2 a_{li}^2 / (\|u_k\|^2\|a_l\|^2) \ge 1`, minus
the contribution of the correlation itself.

**A shared mean** of all tasks is a relation of all pairs. Relative to it the weights are :math:`w_k - m`. With
:math:`M = \sum_k H_k` and :math:`\hat m = M^{-1}\sum_k g_k` the score is
:math:`g_k - H_k [I - (I + \tau^2 M)^{-1/2}]\,\hat m`. This subtracts only a part of :math:`\hat m`; the remaining part
is as large as its estimation error. The scores are then again independent (subtracting all of :math:`\hat m` would
correlate them by −1/(K − 1)). A common level of all pairs is estimated from the lower part of their z values (an
empirical null). If there is one, a relation must be significant both about zero and about the mean, with the same sign.

**Rows that tasks share** correlate the errors of their weights. With the correlations ρ of the tasks' residuals the
scores have the covariances :math:`(I + v_kA_k)^{-1} \rho_{kl} X_k^\top X_l / (\sigma_k\sigma_l) (I + v_lA_l)^{-1}`.
Before the tests, the scores of all tasks are whitened with these covariances.

**Residuals** of n occasions have :math:`\nu_{kl} = (n - d - 1)(1 - \phi_k\phi_l)/(1 + \phi_k\phi_l)` effective
observations, where φ are the lag-1 autocorrelations.

**Too few columns.** The weights of d columns are d observations of a pair. With one column every correlation is ±1, and
with two columns the test has almost no power. With fewer than three columns that vary within tasks
(:func:`mssl.data.columns.effective_columns`) no pair of weights is tested, and tables say so (:class:`Untested`).

**Groups** are the connected components of the relations that are significant with a family-wise error of 10 % (Holm).
The false discovery rate is too weak for groups: among relations at a rate of 10 % a false one is likely, and a single
false relation merges two groups.

**Conditional edges** are tested within the groups. A likelihood (:mod:`mssl.graph.information`) models the error of
each direction of the weights. It estimates the partial correlations in a group of p tasks, and the number
:math:`n_{kl}` of error-free directions with the same information. The test uses :math:`n_{kl}(\nu - p +
2)/\operatorname{rank} A_k` observations. Without errors this is ν minus the number of other tasks in the group, as in
the t test of a partial correlation.

*Residuals, and groups that are too large for a likelihood*: the reliability :math:`\lambda_k` is the share of an
estimated weight's variance that is not estimation error (1 for residuals). The correlations are :math:`C =
\Lambda^{-1/2}(R - I + \Lambda)\Lambda^{-1/2}`, with the inverse Θ in the group. The statistic is
:math:`-\Theta_{ij}/\sqrt{B_{ii}B_{jj}}` with :math:`B = \Theta(C + \Lambda^{-1} - I)\Theta`, which includes the errors,
and ν − p + 2 observations. With fewer than 2p but at least 100 observations Θ is a de-sparsified graphical lasso:
:math:`2\Theta - \Theta C\Theta` replaces Θ in the numerator. With still fewer observations no edge is significant.
Pairs of different groups are not tested.

**Error control.** Benjamini and Hochberg's procedure (``method="bh"``) controls the expected share of false rows in a
table at ``fdr``. Correlations of independent tasks are pairwise independent; simulations (``docs/graph.md``) confirm
the control for them. ``method="by"`` (Benjamini and Yekutieli) controls the rate under any dependence and has less
power.

**The global test** tests the hypothesis that no tasks are related. Its p-value is the share of permuted data with an
equal or smaller minimal q. A permutation permutes the white scores of each task and flips their signs, transforms them
back, and repeats the whole estimation, including the mean. Residuals are shifted circularly, each task by its own
number of occasions. The test checks the analytic p-values. It controls the error if no tasks are related (weak control
of the family-wise error), but says nothing about single pairs. Summaries, reports and commands print it next to a list
of relations if 19 permutations take little time.

References
----------
Benjamini & Hochberg (1995), doi:10.1111/j.2517-6161.1995.tb02031.x.
Benjamini & Yekutieli (2001), doi:10.1214/aos/1013699998.
Janková & van de Geer (2015), Confidence intervals for high-dimensional inverse covariance estimation,
doi:10.1214/15-EJS1031.
Efron (2004), Large-scale simultaneous hypothesis testing: the choice of a null hypothesis,
doi:10.1198/016214504000000089.
Schäfer & Strimmer (2005), A shrinkage approach to large-scale covariance matrix estimation,
doi:10.2202/1544-6115.1175.
Holm (1979), A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6, 65–70.
Bartlett (1935), Some aspects of the time-correlation problem in regard to tests of significance, doi:10.2307/2342284.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np
from scipy.optimize import brentq
from scipy.sparse.csgraph import connected_components
from scipy.special import log_ndtr, ndtri, stdtr, stdtrit
from scipy.stats import false_discovery_control

from mssl._typing import Array, Index
from mssl._validation import check_array, check_choice, check_number, check_whole_number
from mssl.exceptions import MSSLError, ParameterError
from mssl.glasso.solver import graphical_lasso
from mssl.graph.communities import members
from mssl.graph.tables import FDR, PERMUTATIONS, Relation, RelationTable
from mssl.kernels.threads import SingleThreaded
from mssl.model.task_matrix import DENSE_UP_TO

if TYPE_CHECKING:
    from mssl.graph.information import RelationInput

T = TypeVar("T")

COVERAGE = 1 - FDR  # Coverage of the intervals in the tables.
# Lower bound of the reliability, a safeguard: at the bound the error variance is 20 times the variance of the weights.
_SMALLEST_RELIABILITY = 0.05
# Lower bound of the eigenvalues of estimated correlation matrices: a safeguard, since estimation errors may make them
# indefinite.
SMALLEST_EIGENVALUE = 0.01
# Smallest number of observations for tests with the de-sparsified graphical lasso: with fewer its limiting distribution
# is not accurate, and the test is not made.
_MANY = 100.0
# Largest number of operations of one permutation of the default global test. It trades time for the check: 0.1 s on one
# core of 2.5 GHz, so that 19 permutations take under 2 s (measured for 10 to 1000 tasks with 4 to 100 features).
_MOST_UNASKED = 1e8
_PAIR = 6e3  # Operations per pair apart from matrix products, measured on the same core with 100 and more tasks.
# Largest number of tasks whose pairs are compared, a limit on memory: a dozen arrays, each four times as large as one
# that every room may form.
_MOST_TASKS = 2 * DENSE_UP_TO
MOST_SAVED = 500  # Largest number of tasks whose evidence is always saved, a limit on the file: 4 MB.


def adjusted_p(p: Array, method: str = "bh") -> Array:
    """Return the smallest error rate at which each hypothesis is rejected.

    Parameters
    ----------
    p : ndarray of shape (m,)
        p-values.
    method : {"bh", "by", "holm"}
        Procedure. "bh" (Benjamini and Hochberg) and "by" (Benjamini and Yekutieli) control the false discovery rate;
        "by" divides it by 1 + 1/2 + … + 1/m and is valid under any dependence. "holm" controls the family-wise error.

    Examples
    --------
    >>> import numpy as np
    >>> adjusted_p(np.array([0.01, 0.5, 0.02]))
    array([0.03, 0.5 , 0.03])
    """
    if method != "holm":
        return np.asarray(false_discovery_control(p, method=method)) if len(p) else p
    adjusted, order = np.empty(len(p)), np.argsort(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


class GlobalTest(NamedTuple):
    """Result of the test that no tasks are related.

    Attributes
    ----------
    p : float
        Share of permuted data sets, including the data themselves, whose smallest q is at most that of the data.
    analytic : float
        The smallest q, which is the p-value of Simes' test. If no tasks are related it should be close to `p`.
    n_permutations : int
        Number of permutations.
    """

    p: float
    analytic: float
    n_permutations: int


@dataclass(frozen=True, eq=False)
class GraphEvidence:
    """Statistics for the tests of the relations of K tasks.

    Parameters
    ----------
    correlation : ndarray of shape (K, K)
        r: correlations of the estimates, with 1 on the diagonal.
    freedom : ndarray of shape (K, K)
        ν: without a relation r is distributed as the correlation of ν independent pairs of numbers with known means.
    reliability : ndarray of shape (K,)
        λ: share of the estimates' variance that is not estimation error; 1 for residuals.
    on : {"coef", "residual"}
        Whether weights or residuals are related.
    relative_to : {"zero", "mean", "both"}
        Reference point of the relations of weights: zero, the shared mean of all tasks, or both.
    partial, partial_freedom : ndarrays of shape (K, K), optional
        Partial correlations of the weights, corrected for estimation error, and their effective number of observations,
        which is 0 for pairs without a likelihood.
    overall : float, optional
        p-value of the global test with 19 permutations.

    Examples
    --------
    >>> import numpy as np
    >>> r = np.array([[1.0, 0.8, 0.1], [0.8, 1.0, -0.1], [0.1, -0.1, 1.0]])
    >>> evidence = GraphEvidence(r, np.full((3, 3), 20.0), np.ones(3))
    >>> evidence.table(["a", "b", "c"]).pairs
    [('a', 'b')]
    """

    correlation: Array
    freedom: Array
    reliability: Array
    on: str = "coef"
    relative_to: str = "zero"
    partial: Array | None = None
    partial_freedom: Array | None = None
    overall: float | None = None

    def __post_init__(self) -> None:
        K, tables = len(self.reliability), ("correlation", "freedom", "partial", "partial_freedom")
        check_choice("on", self.on, ("coef", "residual"))
        check_choice("relative_to", self.relative_to, ("zero", "mean", "both"))
        for name in tables:
            if vars(self)[name] is not None:
                check_array(name, vars(self)[name], (K, K))

    def resolve(self) -> GraphEvidence:
        """Return the evidence itself; :class:`LazyEvidence` has the same method."""
        return self

    def subset(self, keep: Sequence[int] | Index) -> GraphEvidence:
        """Return the evidence on a subset of the tasks; −1 stands for a task without any information."""
        keep = np.asarray(keep, dtype=np.int64)

        def chosen(values: Array, unknown: float = 0.0) -> Array:
            return np.pad(values, (0, 1), constant_values=unknown)[np.ix_(keep, keep)]

        correlation = chosen(self.correlation)
        np.fill_diagonal(correlation, 1.0)
        partial, counts = (None if part is None else chosen(part) for part in (self.partial, self.partial_freedom))
        tables = correlation, chosen(self.freedom, 1.0), np.append(self.reliability, 0.0)[keep]
        return GraphEvidence(*tables, self.on, self.relative_to, partial, counts)

    def with_unknown(self, count: int = 1) -> GraphEvidence:
        """Return the evidence with additional tasks without any information."""
        return replace(self.subset([*range(len(self.reliability)), *[-1] * count]), overall=self.overall)

    def table(
        self, tasks: Sequence[Hashable], level: str = "relations", fdr: float = 0.1, method: str = "bh"
    ) -> RelationTable:
        """Return the pairs that are significant at a false discovery rate; a rate of 1 returns all pairs.

        Parameters
        ----------
        tasks : sequence of K names
            The tasks.
        level : {"relations", "edges"}
            Correlations, or partial correlations.
        fdr : float
            False discovery rate in (0, 1].
        method : {"bh", "by"}
            See :func:`adjusted_p`.
        """
        check_choice("level", level, ("relations", "edges"))
        check_choice("method", method, ("bh", "by"))
        check_number("fdr", fdr, above=0, high=1, remedy="It is the share of false pairs that you accept.")
        weight, low, high, p = self._relations if level == "relations" else self._edges
        i, j = np.triu_indices(len(self.correlation), 1)
        q, tested = np.ones(len(p)), np.ones(len(p), dtype=bool)
        if level == "edges":
            tested = self.groups[i] == self.groups[j]
        q[tested] = adjusted_p(p[tested], method)
        chosen = np.flatnonzero(q <= fdr)
        chosen = chosen[np.lexsort((chosen, -np.abs(weight[chosen]), p[chosen]))]
        columns = [values[chosen].tolist() for values in (weight, low, high, p, q, 1 - p / 2)]
        names = list(tasks)
        rows = [
            Relation(names[a], names[b], *numbers)
            for a, b, *numbers in zip(i[chosen].tolist(), j[chosen].tolist(), *columns, strict=True)
        ]
        return RelationTable(rows, level, float(fdr), int(tested.sum()), method, overall=self.overall)

    @property
    def smallest_q(self) -> float:
        """The smallest false discovery rate at which a relation is significant: the p-value of Simes' test."""
        return float(adjusted_p(self._relations[3]).min(initial=1.0))

    @property
    def _attenuation(self) -> Array:
        """Factor by which estimation error reduces each correlation, (K, K)."""
        root = np.sqrt(np.maximum(self.reliability, _SMALLEST_RELIABILITY))
        return np.multiply.outer(root, root)

    @cached_property
    def _relations(self) -> tuple[Array, Array, Array, Array]:
        return _tested(self.correlation, self.freedom, self._attenuation)

    def groups_at(self, error: float) -> Index:
        """Return the group of each task by the relations that are significant at this family-wise error."""
        K = len(self.correlation)
        joined = np.zeros((K, K), dtype=bool)
        joined[np.triu_indices(K, 1)] = adjusted_p(self._relations[3], "holm") <= error
        return np.asarray(connected_components(joined, directed=False)[1], dtype=np.int64)

    @cached_property
    def groups(self) -> Index:
        """Group of each task at a family-wise error of 10 %. Conditional edges are tested within groups."""
        return self.groups_at(FDR)

    @property
    def large_groups(self) -> list[Index]:
        """The tasks of each group of three or more; in smaller groups partial correlations equal correlations."""
        return members(self.groups, 3)

    @cached_property
    def _edges(self) -> tuple[Array, Array, Array, Array]:
        r, freedom, scale = self.correlation.copy(), self.freedom.copy(), self._attenuation
        for tasks in self.large_groups:
            block = np.ix_(tasks, tasks)
            r[block], freedom[block], scale[block] = self.subset(tasks)._partial()
        if self.partial is not None and self.partial_freedom is not None:
            known = self.partial_freedom > 0
            r[known], freedom[known], scale[known] = self.partial[known], self.partial_freedom[known], 1.0
        return _tested(r, freedom, scale)

    @property
    def typical(self) -> float:
        """Median number of effective observations per pair."""
        return float(np.median(self.freedom[np.triu_indices(len(self.freedom), 1)]))

    @property
    def few(self) -> bool:
        """Whether partial correlations need a sparse inverse: there are fewer than two observations per task."""
        return self.typical < 2 * len(self.freedom)

    def _partial(self) -> tuple[Array, Array, Array]:
        """Return r, its degrees of freedom, and its ratio to the partial correlation for the pairs of one group."""
        K, freedom = len(self.correlation), self.typical
        if self.few and freedom < _MANY:
            # With so few observations no partial correlation is significant.
            return np.zeros((K, K)), self.freedom, np.ones((K, K))
        C = np.clip(self.correlation / self._attenuation, -0.99, 0.99)
        np.fill_diagonal(C, 1.0)
        values, vectors = np.linalg.eigh(C)
        C = (vectors * np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T
        if not self.few:
            theta = (vectors / np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T
            direct, used = theta, K - 2.0
        else:
            # The penalty is the size that chance correlations reach in about one pair per task.
            penalty = min(np.sqrt(np.log(K) / freedom), 0.99)
            theta = np.asarray(graphical_lasso(C, penalty, diagonal_penalty=1e-3).precision)
            direct, used = 2 * theta - theta @ C @ theta, float(np.median(np.count_nonzero(theta, axis=1)))
        error = 1 / np.maximum(self.reliability, _SMALLEST_RELIABILITY) - 1
        B = theta @ (C + np.diag(error)) @ theta
        size, diagonal = np.sqrt(np.diagonal(B)), np.sqrt(np.diagonal(theta))
        r = np.clip(-direct / np.outer(size, size), -0.999, 0.999)
        return r, np.maximum(self.freedom - used, 2.0), np.outer(diagonal / size, diagonal / size)


class Untested(NamedTuple):
    """Replacement for :class:`GraphEvidence` if no pair can be tested.

    Attributes
    ----------
    untested : str
        The reason.

    Examples
    --------
    >>> Untested("one row is not enough").table("ab", "relations", 0.1, "bh")
    one row is not enough
    """

    untested: str
    smallest_q: float = 1.0
    on: str = "coef"

    def table(self, tasks: Sequence[Hashable], level: str, fdr: float, method: str) -> RelationTable:
        """Return an empty table with the reason; see :meth:`GraphEvidence.table`."""
        return RelationTable([], level, float(fdr), 0, method, untested=self.untested)

    def resolve(self) -> Untested:
        """Return the object itself; :class:`LazyEvidence` has the same method."""
        return self

    def subset(self, keep: Sequence[int] | Index) -> Untested:
        """Return the object itself, which is valid for any subset of the tasks."""
        return self

    def with_unknown(self) -> Untested:
        """Return the object itself, which is valid for any number of tasks."""
        return self

    def global_test(self, n_permutations: int = 199, random_state: int | np.random.Generator | None = 0) -> GlobalTest:
        """Return the p-value 1, since no permutation has a significant pair."""
        return GlobalTest(1.0, self.smallest_q, n_permutations)


Evidence = GraphEvidence | Untested


def correlation_p(r: Array, freedom: Array) -> Array:
    """Return two-sided p-values of correlations r of ν pairs of numbers with known means; for ν ≤ 1 they are 1."""
    left = np.maximum(freedom - 1, 0.5)
    r = np.clip(r, -1 + 1e-15, 1 - 1e-15)
    return np.where(freedom > 1, 2 * stdtr(left, -np.abs(r) * np.sqrt(left / (1 - r**2))), 1.0)


def correlation_of(p: Array, sign: Array, freedom: Array) -> Array:
    """Return the correlations with these p-values and signs."""
    left = np.maximum(freedom - 1, 0.5)
    t = -stdtrit(left, np.clip(p, 1e-300, 1.0) / 2)
    return np.asarray(sign * t / np.sqrt(t**2 + left))


def common_level(sign: Array, p: Array, freedom: Array) -> bool:
    """Whether all pairs seem to have a common correlation, by an empirical null from the lower z values.

    The location of a unit-variance normal distribution is estimated from the values below a bound; stronger relations
    have no influence. The values of (k, l) and (k', l') have the correlation R_kk' R_ll' + R_kl' R_lk', which reduces
    the effective number of values. R holds the relations at a false discovery rate of 10 %.
    """
    K = len(p)
    pairs = np.triu_indices(K, 1)
    z = -sign[pairs] * ndtri(np.clip(p[pairs], 1e-300, 1.0) / 2)
    lower = z <= 1.0  # Larger values may be true relations.
    low = z[lower]
    if len(low) < 3:
        return True

    def mills(t: float) -> float:
        return float(np.exp(-0.5 * t**2 - log_ndtr(t)) / np.sqrt(2 * np.pi))

    def surplus(location: float) -> float:
        return float(low.mean()) - location + mills(1.0 - location)

    if surplus(10.0) > 0:
        return True
    location = float(brentq(surplus, -20.0, 10.0))
    t = 1.0 - location
    R, used = np.zeros((K, K)), np.zeros((K, K))
    related = adjusted_p(p[pairs]) <= FDR
    R[pairs] = np.where(related, correlation_of(p[pairs], sign[pairs], freedom[pairs]), 0.0)
    used[pairs] = lower
    R, used = R + R.T + np.eye(K), used + used.T
    repeated = max(1.0, 0.5 * float(np.sum(used * (R @ used @ R))) / len(low))
    information = len(low) / repeated * max(1 - mills(t) * (t + mills(t)), 1e-6)
    return location > 1 / np.sqrt(information)


def _tested(r: Array, freedom: Array, scale: Array) -> tuple[Array, Array, Array, Array]:
    """Return estimates r/scale of all pairs, their intervals by Fisher's transformation of r, and their p-values."""
    pairs = np.triu_indices(len(r), 1)
    r, freedom, scale = r[pairs], freedom[pairs], scale[pairs]
    z = np.arctanh(np.clip(r, -0.9999, 0.9999))
    half = -ndtri((1 - COVERAGE) / 2) / np.sqrt(np.maximum(freedom - 2, 0.5))
    weight, low, high = (np.clip(values / scale, -1.0, 1.0) for values in (r, np.tanh(z - half), np.tanh(z + half)))
    return weight, low, high, correlation_p(r, freedom)


class Later(SingleThreaded, ABC, Generic[T]):
    """A result that is computed from a fit's data on first use, or when it is written to a file.

    Copies and pickles do not compute it; they hold the data.
    """

    _found: T | None = None

    @abstractmethod
    def _compute(self) -> T: ...

    def resolve(self) -> T:
        """Compute the result, or return it if it was computed before."""
        if self._found is None:
            self._found = self._compute()
        return self._found

    def saved(self) -> T | None:
        """Return the result for a file, or None if it cannot be computed from the data."""
        try:
            return self.resolve()
        except MSSLError:
            return None


@dataclass(eq=False)
class LazyEvidence(Later[Evidence]):
    """Evidence that is computed on first use, or when it is saved.

    Attributes
    ----------
    source : RelationInput or Residuals
        The data from which the evidence is computed.
    n_tasks : int
        Number of tasks. With more than 500 tasks, files and pickles hold the evidence if it was computed before, and
        never its source.
    unknown : int
        Number of tasks that joined later, for which there is no information.
    """

    source: RelationInput | Residuals
    n_tasks: int = 0
    unknown: int = 0

    def __reduce__(self) -> str | tuple[object, ...]:
        return (_itself, (self._found,)) if self.n_tasks > MOST_SAVED else super().__reduce__()

    def _compute(self) -> Evidence:
        if self.n_tasks > _MOST_TASKS:
            raise ParameterError(
                f"There are {self.n_tasks} tasks; relations are tested for at most {_MOST_TASKS}, since all pairs are "
                "compared. Fit a subset of the tasks."
            )
        return self.source.read().evidence().with_unknown(self.unknown)

    def with_unknown(self) -> LazyEvidence:
        """Return the evidence with one additional task without any information."""
        return LazyEvidence(self.source, self.n_tasks + 1, self.unknown + 1)

    def saved(self) -> Evidence | None:
        """Return the evidence for a file, with the p-value of the global test that summaries print."""
        if self._found is None and self.n_tasks > MOST_SAVED:
            return None
        if super().saved() is not None:
            self.test_overall()
        return self._found

    def global_test(self, n_permutations: int = 199, random_state: int | np.random.Generator | None = 0) -> GlobalTest:
        """Test whether any tasks are related; see :meth:`mssl.TaskGraph.global_test`."""
        n = check_whole_number("n_permutations", n_permutations, low=1)
        random = np.random.default_rng(random_state)
        found = self.resolve().smallest_q
        if found >= 1:  # Permuted data cannot have a larger q.
            return GlobalTest(1.0, found, n)
        data = self.source.read()
        chance = [data.permuted(random).evidence().with_unknown(self.unknown).smallest_q for _ in range(n)]
        return GlobalTest((1 + sum(q <= found for q in chance)) / (1 + n), found, n)

    def test_overall(self) -> None:
        """Compute and keep the p-value of a short global test if there are relations and the test is fast."""
        found = self.resolve()
        if isinstance(found, Untested) or found.overall is not None or found.smallest_q > FDR:
            return
        if _PAIR * len(found.reliability) ** 2 + self.source.read().operations() <= _MOST_UNASKED:
            self._found = replace(found, overall=self.global_test(PERMUTATIONS).p)


def _itself(found: Evidence | None) -> Evidence | None:
    return found


class Residuals(NamedTuple):
    """Residuals by occasion: a source of evidence.

    Attributes
    ----------
    values : ndarray of shape (K, n)
        Residuals in the order of the occasions; NaN for missing ones.
    used : float
        Number of fitted parameters per task.
    """

    values: Array
    used: float = 0.0

    def read(self) -> Residuals:
        """Return the residuals."""
        return self

    def operations(self) -> float:
        """Return the number of operations for the products of all pairs."""
        return float(len(self.values) * self.values.size)

    def evidence(self) -> GraphEvidence:
        """Return the evidence on the relations of the residuals."""
        known = np.isfinite(self.values)
        E = np.where(known, self.values, 0.0)
        counts = known.astype(float) @ known.T
        squares = E**2 @ known.T
        norms = np.sqrt(squares * squares.T)
        r = np.divide(E @ E.T, norms, out=np.zeros_like(norms), where=norms > 0)
        np.fill_diagonal(r, 1.0)
        both = known[:, 1:] & known[:, :-1]
        steps = np.sum(E[:, 1:] * E[:, :-1] * both, axis=1)
        level = np.sqrt(np.sum(E[:, 1:] ** 2 * both, axis=1) * np.sum(E[:, :-1] ** 2 * both, axis=1))
        phi = np.divide(steps, level, out=np.zeros(len(E)), where=level > 0)
        product = np.multiply.outer(phi, phi)
        freedom = np.maximum(counts - self.used, 1.0) * np.minimum((1 - product) / (1 + product), 1.0)
        return GraphEvidence(r, freedom, np.ones(len(E)), "residual")

    def permuted(self, random: np.random.Generator) -> Residuals:
        """Shift each task's residuals circularly by a random number of occasions, which keeps autocorrelations."""
        steps = random.integers(self.values.shape[1], size=len(self.values)).tolist()
        rows = [np.roll(row, step) for row, step in zip(self.values, steps, strict=True)]
        return self._replace(values=np.stack(rows))
