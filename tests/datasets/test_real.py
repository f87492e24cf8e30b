"""Facts of the real data sets, their list and their export."""

import csv
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.utils import Bunch

from mssl import datasets
from mssl.datasets import _fetch, _loaders
from mssl.exceptions import DatasetError, LayoutError, MissingDependencyError, ParameterError

needs_data = pytest.mark.skipif(not os.environ.get("MSSL_DATA"), reason="MSSL_DATA is not set")


# --- list, names, export -------------------------------------------------------------------------------------


def test_available_lists_every_set_with_licence_and_source(tmp_path, monkeypatch):
    monkeypatch.delenv("MSSL_DATA", raising=False)
    monkeypatch.setenv("MSSL_CACHE", str(tmp_path))
    rows = datasets.available()
    assert len({row["name"] for row in rows}) == len(rows) == 14
    for row in rows:
        assert row["what"]
        assert row["licence"]
        assert row["where"]
        assert row["present"] is (row["name"] in ("digit-pairs", "el-nino"))


def test_unknown_names_are_answered_with_the_known_ones():
    for call in (datasets.fetch, datasets.load):
        with pytest.raises(ParameterError, match="landmine"):
            call("iris")
    with pytest.raises(ParameterError, match="fiveloc"):
        datasets.load_climate("mars")
    with pytest.raises(ParameterError, match="15"):
        datasets.load_spam(users=4)


def test_nothing_but_the_core_is_needed_without_tables_and_downloads():
    # scikit-learn itself imports pandas where it is installed, so both are made impossible here.
    code = (
        "import sys; sys.modules['pandas'] = sys.modules['pooch'] = None; from mssl import datasets; "
        "datasets.load_digit_pairs(2); datasets.make_clustered_tasks(); datasets.make_climate_like(); "
        "print([name for name in ('numba', 'matplotlib', 'xarray') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_frames_without_pandas_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependencyError, match=r"mssl\[tables\]"):
        datasets.load_digit_pairs(2, as_frame=True)


def test_digit_pairs():
    pairs = datasets.load_digit_pairs()
    from sklearn.datasets import load_digits

    digits = load_digits().target
    assert pairs.X.shape == (9 * 1797, 64)
    assert len(pairs.task_names) == 45
    assert np.bincount(pairs.images).tolist() == [9] * 1797
    for name in ("0 vs 1", "3 vs 8", "8 vs 9"):
        first, second = int(name[0]), int(name[-1])
        rows = pairs.tasks == name
        np.testing.assert_array_equal(digits[pairs.images[rows]], np.where(pairs.y[rows] == 1, second, first))
    with pytest.raises(LayoutError, match="long"):
        datasets.load_digit_pairs(layout="aligned")
    with pytest.raises(LayoutError, match="long"):
        datasets.load_digit_pairs(layout="shared")


def test_el_nino_rows_are_one_series_read_at_lags():
    sea = datasets.load_el_nino(layout="aligned")
    assert (sea.X.shape, sea.y.shape, sea.years[[0, -1]].tolist()) == ((59, 12, 12), (59, 12), [1952, 2010])
    series = sea.y.ravel()  # month after month
    for column, lag in enumerate(range(3, 15)):
        assert sea.feature_names[column] == f"{lag} months before"
        np.testing.assert_array_equal(sea.X[..., column].ravel()[lag:], series[:-lag])
    assert series[[0, -1]].tolist() == [24.52, 22.07]  # NOAA: January 1952 and December 2010
    # What the sea off Peru is known for: warm in March, cool in September, and the events of 1982/83 and 1997/98.
    assert (sea.task_names[sea.y.mean(axis=0).argmax()], sea.task_names[sea.y.mean(axis=0).argmin()]) == (
        "March",
        "September",
    )
    warmest = np.argsort((sea.y - sea.y.mean(axis=0)).max(axis=1))[-4:]
    assert set(sea.years[warmest].tolist()) == {1982, 1983, 1997, 1998}
    long = datasets.load_el_nino(as_frame=True)
    assert "public domain" in long.licence
    for name, own in long.X.groupby("task"):
        place = sea.task_names.tolist().index(name)
        np.testing.assert_array_equal(own.drop(columns="task"), sea.X[:, place])
        np.testing.assert_array_equal(long.y[own.index], sea.y[:, place])
        np.testing.assert_array_equal(long.years[own.index], sea.years)
    with pytest.raises(LayoutError, match="aligned"):
        datasets.load_el_nino(layout="shared")


def test_subsamples_are_parts_of_each_pair():
    whole = datasets.load_digit_pairs()
    few = datasets.load_digit_pairs(20, random_state=3)
    again = datasets.load_digit_pairs(20, random_state=3)
    share = datasets.load_digit_pairs(0.5, random_state=3)
    np.testing.assert_array_equal(few.X, again.X)
    for name in whole.task_names:
        assert (few.tasks == name).sum() == 20
        assert (share.tasks == name).sum() == round(0.5 * (whole.tasks == name).sum())
        mine = few.images[few.tasks == name]
        assert len(set(mine.tolist())) == 20
        assert set(mine.tolist()) <= set(whole.images[whole.tasks == name].tolist())
    for bad in (0, -1, 1.5, True, "half"):
        with pytest.raises(ParameterError, match="subsample"):
            datasets.load_digit_pairs(bad)


def test_digit_pairs_as_frame():
    pytest.importorskip("pandas")
    frame = datasets.load_digit_pairs(5, as_frame=True, random_state=0)
    array = datasets.load_digit_pairs(5, random_state=0)
    assert frame.X.columns[0] == "task"
    assert frame.y.name == "label"
    np.testing.assert_array_equal(frame.X.drop(columns="task").to_numpy(), array.X)


def test_export_writes_what_load_gives(tmp_path):
    path = datasets.export("digit_pairs", tmp_path / "digits.csv", subsample=4, random_state=1)
    bunch = datasets.load("digit-pairs", subsample=4, random_state=1)
    with path.open(newline="") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["pair", *bunch.feature_names, "label"]
    assert [row[0] for row in rows] == bunch.tasks.tolist()
    np.testing.assert_array_equal(np.array([row[1:-1] for row in rows], dtype=float), bunch.X)
    assert [int(row[-1]) for row in rows] == bunch.y.tolist()
    assert [entry.name for entry in tmp_path.iterdir()] == ["digits.csv"]


def test_export_writes_each_column_in_one_way(tmp_path, monkeypatch):
    """A column of whole numbers has no ``.0`` in any row, any other column has a point in every row."""
    X = np.column_stack([np.arange(8.0), [1, 2, 3, 4, 5, 6, 7, 0.5]])
    bunch = Bunch(X=X, y=np.arange(8), tasks=np.repeat(["a", "b"], 4), feature_names=np.asarray(["whole", "other"]))
    monkeypatch.setattr(_loaders, "CHUNK", 4)  # two rows at a time
    monkeypatch.setattr(_loaders, "load", lambda name, **options: bunch)
    for given in (X, sparse.csr_array(X)):
        bunch.X = given
        with datasets.export("digit-pairs", tmp_path / "table.csv").open(newline="") as file:
            rows = list(csv.reader(file))[1:]
        assert [row[1] for row in rows] == [str(i) for i in range(8)]
        assert [row[2] for row in rows] == ["1.0", "2.0", "3.0", "4.0", "5.0", "6.0", "7.0", "0.5"]


def test_export_leaves_nothing_where_it_fails(tmp_path, monkeypatch):
    with pytest.raises(DatasetError, match="cannot be written"):
        datasets.export("digit-pairs", tmp_path / "nowhere" / "digits.csv", subsample=2)
    (tmp_path / "digits.csv").mkdir()
    with pytest.raises(DatasetError, match="cannot be written"):
        datasets.export("digit-pairs", tmp_path / "digits.csv", subsample=2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["digits.csv"]


def test_centroid_of_known_shapes():
    square = np.array([[10.0, 0.0], [10.0, 4.0], [20.0, 4.0], [20.0, 0.0]])
    assert _loaders.centroid([square]) == pytest.approx((2.0, 15.0))
    assert _loaders.centroid([square[::-1]]) == pytest.approx((2.0, 15.0))
    east = np.array([[160.0, 0.0], [160.0, 10.0], [180.0, 10.0], [180.0, 0.0]])
    west = np.array([[180.0, 0.0], [180.0, 10.0], [220.0, 10.0], [220.0, 0.0]])
    assert _loaders.centroid([east, west]) == pytest.approx((5.0, -170.0))


def test_missing_months_are_filled_from_the_years_around():
    X = np.arange(48 * 2 * 3, dtype=float).reshape(48, 2, 3) ** 1.5
    X[[0, 20, 47], 1, 2] = np.nan
    filled, missing = _loaders.fill_months(X)
    assert np.argwhere(missing).tolist() == [[0, 1, 2], [20, 1, 2], [47, 1, 2]]
    assert filled[0, 1, 2] == X[12, 1, 2]
    assert filled[20, 1, 2] == (X[8, 1, 2] + X[32, 1, 2]) / 2
    assert filled[47, 1, 2] == X[35, 1, 2]
    np.testing.assert_array_equal(filled[~missing], X[~missing])
    X[8, 1, 2] = np.nan
    with pytest.raises(DatasetError, match="neighbouring years"):
        _loaders.fill_months(X)


def test_damaged_mat_files_are_explained(tmp_path):
    from mssl.datasets._loaders import read_cells

    path = tmp_path / "broken.mat"
    path.write_bytes(b"no MAT file at all" * 20)
    with pytest.raises(DatasetError, match="cannot be read"):
        read_cells(path)


def test_mat_cells_that_do_not_match_are_refused(tmp_path):
    from scipy.io import savemat

    from mssl.datasets._loaders import read_cells

    cells = np.empty((1, 2), dtype=object)
    cells[0, 0], cells[0, 1] = np.ones((3, 2)), np.ones((4, 2))
    answers = np.empty((1, 2), dtype=object)
    answers[0, 0], answers[0, 1] = np.ones((3, 1)), np.ones((5, 1))
    savemat(tmp_path / "cells.mat", {"x": cells, "y": answers})
    with pytest.raises(DatasetError, match="do not belong together"):
        read_cells(tmp_path / "cells.mat")


# --- facts of the real files ----------------------------------------------------------------------------------


def duplicates(X):
    return X.shape[0] - len(np.unique(X.toarray(), axis=0))


@needs_data
def test_landmine_facts():
    mines = datasets.load_landmine()
    sizes = [(mines.tasks == name).sum() for name in mines.task_names]
    assert len(sizes) == 19
    assert (min(sizes), max(sizes), sum(sizes)) == (445, 690, 9674)
    assert mines.X.shape == (9674, 9)
    assert set(mines.y.tolist()) == {0, 1}
    assert mines.y.mean() == pytest.approx(0.0605, abs=5e-5)
    assert mines.groups.tolist() == ["foliage"] * 10 + ["desert"] * 9
    for layout in ("shared", "aligned"):
        with pytest.raises(LayoutError, match="landmine"):
            datasets.load_landmine(layout=layout)


@needs_data
@pytest.mark.parametrize(("users", "mails", "doubles"), [(3, 2500, 766), (15, 400, 377)])
def test_spam_facts(users, mails, doubles):
    spam = datasets.load_spam(users)
    assert sparse.issparse(spam.X)
    assert spam.X.format == "csr"
    assert spam.X.shape == (users * mails, 2000)
    assert spam.X.data.min() > 0
    for name in spam.task_names:
        assert (spam.tasks == name).sum() == mails
        assert spam.y[spam.tasks == name].mean() == 0.5
    assert duplicates(spam.X) == doubles


@needs_data
def test_letter_facts():
    letters = datasets.load_letter()
    sizes = [int((letters.tasks == name).sum()) for name in letters.task_names]
    assert sizes == [6506, 7931, 7069, 3057, 3693, 5885, 6626, 5102]
    assert letters.task_names.tolist() == ["a-g", "a-o", "c-e", "f-t", "g-y", "h-n", "m-n", "i-j"]
    assert letters.X.shape[1] == 128
    assert set(np.unique(letters.X).tolist()) == {0.0, 1.0}


@needs_data
def test_mnist_facts():
    share = datasets.load_mnist_pairs(1 / 64, random_state=0, dtype="float32")
    assert share.X.dtype == np.float32
    assert sparse.issparse(share.X)
    assert share.X.shape[1] == 784
    assert (share.X.data.min(), share.X.data.max()) == (np.float32(1 / 255), 1.0)
    assert len(share.task_names) == 45
    labels = np.concatenate(
        [
            np.frombuffer(_fetch.unpack(path.read_bytes()), dtype=np.uint8, offset=8)
            for path in datasets.fetch("mnist-pairs")[1::2]
        ]
    )
    assert labels.size == 70_000
    counts = np.bincount(labels)
    pairs = [counts[int(name[0])] + counts[int(name[-1])] for name in share.task_names]
    assert (min(pairs), max(pairs)) == (13_137, 15_170)
    second = np.array([int(name[-1]) for name in share.tasks])
    np.testing.assert_array_equal(labels[share.images] == second, share.y == 1)
    assert [(share.tasks == name).sum() for name in share.task_names] == [round(size / 64) for size in pairs]
    with pytest.raises(ParameterError, match="dtype"):
        datasets.load_mnist_pairs(dtype="int32")


@needs_data
def test_fiveloc_facts():
    climate = datasets.load_climate("fiveloc")
    assert climate.X.shape == (1199, 25, 10)
    assert climate.y.shape == (1199, 25)
    assert np.isfinite(climate.X).all()
    assert np.isfinite(climate.y).all()
    assert climate.months[[0, -1]].astype(str).tolist() == ["1901-01", "2000-11"]
    assert climate.calendar[:13].tolist() == [*range(1, 13), 1]
    # Regions by annual cycle: the southern two are coldest in May to July, the others in January.
    cycle = np.array([climate.y[climate.calendar == month].mean(axis=0) for month in range(1, 13)])
    for region in np.unique(climate.regions):
        coldest = set((cycle.argmin(axis=0) + 1)[climate.regions == region].tolist())
        assert coldest <= ({5, 6, 7} if region in ("Australia", "South America") else {1})
    assert len(set(climate.task_names.tolist())) == 25
    assert climate.coordinates is None
    long = datasets.load_climate("fiveloc", layout="long")
    assert long.months.shape == long.y.shape == (1199 * 25,)
    name = climate.task_names[7]
    np.testing.assert_array_equal(long.X[long.tasks == name], climate.X[:, 7])
    np.testing.assert_array_equal(long.y[long.tasks == name], climate.y[:, 7])
    np.testing.assert_array_equal(long.months[long.tasks == name], climate.months)
    with pytest.raises(LayoutError, match="rows of its own"):
        datasets.load_climate("fiveloc", layout="shared")
    with pytest.raises(LayoutError, match="three axes"):
        datasets.load_climate("fiveloc", as_frame=True)


@needs_data
def test_atlas_facts():
    climate = datasets.load_climate("atlas")
    assert climate.X.shape == (456, 46, 10)
    assert climate.y.shape == (456, 46)
    assert np.isfinite(climate.X).all()
    assert np.isfinite(climate.y).all()
    assert climate.months[[0, -1]].astype(str).tolist() == ["1979-01", "2016-12"]
    december = climate.months.astype(str).tolist().index("2005-12")
    assert np.unique(np.nonzero(climate.filled)[0]).tolist() == [december]
    assert climate.filled.sum() == 46
    assert climate.member_names[np.nonzero(climate.filled)[2][0]] == "HadGEM2-ES"
    np.testing.assert_allclose(
        climate.X[climate.filled],
        (climate.X[december - 12] + climate.X[december + 12])[climate.filled[december]] / 2,
    )
    assert "NorESM1-M" in climate.member_names
    assert climate.coordinates.shape == (46, 2)
    assert set(climate.polygons) == set(climate.task_names.tolist())
    place = dict(zip(climate.task_names.tolist(), climate.coordinates.tolist(), strict=True))
    assert place["SAH"] == pytest.approx((22, 9), abs=3)
    assert place["RAR"] == pytest.approx((71, 113), abs=5)
    # Yearly means fall towards the poles.
    assert np.corrcoef(np.abs(climate.coordinates[:, 0]), climate.y.mean(axis=0))[0, 1] < -0.8


@needs_data
def test_available_finds_the_data_folder():
    present = {row["name"]: row["present"] for row in datasets.available()}
    for name in (
        "landmine",
        "spam-3",
        "spam-15",
        "letter",
        "mnist-pairs",
        "climate-fiveloc",
        "climate-atlas",
        "irish-wind",
        "enb",
        "slump",
    ):
        assert present[name] is True


@needs_data
def test_export_of_climate_and_sparse_sets(tmp_path):
    path = datasets.export("climate-fiveloc", tmp_path / "climate.csv")
    with path.open(newline="") as file:
        header, first, *rest = list(csv.reader(file))
    assert header[:3] == ["location", "month", "member 01"]
    assert header[-1] == "observed"
    climate = datasets.load_climate("fiveloc")
    assert first[:2] == ["Australia 1", "1901-01"]
    np.testing.assert_array_equal(np.array(first[2:-1], dtype=float), climate.X[0, 0])
    assert len(rest) == 1199 * 25 - 1
    spam = datasets.load_spam(15)
    with datasets.export("spam-15", tmp_path / "spam.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert rows[5999][0] == spam.tasks[5999]
    np.testing.assert_array_equal(np.array(rows[2000][1:-1], dtype=float), spam.X[[2000]].toarray()[0])


@needs_data
@pytest.mark.parametrize(
    ("loader", "shape", "tasks"),
    [(datasets.load_irish_wind, (6573, 14), 12), (datasets.load_enb, (768, 8), 2), (datasets.load_slump, (103, 7), 3)],
)
def test_regression_sets(loader, shape, tasks):
    shared, long = loader(), loader(layout="long")
    assert shared.X.shape == shape
    assert shared.y.shape == (shape[0], tasks)
    np.testing.assert_array_equal(long.y, shared.y.T.ravel())
    np.testing.assert_array_equal(long.X[: shape[0]], shared.X)
    assert len(shared.feature_names) == shape[1]
    assert len(np.unique(long.tasks)) == tasks
    frame = loader(as_frame=True)
    np.testing.assert_array_equal(frame.X.to_numpy(), shared.X)


@needs_data
def test_the_wind_of_tomorrow_is_the_next_row():
    wind = datasets.load_irish_wind()
    assert np.all(np.diff(wind.days) == np.timedelta64(1, "D"))
    np.testing.assert_array_equal(wind.y[:-1], wind.X[1:, :12])
    np.testing.assert_allclose(wind.X[0, 0] ** 2, 15.04)
