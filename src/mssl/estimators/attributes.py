"""Fitted attributes of the estimators, typed: ``coef_`` is the field ``coef`` of what the fit left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np

from mssl._typing import Array, Labels
from mssl._validation import warn
from mssl.estimators.fitted import INPUT, Fitted, Input
from mssl.graph.task_graph import TaskGraph
from mssl.losses import Loss
from mssl.solvers.alternation import FitResult, Record

T = TypeVar("T")


class Of(Generic[T]):
    """A fitted attribute. Where nothing was learned under its name there is none, or it is None if it may be."""

    def __init__(self, *, none: bool = False) -> None:
        self.none = none

    def __set_name__(self, owner: type, name: str) -> None:
        self.field = name.removesuffix("_")

    @overload
    def __get__(self, model: None, owner: type) -> Self: ...
    @overload
    def __get__(self, model: FittedAttributes, owner: type) -> T: ...
    def __get__(self, model: FittedAttributes | None, owner: type) -> Self | T:
        if model is None:
            return self
        value = getattr(model._input if self.field in INPUT else model.fitted_, self.field)
        if value is None and not self.none:
            raise AttributeError(f"this {type(model).__name__} has no {self.field}_")
        found: T = value
        return found

    def __set__(self, model: FittedAttributes, value: T) -> None:
        change: dict[str, Any] = {self.field: value}
        if self.field in INPUT:
            model._note(**change)
        else:
            model.fitted_ = replace(model.fitted_, **change)


class FittedAttributes:
    """What users read of a fitted model; each attribute is one of ``fitted_``."""

    fitted_: Fitted
    _reading: Input | None = None  # the input of a fit that has not ended

    coef_ = Of[Array]()
    intercept_ = Of[Array]()
    noise_variance_ = Of[Array]()
    mean_coef_ = Of[Array]()
    mean_variance_ = Of[float]()
    unseen_ = Of[str]()
    unseen_coef_ = Of[Array]()
    unseen_intercept_ = Of[float]()
    precision_ = Of[Any]()
    covariance_ = Of[Any](none=True)
    partial_correlation_ = Of[Any]()
    residual_covariance_ = Of[Any](none=True)
    task_covariance_ = Of[Array]()
    graph_ = Of[TaskGraph]()
    errors_ = Of[Any](none=True)
    coef_std_ = Of[Array | None](none=True)
    effective_dof_ = Of[Array | None](none=True)
    log_likelihood_ = Of[float | None](none=True)
    feature_relevance_ = Of[Array]()
    loss_ = Of[Loss]()
    result_ = Of[FitResult]()
    objective_ = Of[float]()
    n_iter_ = Of[int]()
    history_ = Of[list[Record]]()
    ensemble_ = Of[Any]()
    structure_ = Of[str]()
    evidence_ = Of[float]()
    candidates_ = Of[list[tuple[str, float, float]]]()

    layout_ = Of[str]()
    tasks_ = Of[Labels]()
    features_ = Of[Labels]()
    classes_ = Of[Labels]()
    encoder_ = Of[Any](none=True)
    maps_ = Of[Any](none=True)
    target_ = Of[Any](none=True)
    base_rates_ = Of[Array]()
    column_quantiles_ = Of[Array]()
    ignored_columns_ = Of[tuple[str, ...]]()
    has_offset_ = Of[bool]()
    table_ = Of[Any]()

    @property
    def noise_(self) -> Array:
        """Standard deviations of the noise: the roots of ``noise_variance_``, which take their place."""
        warn(
            f"`noise_` of {type(self).__name__} is now `noise_variance_`, its square; it goes with 0.3.", FutureWarning
        )
        return np.sqrt(self.noise_variance_)

    @property
    def _input(self) -> Input:
        """What is read now, or what the last fit has read."""
        return self.fitted_.input if self._reading is None else self._reading

    def _note(self, **known: Any) -> None:
        """Keep what was found out about the input."""
        if self._reading is None:
            self.fitted_ = replace(self.fitted_, input=replace(self.fitted_.input, **known))
        else:
            self._reading = replace(self._reading, **known)

    def _begin(self) -> None:
        """Read anew; what the last fit left stays until the next one has ended."""
        self._reading = Input()

    def _end(self, **learned: Any) -> None:
        """Keep what a fit has learned of the input that was read."""
        self.fitted_ = Fitted(self._input, **learned)
        del self._reading
