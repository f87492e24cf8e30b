"""Ensembles of climate models, combined location by location with observations; xarray in, xarray out."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from mssl._typing import Array, Index, Mask
from mssl._validation import check_choice, refused, warn
from mssl.climate import grids
from mssl.estimators.baselines import AverageModel, BestMember, Climatology
from mssl.exceptions import DataError, MissingDependencyError, require
from mssl.files.atomic import atomic
from mssl.judge.held_out import MARGIN
from mssl.kernels.threads import single_threaded
from mssl.methods import lacks_graph, make_estimator
from mssl.plots.maps import draw_fields

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator
    from sklearn.utils import Bunch
    from xarray import DataArray, Dataset

    from mssl.climate.grids import Field, Members

RIVALS = ("climatology", "average", "best_member")  # baselines of a combination
Years: TypeAlias = tuple[int, int]  # the first and the last one
Fields: TypeAlias = dict[str, tuple[str | tuple[str, ...], Any, dict[str, str]]]  # in the form that xarray takes
# An answer may keep this share of the members' own change without a warning. A mere safeguard: a narrower range would
# warn of harmless differences.
_KEPT = (0.8, 1.2)


class _Months:
    """Ensemble and observation at all months of training and testing, at locations with enough values.

    The observation may have gaps (NaN). All means, also those of the members, are then over the observed months.

    Attributes
    ----------
    X, y : ndarrays of shape (n, K, M) and (n, K)
        Ensemble and observation.
    months, train : ndarrays of shape (n,)
        Months since year 0, and whether they are those of training.
    members : list of str
        Names of the members.
    observed : DataArray
        The observation, with its coordinates.
    locations : ndarray of shape (K,)
        Names of the locations, or their numbers if they have no names.
    left_out : dict
        Numbers of locations that were left out.
    """

    def __init__(self, observed: DataArray, fields: dict[str, DataArray], train: Years, test: Years, raw: bool) -> None:
        wanted = np.concatenate([np.arange(first * 12, (last + 1) * 12) for first, last in (train, test)])
        learning = np.arange(len(wanted)) < 12 * (train[1] + 1 - train[0])
        least = 1 if raw else 2  # The anomaly of a single value is 0.
        for name, field in {**fields, "The observation": observed}.items():
            absent = np.setdiff1d(wanted, field["time"].values)
            if not len(absent):
                continue
            year, month = divmod(int(absent[0]), 12)
            lacks = (
                f"{name} lacks {len(absent)} of the {len(wanted)} months of training and testing (first: "
                f"{year:04d}-{month + 1:02d})"
            )
            if field is not observed or np.isin(wanted[learning], absent).all():
                raise DataError(f"{lacks}; choose years that all of them cover.")
            warn(f"{lacks}; they count as gaps and are predicted.")
        observed = grids.loaded(observed.reindex(time=wanted), "The observation")
        values = [grids.loaded(field.sel(time=wanted), f"Member {name!r}").values for name, field in fields.items()]
        stack = np.stack(values, axis=2).astype(float, copy=False)
        counts = np.isfinite(observed.values[learning]).reshape(-1, 12, observed.sizes["location"]).sum(axis=0)
        seen = counts.min(axis=0) >= least
        whole = seen & np.isfinite(stack).all(axis=(0, 2))
        if not whole.any():
            raise DataError(
                "Every location lacks some value of a member, or has a month of the year with less than "
                f"{least} observed values in the training years; give more training years, or members without gaps."
            )
        self.months, self.train, self.members = wanted, learning, list(fields)
        self.observed = observed.isel(location=np.flatnonzero(whole)).astype(float)
        self.X = np.ascontiguousarray(stack[:, whole])
        self.y = np.where(np.isfinite(self.observed.values), self.observed.values, np.nan)
        named = "location" in self.observed.coords
        self.locations = np.asarray(self.observed["location"].values if named else np.arange(self.y.shape[1]))
        self.left_out = {"not_observed": int(np.sum(~seen)), "not_modelled": int(np.sum(seen & ~whole))}

    def means(self, values: Array) -> Array:
        """Month-of-year means over the observed training months, for every month."""
        return month_means(values, self.months, self.train[:, None] & np.isfinite(self.y))

    def climatology(self) -> Array:
        """The observation's month-of-year means of the training years, for the months of testing."""
        return self.means(self.y)[~self.train]


@single_threaded
def combine(
    ensemble: Members,
    observations: Field | str | Path,
    *,
    train: Years,
    test: Years,
    variable: str | None = None,
    region: tuple[float, float, float, float] | None = None,
    method: str = "r-mssl",
    raw: bool = False,
    regrid: str = "bilinear",
    land_only: bool = True,
    estimator: BaseEstimator | None = None,
    return_model: bool = False,
) -> Dataset | tuple[Dataset, BaseEstimator]:
    r"""Combine an ensemble of climate models into one prediction, one task per location.

    Every location k is a task and every model is a feature. By default the function combines anomalies. With the
    month-of-year means of the training years, :math:`\bar y_{km}` of the observation and :math:`\bar x_{kjm}` of model
    j, the prediction is

    .. math:: \hat y_k(t) = \bar y_{km(t)} + b_k + \sum_j w_{kj}\,\big(x_{kj}(t) - \bar x_{kjm(t)}\big).

    The observation may have gaps: NaN, or missing months, for which there is a warning. Weights and means are learned
    from the observed months. The means of the members are over these months too. The function predicts every month and
    computes errors over the observed months. A location is left out if some month of the year is observed fewer than
    two times in the training years (never, for raw values). Folds that choose parameters hold out blocks of whole
    years.

    A regression on months learns weather. If the members' weather is independent of the observed weather, the weights
    are small, and the projected change is small too. There is a warning if the members' mean change from training to
    testing is more than two of its standard errors, and the prediction keeps less than 80 % or more than 120 % of it.

    Parameters
    ----------
    ensemble : mapping of names to DataArrays, DataArray with an axis ``member``, or paths of NetCDF files
        The models, each on its own grid (lat, lon) and in its own calendar, or on an axis ``location``.
    observations : DataArray, Dataset or path
        The observation, which defines the grid or the locations of the result.
    train, test : (int, int)
        First and last year of training and of testing.
    variable : str, optional
        Name of the variable in data sets.
    region : (west, east, south, north), optional
        Region in degrees; west may be greater than east, for a region across the date line.
    method : str, default="r-mssl"
        "p-mssl", "r-mssl" or the name of a preset.
    raw : bool, default=False
        Whether to combine the values themselves, as the paper does, instead of anomalies.
    regrid : {"bilinear", "nearest"}, default="bilinear"
        Interpolation of models to the observation's locations.
    land_only : bool, default=True
        Whether to leave out grid cells at sea. Observations that are not on a grid keep all locations.
    estimator : estimator, optional
        An estimator that replaces the method.
    return_model : bool, default=False
        Whether to return the fitted model too. Its tasks are the locations and its features the members. Its inputs and
        outputs are anomalies (values if `raw`) of shapes (months, locations, members) and (months, locations).

    Returns
    -------
    xarray.Dataset, or (xarray.Dataset, estimator)
        ``prediction``, ``observed`` and ``climatology`` (time, location), ``weights`` (member, location),
        ``intercept`` and ``rmse`` (location), and ``graph`` (location, other_location), the partial correlations
        between locations. With more than 2000 locations, the compressed rows of the graph follow each other: ``graph``
        (entry) with ``other_location``, and ``graph_entries`` (location), the number of entries per row. ``change`` and
        ``members_change`` (location) are the changes from the training years to the years of testing, of the prediction
        and of the members' mean. If the observation is on a grid, the result is on the same grid: (lat, lon) replaces
        location, and cells that were left out are NaN. Only the graph keeps its locations, whose coordinates are
        ``location_lat`` and ``location_lon``.

        Axes have the same names, values and order as in the observation. So ``answer["prediction"] - observations`` has
        every month of testing, and ``xr.align`` with ``join="exact"`` passes for the observation's months of testing in
        the region. If the observation has several values per month, the times of the result are the first days of
        months. Months that the observation lacks have their first day in both cases.

        The errors of the baselines are (location): ``rmse_climatology``; ``rmse_average``, of the members' mean after
        bias correction (which replaces each member's month-of-year means of the training years by the observation's);
        ``rmse_best_member``, of the member with the lowest error over all locations in the training years, corrected in
        the same way; and ``rmse_raw_average``, of the members' mean without correction.

        The attributes hold the same errors over all locations; the gains over the first three baselines
        (``gain_over_average`` etc., the relative reductions of the baselines' errors) with their standard errors
        (``…_se``, from a paired jackknife over the years of testing, NaN for a single year); the numbers of locations
        left out because they are at sea, observed too seldom, or lack values of a member; the numbers of values that
        the observation lacks at the other locations in training and in testing (``missing_train``, ``missing_test``);
        the sum of the weights (``weights_sum``, mean over locations); the members' change over all locations and its
        standard error (``members_change``, ``members_change_se``), the share of it that the result keeps
        (``change_kept``), and the warning, if there is one (``comment``).

    References
    ----------
    Gonçalves et al. (2014), doi:10.1145/2661829.2662091. CF conventions: https://cfconventions.org.

    Examples
    --------
    >>> from mssl.climate import combine, to_dataset
    >>> from mssl.datasets import make_climate_like
    >>> from mssl import MSSLRegressor
    >>> cells = to_dataset(make_climate_like(n_samples=240, random_state=0))
    >>> r_mssl = MSSLRegressor(relation="residual", graph_penalty=0.3)
    >>> answer = combine(cells["ensemble"], cells["observed"], train=(1901, 1915), test=(1916, 1920), estimator=r_mssl)
    >>> answer["prediction"].dims
    ('time', 'location')
    """
    xarray = require("xarray", "climate", "mssl.climate.combine")
    _check_years(train, test, raw)
    check_choice("regrid", regrid, ("bilinear", "nearest"))
    if isinstance(ensemble, list | tuple) and isinstance(observations, str | Path):
        grids.reject_observation([item for item in ensemble if isinstance(item, str | Path)], observations)
    model = _linear(make_estimator(method, "gaussian") if estimator is None else estimator)
    members = grids.named_members(ensemble, variable)
    if isinstance(observations, str | Path):
        observations = grids.open_field(observations, variable)
    given = grids.choose(observations, variable, "The observation")
    observed, grid, at_sea = _observed(given, region, land_only)
    units, fields = given.attrs.get("units"), {}
    for name, field in members.items():
        converted = grids.to_units(field, units, f"member {name!r}")
        fields[name] = grids.monthly(grids.to_cells(converted, observed, regrid, f"member {name!r}"))
    data = _Months(observed, fields, train, test, raw)
    model = _with_neighbours(model, data, gridded=grid is not None)
    prediction, change = _predict(model, data, raw)
    left_out = {"at_sea": at_sea, **data.left_out}
    errors, figures = _errors(prediction, data)
    changes, kept = _changes(change, data)
    weights_sum = model.coef_.sum(axis=1).mean() if hasattr(model, "coef_") else np.nan
    figures |= {"weights_sum": float(weights_sum), **kept}
    if not isinstance(model, AverageModel | BestMember | Climatology):  # These learn no weights.
        figures |= _comment(kept, units, raw)
    found, coordinates = _found(model, data)
    fields = errors | changes | found
    for name, (_, _, about) in fields.items():
        about["units"] = "1" if name.startswith(("weights", "graph")) else units or "1"
    answer = xarray.Dataset(fields, _places(data, given) | coordinates)
    answer.attrs = {
        "Conventions": "CF-1.11",
        "title": "Climate models combined with observations, one task per location",
        "source": "mssl",
        **figures,
        "method": method if estimator is None else repr(estimator),
        "combined": "raw values" if raw else "anomalies from the month-of-year means of the training years",
        "train_years": f"{train[0]}:{train[1]}",
        "test_years": f"{test[0]}:{test[1]}",
        "locations": answer.sizes["location"],
        "locations_left_out": sum(left_out.values()),
        **{f"locations_{reason}": count for reason, count in left_out.items()},
        "missing_train": int(np.isnan(data.y[data.train]).sum()),
        "missing_test": int(np.isnan(data.y[~data.train]).sum()),
    }
    answer = answer if grid is None else grids.on_grid(answer, *grid)
    answer = answer.rename({axis: name for axis, name in grids.given_names(given).items() if axis in answer.coords})
    return (answer, model) if return_model else answer


def month_means(values: Array, months: Index, known: Mask) -> Array:
    """Mean of each month of the year over the known rows, for every row.

    Parameters
    ----------
    values : ndarray of shape (n, …)
        Values with one row per month.
    months : ndarray of shape (n,)
        Months since year 0 (or any January).
    known : ndarray of bool of shape (n,) or (n, K)
        The rows that enter the means, for all columns or for each column.
    """
    known = known.reshape(known.shape + (1,) * (values.ndim - known.ndim))
    means = np.empty_like(values)
    for month in np.unique(months % 12):
        rows = months % 12 == month
        if not known[rows].any(axis=0).all():
            raise DataError(
                f"Month {month + 1} of the year occurs in testing and not in training; give training years "
                "that have it."
            )
        means[rows] = values[rows].mean(axis=0, where=known[rows])
    return means


def _observed(
    given: DataArray, region: tuple[float, float, float, float] | None, land_only: bool
) -> tuple[DataArray, tuple[Array, Array] | None, int]:
    """The observation by months and locations, its grid (or None), and the number of cells at sea."""
    data = grids.select_region(grids.pick(given, None, "The observation", turned=False), region)
    grid = (data["lat"].values, data["lon"].values) if {"lat", "lon"} <= set(data.dims) else None
    data = grids.to_locations(data)
    cells = data.sizes["location"]
    if grid is not None and land_only:
        data = grids.on_land(data)
    if not data.sizes["location"]:
        raise DataError(
            "No location lies in the region and on land; give another region, or keep the sea (land_only=False)."
        )
    return grids.monthly(data), grid, cells - data.sizes["location"]


def _check_years(train: Years, test: Years, raw: bool) -> None:
    for name, (first, last) in (("train", train), ("test", test)):
        if first > last:
            raise refused(name, (first, last), "give the first year first")
    if train[0] <= test[1] and test[0] <= train[1]:
        raise refused("test", test, f"give years that do not overlap with train, which is {train}")
    if train[0] == train[1] and not raw:
        remedy = (
            "The months of a single year are their own means, so all anomalies are zero; raw values (raw=True) can be "
            "combined."
        )
        raise refused("train", train, "give two years or more", remedy)


def _linear(model: BaseEstimator) -> BaseEstimator:
    """The model, whose features are the members themselves, each with one weight."""
    known = model.get_params()
    for name in {"features", "estimator__features"} & known.keys():
        if known[name] == "auto":
            model = clone(model).set_params(**{name: "linear"})
        elif known[name] != "linear":
            raise refused("features", known[name], "a combination is linear in the members: give 'linear'")
    return model


def _with_neighbours(model: BaseEstimator, data: _Months, *, gridded: bool) -> BaseEstimator:
    """Give a model that needs a graph of locations the neighbouring cells, or the four nearest locations."""
    place = lacks_graph(model)
    if place is None:
        return model
    if not {"lat", "lon"} <= set(data.observed.coords):
        raise DataError(
            "The observation has no lat and lon of its locations, so their neighbours are unknown; add them."
        )
    places = np.column_stack([data.observed["lat"].values, grids.around(data.observed["lon"].values)])
    nearest = {} if gridded else {f"{place}__nearest": min(4, len(places) - 1)}
    return clone(model).set_params(**{f"{place}__coordinates": places}, **nearest)


def _predict(model: BaseEstimator, data: _Months, raw: bool) -> tuple[Array, Array]:
    """Fit the training months and predict the others, with anomalies or raw values; also return the change."""
    if isinstance(model, Climatology) and model.month is None:
        return data.climatology(), np.zeros(data.y.shape[1])
    X_means = 0.0 if raw else data.means(data.X)
    y_means = np.zeros_like(data.y) if raw else data.means(data.y)
    X, y = data.X - X_means, data.y - y_means
    known = y[data.train]
    if np.max(np.nanmax(known, axis=0) - np.nanmin(known, axis=0)) <= 1e-12 * np.nanmax(np.abs(data.y)):
        first, last = data.months[data.train][[0, -1]] // 12
        raise DataError(
            f"The observation does not vary in the training period {first}:{last} at any of the {y.shape[1]} "
            "locations, so there is nothing to learn; choose other training years, or check the variable."
        )
    # Neighbouring months are correlated, so folds are blocks of whole years.
    order = {"order": data.months[data.train] // 12} if has_fit_parameter(model, "order") else {}
    model.fit(X[data.train], known, tasks=data.locations, **order)
    fitted = getattr(model, "best_estimator_", model)
    if len(getattr(fitted, "features_", ())) == len(data.members):  # An array has no names for them.
        fitted.features_ = np.array(data.members, dtype=object)
    fitted = np.asarray(model.predict(X))
    return fitted[~data.train] + y_means[~data.train], _change(fitted, data.train)


def _change(values: Array, train: Mask) -> Array:
    """Change from the mean of the training months to the mean of the others; both are whole years."""
    return np.asarray(values[~train].mean(axis=0) - values[train].mean(axis=0))


def _changes(change: Array, data: _Months) -> tuple[Fields, dict[str, float]]:
    """The projected changes of prediction and members at each location, and the changes over all locations."""
    of_members, text = _change(data.X, data.train), "change of {} from the training years to those of testing"
    fields = {
        "change": _named("location", change, text.format("the prediction")),
        "members_change": _named("location", of_members.mean(axis=1), text.format("the members' mean")),
    }
    runs, whole = of_members.mean(axis=0), float(of_members.mean())
    years, early = data.X.mean(axis=(1, 2)).reshape(-1, 12).mean(axis=1), data.train[::12]
    parts = years[early], years[~early]
    variance = sum(len(part) * np.var(part) for part in parts) / (len(years) - 2 or np.nan)
    over_years = np.sqrt(variance * sum(1 / len(part) for part in parts))
    error = float(np.maximum(over_years, np.std(runs) / np.sqrt(max(len(runs) - 1, 1))))
    kept = float(change.mean()) / whole if whole else np.nan
    return fields, {"members_change": whole, "members_change_se": error, "change_kept": kept}


def _comment(figures: dict[str, float], units: str | None, raw: bool) -> dict[str, str]:
    """Warn if the prediction does not keep the members' change, and return the warning as a comment."""
    change, error, kept = (figures[name] for name in ("members_change", "members_change_se", "change_kept"))
    # The standard error is the larger one of two: that over years, which includes weather that all members share
    # (nudged runs) or that of a single member, and that over members. Without forced change, 13 of 400 ensembles are
    # beyond two standard errors (30 and 10 years, ten members), and 28 if the members share most of their weather. With
    # the standard error over members alone, 26 and 339 are.
    if not abs(change) > MARGIN * error or _KEPT[0] <= kept <= _KEPT[1]:
        return {}
    size, factor = f"{change:+.3g} ± {error:.2g} {units or ''}".strip(), round(kept, 2) + 0.0  # no −0
    message = (
        f"The combination keeps {factor:.0%} of the members' own change from training to testing ({size}). "
        f"A regression on monthly {'values' if raw else 'anomalies'} learns weather, so the projected change is "
        f"{'damped' if kept < 1 else 'inflated'} by a factor of {factor:g}; method='average-model' keeps it."
    )
    warn(message)
    return {"comment": message}


def _named(axes: str | tuple[str, ...], values: Any, text: str) -> tuple[str | tuple[str, ...], Any, dict[str, str]]:
    """Values along axes in the form that xarray takes, with their long name."""
    return axes, values, {"long_name": text}


def _rmse(errors: Array, axis: int | None = None) -> Array:
    """Root of the mean square of the known errors; NaN if no error is known."""
    count = np.isfinite(errors).sum(axis=axis)
    return np.asarray(np.sqrt(np.nansum(errors**2, axis=axis) / np.where(count, count, np.nan)))


def _errors(prediction: Array, data: _Months) -> tuple[Fields, dict[str, float | str]]:
    """Series and root mean square errors per location, and the errors over all locations.

    The best member is chosen on the training years, because a choice on later years could not be made in practice.
    """
    truth, climatology = data.y[~data.train], data.climatology()
    corrected = data.X - data.means(data.X) + data.means(data.y)[:, :, None]  # without the members' biases
    of_members = np.nanmean((corrected - data.y[:, :, None])[data.train] ** 2, axis=(0, 1))
    best = int(np.argmin(of_members))
    series = {
        "prediction": (prediction, "combined prediction"),
        "observed": (truth, "observation"),
        "climatology": (climatology, "month-of-year mean of the training years"),
    }
    rivals = {
        "rmse": (prediction, "the combination"),
        "rmse_climatology": (climatology, "the climatology"),
        "rmse_average": (corrected[~data.train].mean(axis=2), "the average of the bias-corrected members"),
        "rmse_best_member": (corrected[~data.train][:, :, best], f"the bias-corrected member {data.members[best]}"),
        "rmse_raw_average": (data.X[~data.train].mean(axis=2), "the average of the members as they are"),
    }
    off = {name: values - truth for name, (values, _) in rivals.items()}
    fields = {name: _named(("time", "location"), *about) for name, about in series.items()}
    for name, (_, text) in rivals.items():
        fields[name] = _named("location", _rmse(off[name], 0), f"root mean square error of {text}")
    figures: dict[str, float | str] = {name: float(_rmse(errors)) for name, errors in off.items()}
    years = data.months[~data.train] // 12
    for rival in RIVALS:
        gain, error = _gain(off["rmse"], off[f"rmse_{rival}"], years)
        figures |= {f"gain_over_{rival}": gain, f"gain_over_{rival}_se": error}
    return fields, figures | {"best_member": data.members[best]}


def _gain(errors: Array, rival: Array, years: Index) -> tuple[float, float]:
    """The relative reduction of the rival's error, and its standard error.

    The jackknife leaves out whole years at all locations, because neighbouring months and locations are not
    independent. It is paired: both errors lack the same years.
    """
    every = np.unique(years[np.isfinite(errors).any(axis=1)])
    if not len(every):
        return float("nan"), float("nan")
    squares = np.array([[np.nansum(values[years == year] ** 2) for year in every] for values in (errors, rival)])
    mine, theirs = squares @ np.vstack([np.ones(len(every)), 1.0 - np.eye(len(every))]).T  # all years, and all but one
    ratio = mine / np.where(theirs > 0, theirs, 1.0)  # Over a rival without errors the gain is 0 or −∞.
    gone, *without = np.where(theirs > 0, 1.0 - np.sqrt(ratio), np.where(mine > 0, -np.inf, 0.0))
    known = len(every) > 1 and bool(np.isfinite(without).all())
    return float(gone), float(np.sqrt((len(every) - 1) * np.var(without))) if known else float("nan")


def _found(model: BaseEstimator, data: _Months) -> tuple[Fields, Fields]:
    """Weights and graph of a fitted model, if it has them, and the coordinates of their own axes."""
    fields: Fields = {}
    coordinates: Fields = {}
    if hasattr(model, "coef_"):
        fields["weights"] = _named(("member", "location"), model.coef_.T, "weight of each member")
        fields["intercept"] = _named("location", model.intercept_, "intercept")
        coordinates["member"] = _named("member", data.members, "climate model")
    graph = getattr(model, "graph_", None)
    if graph is None:
        return fields, coordinates
    text, others = "partial correlation between locations, 0 without an edge", data.locations
    if sparse.issparse(graph.weights):
        fields["graph"] = _named("entry", graph.weights.data, text)
        coordinates["other_location"] = _named("entry", others[graph.weights.indices], "location")
        about = {"long_name": "number of entries of the graph's row of a location", "sample_dimension": "entry"}
        fields["graph_entries"] = "location", np.diff(graph.weights.indptr), about
    else:
        fields["graph"] = _named(("location", "other_location"), np.array(graph.weights), text)
        coordinates["other_location"] = _named("other_location", others, "location")
    return fields, coordinates


def _places(data: _Months, given: DataArray) -> Fields:
    """The observation's coordinates, with the attributes that the CF conventions require."""
    axes = {axis: given[name] for axis, name in grids.given_names(given).items() if name in given.coords}
    time, same = grids.times_of(axes["time"], data.months[~data.train])
    about = grids.axis_attributes("time", axes["time"]) | ({} if same else {"long_name": "first day of the month"})
    places: Fields = {"time": ("time", time, about), "location": _named("location", data.locations, "location")}
    for axis in grids.DEGREES:
        if axis in data.observed.coords:
            places[axis] = "location", data.observed[axis].values, grids.axis_attributes(axis, axes[axis])
    return places


def to_dataset(bunch: Bunch, *, calendar: str = "standard", units: str = "degC") -> Dataset:
    """A climate data set of :mod:`mssl.datasets` as xarray, for NetCDF files and for :func:`combine`.

    Parameters
    ----------
    bunch : Bunch
        Data set from ``load_climate`` or ``make_climate_like``, in the aligned layout.
    calendar : str, default="standard"
        Calendar of the time axis, such as "noleap" or "360_day".
    units : {"degC", "K"}
        Units of the result.

    Returns
    -------
    xarray.Dataset
        ``ensemble`` (time, location, member) and ``observed`` (time, location).
    """
    xarray = require("xarray", "climate", "mssl.climate.to_dataset")
    if np.ndim(bunch.X) != 3:
        raise DataError("The data set is not in the aligned layout; load it with layout='aligned'.")
    shift = 273.15 if units == "K" else 0.0
    months = np.asarray(bunch.months).astype("datetime64[M]")
    if calendar == "standard":
        time = list((months.astype("datetime64[D]") + 14).astype("datetime64[ns]"))
    else:
        cftime = require("cftime", "climate", "Calendars other than the standard one")
        counted = divmod(months.astype(int), 12)
        time = [cftime.datetime(1970 + y, m + 1, 15, calendar=calendar) for y, m in zip(*counted, strict=True)]
    text = {"units": units, "standard_name": "air_temperature"}
    coordinates = {
        "time": time,
        "location": np.asarray(bunch.task_names).astype(str),
        "member": np.asarray(bunch.feature_names).astype(str),
    }
    if bunch.get("coordinates") is not None:
        lat, lon = np.asarray(bunch.coordinates).T
        coordinates |= {"lat": ("location", lat), "lon": ("location", lon)}
    fields = {
        "ensemble": (("time", "location", "member"), bunch.X + shift, text),
        "observed": (("time", "location"), bunch.y + shift, text),
    }
    return xarray.Dataset(fields, coordinates)


def write_dataset(data: Field, path: str | Path) -> Path:
    """Write a data set as NetCDF, whole or not at all.

    Parameters
    ----------
    data : xarray.Dataset
        The data set, such as the result of :func:`combine`.
    path : str or Path
        Path of the file.
    """
    try:
        with tempfile.TemporaryDirectory() as folder, atomic(path) as stream:
            whole = Path(folder, "answer.nc")
            data.to_netcdf(whole)
            with whole.open("rb") as written:
                shutil.copyfileobj(written, stream)
    except ImportError as error:
        raise MissingDependencyError(
            f"Writing NetCDF files needs a package that is not installed ({error}). "
            "Install it with: pip install 'mssl[climate]'"
        ) from error
    return Path(path)


def plot_combination(answer: Dataset, *, coast: bool = True) -> NDArray[np.object_]:
    """Draw maps of a result of :func:`mssl.climate.combine`: gains per location, and the member of largest weight.

    A gain is the relative reduction of a rival's error; reductions are blue and increases orange. Both maps have the
    same scale. If nothing was observed in the years of testing, the maps show the changes from the training years
    instead, of the combination and of the members' mean, with a rise in orange. Grid cells are drawn as cells, other
    locations as points.

    Parameters
    ----------
    answer : xarray.Dataset
        Result of :func:`mssl.climate.combine`, with latitudes and longitudes.
    coast : bool
        Whether to draw coastlines (needs global-land-mask).

    Returns
    -------
    ndarray of matplotlib Axes
        Save the figure with ``axes[0].figure.savefig(…)``.

    Examples
    --------
    >>> from mssl import MSSLRegressor
    >>> from mssl.climate import combine, plot_combination, to_dataset
    >>> from mssl.datasets import make_climate_like
    >>> cells = to_dataset(make_climate_like(n_samples=120, n_lat=3, n_lon=3, random_state=0))
    >>> years = {"train": (1901, 1907), "test": (1908, 1910)}
    >>> answer = combine(cells["ensemble"], cells["observed"], estimator=MSSLRegressor(0.3), **years)
    >>> [ax.get_title() for ax in plot_combination(answer, coast=False)]
    ['gain over climatology', 'gain over corrected average', 'largest weight']
    """
    places = map_places(answer)
    if bool(answer["rmse"].notnull().any()):
        rivals = {"climatology": "rmse_climatology", "corrected average": "rmse_average"}
        with np.errstate(divide="ignore", invalid="ignore"):
            maps = {f"gain over {name}": 100 * (1 - answer["rmse"] / answer[rival]) for name, rival in rivals.items()}
        label, most, rising = "share of the error that is gone (%)", 100.0, "blue"
    else:
        maps = {"projected change": answer["change"], "change of the members": answer["members_change"]}
        label, most, rising = f"change from the training years ({answer['change'].attrs['units']})", np.inf, "orange"
    leaders = None
    if "weights" in answer:
        weights = abs(answer["weights"])
        leading = weights.fillna(0.0).argmax("member").where(np.isfinite(weights).all("member"))
        leaders = _on_map(leading, places), [str(name) for name in answer["member"].values]
    return draw_fields(
        {title: _on_map(field, places) for title, field in maps.items()},
        (answer[places["lat"]].to_numpy().astype(float), grids.around(answer[places["lon"]]).to_numpy().astype(float)),
        label,
        most=most,
        rising=rising,
        leaders=leaders,
        coast=coast,
    )


def _on_map(field: DataArray, places: dict[str, str]) -> Array:
    """Values for a map; on a grid, latitudes are rows and longitudes are columns."""
    grid = field.transpose(places["lat"], places["lon"]) if field.ndim == 2 else field
    return np.asarray(grid.values, dtype=float)


def map_places(data: Field) -> dict[str, str]:
    """The names of the axes of a map."""
    places = grids.given_names(data)
    if not {"lat", "lon"} <= set(places):
        raise DataError("There are no latitudes and longitudes, so there is no map; give them to the observation.")
    return places
