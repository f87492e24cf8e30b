"""The graphical lasso with scikit-learn's interface: an estimator with a given penalty, and one that selects it."""

from __future__ import annotations

import sys
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.covariance import EmpiricalCovariance, empirical_covariance, log_likelihood
from sklearn.model_selection import check_cv
from sklearn.utils.validation import validate_data

from mssl._typing import Array
from mssl._validation import check_array, check_whole_number, refused
from mssl.exceptions import DataError, all_or_nothing
from mssl.glasso.solver import GraphicalLassoResult, graphical_lasso
from mssl.kernels.threads import SingleThreaded


class _GraphicalLasso(SingleThreaded, EmpiricalCovariance):
    """Base of both estimators. Scores, errors and distances are those of scikit-learn's covariance estimators."""

    store_precision = True
    tol: float
    max_iter: int
    assume_centered: bool

    location_: Array
    covariance_: Array
    precision_: Array
    n_iter_: int
    costs_: list[tuple[float, float]]

    def _covariance_of(self, X: Array) -> Array:
        self.location_ = np.zeros(X.shape[1]) if self.assume_centered else X.mean(axis=0)
        S: Array = empirical_covariance(X, assume_centered=self.assume_centered)
        return S

    def _read(self, X: Any) -> tuple[Array, Any]:
        """The rows in double precision, and the type of the input, which is also the type of the results."""
        X = validate_data(self, X, ensure_min_features=2, ensure_min_samples=2, dtype=[np.float64, np.float32])
        return X.astype(np.float64, copy=False), X.dtype

    def _keep(self, S: Array, alpha: float, dtype: Any) -> None:
        result = _solve(S, alpha, self.tol, self.max_iter)
        arrays = (self.location_, result.covariance, result.precision)
        self.location_, self.covariance_, self.precision_ = (values.astype(dtype, copy=False) for values in arrays)
        self.n_iter_ = result.n_iter
        self.costs_ = [(result.objective, result.gap)]


@dataclass(eq=False, repr=False)
class GraphicalLasso(_GraphicalLasso):
    r"""Sparse precision matrix of the rows of X, a replacement for ``sklearn.covariance.GraphicalLasso``.

    .. math:: \min_{\Omega \succ 0}\; \operatorname{tr}(S\Omega) - \log\det\Omega + \alpha\sum_{i\ne j}|\Omega_{ij}|

    As in scikit-learn, the diagonal is not penalised. The parameters ``mode``, ``enet_tol`` and ``eps`` of scikit-learn
    do not exist, since they belong to another algorithm. Every result has a certificate, the duality gap.

    Parameters
    ----------
    alpha : float, default=0.01
        Price of an edge, ≥ 0. A larger value gives a sparser precision.
    covariance : "precomputed" or None, default=None
        If "precomputed", X is a covariance matrix.
    tol : float, default=1e-6
        Relative duality gap at which to stop.
    max_iter : int, default=1000
        Largest number of sweeps.
    verbose : int, default=0
        If 1, the certificate is printed.
    assume_centered : bool, default=False
        Whether the columns of X have mean zero already.

    Attributes
    ----------
    location_ : ndarray of shape (p,)
        Means of the columns.
    covariance_, precision_ : ndarrays of shape (p, p)
        The estimate and its inverse, which has exact zeros; float32 if X is float32.
    n_iter_ : int
        Number of sweeps.
    costs_ : list of (float, float)
        Objective and duality gap at the end. The objective exceeds its minimum by at most the gap.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    References
    ----------
    Friedman, Hastie & Tibshirani (2008), doi:10.1093/biostatistics/kxm045.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl import GraphicalLasso
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> GraphicalLasso(alpha=0.3).fit(X).precision_.shape
    (4, 4)
    """

    alpha: float = 0.01
    _: KW_ONLY
    covariance: str | None = None
    tol: float = 1e-6
    max_iter: int = 1000
    verbose: int = 0
    assume_centered: bool = False

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> Self:
        """Estimate the precision.

        Parameters
        ----------
        X : array of shape (n, p), or (p, p) for a precomputed covariance
            Rows of observations, or their covariance.
        y : ignored
            Not used.

        Returns
        -------
        self
        """
        X, dtype = self._read(X)
        if self.covariance not in (None, "precomputed"):
            raise refused("covariance", self.covariance, "allowed are 'precomputed' and None")
        if self.covariance is None:
            S = self._covariance_of(X)
        else:
            self.location_, S = np.zeros(X.shape[1]), X
        self._keep(S, self.alpha, dtype)
        if self.verbose:
            objective, gap = self.costs_[-1]
            print(f"objective {objective:.8g}  gap {gap:.1e}  sweeps {self.n_iter_}", file=sys.stderr)
        return self


@dataclass(eq=False, repr=False)
class GraphicalLassoCV(_GraphicalLasso):
    r"""Graphical lasso with a cross-validated penalty, a replacement for scikit-learn's ``GraphicalLassoCV``.

    The log-likelihood of the test rows scores a grid of penalties from :math:`\alpha_{\max}` (an empty graph) to a
    hundredth of it. The grid is then refined around the best penalty, as in scikit-learn. Unlike in scikit-learn,
    ``assume_centered`` applies within the folds too, and the penalty 0 is scored like all others.

    Parameters
    ----------
    alphas : int or array, default=4
        Number of points of each grid, or the penalties themselves, which are then not refined.
    n_refinements : int, default=4
        Number of refinements of the grid.
    cv : int, splitter or iterable of (train, test), default=None
        As in scikit-learn; None means five folds.
    tol, max_iter, assume_centered
        As for :class:`GraphicalLasso`.
    n_jobs : int, optional
        Number of workers, as in joblib.
    verbose : int, default=0
        If 1, one line per refinement is printed.

    Attributes
    ----------
    alpha_ : float
        The selected penalty.
    cv_results_ : dict
        ``alphas`` (in descending order, with 0 at the end), ``split0_test_score`` …, ``mean_test_score``,
        ``std_test_score``.
    location_, covariance_, precision_, n_iter_, costs_, n_features_in_, feature_names_in_
        As for :class:`GraphicalLasso`.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl import GraphicalLassoCV
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> GraphicalLassoCV(cv=3).fit(X).alpha_ > 0
    True
    """

    _: KW_ONLY
    alphas: Any = 4
    n_refinements: int = 4
    cv: Any = None
    tol: float = 1e-6
    max_iter: int = 1000
    n_jobs: int | None = None
    verbose: int = 0
    assume_centered: bool = False

    @all_or_nothing
    def fit(self, X: Any, y: Any = None) -> Self:
        """Select the penalty by cross-validation, then estimate the precision from all rows.

        Parameters
        ----------
        X : array of shape (n, p)
            Rows of observations.
        y : ignored
            Not used, except by splitters that need it.

        Returns
        -------
        self
        """
        X, dtype = self._read(X)
        S = self._covariance_of(X)
        folds = [self._fold(X[train], X[test]) for train, test in check_cv(self.cv, y).split(X, y)]
        scores: dict[float, list[float]] = {}
        given = np.ndim(self.alphas) > 0
        alphas = check_array("alphas", self.alphas, (None,), above=0) if given else self._first_grid(S)
        best = 0.0
        for number in range(1 if given else check_whole_number("n_refinements", self.n_refinements, low=1)):
            alphas = np.sort(alphas)[::-1]
            paths = Parallel(n_jobs=self.n_jobs)(
                delayed(_path_scores)(*fold, alphas, self.tol, self.max_iter) for fold in folds
            )
            scores |= dict(zip(alphas.tolist(), zip(*paths, strict=True), strict=True))
            known = sorted(scores, reverse=True)
            best = max(known[::-1], key=lambda alpha: np.mean(scores[alpha]))
            place = known.index(best)
            lowest = place == len(known) - 1
            above, below = (best, 0.01 * best) if lowest else (known[max(place - 1, 0)], known[place + 1])
            alphas = np.geomspace(above, below, len(alphas) + 2)[1:-1]
            if self.verbose:
                print(f"grid {number + 1}: alpha {best:.4g}  score {np.mean(scores[best]):.6g}", file=sys.stderr)
        self._keep(S, best, dtype)
        self.alpha_ = best
        unpenalised = [log_likelihood(test, np.linalg.pinv(train, hermitian=True)) for train, test in folds]
        table = np.asarray([*(scores[alpha] for alpha in known), unpenalised])
        self.cv_results_ = {
            "alphas": np.asarray([*known, 0.0]),
            **{f"split{i}_test_score": column for i, column in enumerate(table.T)},
            "mean_test_score": table.mean(axis=1),
            "std_test_score": table.std(axis=1),
        }
        return self

    def _fold(self, train: Array, test: Array) -> tuple[Array, Array]:
        """The covariances of the training rows and of the test rows."""
        first, second = (empirical_covariance(part, assume_centered=self.assume_centered) for part in (train, test))
        return first, second

    def _first_grid(self, S: Array) -> Array:
        count = check_whole_number("alphas", self.alphas, low=2, also="the penalties themselves")
        top = float(np.abs(S - np.diag(np.diag(S))).max())
        if top == 0:
            raise DataError(
                "X has uncorrelated columns only; every penalty gives the same result. Give one: alphas=[0.1]."
            )
        return np.geomspace(top, 0.01 * top, count)


def _path_scores(train: Array, test: Array, alphas: Array, tol: float, max_iter: int) -> list[float]:
    """Log-likelihoods of the test rows along decreasing penalties. Each fit starts at the previous one."""
    scores, result = [], None
    for alpha in alphas:
        result = _solve(train, float(alpha), tol, max_iter, result)
        scores.append(float(log_likelihood(test, result.precision)))
    return scores


def _solve(
    S: Array, alpha: float, tol: float, max_iter: int, warm: GraphicalLassoResult | None = None
) -> GraphicalLassoResult:
    return graphical_lasso(S, alpha, penalize_diagonal=False, tol=tol, max_iter=max_iter, warm_start=warm)
