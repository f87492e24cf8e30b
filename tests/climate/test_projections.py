"""Runs of the climate command as they are met: many cells, rounded coordinates, years that nobody has observed."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse, stats

import mssl
from mssl.data.folds import read_splits
from mssl.exceptions import DataError, ParameterError

xr = pytest.importorskip("xarray")
cftime = pytest.importorskip("cftime")
pytest.importorskip("dask")

from mssl.cli import commands  # noqa: E402
from mssl.cli._options import in_options  # noqa: E402
from mssl.climate import combine, open_members, plot_combination, write_dataset  # noqa: E402

FIRST = 1951
LAT, LON = np.array([-20.0, -10.0, 0.0]), np.array([-70.0, -60.0, -50.0, -40.0])


def field(values, lat=LAT, lon=LON, first=FIRST):
    """Months from January of the first year on, (n, lat, lon), as a field in °C."""
    time = np.datetime64(f"{first}-01", "M") + np.arange(len(values))
    axes = {"time": (time.astype("datetime64[D]") + 14).astype("datetime64[ns]"), "lat": lat, "lon": lon}
    return xr.DataArray(values, dims=("time", "lat", "lon"), coords=axes, name="tas", attrs={"units": "degC"})


def world(years, *, forced=0.0, members=5, shape=(3, 4), seed=0):
    """Weather of their own for the observation and for every member, and a forced change that all share."""
    random = np.random.default_rng(seed)
    n = 12 * years
    season = 10 * np.cos(2 * np.pi * np.arange(n) / 12)
    rise = np.linspace(0, forced, n)

    def weather():
        return random.normal(size=(n, *shape)) + random.normal(size=(n, 1, 1))

    fields = [(season + rise)[:, None, None] + weather() for _ in range(members + 1)]
    return fields[0], fields[1:]


def fields(years, lat=LAT, lon=LON, **options):
    observed, members = world(years, shape=(len(lat), len(lon)), **options)
    return field(observed, lat, lon), {f"m{k}": field(values, lat, lon) for k, values in enumerate(members)}


YEARS = {"train": (1951, 1970), "test": (1981, 1990), "land_only": False, "regrid": "nearest"}


def test_the_average_keeps_the_change_and_the_climatology_none():
    observed, members = fields(40, forced=4.0)
    for raw in (False, True):
        answer = combine(members, observed, method="average-model", raw=raw, **YEARS)
        assert answer.attrs["change_kept"] == pytest.approx(1.0)
        assert answer.attrs["weights_sum"] == pytest.approx(1.0)
        assert np.allclose(answer["change"], answer["members_change"])
        assert "comment" not in answer.attrs
    answer = combine(members, observed, method="climatology", **YEARS)
    assert answer.attrs["change_kept"] == 0
    assert np.isnan(answer.attrs["weights_sum"])
    late, early = (observed.sel(time=slice(*map(str, YEARS[part]))).mean("time") for part in ("test", "train"))
    assert not np.allclose(late, early)  # what was observed is no part of it


@pytest.mark.parametrize("raw", [False, True])
def test_the_change_is_that_of_the_members_times_their_weights(raw):
    observed, members = fields(40, forced=4.0)
    told = r"keeps -?\d+% of the members' own change .*learns weather.*damped by a factor"
    with nullcontext() if raw else pytest.warns(UserWarning, match=told):  # raw values have the season in common
        answer = combine(members, observed, method="ols", raw=raw, **YEARS)
    stack = xr.concat(members.values(), xr.Variable("member", list(members)))
    late, early = (stack.sel(time=slice(*map(str, YEARS[part]))).mean("time") for part in ("test", "train"))
    assert np.allclose(answer["change"], (answer["weights"] * (late - early)).sum("member"))
    assert np.allclose(answer["members_change"], (late - early).mean("member"))
    about = answer.attrs
    assert about["members_change"] == pytest.approx(float((late - early).mean()))
    assert about["change_kept"] == pytest.approx(float(answer["change"].mean()) / about["members_change"])
    assert about["weights_sum"] == pytest.approx(float(answer["weights"].sum("member").mean()))
    assert (about["change_kept"] < 0.8) != raw
    assert ("comment" in about) != raw
    assert answer["change"].attrs["units"] == "degC"


def test_a_change_that_is_inflated_is_told():
    observed, members = fields(40, forced=4.0)
    weak = {name: (0.5 * member).assign_attrs(member.attrs) for name, member in members.items()}
    with pytest.warns(UserWarning, match="inflated by a factor"):
        answer = combine(weak, observed, method="ols", raw=True, **YEARS)  # the season teaches twice the members
    assert answer.attrs["change_kept"] > 1.2


@pytest.mark.parametrize(("members", "shared", "train", "test"), [(10, 0, 30, 10), (5, 3, 20, 20), (1, 0, 15, 5)])
def test_weather_alone_is_no_change(members, shared, train, test):
    """Without forced change the members' change is beyond two standard errors as often as chance has it."""
    from mssl.climate.combination import _changes

    random = np.random.default_rng(0)
    n, early = 12 * (train + test), np.repeat([True, False], [12 * train, 12 * test])
    beyond = 0
    for _ in range(1000):
        X = random.normal(size=(n, 2, members)) + shared * random.normal(size=(n, 1, 1))
        figures = _changes(np.zeros(2), SimpleNamespace(X=X, train=early))[1]
        beyond += abs(figures["members_change"]) > 2 * figures["members_change_se"]
        assert figures["change_kept"] == 0
    chance = 2 * stats.t.sf(2, train + test - 2)
    assert beyond <= 1000 * chance + 3 * np.sqrt(1000 * chance * (1 - chance))


def test_without_forced_change_there_is_no_warning():
    """Warnings are errors here; what is kept of no change is told, and may be anything."""
    for seed in range(3):
        observed, members = fields(40, seed=seed)
        answer = combine(members, observed, method="ols", **YEARS)
        assert abs(answer.attrs["members_change"]) < 2 * answer.attrs["members_change_se"]
        assert np.isfinite(answer.attrs["change_kept"])
        assert "comment" not in answer.attrs


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Members of 40 years, an observation of the first 20."""
    folder = tmp_path_factory.mktemp("projection")
    observed, members = fields(40, forced=4.0)
    for name, member in members.items():
        member.to_netcdf(folder / f"{name}.nc")
    observed[:240].rename("tmp").to_netcdf(folder / "cru.nc")
    return folder


def climate(files, *more):
    names = ["climate", "--members", files / "m*.nc", "--observations", files / "cru.nc", "--all-cells"]
    commands.main([*map(str, [*names, "--train", "1951:1970", "--test", "1981:1990", *more])], standalone_mode=False)


@pytest.mark.filterwarnings("ignore:The observation lacks", "ignore:The combination keeps")
@pytest.mark.parametrize("method", ["ols", "average-model"])
def test_years_that_nobody_observed_are_predicted_saved_and_drawn(files, method, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    targets = {"-o": "answer.nc", "--save": "model.npz", "--picture": "maps.png"}
    named = [part for option, name in targets.items() for part in (option, tmp_path / name)]
    climate(files, "--method", method, "--json", *named)
    facts = json.loads(capsys.readouterr().out)
    assert facts["rmse"] is None
    about = mssl.files.models.read_header(tmp_path / "model.npz")["notes"]
    assert about == {"combined": facts["combined"], "train_years": "1951:1970", "rmse": None}
    answer = xr.open_dataset(tmp_path / "answer.nc")
    model = mssl.load(tmp_path / "model.npz")
    assert np.allclose(answer["weights"].values.reshape(5, 12), model.coef_.T)
    assert facts["change_kept"] == pytest.approx(answer.attrs["change_kept"])
    assert facts["weights_sum"] == pytest.approx(model.coef_.sum(axis=1).mean())
    assert facts["warning"] == (in_options(answer.attrs["comment"]) if "comment" in answer.attrs else None)
    assert (facts["warning"] is None) == (method == "average-model")
    if facts["warning"]:
        assert "--method average-model keeps it" in facts["warning"]
    drawings = plot_combination(answer, coast=False)
    assert [ax.get_title() for ax in drawings] == ["projected change", "change of the members", "largest weight"]
    for ax, name in zip(drawings, ("change", "members_change"), strict=False):
        assert np.allclose(ax.collections[0].get_array().reshape(3, 4), answer[name])
    assert len({ax.collections[0].get_clim() for ax in drawings[:2]}) == 1
    assert (tmp_path / "maps.png").read_bytes().startswith(b"\x89PNG")
    climate(files, "--method", method)
    told = {line.split("  ")[0].strip(): line for line in capsys.readouterr().out.splitlines()}
    assert f"keeps {round(facts['change_kept'], 2) + 0.0:.0%} of it" in told["change"]
    assert f"{facts['weights_sum']:.3g}" in told["weights"]


def test_a_map_without_places_is_refused_before_anything_is_written(files, tmp_path):
    pytest.importorskip("matplotlib")
    observed = xr.open_dataset(files / "cru.nc")["tmp"]
    flat = observed.stack(location=("lat", "lon")).drop_vars(["location", "lat", "lon"])
    folder = tmp_path / "flat"
    folder.mkdir()
    flat.to_netcdf(folder / "cru.nc")
    for name in ("m0", "m1"):
        member = xr.open_dataset(files / f"{name}.nc")["tas"]
        member.stack(location=("lat", "lon")).drop_vars(["location", "lat", "lon"]).to_netcdf(folder / f"{name}.nc")
    with pytest.raises(DataError, match="no latitudes"):
        climate(folder, "-o", tmp_path / "answer.nc", "--picture", tmp_path / "maps.png", "--method", "ols")
    assert not (tmp_path / "answer.nc").exists()


@pytest.mark.filterwarnings("ignore:The combination keeps")
@pytest.mark.parametrize("method", ["ols", "s2m2r"])
def test_many_locations_have_their_graph_as_compressed_rows(method, tmp_path):
    lat, lon = np.arange(-22.5, 22.5), np.arange(0.0, 45.0)  # 2025 cells
    observed, members = fields(3, lat, lon, members=1)
    options = {"train": (1951, 1952), "test": (1953, 1953), "land_only": False, "regrid": "nearest"}
    model = None
    if method == "s2m2r":
        places = np.stack(np.meshgrid(lat, lon, indexing="ij"), axis=-1).reshape(-1, 2)
        laplacian = mssl.structures.GraphLaplacian(1.0, coordinates=places)
        model = mssl.MultiTaskGLM(laplacian, loss="gaussian", tol=1e-2)
    answer, fitted = combine(members, observed, method="ols", estimator=model, return_model=True, **options)
    again = xr.open_dataset(write_dataset(answer, tmp_path / "answer.nc"))
    assert again["graph_entries"].attrs["sample_dimension"] == "entry"
    assert again.sizes["location"] == 2025
    place = {name: k for k, name in enumerate(again["location"].values)}
    columns = np.array([place[name] for name in again["other_location"].values], dtype=int)
    starts = np.concatenate([[0], np.cumsum(again["graph_entries"].values)])
    rows = sparse.csr_array((again["graph"].values, columns, starts), shape=(2025, 2025))
    assert abs(rows - fitted.graph_.weights).max() == 0
    assert rows.nnz == (2 * 2 * 45 * 44 if method == "s2m2r" else 0)
    assert again["prediction"].shape == (12, 45, 45)


@pytest.mark.filterwarnings("ignore:The combination keeps")
def test_a_combination_is_linear_in_the_members():
    """Members whose effect bends: splines would win the folds."""
    random = np.random.default_rng(0)
    values = [random.normal(size=(240, 2, 2)) for _ in range(2)]
    lat, lon = LAT[:2], LON[:2]
    members = {f"m{k}": field(part, lat, lon) for k, part in enumerate(values)}
    observed = field(np.sin(2 * values[0]) + values[1] + 0.1 * random.normal(size=(240, 2, 2)), lat, lon)
    options = {"train": (1951, 1964), "test": (1965, 1970), "land_only": False, "regrid": "nearest"}
    given = mssl.BayesianMSSLRegressor()
    for estimator in (None, given):
        answer = combine(members, observed, method="bayesian", estimator=estimator, **options)
        assert answer["weights"].shape == (2, 2, 2)
    assert given.features == "auto"
    with pytest.raises(ParameterError, match="linear in the members"):
        combine(members, observed, estimator=mssl.MSSLRegressor(features="spline"), **options)


def moved(data, lat, lon):
    return data.assign_coords(lat=data["lat"].values + lat, lon=lon(data["lon"].values))


@pytest.mark.parametrize(
    "lon",
    [lambda x: x + 9e-7, lambda x: x - 9e-7, lambda x: x % 360, lambda x: (x + 1000) / 3 * 3 - 1000, np.float32],
    ids=["east", "west", "wrapped", "rounded", "single"],
)
@pytest.mark.parametrize("who", ["members", "observation"])
@pytest.mark.parametrize("start", [-70.1, 150.3])
def test_coordinates_that_differ_by_rounding_lose_no_cell(who, lon, start):
    """The last column of 150.3 lies beyond the date line, at 180.3."""
    axis = start + np.arange(4) * 10.0
    assert lon(axis).shape == axis.shape
    observed, members = fields(6, LAT + 0.1, axis, members=2)
    options = {"train": (1951, 1954), "test": (1955, 1956), "land_only": False, "method": "ols"}
    expected = combine(members, observed, **options)
    region = None
    if who == "members":
        members = {name: moved(member, 9e-7, lon) for name, member in members.items()}
    else:
        observed = moved(observed, -9e-7, lon)
        region = (axis[0], axis[-1], -19.9, 0.1)
    answer = combine(members, observed, region=region, **options)
    assert answer.attrs["locations"] == 12
    order = [float(value) for value in answer["lon"].values]
    assert len(order) == 4
    near = np.argsort(np.mod(np.array(order) - start + 1, 360))
    base = np.argsort(np.mod(expected["lon"].values - start + 1, 360))
    assert np.allclose(answer["prediction"].values[..., near], expected["prediction"].values[..., base], atol=1e-5)


def test_files_of_one_member_have_one_grid_for_all_rounding(tmp_path):
    """The second file has longitudes from 0 to 360, which are not quite those of the first when they are brought back."""
    values = np.random.default_rng(0).normal(size=(48, 3, 4))
    lon = LON - 1.6
    assert np.any((lon % 360 + 180) % 360 - 180 != lon)
    parts = field(values[:24], LAT, lon), field(values[24:], LAT, lon % 360, first=FIRST + 2)
    for part, dates in zip(parts, ("195101-195212", "195301-195412"), strict=True):
        part.to_netcdf(tmp_path / f"m_{dates}.nc")
    member = open_members(sorted(tmp_path.glob("*.nc")))["m"]
    assert np.allclose(member["lon"], lon, rtol=0, atol=1e-12)
    assert np.array_equal(member.transpose("time", "lat", "lon"), values)


def test_grids_do_not_hold_a_place_twice():
    observed, members = fields(3, LAT, np.array([0.0, 120.0, 240.0, 360.0 - 1e-8]))
    with pytest.raises(DataError, match="twice"):
        combine(members, observed, train=(1951, 1952), test=(1953, 1953), land_only=False)


def test_folds_are_whole_years_in_blocks():
    observed, members = fields(8)
    captured = {}

    class Spy(mssl.MSSLRegressor):
        def fit(self, X, y, tasks=None, order=None):
            captured["order"] = order
            return super().fit(X, y, tasks=tasks)

    options = {"train": (1951, 1953), "test": (1955, 1956), "land_only": False, "regrid": "nearest"}
    combine(members, observed, estimator=Spy(0.5), **options)
    years = np.repeat([1951, 1952, 1953], 12)
    assert np.array_equal(captured["order"], years)
    folds = read_splits(None, np.zeros((36, 1)), np.zeros((36, 2)), None, None, years)
    assert [set(years[test]) for _, test in folds] == [{1951}, {1952}, {1953}]
    combine(members, observed, method="ridge", **options)


@pytest.mark.parametrize("method", ["p-mssl", "bayesian"])
def test_months_that_follow_each_other_raise_no_note_about_an_order(method):
    """A warning would be an error here."""
    observed, members = fields(20, lat=LAT[:2], lon=LON[:2], members=2)
    noise = np.random.default_rng(1).normal(size=observed.shape)
    for k in range(1, len(noise)):
        noise[k] += 0.8 * noise[k - 1]
    options = {"train": (1951, 1964), "test": (1965, 1970), "land_only": False, "regrid": "nearest"}
    combine(members, (observed + noise).assign_attrs(observed.attrs), method=method, **options)


@pytest.mark.parametrize("on", ["residual", "coef"])
def test_the_page_says_what_is_related(on):
    pytest.importorskip("matplotlib")
    from mssl.report.content import Content
    from mssl.report.sections import pair_section

    random = np.random.default_rng(0)
    X = random.normal(size=(200, 8, 12))
    W = np.repeat(random.normal(size=(2, 12)), 4, axis=0)
    noise = np.repeat(random.normal(size=(200, 2)), 4, axis=1)
    y = np.einsum("nkd,kd->nk", X, W) + noise + 0.5 * random.normal(size=(200, 8))
    model = mssl.MSSLRegressor(0.1, relation=on).fit(X, y)
    section = pair_section(Content(model))
    what = {"residual": "residuals", "coef": "weights"}
    caption = str(section.body)
    assert f"of tasks whose {what.pop(on)} are related" in caption
    assert f"whose {what.popitem()[1]} are" not in caption


def test_a_member_may_say_its_one_place():
    """Latitude and longitude that are one number each, and none of an axis."""
    observed, members = fields(6)
    place = {"lat": 0.0, "lon": -40.0}
    first, *others = (part.sel(place).expand_dims("location", -1) for part in (observed, *members.values()))
    options = {"train": (1951, 1954), "test": (1955, 1956), "method": "average-model"}
    answer = combine(dict(zip(members, others, strict=True)), first.drop_vars(["lat", "lon"]), **options)
    assert answer.attrs["locations"] == 1
