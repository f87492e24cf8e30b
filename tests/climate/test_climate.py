"""Climate files: calendars, grids and units come together; the combination is told apart from its rivals."""

import os

import numpy as np
import pytest

from mssl import MSSLRegressor
from mssl.cli import commands
from mssl.datasets import load_climate, make_climate_like
from mssl.exceptions import DataError, DatasetError, ParameterError

xr = pytest.importorskip("xarray")
cftime = pytest.importorskip("cftime")
pytest.importorskip("dask")

from mssl.climate import combine, month_means, open_members, plot_combination, to_dataset, write_dataset  # noqa: E402

FIRST, LAST = 1990, 1996
TRAIN, TEST = (1990, 1994), (1995, 1996)
FINE = (np.arange(-30, 31, 10.0), np.arange(-25, 36, 10.0))
COARSE = (np.arange(-40, 41, 10.0), np.arange(0, 360, 15.0))


def ridge():
    return MSSLRegressor(graph_penalty=0.5, tol=1e-4)


def times(calendar):
    months = [(year, month) for year in range(FIRST, LAST + 1) for month in range(1, 13)]
    if calendar == "standard":
        return np.array([f"{y}-{m:02d}-16" for y, m in months], dtype="datetime64[ns]")
    return [cftime.datetime(y, m, 16, calendar=calendar) for y, m in months]


def signal(month, lat, lon):
    """Linear in latitude and longitude, so that bilinear interpolation is exact."""
    return 10 * np.cos(2 * np.pi * month / 12) + 0.1 * lat + 0.02 * lon + month / 40


def field(grid, calendar="standard", *, noise=0.0, seed=0, offset=0.0, units="degC"):
    lat, lon = grid
    n = 12 * (LAST - FIRST + 1)
    plane = (lon + 180) % 360 - 180
    values = signal(np.arange(n)[:, None, None], lat[None, :, None], plane[None, None, :]) + offset
    values = values + noise * np.random.default_rng(seed).normal(size=values.shape)
    return xr.DataArray(
        values,
        dims=("time", "lat", "lon"),
        coords={"time": times(calendar), "lat": lat, "lon": lon},
        name="tas",
        attrs={"units": units},
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three members in three calendars on two grids, in K and °C, and an observation with latitudes falling."""
    folder = tmp_path_factory.mktemp("cmip")
    common = np.random.default_rng(9).normal(size=(12 * (LAST - FIRST + 1), 1, 1))
    wobble = 0.5 * common
    plan = {
        "alpha": (FINE, "standard", "degC", 0.0),
        "beta": (COARSE, "noleap", "K", 273.15 + 1),
        "gamma": (COARSE, "360_day", "K", 273.15 - 2),
    }
    for seed, (name, (grid, calendar, units, offset)) in enumerate(plan.items()):
        data = field(grid, calendar, noise=0.1, seed=seed, offset=offset, units=units) + wobble
        data.attrs["units"] = units
        half = len(data["time"]) // 2
        parts = {"": data} if name == "alpha" else {"_199001-199306": data[:half], "_199307-199612": data[half:]}
        for suffix, part in parts.items():
            part.to_dataset(name="tas").to_netcdf(folder / f"{name}{suffix}.nc")
    observed = field(FINE, noise=0.05, seed=99) + wobble
    observed.attrs["units"] = "degC"
    observed = observed.rename(lat="latitude", lon="longitude").isel(latitude=slice(None, None, -1))
    observed[:, 0, 0] = np.nan
    observed.to_dataset(name="tmp").to_netcdf(folder / "cru.nc")
    return folder


def test_calendars_grids_and_units_come_together(files, tmp_path):
    members = open_members(sorted(set(files.glob("*.nc")) - {files / "cru.nc"}), "tas")
    assert list(members) == ["alpha", "beta", "gamma"]
    assert all(member.chunks is not None for member in members.values())
    observed = xr.open_dataset(files / "cru.nc")
    answer = combine(members, observed, train=TRAIN, test=TEST, land_only=False, estimator=ridge())
    sizes = {"time": 24, "latitude": 7, "longitude": 7, "member": 3, "location": 48, "other_location": 48}
    assert dict(answer.sizes) == sizes
    assert answer["prediction"].dims == ("time", "latitude", "longitude")
    assert answer["weights"].dims == ("member", "latitude", "longitude")
    assert answer["graph"].dims == ("location", "other_location")
    assert answer.attrs["locations"] == 48
    assert answer.attrs["locations_left_out"] == 1
    truth = observed["tmp"].sel(time=slice("1995", "1996"))
    xr.align(answer["observed"], truth, join="exact")
    assert np.allclose(answer["observed"], truth.values, atol=1e-12, equal_nan=True)
    for name in ("prediction", "weights", "rmse", "intercept"):
        gaps = np.isnan(answer[name].values.reshape(-1, 49)).all(axis=0)
        assert np.flatnonzero(gaps).tolist() == [0], name
    assert not np.isnan(answer["graph"]).any()
    for k in (0, 17, -1):
        place = {"latitude": float(answer["location_lat"][k]), "longitude": float(answer["location_lon"][k])}
        assert answer["location"].values[k] == "{latitude:g} {longitude:g}".format(**place)
        error = answer["prediction"].sel(place) - truth.sel(place)
        assert np.isclose(np.sqrt(np.mean(error**2)), answer["rmse"].sel(place))
    again = xr.open_dataset(write_dataset(answer, tmp_path / "answer.nc"))
    xr.testing.assert_allclose(again, answer)
    assert again["longitude"].attrs["units"] == "degrees_east"
    assert again["location_lat"].attrs["units"] == "degrees_north"
    assert answer.attrs["rmse"] < 0.2
    assert answer.attrs["gain_over_climatology"] > 0.5
    assert (
        answer.attrs["gain_over_average"] > -0.1
    )  # a mean of three members that differ in noise alone is hard to beat
    assert answer.attrs["rmse_raw_average"] > 2 * answer.attrs["rmse_average"]  # offsets of 1 and 2 degrees


def as_given(name):
    """Observations with axes of other names, longitudes from 0 to 360, calendars; all at the same places and times."""
    base = field((np.array([-10.0, 0.0, 10.0]), np.array([0.0, 20.0, 340.0, 350.0])), noise=0.1, seed=3)
    if name == "names":
        return base.rename(lat="latitude", lon="x").isel(latitude=slice(None, None, -1))
    if name == "calendar":
        base = base.assign_coords(time=times("360_day")).assign_attrs(units="degC")
        base["lon"].attrs["long_name"] = "degrees east of Greenwich"
        return base
    if name == "locations":
        flat = base.isel(lat=0, drop=True).rename(lon="location")
        places = {"nav_lat": ("location", [-10.0] * 4), "nav_lon": ("location", base["lon"].values)}
        return flat.assign_coords({"location": [7, 3, 11, 2], **places})
    return base


@pytest.mark.parametrize("name", ["longitudes", "names", "calendar", "locations"])
@pytest.mark.parametrize("region", [None, (-15, 5, -11, 1)])
def test_the_answer_has_the_coordinates_of_the_observation(name, region, tmp_path):
    observed = as_given(name)
    members = {"a": field(COARSE), "b": field(COARSE, noise=0.3)}
    options = {"train": TRAIN, "test": TEST, "land_only": False, "region": region, "estimator": ridge()}
    wanted = observed[12 * (TEST[0] - FIRST) :]
    if region is not None:
        lat, lon = {"names": ("latitude", "x"), "locations": ("nav_lat", "nav_lon")}.get(name, ("lat", "lon"))
        wanted = wanted.where((wanted[lat] <= 0) & wanted[lon].isin([0, 350]), drop=True)
    for source in (observed, observed.to_dataset(name="tas")):
        answer = combine(members, source, **options)
        aligned = xr.align(answer["prediction"], answer["rmse"], wanted, join="exact")
        assert aligned[0].dims == wanted.dims
        assert np.allclose(answer["observed"], wanted)
        assert np.allclose(answer["rmse"], np.sqrt(((answer["prediction"] - observed) ** 2).mean("time")))
        for axis in set(wanted.coords) & set(answer.coords):
            assert set(wanted[axis].attrs.items()) <= set(answer[axis].attrs.items())
            assert np.array_equal(wanted[axis], answer[axis])
    assert set(wanted.coords) <= set(answer.coords)
    again = xr.open_dataset(write_dataset(answer, tmp_path / "answer.nc"))
    xr.align(again["prediction"], wanted, join="exact")


@pytest.mark.parametrize("calendar", ["standard", "360_day"])
def test_months_of_a_daily_observation_are_called_by_their_first_days(calendar):
    observed = field((np.array([0.0, 10.0]), np.array([15.0, 30.0])), calendar, noise=0.1)
    first = [t.replace(day=1) for t in observed.indexes["time"]]
    twice = xr.concat([observed.assign_coords(time=first), observed], "time")
    members = {"a": field(COARSE), "b": field(COARSE, noise=0.3)}
    options = {"train": TRAIN, "test": TEST, "land_only": False, "estimator": ridge()}
    one, two = (combine(members, data, **options) for data in (observed, twice))
    assert two.indexes["time"].tolist() == first[-24:]
    assert one.indexes["time"].tolist() == observed.indexes["time"].tolist()[-24:]
    assert np.allclose(one["prediction"], two["prediction"])


def test_rivals_are_corrected_as_the_combination_is():
    """A member's bias in each month of the year changes no figure but that of the raw average."""
    grid = (FINE[0][1:3], FINE[1][1:3])
    observed = field(grid, noise=0.3, seed=8)
    good = field(grid, noise=0.2, seed=1) + 0.9 * (observed - field(grid))
    members = {"poor": field(grid, noise=1.0, seed=2), "good": good.assign_attrs(observed.attrs)}
    season = xr.DataArray(np.tile(np.arange(12.0), LAST - FIRST + 1), dims="time", coords={"time": observed["time"]})
    biased = members | {"good": (members["good"] + 5 + season).assign_attrs(observed.attrs)}
    options = {"train": TRAIN, "test": TEST, "land_only": False, "estimator": ridge(), "regrid": "nearest"}
    fair, unfair = (combine(each, observed, **options) for each in (members, biased))
    rivals = ("climatology", "average", "best_member")
    for name in ("rmse", *(f"rmse_{rival}" for rival in rivals)):
        assert np.allclose(fair[name], unfair[name]), name
        assert fair.attrs[name] == pytest.approx(np.sqrt(np.mean(fair[name].values ** 2)))
    assert unfair.attrs["rmse_raw_average"] > 3 * fair.attrs["rmse_raw_average"]
    assert fair.attrs["best_member"] == unfair.attrs["best_member"] == "good"

    def anomaly(data):
        late = data.sel(time=slice("1995", "1996"))
        early = data.sel(time=slice("1990", "1994")).groupby("time.month").mean()
        return late.groupby("time.month") - early

    off = {name: anomaly(member) - anomaly(observed) for name, member in biased.items()}
    assert np.allclose(unfair["rmse_best_member"], np.sqrt((off["good"] ** 2).mean("time")))
    assert np.allclose(unfair["rmse_average"], np.sqrt((((off["good"] + off["poor"]) / 2) ** 2).mean("time")))
    for rival in rivals:
        gain = 1 - unfair.attrs["rmse"] / unfair.attrs[f"rmse_{rival}"]
        assert unfair.attrs[f"gain_over_{rival}"] == pytest.approx(gain)


def test_the_command_compares_with_rivals_that_are_corrected(files, capsys):
    names = [
        "climate",
        "--observations",
        files / "cru.nc",
        "--members",
        files / "alpha.nc",
        "--members",
        files / "b*.nc",
    ]
    rest = ["--train", "1990:1994", "--test", "1995:1996", "--method", "ols", "--all-cells"]
    commands.main([*map(str, names), *rest], standalone_mode=False)
    told = {line.split("  ")[0].strip(): line for line in capsys.readouterr().out.splitlines()}
    for name in ("climatology", "average", "best member"):
        assert "the combination is" in told[name]
    assert "bias-corrected" in told["average"]
    assert "(alpha, chosen on the training years" in told["best member"] or "(beta" in told["best member"]
    assert "biases left in" in told["raw average"]
    assert "the combination" not in told["raw average"]
    commands.main([*map(str, names), *rest[:4], "--method", "climatology", "--all-cells"], standalone_mode=False)
    assert "the combination is as good" in capsys.readouterr().out


def test_interpolation_is_exact_on_linear_fields():
    members = {"a": field(COARSE, "noleap"), "b": field(FINE, "360_day", noise=0.3)}
    inner = field((FINE[0][1:-1], FINE[1][1:-1]))
    captured = {}

    class Spy(MSSLRegressor):
        def fit(self, X, y, tasks=None):
            captured["X"], captured["y"] = X, y
            return super().fit(X, y, tasks=tasks)

    combine(members, inner, train=TRAIN, test=TEST, raw=True, land_only=False, estimator=Spy(tol=1e-3))
    assert np.allclose(captured["X"][:, :, 0], captured["y"], atol=1e-10)


@pytest.mark.filterwarnings("ignore:The combination keeps")
def test_nearest_takes_the_nearest_cell():
    coarse = field(COARSE, noise=1.0)
    place = field((np.array([1.0, 12.0]), np.array([2.0, 14.0])), noise=0.1)
    answer = combine(
        {"a": coarse, "b": coarse * 0 + field(COARSE, noise=1.0, seed=5)},
        place, train=TRAIN, test=TEST, regrid="nearest", land_only=False, estimator=ridge(),
    )  # fmt: skip
    a = coarse.sel(lat=[0, 10], lon=[0, 15]).sel(time=slice("1995", "1996")).values
    b = field(COARSE, noise=1.0, seed=5).sel(lat=[0, 10], lon=[0, 15]).sel(time=slice("1995", "1996")).values
    error = np.sqrt(np.mean(((a + b) / 2 - answer["observed"].values) ** 2, axis=0))
    assert np.allclose(error, answer["rmse_raw_average"], atol=1e-12)


def test_cells_across_greenwich_and_the_date_line_are_inside():
    grid = (np.array([-5.0, 5.0]), np.array([-179.0, -1.0, 1.0, 179.0]))
    members = {"a": field(COARSE), "b": field(COARSE, noise=0.3)}
    answer = combine(members, field(grid, noise=0.1), train=TRAIN, test=TEST, land_only=False, estimator=ridge())
    assert answer.sizes["location"] == 8
    assert not np.isnan(answer["prediction"]).any()
    narrow = combine(
        members, field(grid, noise=0.1), train=TRAIN, test=TEST, land_only=False, region=(170, -170, -10, 10),
        estimator=ridge(),
    )  # fmt: skip
    assert narrow["lon"].values.tolist() == [-179.0, 179.0]


def test_land_mask_and_region():
    members = {"a": field(COARSE), "b": field(COARSE, noise=0.3)}
    grid = (np.array([-10.0, 0.0, 10.0]), np.array([-25.0, 0.0, 20.0]))
    answer = combine(members, field(grid, noise=0.1), train=TRAIN, test=TEST, estimator=ridge())
    land = [[False, False, True], [False, False, True], [False, True, True]]
    assert np.array_equal(np.isfinite(answer["rmse"]), land)
    assert answer.attrs["rmse"] == pytest.approx(np.sqrt(np.nanmean(answer["rmse"].values ** 2)))
    assert answer["location"].values.tolist() == ["-10 20", "0 20", "10 0", "10 20"]
    assert (answer.attrs["locations"], answer.attrs["locations_left_out"], answer.attrs["locations_at_sea"]) == (
        4,
        5,
        5,
    )
    with pytest.raises(DataError, match="No location lies"):
        combine(members, field(grid), train=TRAIN, test=TEST, region=(-26, -24, -11, 11), estimator=ridge())


@pytest.mark.filterwarnings("ignore:The combination keeps")
def test_a_region_cuts_stations_too(tmp_path):
    cells = to_dataset(make_climate_like(n_samples=84, random_state=0))
    inside = (cells["lon"] >= -70) & (cells["lat"] <= 0)
    options = {"train": (1901, 1905), "test": (1906, 1907), "estimator": ridge()}
    answer = combine(cells["ensemble"], cells["observed"], region=(-70, -30, -60, 0), **options)
    assert answer["location"].values.tolist() == cells["location"].values[inside.values].tolist()
    files = tmp_path / "ensemble.nc", tmp_path / "observed.nc"
    cells["ensemble"].isel(member=0, drop=True).to_netcdf(files[0])
    cells["observed"].to_netcdf(files[1])
    again = combine(files[:1], files[1], region=(-70, -30, -60, 0), **options)
    np.testing.assert_array_equal(again["observed"], answer["observed"])
    with pytest.raises(DataError, match="leave region out"):
        combine(cells["ensemble"], cells["observed"].drop_vars(["lat", "lon"]), region=(-70, -30, -60, 0), **options)


def test_every_location_left_out_has_a_reason():
    grid = (np.array([-10.0, 0.0, 10.0]), np.array([-25.0, 0.0, 20.0]))
    observed, member = field(grid, noise=0.1), field(grid)
    observed[12::12, 0, 2] = np.nan  # on land; January is there once
    observed[:, 0, 0] = np.nan  # at sea
    member[7, 1, 2] = np.nan
    member[7, 0, 2] = np.nan
    options = {"train": TRAIN, "test": TEST, "estimator": ridge(), "regrid": "nearest"}
    counts = {}
    for land in (True, False):
        about = combine({"a": member, "b": field(COARSE, noise=0.3)}, observed, land_only=land, **options).attrs
        counts[land] = [about[f"locations_{reason}"] for reason in ("at_sea", "not_observed", "not_modelled")]
        assert about["locations_left_out"] == sum(counts[land]) == 9 - about["locations"]
    assert counts == {True: [5, 1, 1], False: [0, 2, 1]}


def with_gaps(seed=0, share=0.1):
    """Two members and an observation on a small grid, some values of which are missing."""
    grid = (np.array([-10.0, 0.0, 10.0]), np.array([10.0, 20.0]))
    observed = field(grid, noise=0.3, seed=8)
    parts = {"good": 0.9 * (observed - field(grid)), "poor": 0.0}
    members = {
        name: (field(grid, noise=0.2, seed=k) + part).assign_attrs(observed.attrs)
        for k, (name, part) in enumerate(parts.items())
    }
    lost = np.random.default_rng(seed).random(observed.shape) < share
    return members, observed.where(~lost)


def test_gaps_are_left_out_of_learning_and_of_errors():
    """What is learned at a location is least squares on the months observed there, less the means of these."""
    members, observed = with_gaps()
    options = {"train": TRAIN, "test": TEST, "land_only": False, "regrid": "nearest", "method": "ols"}
    answer, model = combine(members, observed, return_model=True, **options)
    assert answer.attrs["locations"] == 6
    early, late = (observed.sel(time=slice(*map(str, years))) for years in (TRAIN, TEST))
    assert answer.attrs["missing_train"] == int(early.isnull().sum()) > 0
    assert answer.attrs["missing_test"] == int(late.isnull().sum()) > 0
    assert np.isfinite(answer["prediction"]).all()
    assert np.allclose(answer["rmse"], np.sqrt(((answer["prediction"] - late) ** 2).mean("time")))
    total = np.sqrt(np.nanmean((answer["prediction"] - late).values ** 2))
    assert answer.attrs["rmse"] == pytest.approx(total)
    assert list(model.features_) == ["good", "poor"]
    assert model.tasks_.tolist() == answer["location"].values.tolist()
    place = {"lat": 0.0, "lon": 20.0}
    y = early.sel(place)
    X = [member.sel(place).sel(time=y["time"]).where(y.notnull()) for member in members.values()]
    centred = [(part.groupby("time.month") - part.groupby("time.month").mean()).values for part in (y, *X)]
    known = y.notnull().values
    design = np.column_stack([np.ones(known.sum()), *(part[known] for part in centred[1:])])
    expected = np.linalg.lstsq(design, centred[0][known], rcond=None)[0]
    assert np.allclose(answer["weights"].sel(place), expected[1:], atol=1e-6)


@pytest.mark.parametrize("calendar", ["standard", "noleap"])
def test_months_that_the_observation_lacks_are_gaps(calendar):
    """The answer is that of the same months without a value; months that are there keep their times."""
    grid = (np.array([0.0, 10.0]), np.array([10.0, 20.0]))
    observed = field(grid, calendar, noise=0.3, seed=8)
    members = {name: field(grid, calendar, noise=0.2, seed=k) for k, name in enumerate("ab")}
    options = {"train": TRAIN, "test": TEST, "land_only": False, "estimator": ridge()}
    lost = observed["time"].dt.month.isin([3]).values & observed["time"].dt.year.isin([TRAIN[0], TEST[0]]).values
    expected = combine(members, observed.where(~observed["time"].copy(data=lost)), **options)
    with pytest.warns(UserWarning, match=f"lacks 2 of the .*first: {TRAIN[0]}-03"):
        answer = combine(members, observed[~lost], **options)
    for name in ("prediction", "weights", "rmse", "rmse_average"):
        np.testing.assert_array_equal(answer[name], expected[name])
    assert answer.attrs == expected.attrs
    assert (answer["prediction"] - observed[~lost]).sizes["time"] == answer.sizes["time"] - 1
    assert answer["time"].dt.strftime("%Y-%m-%d").values[2] == f"{TEST[0]}-03-01"
    with pytest.raises(DataError, match="The observation lacks"):
        combine(members, observed[observed["time.year"] > TRAIN[1]], **options)


def test_standard_errors_of_gains_are_those_of_years_left_out():
    """A year that nobody observed is a year left out."""
    members, observed = with_gaps(share=0.0)
    options = {"train": (1990, 1992), "test": (1993, 1996), "land_only": False, "regrid": "nearest", "method": "ols"}
    about = combine(members, observed, **options).attrs
    parts = [
        combine(members, observed.where(observed["time.year"] != year), **options).attrs for year in range(1993, 1997)
    ]
    for rival in ("climatology", "average", "best_member"):
        without = [part[f"gain_over_{rival}"] for part in parts]
        assert about[f"gain_over_{rival}_se"] == pytest.approx(np.sqrt(3 * np.var(without)))
    single = combine(members, observed, **options | {"test": (1993, 1993)}).attrs
    assert np.isnan(single["gain_over_average_se"])
    future = combine(members, observed.where(observed["time.year"] < 1993), **options)
    assert np.isnan(future.attrs["rmse"])
    assert np.isfinite(future["prediction"]).all()


def test_pictures_show_every_location_where_it_is():
    pytest.importorskip("matplotlib")
    members, observed = with_gaps()
    options = {"train": TRAIN, "test": TEST, "land_only": False, "regrid": "nearest", "method": "ols"}
    answer = combine(members, observed.isel(lat=slice(None, None, -1)), **options)
    drawings = plot_combination(answer, coast=False)
    cells = drawings[1].collections[0].get_array().reshape(3, 2)
    assert np.allclose(cells, 100 * (1 - answer["rmse"] / answer["rmse_average"]).sortby("lat"))
    assert len({ax.collections[0].get_clim() for ax in drawings[:2]}) == 1
    assert [text.get_text() for text in drawings[2].figure.axes[-1].get_legend().get_texts()] == ["good (6)"]
    places = {"lat": ("location", [-9.0, 5.0]), "lon": ("location", [10.0, 20.0]), "location": ["a", "b"]}
    flat = observed.isel(lat=0, drop=True).rename(lon="location").assign_coords(places)
    stations = combine(members, flat, **options)
    dots = plot_combination(stations, coast=False)[0].collections[0]
    assert np.allclose(dots.get_offsets(), [[10, -9], [20, 5]])
    with pytest.raises(DataError, match="no latitudes"):
        plot_combination(stations.drop_vars(["lat", "lon"]))


@pytest.mark.filterwarnings("ignore:The combination keeps")
@pytest.mark.parametrize("method", ["p-mssl", "r-mssl"])
def test_training_without_variation_is_refused(method):
    grid = (FINE[0][1:3], FINE[1][1:3])
    members = {"a": field(COARSE), "b": field(COARSE, noise=0.3)}
    options = {"test": TEST, "land_only": False, "method": method}
    with pytest.raises(ParameterError, match=r"train is \(1990, 1990\); .*single year.*raw"):
        combine(members, field(grid, noise=0.1), train=(1990, 1990), **options)
    still = field(grid, noise=0.1)
    still[: 12 * 5] = 0.1
    for raw in (True, False):
        with pytest.raises(DataError, match="does not vary in the training period 1990:1994"):
            combine(members, still, train=TRAIN, raw=raw, **options)
    still[:, 1:] = field(grid, noise=0.1)[:, 1:]
    answer = combine(members, still, train=TRAIN, **options)  # one location that varies is enough
    assert np.isfinite(answer["prediction"]).all()
    weights = np.abs(answer["weights"].to_numpy())
    # Where nothing varies the weights are zero, but for what a shared mean of all locations lends them.
    assert weights[:, 0].max() <= (0.05 * weights[:, 1].max() if method == "p-mssl" else 1e-8)


def test_climatology_is_a_method_too():
    grid = (FINE[0][1:3], FINE[1][1:3])
    members = {"a": field(COARSE), "b": field(COARSE, noise=0.3)}
    options = {"train": TRAIN, "test": TEST, "land_only": False}
    answer = combine(members, field(grid, noise=0.1), method="climatology", **options)
    assert np.array_equal(answer["prediction"], answer["climatology"])
    assert answer.attrs["gain_over_climatology"] == 0


def test_a_method_over_neighbours_knows_those_of_the_grid():
    grid = (FINE[0][1:4], FINE[1][1:4])
    members = {"a": field(COARSE), "b": field(COARSE, noise=0.3)}
    options = {"train": TRAIN, "test": TEST, "land_only": False, "method": "s2m2r"}
    graph = combine(members, field(grid, noise=0.1), **options)["graph"]
    lat, lon = graph["location_lat"].values, graph["location_lon"].values
    beside = np.abs(lat[:, None] - lat) + np.abs(lon[:, None] - lon) == 10
    assert np.array_equal((graph.values != 0) & ~np.eye(9, dtype=bool), beside)
    cells = to_dataset(make_climate_like(n_samples=120, n_lat=2, n_lon=3, random_state=0))
    options |= {"train": (1901, 1907), "test": (1908, 1910)}
    answer = combine(cells["ensemble"], cells["observed"], **options)
    off = ~np.eye(6, dtype=bool)
    assert np.all(np.sum((answer["graph"].values != 0) & off, axis=1) >= 4)
    with pytest.raises(DataError, match="no lat and lon"):
        combine(cells["ensemble"].drop_vars(["lat", "lon"]), cells["observed"].drop_vars(["lat", "lon"]), **options)


@pytest.mark.parametrize("input_file", ["cru.nc", "alpha.nc"])
def test_no_input_is_overwritten(files, input_file):
    target = files / input_file
    before = target.read_bytes()
    names = ["climate", "--observations", files / "cru.nc", "--members", files / "alpha.nc", "-o", target]
    with pytest.raises(DatasetError, match="is the same file as the input"):
        commands.main([*map(str, names), "--train", "1990:1994", "--test", "1995:1996"], standalone_mode=False)
    assert target.read_bytes() == before


def test_members_and_observation_are_different_netcdf_files(files, tmp_path):
    names = ["climate", "--observations", files / "cru.nc", "--train", "1990:1994", "--test", "1995:1996"]

    def refused(*members):
        with pytest.raises(DataError) as caught:
            commands.main([str(arg) for arg in (*names, "--members", *members)], standalone_mode=False)
        return str(caught.value)

    assert "is among the members" in refused(files / "*.nc")
    link = tmp_path / "other.nc"
    link.symlink_to(files / "cru.nc")
    assert "is among the members" in refused(link)
    with pytest.raises(DataError, match="is among the members"):
        combine([files / "alpha.nc", files / "cru.nc"], files / "cru.nc", train=TRAIN, test=TEST)
    table = tmp_path / "d.csv"
    table.write_text("station,temp\na,1\n")
    told = refused(table)
    assert "is not a NetCDF file (it begins with b'station,')" in told
    assert "engine" not in told
    with pytest.raises(DataError, match="There is no file"):
        open_members([tmp_path / "nowhere.nc"])


def test_month_means_are_means_of_months():
    random = np.random.default_rng(0)
    values, months = random.normal(size=(60, 3)), np.arange(5, 65)
    known = np.arange(60) < 36
    means = month_means(values, months, known)
    assert np.allclose(means[7], values[[7, 19, 31]].mean(axis=0))
    assert np.array_equal(means[7], means[55])
    with pytest.raises(DataError, match="not in training"):
        month_means(values, months, np.arange(60) < 6)


def test_daily_values_become_months(files):
    days = xr.date_range("1990-01-01", "1996-12-30", calendar="360_day", use_cftime=True)
    monthly = field(COARSE, "360_day", noise=0.2)
    daily = xr.DataArray(
        np.repeat(monthly.values, 30, axis=0), dims=monthly.dims,
        coords={"time": days, "lat": monthly["lat"], "lon": monthly["lon"]}, attrs=monthly.attrs,
    )  # fmt: skip
    inner = field((np.array([0.0, 10.0]), np.array([15.0, 30.0])), noise=0.1)
    answers = [
        combine(
            {"a": a, "b": field(COARSE, noise=0.2)}, inner, train=TRAIN, test=TEST, land_only=False, estimator=ridge()
        )
        for a in (monthly, daily)
    ]
    assert np.allclose(answers[0]["prediction"], answers[1]["prediction"], atol=1e-8)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"units": "mm"}, {}, "only K and °C are converted"),
        ({"units": None}, {}, "no stated unit"),
        ({}, {"train": (1980, 1994)}, r"lacks 120 of the 204 months .*1980-01"),
        ({}, {"train": (1994, 1990)}, "first year first"),
        ({}, {"test": (1994, 1996)}, "overlap"),
        ({}, {"region": (0, 10, 20, -20)}, "west, east, south, north"),
        ({}, {"regrid": "cubic"}, "bilinear"),
        ({}, {"variable": "pr"}, "no variable 'pr'"),
    ],
)
def test_what_does_not_fit_is_refused(change, options, message):
    member = field(COARSE)
    member.attrs |= change
    members = {"a": member.to_dataset(), "b": field(COARSE).to_dataset()}
    settings = {"train": TRAIN, "test": TEST, "estimator": ridge()} | options
    with pytest.raises((DataError, ParameterError), match=message):
        combine(members, field(FINE).to_dataset(), **settings)


def test_members_need_an_axis_and_dates():
    plain = field(COARSE)
    with pytest.raises(DataError, match="'member'"):
        combine(plain, field(FINE), train=TRAIN, test=TEST)
    numbered = plain.assign_coords(time=np.arange(len(plain["time"])))
    with pytest.raises(DataError, match="no dates"):
        combine({"a": numbered}, field(FINE), train=TRAIN, test=TEST, estimator=ridge())
    with pytest.raises(DataError, match="No file"):
        open_members([])


def test_files_that_are_no_netcdf(tmp_path):
    bad = tmp_path / "bad.nc"
    bad.write_text("no netcdf")
    with pytest.raises(DataError, match=r"bad\.nc"):
        open_members([bad])


def test_damage_inside_a_file_is_told_when_it_is_met(tmp_path):
    """Values are read at the end, long after the file was opened."""
    pytest.importorskip("netCDF4")
    member, bad = field(COARSE), tmp_path / "bad.nc"
    member.to_dataset().to_netcdf(bad, encoding={"tas": {"zlib": True, "fletcher32": True}})
    content = bytearray(bad.read_bytes())
    content[len(content) // 2] ^= 255
    bad.write_bytes(content)
    with pytest.raises(DataError, match="Member 'bad' cannot be read from its file"):
        combine([bad], field(FINE), train=TRAIN, test=TEST, estimator=ridge())


def test_counts_of_a_classic_file_are_not_believed(tmp_path):
    bad = tmp_path / "bad.nc"
    field(COARSE).to_dataset().to_netcdf(bad, engine="scipy")
    content = bytearray(bad.read_bytes())
    place = content.index(b"\0\0\0\x0c")  # the list of attributes, and then how many there are
    content[place + 4 : place + 8] = b"\x7f\xff\xff\xff"
    bad.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as NetCDF"):
        open_members([bad])


def test_axes_hold_degrees_and_each_once():
    lat = FINE[0]
    around = field((lat, np.arange(0, 361, 15.0)))
    with pytest.raises(DataError, match="member has lon 0 twice"):
        combine({"member": around}, field(FINE), train=TRAIN, test=TEST)
    lost = field(FINE).assign_coords(lat=np.where(lat == lat[0], np.nan, lat))
    with pytest.raises(DataError, match="lat of member holds values that are not degrees"):
        combine({"member": lost}, field(FINE), train=TRAIN, test=TEST)


@pytest.mark.parametrize("calendar", ["standard", "noleap", "360_day"])
def test_locations_with_known_truth(calendar, tmp_path):
    """Locations instead of grids; anomalies beat climatology, and the file can be read again."""
    cells = to_dataset(make_climate_like(n_samples=360, n_lat=3, n_lon=3, random_state=0), calendar=calendar, units="K")
    observed = cells["observed"] - 273.15
    observed.attrs["units"] = "degC"
    answer = combine(cells["ensemble"], observed, train=(1901, 1920), test=(1921, 1930), estimator=ridge())
    assert answer.attrs["gain_over_climatology"] > 0
    path = write_dataset(answer, tmp_path / "answer.nc")
    again = xr.open_dataset(path)
    xr.testing.assert_allclose(again, answer)
    assert again.attrs["Conventions"].startswith("CF-")
    assert all("units" in again[name].attrs and "long_name" in again[name].attrs for name in again.data_vars)
    assert again["lat"].attrs["units"] == "degrees_north"
    assert again["prediction"].attrs["units"] == "degC"
    with pytest.raises(DatasetError, match="cannot be written"):
        write_dataset(answer, tmp_path / "nowhere" / "answer.nc")


def test_raw_values_differ_from_anomalies():
    cells = to_dataset(make_climate_like(n_samples=240, n_lat=3, n_lon=3, random_state=1))
    options = {"train": (1901, 1915), "test": (1916, 1920)}
    raw, anomalies = (
        combine(cells["ensemble"], cells["observed"], raw=raw, estimator=ridge(), **options) for raw in (True, False)
    )
    assert raw.attrs["rmse_climatology"] == anomalies.attrs["rmse_climatology"]
    assert not np.allclose(raw["prediction"], anomalies["prediction"])


@pytest.mark.filterwarnings("ignore:The combination keeps")
@pytest.mark.skipif("MSSL_DATA" not in os.environ, reason="MSSL_DATA names no folder with the real data")
@pytest.mark.parametrize(
    ("name", "train", "test"), [("fiveloc", (1901, 1950), (1951, 1960)), ("atlas", (1979, 2004), (2005, 2014))]
)
def test_real_sets_through_netcdf(name, train, test, tmp_path):
    path = write_dataset(to_dataset(load_climate(name)), tmp_path / f"{name}.nc")
    data = xr.open_dataset(path, chunks={})
    answer = combine(data["ensemble"], data["observed"], train=train, test=test, estimator=ridge())
    assert answer.attrs["gain_over_average"] > 0
    assert abs(answer.attrs["gain_over_climatology"]) < 0.15
    assert answer["weights"].shape == (10, {"fiveloc": 25, "atlas": 46}[name])
