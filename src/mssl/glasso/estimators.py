"""The graphical lasso as scikit-learn has it: a covariance estimator, and one that chooses its penalty."""

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
    """What both share: scores, errors and distances are those of scikit-learn's covariance estimators."""

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
        """Rows in double precision, and the type they came in: that of the answers."""
        X = validate_data(self, X, ensure_min_features=2, ensure_min_samples=2, dtype=[np.float64, np.float32])
        return X.astype(np.float64, copy=False), X.dtype

    def _keep(self, S: Array, alpha: float, dtype: Any) -> None:
        result = _solve(S, alpha, self.tol, self.max_iter)
        found = (self.location_, result.covariance, result.precision)
        self.location_, self.covariance_, self.precision_ = (values.astype(dtype, copy=False) for values in found)
        self.n_iter_ = result.n_iter
        self.costs_ = [(result.objective, result.gap)]


@dataclass(eq=False, repr=False)
class GraphicalLasso(_GraphicalLasso):
    r"""Sparse precision matrix of the rows of X, certified; in the place of ``sklearn.covariance.GraphicalLasso``.

    .. math:: \min_{\Omega \succ 0}\; \operatorname{tr}(S\Omega) - \log\det\Omega + \alpha\sum_{i\ne j}|\Omega_{ij}|

    As in scikit-learn the diagonal is not penalised. Its parameters ``mode``, ``enet_tol`` and ``eps`` tune an
    algorithm that is not used here, so they do not exist.

    Parameters
    ----------
    alpha : float, default=0.01
        Price of an edge, ≥ 0; the larger, the sparser the precision.
    covariance : "precomputed" or None, default=None
        "precomputed" says that X is a covariance matrix.
    tol : float, default=1e-6
        Relative duality gap to reach.
    max_iter : int, default=1000
        Most sweeps.
    verbose : int, default=0
        1 prints the certificate that was reached.
    assume_centered : bool, default=False
        Whether the columns of X have mean zero already.

    Attributes
    ----------
    location_ : ndarray of shape (p,)
        Means of the columns.
    covariance_, precision_ : ndarrays of shape (p, p)
        The estimate and its inverse, which has exact zeros; float32 where X is.
    n_iter_ : int
        Sweeps.
    costs_ : list of (float, float)
        Objective and duality gap at the end: the objective is at most the gap above its minimum.
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
        X : array of shape (n, p), or (p, p) where the covariance is precomputed
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
    r"""Graphical lasso whose penalty is chosen by cross-validation; in the place of scikit-learn's.

    A grid of penalties from :math:`\alpha_{\max}` (an empty graph) down to a hundredth of it is scored by the
    log-likelihood of the test rows, then refined around the best one, as in scikit-learn. Unlike there,
    ``assume_centered`` holds within the folds too, and the score of no penalty at all is measured like the others.

    Parameters
    ----------
    alphas : int or array, default=4
        Points of each grid, or the penalties themselves, which are then not refined.
    n_refinements : int, default=4
        How often the grid is refined.
    cv : int, splitter or iterable of (train, test), default=None
        As for scikit-learn; None is five folds.
    tol, max_iter, assume_centered
        As for :class:`GraphicalLasso`.
    n_jobs : int, optional
        Workers, as for joblib.
    verbose : int, default=0
        1 prints one line a refinement.

    Attributes
    ----------
    alpha_ : float
        The penalty that was chosen.
    cv_results_ : dict
        ``alphas`` (falling, and 0 at the end), ``split0_test_score`` …, ``mean_test_score``, ``std_test_score``.
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
        """Choose the penalty by cross-validation, and estimate the precision of all rows with it.

        Parameters
        ----------
        X : array of shape (n, p)
            Rows of observations.
        y : ignored
            Not used, but for splitters that ask for it.

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
        """Covariances of a training and a test part."""
        first, second = (empirical_covariance(part, assume_centered=self.assume_centered) for part in (train, test))
        return first, second

    def _first_grid(self, S: Array) -> Array:
        count = check_whole_number("alphas", self.alphas, low=2, also="the penalties themselves")
        top = float(np.abs(S - np.diag(np.diag(S))).max())
        if top == 0:
            raise DataError(
                "X has uncorrelated columns only; every penalty then gives the same answer. Give one: alphas=[0.1]."
            )
        return np.geomspace(top, 0.01 * top, count)


def _path_scores(train: Array, test: Array, alphas: Array, tol: float, max_iter: int) -> list[float]:
    """Log-likelihoods of a test part along falling penalties, each fit from the one before."""
    found, result = [], None
    for alpha in alphas:
        result = _solve(train, float(alpha), tol, max_iter, result)
        found.append(float(log_likelihood(test, result.precision)))
    return found


def _solve(
    S: Array, alpha: float, tol: float, max_iter: int, warm: GraphicalLassoResult | None = None
) -> GraphicalLassoResult:
    return graphical_lasso(S, alpha, penalize_diagonal=False, tol=tol, max_iter=max_iter, warm_start=warm)
