r"""Chains of fits, each started from the one before.

A chain holds everything fixed but λ, which falls: its first fit starts at the diagonal fixed point, where the graph
is empty, and every further one at its predecessor. The start depends on γ, η and the shared mean, not on λ, so a chain
computes it once. Chains themselves are independent: with another γ or η the fit starts anew, since weights that a
stronger penalty has set to zero would stay there.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from mssl._typing import Array, Mask
from mssl._validation import refused
from mssl.data.layouts import TaskData, subset
from mssl.estimators.gaps import fit_with_gaps
from mssl.estimators.spec import FitSpec, graph_penalty_limit, shallow_copy
from mssl.exceptions import ParameterError
from mssl.losses import Loss
from mssl.solvers.alternation import FitResult
from mssl.solvers.fit import Prepared, fit_prepared, mean_of_settings, prepare, start_lambda_max

if TYPE_CHECKING:
    from mssl.estimators.base import MultiTaskEstimator

E = TypeVar("E", bound=BaseEstimator)
Params = dict[str, Any]
Grids = dict[str, list[Any]]

GRAPH_PENALTIES = ("graph_penalty", "structure__alpha")  # the parameters that are λ


class Dataset:
    """Rows of a data set, all or some, prepared once for each kind of settings.

    Another shared mean or tolerance costs nothing.

    Parameters
    ----------
    data : TaskData
        All rows.
    loss : Loss
        The loss.
    mask : ndarray of bool of shape (N,), optional
        Which flat rows belong to it.
    """

    def __init__(self, data: TaskData, loss: Loss, mask: Mask | None = None) -> None:
        self.tasks, self.n_tasks, self.n_features = data.tasks, data.n_tasks, data.n_features
        self.data, self.loss, self.mask = data, loss, mask
        self.y = data.y if mask is None else data.y[mask]
        self._known: dict[str, Prepared] = {}

    @property
    def rows(self) -> TaskData:
        """The rows as task data."""
        return self.data if self.mask is None else subset(self.data, self.mask)

    def prepared(self, spec: FitSpec, *, filled: bool = True) -> Prepared:
        """The data, ready to fit; missing targets are filled with what a first fit expects, or left out."""
        if filled and spec.has_gaps(self.data):
            if "gaps" not in self._known:
                self._known["gaps"] = fit_with_gaps(spec, self.rows)[1]
            return replace(self._known["gaps"], settings=spec.settings)
        settings, on_residuals = spec.settings, spec.structure.relates == "residual"
        scaling = (settings.scale_features, settings.penalty_factor, settings.fit_intercept, settings.memory_limit)
        needs_start = spec.structure.needs_variances
        kind = (settings.noise, needs_start, spec.free_units, on_residuals)
        key = repr((scaling, kind, type(spec.loss).__qualname__, vars(spec.loss)))
        if key not in self._known:
            settings.check(self.n_tasks)
            with warnings.catch_warnings():
                if self.mask is not None:  # by chance a task's rows are of one class in some training part
                    warnings.filterwarnings("ignore", "All targets of", UserWarning)
                plain = replace(settings, shared_mean=False)
                made = prepare(self.rows, spec.loss, plain, needs_start=needs_start, free_units=spec.free_units)
            if not (on_residuals or made.design is None or made.rows is not None or made.base.by_rows):
                # Grams have taken the place of the standardised features, a second copy of the data.
                base = made.base.replaced(source=None) if made.base.formed else made.base
                made = replace(made, base=base, design=made.design.without_rows(), data=None)
            self._known[key] = made
        known = self._known[key]
        tau = mean_of_settings(known.base, known.noise, settings) if self.n_tasks > 1 else 0.0
        if not isinstance(settings.shared_mean, str | bool | np.bool_):
            tau /= known.unit**2  # given in the targets' units
        return replace(known, mean_variance=tau, settings=settings)


Weights = tuple[Array, Array, Array]
"""Weights, intercepts and mean weights of a fit, in the user's units."""


class PathPoint(NamedTuple):
    """One fit of a chain."""

    params: Params
    model: MultiTaskEstimator
    spec: FitSpec
    data: TaskData
    prepared: Prepared
    result: FitResult

    @property
    def weights(self) -> Weights:
        """Weights, intercepts and mean weights in the user's units."""
        coef, intercept = self.prepared.to_user(self.result.W, self.result.intercepts)
        return coef, intercept, self.prepared.unit * self.result.mean / self.prepared.scales

    def fitted(self, reader: MultiTaskEstimator, weights: Weights | None = None) -> MultiTaskEstimator:
        """The estimator with this fit, and the input that another has read; weights are others where they are given.

        The graph, and all that is told of the fit, are its own.
        """
        model = self.model._same_input(reader).from_spec(self.spec, self.data, self.prepared, self.result)
        if weights is not None:
            own = (model.coef_, model.intercept_, model.mean_coef_)
            coef, intercept, mean = (part.astype(old.dtype) for part, old in zip(weights, own, strict=True))
            model.fitted_ = replace(model.fitted_, coef=coef, intercept=intercept, mean_coef=mean)
            model._expect_new_task(None if self.prepared.design is None else self.prepared.design.centres)
        return model


def mean_weights(kinds: Sequence[Sequence[Weights]]) -> Weights:
    """The mean over kinds of features of the mean over fits.

    The last kind has the most features. Those of the others are its first ones, and their weights of the rest are zero.
    """
    means = [[np.mean(parts, axis=0) for parts in zip(*fits, strict=True)] for fits in kinds]

    def average(parts: Sequence[Array]) -> Array:
        gaps = [[(0, n - m) for n, m in zip(parts[-1].shape, part.shape, strict=True)] for part in parts]
        return np.mean([np.pad(part, gap) for part, gap in zip(parts, gaps, strict=True)], axis=0)

    coef, intercept, mean = map(average, zip(*means, strict=True))
    return coef, intercept, mean


def follow(
    source: Dataset, template: MultiTaskEstimator, chain: Sequence[Params], warm: FitResult | None = None
) -> Iterator[PathPoint]:
    """Fit settings that differ in λ alone one after the other, each from its predecessor where that helps.

    Parameters
    ----------
    source : Dataset
        Gives prepared data.
    template : estimator
        What is not in the settings.
    chain : sequence of dict
        Parameters of the template.
    warm : FitResult, optional
        What the first fit starts from.
    """
    point: PathPoint | None = None
    for params in chain:
        model = configured(template, params)
        spec = model.to_spec(source)
        data, origin = source.data, None
        if point is not None:  # F's constants are the same where the start does not depend on λ
            warm = point.result if spec.structure.shares_start(point.spec.structure) else None
            origin = None if warm is None else (warm.scale, warm.W)
        if spec.has_gaps(data):
            data, prepared, result = fit_with_gaps(spec, source.rows, warm)
        else:
            if origin is None:
                prepared = source.prepared(spec)
                problem = prepared.problem(spec.penalty, spec.structure.relates)
            structure, first = spec.structure, spec.first_step(source.n_tasks)
            result = fit_prepared(
                prepared, structure, spec.penalty, problem=problem, warm=warm, first=first, origin=origin
            )
        point = PathPoint(params, model, spec, data, prepared, result)
        yield point


def name_of(params: Params | Sequence[Params]) -> str:
    """A name for settings or a chain of them, the same for equal ones."""
    return json.dumps(params, sort_keys=True, default=repr)


def in_chains(settings: Iterable[Params]) -> list[list[Params]]:
    """Settings in chains that differ in λ alone, which falls."""
    chains: dict[str, list[Params]] = {}
    for params in settings:
        rest = {name: value for name, value in params.items() if name not in GRAPH_PENALTIES}
        chains.setdefault(name_of(rest), []).append(params)
    for chain in chains.values():
        chain.sort(key=lambda params: -sum(float(params[name]) for name in GRAPH_PENALTIES if name in params))
    return list(chains.values())


def follow_all(source: Dataset, template: MultiTaskEstimator, settings: Iterable[Params]) -> Iterator[PathPoint]:
    """Fit settings in any order, in chains; see :func:`follow`."""
    for chain in in_chains(settings):
        yield from follow(source, template, chain)


def configured(template: E, params: Params) -> E:
    """The template with other parameters; its parts are shared unless a parameter of a part changes.

    A number for a part, such as λ for a :class:`mssl.structures.SparsePrecision`, is the part's alpha.
    """
    model, opened = shallow_copy(template), set()
    for name, value in params.items():
        whole, _, inner = name.partition("__")
        part = getattr(model, whole)
        if not (inner or (isinstance(part, BaseEstimator) and isinstance(value, Real))):
            setattr(model, whole, value)
            continue
        if whole not in opened:
            part = shallow_copy(part) if isinstance(part, BaseEstimator) else model._part(whole, part)
            setattr(model, whole, part)
            opened.add(whole)
        first, _, deeper = (inner or "alpha").partition("__")
        setattr(part, first, configured(getattr(part, first), {deeper: value}) if deeper else value)
    return model


def graph_limit(prepared: Prepared, spec: FitSpec) -> float:
    """λ_max at the start of a fit: cheap, and as accurate as a grid needs.

    Without normalisation (the paper's formulation) λ changes the start as well; there it is found by fits, and any
    number serves where all weights are zero, but 0, at which the objective has no minimum.
    """
    structure = spec.structure
    if not structure.prices_edges:
        raise refused("structure", structure, "a path over λ needs a learned sparse precision")
    if not structure.starts_diagonal:
        return graph_penalty_limit(prepared, spec) or 1.0
    return start_lambda_max(prepared, structure, spec.penalty)


def grid_values(values: Any, name: str) -> list[Any]:
    """A grid as a list, or an error where it is empty."""
    listed = list(values) if isinstance(values, list | tuple) else np.atleast_1d(values).tolist()
    listed = [value.item() if isinstance(value, np.generic) else value for value in listed]
    if not listed:
        raise ParameterError(f"{name} is empty; give at least one value, or None for the default grid.")
    return listed
