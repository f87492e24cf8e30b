"""Fits to moments of rows that come in chunks, from files, or from the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Self

from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from mssl._typing import ArrayLike, Given
from mssl._validation import check_instance, refused, warn
from mssl.data.inputs import head, is_dask
from mssl.data.moments import Moments
from mssl.exceptions import all_or_nothing
from mssl.features.maps import is_linear
from mssl.kernels.threads import SingleThreaded


def _is_gaussian(model: Any) -> bool:
    """Whether the moments of its rows suffice to fit the model."""
    loss = getattr(getattr(model, "estimator", None) or model, "loss", "gaussian")  # a search has an estimator
    return bool(getattr(loss, "name", loss) == "gaussian")


class FromMoments(SingleThreaded):
    """Mixin of regressors that can be fitted to moments instead of rows in the long layout.

    The result equals the fit to the rows, because least squares depends on the rows through their moments only.
    """

    task_column: Hashable | None
    moments_: Moments

    if TYPE_CHECKING:  # methods of the estimators that use this mixin

        def _template(self) -> Any: ...

        def _fit_moments(self, moments: Moments) -> Self: ...

        def _moment_folds(self) -> int | None: ...

    def _fitted_on_workers(self, X: Any, y: Any, tasks: Given, sample_weight: Given, offset: Any) -> bool:
        """Forget the moments of earlier calls, and fit a Dask collection on the workers that hold its partitions."""
        vars(self).pop("moments_", None)
        if not is_dask(X) or not self._template()._loss().quadratic:
            return False
        self._fit_moments(self._read_moments(X, y if offset is None else y - offset, tasks, sample_weight))
        self.has_offset_ = offset is not None
        return True

    def _read_moments(self, X: Any, y: ArrayLike, tasks: Given, sample_weight: Given, number: int = 0) -> Moments:
        """Moments of rows in memory, or of a Dask collection."""
        make = Moments.from_dask if is_dask(X) else Moments.from_rows
        return make(
            X,
            y,
            tasks,
            sample_weight,
            task_column=self.task_column,
            n_folds=self._moment_folds(),
            random_state=number,
            memory_limit=self._template()._memory_limit,
        )

    @all_or_nothing
    def fit_moments(self, moments: Moments) -> Self:
        """Fit to the moments of rows; the result equals the fit to the rows.

        Parameters
        ----------
        moments : Moments
            Moments of the rows of all tasks; :meth:`mssl.Moments.from_chunks` makes them from chunks of rows.
            Estimators that cross-validate need the moments of folds (``n_folds``).

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from mssl import Moments, MSSLRegressor
        >>> from mssl.datasets import make_clustered_tasks
        >>> data = make_clustered_tasks(random_state=0)
        >>> model = MSSLRegressor().fit_moments(Moments.from_rows(data.X, data.y, data.tasks))
        >>> bool(np.allclose(model.coef_, MSSLRegressor().fit(data.X, data.y, tasks=data.tasks).coef_, atol=1e-4))
        True
        """
        check_instance("moments", moments, Moments)
        self._fit_moments(moments.checked(self._template()._memory_limit))
        self.moments_ = moments
        return self

    @available_if(_is_gaussian)
    def partial_fit(self, X: Any, y: ArrayLike, tasks: Given = None, sample_weight: Given = None) -> Self:
        """Add rows to those of earlier calls (or of :meth:`fit_moments`), and fit to all rows.

        Every call makes a fit. To read many chunks and fit once, use :meth:`mssl.Moments.from_chunks`.

        Parameters
        ----------
        X, y, tasks, sample_weight
            As for :meth:`fit`, in the long layout.

        Returns
        -------
        self
        """
        before = getattr(self, "moments_", None)
        if before is None and hasattr(self, "coef_"):
            warn(
                "This model was fitted to rows that it does not keep: partial_fit begins anew, without them. Begin "
                "with fit_moments or partial_fit to add rows to earlier ones."
            )
        if before is not None and not is_dask(X):
            validate_data(self, head(X, self.task_column), skip_check_array=True, reset=False)
        added = self._read_moments(X, y, tasks, sample_weight, 0 if before is None else int(before.n.sum()))
        return self.fit_moments(added if before is None else before + added)


_COMPUTE = "Fit rows in memory (.compute() a Dask collection)."


def check_moments(model: Any) -> None:
    """Raise if the parameters need more than moments, or other features than the columns of chunks."""
    if not model._loss().quadratic:
        allowed = "moments suffice for least squares, and for no other loss"
        raise refused("loss", model._loss().name, allowed, _COMPUTE)
    features = model.features
    if not is_linear(features) and not (isinstance(features, str) and features == "auto"):
        raise refused("features", features, "chunks are read with their columns unchanged: 'linear'", _COMPUTE)
    if model.missing != "error":
        allowed = "chunks are read without missing values: 'error'"
        raise refused("missing", model.missing, allowed, "Fill the gaps first.")
    if model.categorical_features is not None:
        allowed = "chunks hold numbers that mean the same in all of them"
        raise refused("categorical_features", model.categorical_features, allowed, "Give columns of 0 and 1 instead.")
    if model.target_transform is not None:
        allowed = "moments are those of untransformed targets: None"
        raise refused("target_transform", model.target_transform, allowed, _COMPUTE)
    if getattr(model, "relation", "coef") == "residual":
        raise refused("relation", model.relation, "moments say nothing about single residuals: 'coef'", _COMPUTE)
