"""The array types of the package.

ArrayLike
    Values that NumPy can convert to an array.
Array
    An array of floats.
Given
    Values that NumPy can convert to an array, or None if the user gives none.
Index
    Positions: of rows, tasks or features.
Mask
    A boolean mask.
Matrix
    Rows of features, dense or sparse.
Rows
    Rows of features as users give them: arrays, sparse arrays, frames (pandas, polars, pyarrow, Dask), and records.
Json
    Values by name: a JSON object, or parameters.
TaskMatrix
    A matrix over pairs of tasks: an array, or SciPy's csr_array for many tasks.
Moment
    S, the moment of Q over pairs of tasks: an array, or a PairMoment for many tasks.
Labels
    Names of tasks or classes, of any type.
Seed
    A seed of a random generator; a generator is used itself and continues from its state.
SharedMean
    The parameter of the shared mean: "auto", True or False, or the variance of the mean.
GraphPenalty
    The parameter of the graph penalty: "auto", or a number.
VarianceFloor
    The parameter of the variance floor: "auto", or a number.
ClassWeight
    The parameter of the class weights: "balanced", a weight for each label, or None.
Weights
    Weights, intercepts and mean weights of a fit, in the user's units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:  # scikit-learn has no types; with its own classes type checkers would accept every attribute.
    from pandas import DataFrame
    from scipy.sparse import csr_array

    class BaseEstimator:
        """Parameters by name."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def __sklearn_tags__(self) -> Any: ...
        def _repr_html_inner(self) -> str: ...

    class CallbackSupportMixin:
        """Callbacks of a fit."""

        def _init_callback_context(self, **options: Any) -> Any: ...

    def with_callbacks(method: Callable[P, R]) -> Callable[P, R]: ...

    class ClassifierMixin:
        """Mixin that marks a classifier."""

    class RegressorMixin:
        """Mixin that marks a regressor."""

else:  # scikit-learn is imported only if a class needs it; array types do not.

    def __getattr__(name: str) -> Any:
        if not name.endswith(("Estimator", "Mixin", "callbacks")):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("sklearn.callback" if "allback" in name else "sklearn.base"), name)


ArrayLike: TypeAlias = npt.ArrayLike
Array: TypeAlias = npt.NDArray[np.float64]
Weights: TypeAlias = tuple[Array, Array, Array]
Given: TypeAlias = ArrayLike | None
Index: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Matrix: TypeAlias = "Array | csr_array"
Rows: TypeAlias = "ArrayLike | csr_array | DataFrame | Mapping[str, object] | Sequence[Mapping[str, object]]"
Json: TypeAlias = dict[str, Any]
TaskMatrix: TypeAlias = Annotated[Any, "K, K"]
Moment: TypeAlias = Any
Labels: TypeAlias = npt.NDArray[Any]
Seed: TypeAlias = int | Sequence[int] | np.random.Generator | None
SharedMean: TypeAlias = str | bool | float
GraphPenalty: TypeAlias = float | Literal["auto"]
VarianceFloor: TypeAlias = str | float
ClassWeight: TypeAlias = str | Mapping[Any, float] | None
