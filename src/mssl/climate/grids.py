"""Unifying climate data: names of axes, longitudes, units, calendars, grids, land."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mssl._typing import Array, Index, Labels
from mssl._validation import refused
from mssl.data.inputs import listing
from mssl.exceptions import DataError, require

if TYPE_CHECKING:
    from xarray import DataArray, Dataset

    Field: TypeAlias = DataArray | Dataset
    Members: TypeAlias = Mapping[str, Field] | Iterable[str | Path | Field] | Field | str

_AXES = {"lat": ("latitude", "y", "nav_lat"), "lon": ("longitude", "x", "nav_lon"), "time": ("t", "month")}
_KELVIN = ("K", "kelvin", "Kelvin", "degK", "deg_K", "degree_K", "degrees_K")
_CELSIUS = ("C", "degC", "deg_C", "degrees_C", "degree_C", "celsius", "Celsius", "degrees Celsius", "degree_Celsius")
_ZEROS = dict.fromkeys(_KELVIN, 0.0) | dict.fromkeys((*_CELSIUS, "°C"), 273.15)  # of each unit of temperature, in K
DEGREES = {
    "lat": {"standard_name": "latitude", "long_name": "latitude", "units": "degrees_north"},
    "lon": {"standard_name": "longitude", "long_name": "longitude", "units": "degrees_east"},
}
_DATES = re.compile(r"_\d{4,8}-\d{4,8}$")
# Latitudes or longitudes within this number of degrees (0.1 m) are the same. It is larger than the rounding errors in
# files of doubles, and smaller than the distance of any two cells. A mere safeguard.
SAME = 1e-6


def open_members(paths: Iterable[str | Path], variable: str | None = None) -> dict[str, DataArray]:
    """Open NetCDF files lazily, one member per name; consecutive files of a member are joined in time.

    Parameters
    ----------
    paths : iterable of paths
        Paths such as ``tas_Amon_MODEL_historical_r1i1p1_185001-194912.nc``. The member's name is the file's name
        without the dates at its end.
    variable : str, optional
        Name of the variable; needed if a file has several.

    Returns
    -------
    dict of str to xarray.DataArray
    """
    xarray = require("xarray", "climate", "Reading climate files")
    parts: dict[str, list[DataArray]] = {}
    for path in sorted(map(str, paths)):
        parts.setdefault(_DATES.sub("", Path(path).stem), []).append(pick(open_field(path, variable), variable, path))
    if not parts:
        raise DataError("No file of ensemble members was found; check the pattern.")
    for name, (first, *others) in parts.items():
        axes = [axis for axis in ("lat", "lon") if axis in first.dims]
        near = {"method": "nearest", "tolerance": _same(*(field[axis] for axis in axes for field in parts[name]))}
        same = [field.reindex({axis: first[axis] for axis in axes}, **near) for field in others]
        parts[name] = [xarray.concat([first, *same], "time").sortby("time") if others else first]
    return {name: field for name, (field,) in parts.items()}


def _same(*axes: DataArray) -> float:
    """The largest distance of equal latitudes or longitudes on these axes; it is larger for single precision."""
    return max([SAME, *(360 * float(np.finfo(axis.dtype).eps) for axis in axes if axis.dtype.kind == "f")])


def open_field(path: str | Path, variable: str | None = None) -> DataArray:
    """Open one variable of a NetCDF file lazily, with the file's own axes."""
    xarray = require("xarray", "climate", "Reading climate files")
    require("dask", "climate", "Reading climate files piece by piece")
    # NetCDF's own library trusts the counts in the header of a classic file, and may hang on a damaged file.
    engine = "scipy" if _begins(Path(path)).startswith((b"CDF\x01", b"CDF\x02")) else None
    try:
        data = xarray.open_dataset(path, chunks={}, engine=engine)
    except Exception as error:  # A damaged file can cause any error in xarray or in the library that reads it.
        raise DataError(_unreadable(Path(path), error)) from error
    return choose(data, variable, str(path))


def loaded(data: DataArray, source: str) -> DataArray:
    """Load the values of a DataArray into memory; damage that shows only then raises DataError."""
    try:
        return data.load()
    except (RuntimeError, OSError) as error:
        raise DataError(f"{source} cannot be read from its file ({error}); write the file again.") from error


def _unreadable(path: Path, error: Exception) -> str:
    """Explain why a file cannot be opened: it is absent, or of another kind, or xarray's own message."""
    if not path.exists():
        return f"There is no file {str(path)!r}; give the path of a NetCDF file."
    begins = _begins(path)
    if path.is_file() and not begins.startswith((b"CDF", b"\x89HDF")):
        return f"{str(path)!r} is not a NetCDF file (it begins with {begins!r}); give files written as NetCDF."
    return f"{str(path)!r} cannot be read as NetCDF ({error}); write it again."


def _begins(path: Path) -> bytes:
    """The first bytes of a file; empty if there is no file."""
    if not path.is_file():
        return b""
    with path.open("rb") as stream:
        return stream.read(8)


def reject_observation(members: Iterable[str | Path], observations: str | Path) -> None:
    """Raise if the observation's file is among the members, because the observation would then predict itself."""
    for path in map(Path, members):
        if path.exists() and Path(observations).exists() and path.samefile(observations):
            raise DataError(
                f"The file of the observation, {str(observations)!r}, is among the members too; keep it elsewhere, or "
                "give a pattern that leaves it out."
            )


def choose(data: Field, variable: str | None, source: str) -> DataArray:
    """The named variable (or the only one with a time axis) as a DataArray, unchanged."""
    if not hasattr(data, "data_vars"):
        return data
    names = [name for name in data.data_vars if any(axis in data[name].dims for axis in ("time", *_AXES["time"]))]
    chosen = variable if variable is not None else (names[0] if len(names) == 1 else None)
    if chosen is None or chosen not in data.data_vars:
        asked = "several variables or none" if variable is None else f"no variable {variable!r}"
        raise DataError(
            f"{source} has {asked}; name one of {listing([str(name) for name in names])} (the observation's variable "
            "may have another name, observed_variable)."
        )
    return data[chosen]


def given_names(data: Field) -> dict[str, str]:
    """The given names of the axes time, lat and lon, for those that the data have."""
    known = {*data.dims, *data.coords}
    found = {axis: [name for name in (axis, *others) if name in known] for axis, others in _AXES.items()}
    return {axis: names[0] for axis, names in found.items() if names}


def pick(data: Field, variable: str | None, source: str, *, turned: bool = True) -> DataArray:
    """The named variable with axes time, lat and lon; with ``turned``, longitudes rise from −180 to 180."""
    data = choose(data, variable, source)
    data = data.rename({name: axis for axis, name in given_names(data).items() if name != axis})
    if "time" not in data.dims:
        raise DataError(f"The variable of {source} has the axes {listing(list(data.dims))}; it needs one of time.")
    for axis in {"lat", "lon"} & set(data.coords):
        _check_degrees(data[axis], source)
    if turned and "lon" in data.coords:
        data = data.assign_coords(lon=around(data["lon"]))
        data = data.sortby("lon") if "lon" in data.dims else data
    return data.squeeze(
        [axis for axis in data.dims if data.sizes[axis] == 1 and axis not in ("time", "location")], drop=True
    )


def _check_degrees(axis: DataArray, source: str) -> None:
    """Raise if latitudes or longitudes are not numbers, or if a grid has one of them twice."""
    if axis.dtype.kind not in "fiu" or not np.isfinite(axis.values).all():
        raise DataError(f"{axis.name} of {source} holds values that are not degrees; write the file again.")
    values = np.sort(np.ravel(around(axis.values) if axis.name == "lon" else axis.values))
    twice = values[1:][np.diff(values) <= SAME]
    if axis.dims == (axis.name,) and len(twice):
        raise DataError(f"{source} has {axis.name} {np.round(twice[0], 6) + 0.0:g} twice; leave one of its cells out.")


def around(lon: DataArray) -> DataArray:
    """Longitudes from −180 to 180; 180, and numbers that rounding puts just below it, become −180."""
    return (lon + 180.0 + SAME) % 360.0 - 180.0 - SAME


def to_units(data: DataArray, units: str | None, source: str) -> DataArray:
    """Convert data to the units of the observation; only K and °C can be converted, other differences raise."""
    given = data.attrs.get("units")
    if given in _ZEROS and units in _ZEROS:
        return data if _ZEROS[given] == _ZEROS[units] else data + (_ZEROS[given] - _ZEROS[units])
    if given == units:
        return data
    raise DataError(
        f"{source} is in {given or 'no stated unit'}, the observation in {units or 'no stated unit'}; only K and °C "
        "are converted. Bring both to the same units (attribute 'units') first."
    )


def _months_of(times: DataArray) -> Index:
    """Months since year 0, for all calendars."""
    if not hasattr(times, "dt") or times.dtype.kind not in "MO":
        raise DataError("The time axis holds no dates; give it units such as 'days since 1850-01-01'.")
    return np.asarray((times.dt.year * 12 + times.dt.month - 1).values, dtype=np.int64)


def times_of(times: DataArray, months: Index) -> tuple[Labels, bool]:
    """Times of consecutive months: those of the axis and True, or first days and False.

    First days are used if the axis has several times per month, and for months that the axis lacks.
    """
    xarray = require("xarray", "climate", "Climate data")
    how = {"calendar": times.dt.calendar, "use_cftime": times.dtype.kind == "O"}
    first = xarray.date_range(f"{months[0] // 12:04d}-{months[0] % 12 + 1:02d}", periods=len(months), freq="MS", **how)
    first = np.array(first, dtype=times.dtype)
    known, place = np.unique(_months_of(times), return_index=True)
    if len(known) < times.size:
        return first, False
    there = np.isin(months, known)
    first[there] = times.values[place[np.searchsorted(known, months[there])]]
    return first, True


def monthly(data: DataArray) -> DataArray:
    """Means of every calendar month, on an integer axis of months since year 0, for all calendars."""
    months = _months_of(data["time"])
    data = data.assign_coords(time=months)
    if len(np.unique(months)) == len(months):
        return data.sortby("time")
    return data.groupby("time").mean()


def select_region(data: DataArray, region: tuple[float, float, float, float] | None) -> DataArray:
    """Cells or locations inside (west, east, south, north); a region may cross the date line (west > east)."""
    if region is None:
        return data
    west, east, south, north = region
    if not (-90 <= south < north <= 90) or not all(-180 <= x <= 360 for x in (west, east)):
        raise refused("region", region, "give west, east, south, north in degrees, such as -82, -34, -56, 13")
    if not {"lat", "lon"} <= set(data.coords) or ("location" in data.dims and "location" not in data.coords):
        raise DataError("The observation's locations have no names, or no lat and lon; add them, or leave region out.")
    lon, lat = data["lon"].compute(), data["lat"].compute()
    near, width = _same(lon, lat), (east - west) % 360 or 360.0 * (east != west)
    inside = (lon - west + near) % 360 <= width + 2 * near
    return data.where(inside & (lat >= south - near) & (lat <= north + near), drop=True)


def to_locations(data: DataArray) -> DataArray:
    """Grid cells on one axis ``location``, with coordinates lat and lon; locations are returned unchanged."""
    if "location" in data.dims:
        return data.transpose("time", "location")
    if not {"lat", "lon"} <= set(data.dims):
        raise DataError(
            f"The observation has the axes {listing(list(data.dims))}; it needs time, and lat and lon or location."
        )
    stacked = data.stack(location=("lat", "lon")).transpose("time", "location")
    lat, lon = stacked["lat"].values, stacked["lon"].values
    flat = stacked.drop_vars(["location", "lat", "lon"])
    names = [f"{a:g} {b:g}" for a, b in zip(lat, lon, strict=True)]
    return flat.assign_coords(location=names, lat=("location", lat), lon=("location", lon))


def on_land(data: DataArray) -> DataArray:
    """Only the locations on land."""
    globe = require("global_land_mask", "climate", "The land mask").globe
    land = globe.is_land(data["lat"].values, around(data["lon"].values))
    return data.isel(location=np.flatnonzero(land))


def axis_attributes(axis: str, given: DataArray) -> dict[str, str]:
    """Attributes of an axis of the result: those of the observation, and those that the CF conventions require."""
    own = {name: text for name, text in given.attrs.items() if name not in ("bounds", "climatology")}
    return {**(DEGREES.get(axis) or {"standard_name": "time"}), **own}


def on_grid(data: Dataset, lat: Array, lon: Array) -> Dataset:
    """Fields with one value per location as maps over (lat, lon), NaN elsewhere; the graph keeps its locations."""
    axes = {"lat": lat, "lon": lon}
    mapped = [name for name, field in data.items() if "location" in field.dims and not name.startswith("graph")]
    flat = data[mapped].drop_vars("location").set_index(location=list(axes))
    maps = flat.unstack("location").reindex(axes).transpose(..., "lat", "lon")
    maps = maps.assign_coords({axis: (axis, values, data[axis].attrs) for axis, values in axes.items()})
    related = data.drop_vars(mapped).rename({axis: f"location_{axis}" for axis in axes})
    relates = any("location" in field.dims for field in related.data_vars.values())
    return maps.merge(related if relates else related.drop_dims("location"))


def to_cells(data: DataArray, places: DataArray, method: str, source: str) -> DataArray:
    """Model output at the observation's locations: interpolated from the model's grid, or selected by name."""
    if "location" in data.dims:
        if "location" not in data.coords or "location" not in places.coords:
            return data.transpose("time", "location")
        absent = sorted(set(places["location"].values.tolist()) - set(data["location"].values.tolist()))
        if absent:
            raise DataError(
                f"{source} lacks the locations {listing(absent)} of the observation; add them, or leave them "
                "out of both."
            )
        return data.sel(location=places["location"].values).transpose("time", "location")
    if not {"lat", "lon"} <= set(data.dims) or "lat" not in places.coords:
        raise DataError(f"{source} is on a grid; give lat and lon of the observation's locations to compare them.")
    grid = _around_the_globe(data.sortby("lat"))
    first, near = float(grid["lon"][0]), _same(grid["lon"], places["lon"])
    wanted = {
        "lat": places["lat"].clip(float(grid["lat"].min()), float(grid["lat"].max())),
        "lon": places["lon"] - 360.0 * np.floor((places["lon"] - first + near) / 360.0),
    }
    for axis, values in wanted.items():
        closest = grid[axis].sel({axis: values}, method="nearest")
        wanted[axis] = values.where(np.abs(values - closest.values) > near, closest.values)
    kind = {"bilinear": "linear", "nearest": "nearest"}[method]
    return grid.chunk({"lat": -1, "lon": -1}).interp(wanted, method=kind).transpose("time", "location")


def _around_the_globe(data: DataArray) -> DataArray:
    """Turn a grid so that it begins after its widest gap; no region is then cut at the date line.

    The first and the last column of a global grid are repeated, so that no cell lies outside.
    """
    xarray = require("xarray", "climate", "Climate data")
    lon = data["lon"].values
    gaps = np.diff(lon, append=lon[:1] + 360.0)
    if gaps[-1] < gaps.max() - SAME:
        first = int(np.argmax(gaps)) + 1
        lon = np.concatenate([lon[first:], lon[:first] + 360.0])
        data = data.roll(lon=-first).assign_coords(lon=lon)
    if len(lon) < 2 or 360 - (lon[-1] - lon[0]) > 1.5 * np.median(np.diff(lon)):
        return data
    left = data.isel(lon=[-1]).assign_coords(lon=[lon[-1] - 360.0])
    right = data.isel(lon=[0]).assign_coords(lon=[lon[0] + 360.0])
    return xarray.concat([left, data, right], "lon")


def named_members(ensemble: Members, variable: str | None) -> dict[str, DataArray]:
    """An ensemble in any of its forms as one DataArray per member."""
    if isinstance(ensemble, Mapping) and not hasattr(ensemble, "data_vars"):
        return {str(name): pick(field, variable, str(name)) for name, field in ensemble.items()}
    if hasattr(ensemble, "dims"):
        data = pick(ensemble, variable, "The ensemble")
        if "member" not in data.dims:
            raise DataError(f"The ensemble has the axes {listing(list(data.dims))}; it needs one named 'member'.")
        names = data["member"].values if "member" in data.coords else range(data.sizes["member"])
        return {str(name): data.isel(member=k, drop=True) for k, name in enumerate(names)}
    items = [ensemble] if isinstance(ensemble, str | Path) else list(ensemble)
    if items and all(isinstance(item, str | Path) for item in items):
        return open_members(items, variable)
    return {f"member {k + 1}": pick(item, variable, f"member {k + 1}") for k, item in enumerate(items)}
