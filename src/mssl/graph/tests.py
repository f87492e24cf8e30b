r"""Which relations between tasks can be told from chance: two levels, each with its error.

**What is tested.** *Relations* are pairs of tasks whose weights (or residuals) are correlated: who belongs together.
*Conditional edges* are pairs that stay correlated when all other tasks are held fixed: what a graph of partial
correlations draws. With d features there are at most d observations of either. Marginal correlations can be told from
chance long before partial ones.

**Weights.** Task k has the information :math:`A_k = X_k^\top X_k/\sigma_k^2` and the score
:math:`b_k = X_k^\top y_k/\sigma_k^2` (other losses: those of the quadratic near the fit). Where its weights are
:math:`w_k \sim N(0, v_k I)`, the score :math:`g_k = (I + v_kA_k)^{-1}b_k` has the covariance
:math:`H_k = (I + v_kA_k)^{-1}A_k`, and :math:`u_k = H_k^{-1/2}g_k` is white: prior and estimation error are both in it.
Directions that the data do not inform drop out, so that fewer rows than features do no harm. The statistic of a pair
is the score test of its covariance,

.. math:: r_{kl} = \frac{g_k \cdot g_l}{\|u_k\|\,\|H_k^{1/2} g_l\|}.

Given task l it is the cosine between a fixed vector and a white one: without a relation
:math:`r\sqrt{\nu-1}/\sqrt{1-r^2}` has Student's t distribution with :math:`\nu-1` degrees of freedom, exactly for
Gaussian weights, where ν is the rank of :math:`A_k`. The larger p-value of the two roles counts. Where the same
features are large in all tasks, fewer of them count: ν is divided by
:math:`\kappa = \operatorname{mean}_{kl}\, \nu\sum_i u_{ki}^2 a_{li}^2 / (\|u_k\|^2\|a_l\|^2) \ge 1`, less what a
correlation adds to it.

**A mean that all tasks share** is a relation of all pairs. Relative to it the weights are :math:`w_k - m`. With
:math:`M = \sum_k H_k` and :math:`\hat m = M^{-1}\sum_k g_k` the score is
:math:`g_k - H_k [I - (I + \tau^2 M)^{-1/2}]\,\hat m`. It takes out so much of :math:`\hat m` that what is left has the
size of its estimation error. The scores are then again independent (subtracting all of :math:`\hat m` would
correlate them by −1/(K − 1)). A common level of all pairs is looked for in the lower part of their z values (an
empirical null). Where there is one, a relation has to be significant both ways, with the same sign.

**Rows that tasks share** correlate the errors of their weights. With the correlations ρ of the tasks' residuals the
scores have the covariances :math:`(I + v_kA_k)^{-1} \rho_{kl} X_k^\top X_l / (\sigma_k\sigma_l) (I + v_lA_l)^{-1}`,
which are whitened away, all tasks together, before anything is tested.

**Residuals** of n occasions count :math:`\nu_{kl} = (n - d - 1)(1 - \phi_k\phi_l)/(1 + \phi_k\phi_l)`, φ being their
autocorrelations from one occasion to the next.

**Too few columns.** Weights of d columns are d observations of a pair: of one column every correlation is ±1, and of
two its test knows next to nothing. With fewer than three columns that vary within tasks
(:func:`mssl.data.columns.effective_columns`) no pair of weights is tested, and tables say so (:class:`Untested`).

**Groups** are tasks that relations join which hold together, with a family-wise error of 10 % (Holm): among relations
at a false discovery rate of 10 % a false one is likely, and one is enough to make two groups one.

**Conditional edges** are looked for inside the groups. A likelihood (:mod:`mssl.graph.information`), in which every
direction of the weights has its own error, gives the partial correlations in a group of p tasks, and the number
:math:`n_{kl}` of directions without error that would tell as much. They count :math:`n_{kl}(\nu - p +
2)/\operatorname{rank} A_k` observations: without errors ν less the other tasks of the group, as in the t test of a
partial correlation.

*Residuals, and groups too large for a likelihood*: with the reliabilities :math:`\lambda_k` (share of the variance of
an estimated weight that is not error, 1 for residuals) the correlations are :math:`C = \Lambda^{-1/2}(R - I +
\Lambda)\Lambda^{-1/2}`, with the inverse Θ in the group. The statistic is :math:`-\Theta_{ij}/\sqrt{B_{ii}B_{jj}}` with
:math:`B = \Theta(C + \Lambda^{-1} - I)\Theta`, in which the errors count, and ν less p − 2. With fewer than 2p
observations, and at least 100, Θ is the graphical lasso, de-sparsified: :math:`2\Theta - \Theta C\Theta` stands in the
numerator. With still fewer no edge can be told from chance. Pairs of different groups are not tested.

**What is controlled.** Benjamini and Hochberg's procedure (``method="bh"``) holds the expected share of false rows in a
table at ``fdr``. Correlations of independent tasks are pairwise independent, for which simulations (``docs/graph.md``)
confirm it; ``method="by"`` (Benjamini and Yekutieli) holds it under any dependence and finds less.

**The global test** asks whether there is any relation at all. Its p-value counts how often permuted data have a
smallest q like the one found: the white scores of each task change places and signs (residuals: each task moves along
by a number of occasions of its own), are transformed back, and everything is estimated again, the mean too. It checks
the analytic p-values, and it errs at its own level where no tasks are related (weak control of the family-wise error).
It says nothing about single pairs. Summaries, pages and commands print it beside a list of relations, where 19
permutations take little time.

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
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtri, stdtr, stdtrit

from mssl._typing import Array, Index
from mssl._validation import check_array, check_choice, check_number, check_whole_number
from mssl.exceptions import MSSLError, ParameterError
from mssl.glasso.solver import graphical_lasso
from mssl.graph.tables import FDR, PERMUTATIONS, Relation, RelationTable
from mssl.kernels.threads import SingleThreaded

if TYPE_CHECKING:
    from mssl.graph.information import RelationInput

T = TypeVar("T")

COVERAGE = 1 - FDR  # of the intervals in the tables
_SMALLEST_RELIABILITY = 0.05  # Least reliability; below it errors have 20 times the weights' variance.
SMALLEST_EIGENVALUE = 0.01  # Least eigenvalue of estimated correlations; errors of estimates may make smaller ones.
_MANY = 100.0  # Observations that give the de-sparsified graphical lasso its limiting distribution.
# Of one permutation: 0.1 s on one core of 2.5 GHz, 19 of them under 2 s (10 to 1000 tasks with 4 to 100 features).
_MOST_UNASKED = 1e8
_PAIR = 6e3  # operations that a pair takes besides products of matrices, measured there with 100 tasks and more
_MOST_TASKS = 4000  # all pairs of which are compared: a dozen arrays of 128 MB
MOST_SAVED = 500  # tasks whose evidence is saved unasked: 4 MB


def adjusted_p(p: Array, method: str = "bh") -> Array:
    """The smallest error rate at which each hypothesis is rejected.

    Parameters
    ----------
    p : ndarray of shape (m,)
        p-values.
    method : {"bh", "by", "holm"}
        False discovery rate by Benjamini and Hochberg's procedure, or by Benjamini and Yekutieli's for any dependence,
        which divides the rate by 1 + 1/2 + … + 1/m; or the family-wise error by Holm's.

    Examples
    --------
    >>> import numpy as np
    >>> adjusted_p(np.array([0.01, 0.5, 0.02]))
    array([0.03, 0.5 , 0.03])
    """
    adjusted, order, falling = np.empty(len(p)), np.argsort(p), np.arange(len(p), 0, -1)
    if method == "holm":
        adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * falling), 1.0)
    else:
        price = float(np.sum(1 / falling)) if method == "by" else 1.0
        down = order[::-1]
        adjusted[down] = np.minimum.accumulate(np.minimum(price * p[down] * len(p) / falling, 1.0))
    return adjusted


class GlobalTest(NamedTuple):
    """Whether there is any relation between tasks at all.

    Attributes
    ----------
    p : float
        Share of permuted data, the data themselves among them, whose smallest q is as small as the one found.
    analytic : float
        The smallest q, which is the p-value of Simes' test: without any relation it should be like `p`.
    n_permutations : int
        Permutations that were drawn.
    """

    p: float
    analytic: float
    n_permutations: int


@dataclass(frozen=True, eq=False)
class GraphEvidence:
    """What data say about the relations of K tasks, reduced to two numbers for every pair.

    Parameters
    ----------
    correlation : ndarray of shape (K, K)
        r: correlations of what was estimated, with 1 on the diagonal.
    freedom : ndarray of shape (K, K)
        ν: without a relation r is distributed as the correlation of ν independent pairs of numbers of known mean.
    reliability : ndarray of shape (K,)
        λ: share of the variance of the estimates that is not estimation error, 1 for residuals.
    on : {"coef", "residual"}
        Whether weights or residuals are related.
    relative_to : {"zero", "mean", "both"}
        What the relations of weights are relative to: zero, a mean that all tasks share, or both.
    partial, partial_freedom : ndarrays of shape (K, K), optional
        Partial correlations of the weights, estimation error taken out, and how many observations of known mean they
        stand for; these are 0 where no likelihood was climbed.
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
        """The evidence itself, as evidence that is computed later answers."""
        return self

    def subset(self, keep: Sequence[int] | Index) -> GraphEvidence:
        """The evidence on some of the tasks; −1 stands for one of which nothing is known."""
        keep = np.asarray(keep, dtype=np.int64)

        def chosen(values: Array, unknown: float = 0.0) -> Array:
            return np.pad(values, (0, 1), constant_values=unknown)[np.ix_(keep, keep)]

        correlation = chosen(self.correlation)
        np.fill_diagonal(correlation, 1.0)
        partial, counts = (None if part is None else chosen(part) for part in (self.partial, self.partial_freedom))
        tables = correlation, chosen(self.freedom, 1.0), np.append(self.reliability, 0.0)[keep]
        return GraphEvidence(*tables, self.on, self.relative_to, partial, counts)

    def with_unknown(self) -> GraphEvidence:
        """The evidence with one more task, of which nothing is known."""
        return replace(self.subset([*range(len(self.reliability)), -1]), overall=self.overall)

    def table(
        self, tasks: Sequence[Hashable], level: str = "relations", fdr: float = 0.1, method: str = "bh"
    ) -> RelationTable:
        """The pairs that are selected at a false discovery rate; 1 gives all pairs.

        Parameters
        ----------
        tasks : sequence of K names
            The tasks.
        level : {"relations", "edges"}
            Correlations, or partial correlations.
        fdr : float
            In (0, 1].
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
        """The smallest false discovery rate at which there is a relation: the p-value of Simes' test."""
        return float(adjusted_p(self._relations[3]).min(initial=1.0))

    @property
    def _attenuation(self) -> Array:
        """What estimation error leaves of a correlation, (K, K)."""
        root = np.sqrt(np.maximum(self.reliability, _SMALLEST_RELIABILITY))
        return np.multiply.outer(root, root)

    @cached_property
    def _relations(self) -> tuple[Array, Array, Array, Array]:
        return _tested(self.correlation, self.freedom, self._attenuation)

    def groups_at(self, error: float) -> Index:
        """Group of every task, as an integer: tasks that relations join which are all true but for this probability."""
        K = len(self.correlation)
        joined = np.zeros((K, K), dtype=bool)
        joined[np.triu_indices(K, 1)] = adjusted_p(self._relations[3], "holm") <= error
        return np.asarray(connected_components(joined, directed=False)[1], dtype=np.int64)

    @cached_property
    def groups(self) -> Index:
        """The groups inside which conditional edges are looked for, with a family-wise error of 10 %."""
        return self.groups_at(FDR)

    @property
    def large_groups(self) -> list[Index]:
        """The tasks of each group of more than two, in which partial correlations are not the correlations."""
        return [
            tasks for tasks in map(np.flatnonzero, self.groups == np.unique(self.groups)[:, None]) if len(tasks) > 2
        ]

    @cached_property
    def _edges(self) -> tuple[Array, Array, Array, Array]:
        r, freedom, scale = self.correlation.copy(), self.freedom.copy(), self._attenuation
        for members in self.large_groups:
            block = np.ix_(members, members)
            r[block], freedom[block], scale[block] = self.subset(members)._partial()
        if self.partial is not None and self.partial_freedom is not None:
            known = self.partial_freedom > 0
            r[known], freedom[known], scale[known] = self.partial[known], self.partial_freedom[known], 1.0
        return _tested(r, freedom, scale)

    @property
    def typical(self) -> float:
        """The median number of observations of a pair."""
        return float(np.median(self.freedom[np.triu_indices(len(self.freedom), 1)]))

    @property
    def few(self) -> bool:
        """Whether partial correlations take a sparse inverse: there are fewer than two observations for each task."""
        return self.typical < 2 * len(self.freedom)

    def _partial(self) -> tuple[Array, Array, Array]:
        """Statistics of the partial correlations of one group: r, its freedom, and r by partial correlation."""
        K, freedom = len(self.correlation), self.typical
        if self.few and freedom < _MANY:
            # Fewer observations than this cannot tell partial correlations apart.
            return np.zeros((K, K)), self.freedom, np.ones((K, K))
        C = np.clip(self.correlation / self._attenuation, -0.99, 0.99)
        np.fill_diagonal(C, 1.0)
        values, vectors = np.linalg.eigh(C)
        C = (vectors * np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T
        if not self.few:
            theta = (vectors / np.maximum(values, SMALLEST_EIGENVALUE)) @ vectors.T
            direct, used = theta, K - 2.0
        else:
            # The penalty is what chance reaches in one pair of each task.
            penalty = min(np.sqrt(np.log(K) / freedom), 0.99)
            theta = np.asarray(graphical_lasso(C, penalty, diagonal_penalty=1e-3).precision)
            direct, used = 2 * theta - theta @ C @ theta, float(np.median(np.count_nonzero(theta, axis=1)))
        error = 1 / np.maximum(self.reliability, _SMALLEST_RELIABILITY) - 1
        B = theta @ (C + np.diag(error)) @ theta
        size, diagonal = np.sqrt(np.diagonal(B)), np.sqrt(np.diagonal(theta))
        r = np.clip(-direct / np.outer(size, size), -0.999, 0.999)
        return r, np.maximum(self.freedom - used, 2.0), np.outer(diagonal / size, diagonal / size)


class Untested(NamedTuple):
    """In the place of evidence, where there is nothing to test.

    Attributes
    ----------
    untested : str
        Why.

    Examples
    --------
    >>> Untested("one row tells nothing").table("ab", "relations", 0.1, "bh")
    one row tells nothing
    """

    untested: str
    smallest_q: float = 1.0
    on: str = "coef"

    def table(self, tasks: Sequence[Hashable], level: str, fdr: float, method: str) -> RelationTable:
        """An empty table, as of :meth:`GraphEvidence.table`, that says why."""
        return RelationTable([], level, float(fdr), 0, method, untested=self.untested)

    def resolve(self) -> Untested:
        """The same, as evidence that is computed later answers."""
        return self

    def subset(self, keep: Sequence[int] | Index) -> Untested:
        """The same for some of the tasks."""
        return self

    def with_unknown(self) -> Untested:
        """The same for one more task."""
        return self

    def global_test(self, n_permutations: int = 199, random_state: int | np.random.Generator | None = 0) -> GlobalTest:
        """Nothing is found in any permutation."""
        return GlobalTest(1.0, self.smallest_q, n_permutations)


Evidence = GraphEvidence | Untested


def correlation_p(r: Array, freedom: Array) -> Array:
    """Two-sided p-values of correlations r of ν pairs of numbers with known means; of one pair r is ±1 by itself."""
    left = np.maximum(freedom - 1, 0.5)
    r = np.clip(r, -1 + 1e-15, 1 - 1e-15)
    return np.where(freedom > 1, 2 * stdtr(left, -np.abs(r) * np.sqrt(left / (1 - r**2))), 1.0)


def correlation_of(p: Array, sign: Array, freedom: Array) -> Array:
    """The correlations that have these p-values and signs."""
    left = np.maximum(freedom - 1, 0.5)
    t = -stdtrit(left, np.clip(p, 1e-300, 1.0) / 2)
    return np.asarray(sign * t / np.sqrt(t**2 + left))


def _tested(r: Array, freedom: Array, scale: Array) -> tuple[Array, Array, Array, Array]:
    """Estimates r/scale of all pairs, their intervals by Fisher's transformation of r, and p-values, from tables."""
    pairs = np.triu_indices(len(r), 1)
    r, freedom, scale = r[pairs], freedom[pairs], scale[pairs]
    z = np.arctanh(np.clip(r, -0.9999, 0.9999))
    half = -ndtri((1 - COVERAGE) / 2) / np.sqrt(np.maximum(freedom - 2, 0.5))
    weight, low, high = (np.clip(values / scale, -1.0, 1.0) for values in (r, np.tanh(z - half), np.tanh(z + half)))
    return weight, low, high, correlation_p(r, freedom)


class Later(SingleThreaded, ABC, Generic[T]):
    """What is computed from what a fit keeps, when it is first asked for or written to a file.

    Copies and pickles compute nothing: they keep what it is computed from.
    """

    _found: T | None = None

    @abstractmethod
    def _compute(self) -> T: ...

    def resolve(self) -> T:
        """What is computed."""
        if self._found is None:
            self._found = self._compute()
        return self._found

    def saved(self) -> T | None:
        """What a file keeps: what is computed, or None where the data allow none."""
        try:
            return self.resolve()
        except MSSLError:
            return None


@dataclass(eq=False)
class LazyEvidence(Later[Evidence]):
    """Evidence that is computed when it is first asked for, or when it is saved.

    Attributes
    ----------
    source : RelationInput or Residuals
        What is kept of the data.
    n_tasks : int
        Number of tasks. Of more than 500, files and pickles keep the evidence where it was asked for before, and not
        its source.
    unknown : int
        Number of tasks that joined later, of which nothing is known.
    """

    source: RelationInput | Residuals
    n_tasks: int = 0
    unknown: int = 0

    def __reduce__(self) -> str | tuple[object, ...]:
        return (_itself, (self._found,)) if self.n_tasks > MOST_SAVED else super().__reduce__()

    def _compute(self) -> Evidence:
        if self.n_tasks > _MOST_TASKS:
            raise ParameterError(
                f"There are {self.n_tasks} tasks; relations are told from chance for at most {_MOST_TASKS}, since all "
                "pairs are compared. Fit the tasks in question alone."
            )
        return self._widened(self.source.read().evidence())

    def _widened(self, evidence: GraphEvidence) -> GraphEvidence:  # of the tasks that joined later nothing is known
        return evidence.subset([*range(len(evidence.reliability)), *[-1] * self.unknown])

    def with_unknown(self) -> LazyEvidence:
        """The evidence with one more task, of which nothing is known."""
        return LazyEvidence(self.source, self.n_tasks + 1, self.unknown + 1)

    def saved(self) -> Evidence | None:
        """As of :class:`Later`, with what summaries print."""
        if self._found is None and self.n_tasks > MOST_SAVED:
            return None
        if super().saved() is not None:
            self.test_overall()
        return self._found

    def global_test(self, n_permutations: int = 199, random_state: int | np.random.Generator | None = 0) -> GlobalTest:
        """Whether there is any relation at all, see :meth:`mssl.TaskGraph.global_test`."""
        n = check_whole_number("n_permutations", n_permutations, low=1)
        random = np.random.default_rng(random_state)
        found = self.resolve().smallest_q
        if found >= 1:  # permuted data have no larger q
            return GlobalTest(1.0, found, n)
        data = self.source.read()
        chance = [self._widened(data.permuted(random).evidence()).smallest_q for _ in range(n)]
        return GlobalTest((1 + sum(q <= found for q in chance)) / (1 + n), found, n)

    def test_overall(self) -> None:
        """Keep the p-value of a short global test, where there are relations and the test takes little time."""
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
        Residuals in the order of the occasions; NaN where there is none.
    used : float
        Parameters that were fitted to each task.
    """

    values: Array
    used: float = 0.0

    def read(self) -> Residuals:
        """These are the residuals."""
        return self

    def operations(self) -> float:
        """Those of products of all pairs."""
        return float(len(self.values) * self.values.size)

    def evidence(self) -> GraphEvidence:
        """What the residuals say about the relations of their tasks."""
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
        """Each task moved along by a number of occasions of its own, ends joined: autocorrelations stay."""
        steps = random.integers(self.values.shape[1], size=len(self.values)).tolist()
        rows = [np.roll(row, step) for row, step in zip(self.values, steps, strict=True)]
        return self._replace(values=np.stack(rows))
