"""Saved models: exact, atomic, and safe against every damaged file."""

import copy
import dataclasses
import io
import os
import resource
import signal
import subprocess
import sys
import time
import zipfile
from enum import Enum
from inspect import isabstract, signature
from pathlib import Path

import numpy as np
import pytest
from damage import claiming, forge, header_of, members_of, npy, npy_head, scratch, signed, with_header
from scipy import sparse
from sklearn.base import BaseEstimator, clone

import mssl
from mssl import MSSLRegressor, MultiTaskGLM, presets
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import DataError, ModelFileError, ParameterError
from mssl.files.checks import _rules
from mssl.files.codec import WORDS, Decoder, Encoder, _is_storable, class_of
from mssl.files.models import load, read_header, save
from mssl.graph.tests import Later
from mssl.losses import Gaussian
from mssl.model_selection import TaskKFold
from mssl.paper import PaperMSSL
from mssl.penalties import L1, MCP, AdaptiveL1, ElasticNet
from mssl.structures import FixedPrecision, Independent, LatentSparsePrecision, SparsePrecision


def small(seed=0, **options):
    random = np.random.default_rng(seed)
    X, tasks = random.normal(size=(40, 3)), np.repeat(["a", "b", "ç d", "z"], 10)
    y = X @ [1.0, -1.0, 0.5] + 0.1 * random.normal(size=40)
    return MSSLRegressor(**options).fit(X, y, tasks=tasks)


@pytest.fixture(scope="module")
def model():
    return small(graph_penalty=0.2)


@pytest.fixture
def file(model, tmp_path):
    return mssl.save(model, tmp_path / "model.npz")


def same(a, b):
    """Whether two values are equal bit by bit, of the same types and layouts."""
    a, b = (value.saved() if isinstance(value, Later) else value for value in (a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        alike = a.dtype == b.dtype and a.shape == b.shape
        # The order in memory decides in which order products are summed; a view of other rows is stored as a copy.
        alike = alike and (not a.flags.forc or a.flags.f_contiguous == b.flags.f_contiguous)
        return alike and (a.tolist() == b.tolist() if a.dtype.kind == "O" else a.tobytes() == b.tobytes())
    if sparse.issparse(a):
        return a.shape == b.shape and all(same(getattr(a, n), getattr(b, n)) for n in ("data", "indices", "indptr"))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Enum):
        return a is b
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, float):
        return a == b or (a != a and b != b)
    return same(vars(a), vars(b)) if hasattr(a, "__dict__") else a == b


DATA = make_clustered_tasks(n_samples=20, random_state=0)
MODELS = {
    "p-MSSL": lambda: MSSLRegressor(graph_penalty=0.4, coef_penalty=0.1),
    "paper": lambda: PaperMSSL(graph_penalty=2.0),
    "independent": lambda: MultiTaskGLM(Independent(np.full(13, 2.0))),
    "fixed": lambda: MultiTaskGLM(
        FixedPrecision(np.eye(13) * 2), L1(0.5), loss=Gaussian(noise_variance=np.full(13, 2.25))
    ),
    "sparse": lambda: MultiTaskGLM(SparsePrecision(0.4), shared_mean="auto"),
    "hidden variables": lambda: MultiTaskGLM(LatentSparsePrecision(0.1, latent=0.3)),
    "elastic net": lambda: MultiTaskGLM(Independent(), ElasticNet(0.5)),
}


def check_round_trip(fitted, data, tmp_path):
    again = mssl.load(mssl.save(fitted, tmp_path / "m.npz"))
    assert same(fitted, again)
    for name in ("predict", "predict_proba", "decision_function"):
        if hasattr(fitted, name):
            first, second = (getattr(model, name)(data.X, tasks=data.tasks) for model in (fitted, again))
            assert np.array_equal(first, second)
    return again


@pytest.mark.parametrize("name", MODELS)
def test_round_trip_is_exact(name, tmp_path):
    fitted = MODELS[name]().fit(DATA.X, DATA.y, tasks=DATA.tasks)
    check_round_trip(fitted, DATA, tmp_path)


SMALL = make_clustered_tasks(n_features=4, n_samples=12, random_state=1)
TARGETS = {
    "gaussian": SMALL.y,
    "bernoulli": np.where(SMALL.y > np.median(SMALL.y), "yes", "no"),
    "poisson": np.round(np.abs(SMALL.y)),
    "gamma": np.exp(SMALL.y / 4),
}
TAKES_LOSS = {name for name in presets.available() if "loss" in signature(getattr(presets, name)).parameters}
OPTIONS = {"s2m2r": {"edges": [(0, 1), (1, 2)]}, "climatology": {"month": 0}, "cmtl": {"n_clusters": 3}}
CASES = [
    (name, loss)
    for name in presets.available()
    for loss in (TARGETS if name in TAKES_LOSS else ["bernoulli" if name == "logistic" else "gaussian"])
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::UserWarning")
@pytest.mark.parametrize(("name", "loss"), CASES)
def test_every_preset_and_loss_survives(name, loss, tmp_path):
    """Every structure, penalty and loss, each in the estimator that the presets give it."""
    options = OPTIONS.get(name, {}) | ({"loss": loss} if name in TAKES_LOSS else {})
    model = presets.make(name, **options)
    if hasattr(model, "max_iter"):
        model.set_params(max_iter=3)
    X, y, tasks = SMALL.X, TARGETS[loss], SMALL.tasks
    if name == "climatology":
        X = np.column_stack([np.tile(np.arange(1, 13), 13), X])
    if name.startswith("r_mssl"):
        X, y, tasks = (
            np.random.default_rng(0).normal(size=(30, 3, 4)),
            np.random.default_rng(1).normal(size=(30, 3)),
            None,
        )
    fitted = model.fit(X, y, tasks=tasks)
    again = mssl.load(mssl.save(fitted, tmp_path / "m.npz"))
    assert same(fitted, again)
    assert np.array_equal(fitted.predict(X, tasks=tasks), again.predict(X, tasks=tasks))


def test_a_penalty_without_a_preset_comes_back(tmp_path):
    from mssl.penalties import ClusterNorm

    X, y = np.random.default_rng(0).normal(size=(20, 3)), np.random.default_rng(1).normal(size=(20, 2))
    fitted = mssl.MultiTaskGLM(penalty=ClusterNorm(0.5, n_clusters=2, spread=0.1)).fit(X, y)
    assert same(fitted, mssl.load(mssl.save(fitted, tmp_path / "m.npz")))


def test_every_structure_and_penalty_is_in_a_preset():
    """The table above is complete: no structure, penalty or loss without a round trip."""
    from mssl import losses, penalties, structures

    used = {
        type(getattr(presets.make(name), part, None)).__name__ for name, _ in CASES for part in ("structure", "penalty")
    }
    known = {name for name in structures.__all__ if issubclass(getattr(structures, name), structures.Structure)}
    ours = [kind for kind in penalties.Penalty.__subclasses__() if kind.__module__ == penalties.__name__]
    known |= {kind.__name__ for kind in ours}
    tested_above = {"SparsePrecision", "LatentSparsePrecision", "FixedPrecision", "ElasticNet", "Structure"}
    tested_above |= {"ClusterNorm"}  # below: it is the inside of two structures
    assert known - used - tested_above == set()
    assert set(losses.LOSSES) == set(TARGETS)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["regressor", "classifier", "general", "general classifier"])
def test_cross_validated_models_survive(kind, tmp_path):
    y = TARGETS["bernoulli" if "classifier" in kind else "gaussian"]
    grid = {
        "param_grid": {
            "graph_penalty": [0.1, 1.0],
            "coef_penalty": [0.0],
            "prior_strength": [1.0],
            "shared_mean": [False],
        }
    }
    stable = mssl.StabilitySelection(n_subsamples=4, n_points=3, random_state=0)
    few = {"cv": TaskKFold(3, random_state=1), "selection": "both", "stability": stable}
    model = {
        "regressor": lambda: mssl.MSSLRegressorCV(**grid, **few),
        "classifier": lambda: mssl.MSSLClassifierCV(**grid, **few),
        "general": lambda: mssl.MSSLRegressorCV(presets.ridge(), {"structure__alpha": [0.1, 1.0]}, refit="best", cv=3),
        "general classifier": lambda: mssl.MSSLRegressorCV(
            presets.logistic(), {"structure__alpha": [0.1, 1.0]}, refit="best", cv=3
        ),
    }[kind]()
    fitted = model.fit(SMALL.X, y, tasks=SMALL.tasks)
    again = check_round_trip(fitted, SMALL, tmp_path)
    assert again.best_params_ == fitted.best_params_
    assert again.graph_ == fitted.graph_


def test_stability_selection_survives(tmp_path):
    selection = mssl.StabilitySelection(n_subsamples=4, n_points=3, random_state=0)
    selection.fit(SMALL.X, SMALL.y, tasks=SMALL.tasks)
    assert same(selection, mssl.load(mssl.save(selection, tmp_path / "s.npz")))


@pytest.mark.parametrize("layout", ["shared", "aligned"])
def test_layouts_and_integer_tasks(layout, tmp_path):
    random = np.random.default_rng(0)
    X = random.normal(size=(20, 3) if layout == "shared" else (20, 4, 3))
    fitted = MSSLRegressor().fit(X, random.normal(size=(20, 4)))
    again = mssl.load(mssl.save(fitted, tmp_path / "m.npz"))
    assert same(fitted, again)
    assert again.tasks_.dtype == np.arange(4).dtype


def test_warm_start_goes_on_from_a_loaded_model(tmp_path):
    fitted = MODELS["p-MSSL"]().set_params(warm_start=True).fit(DATA.X, DATA.y, tasks=DATA.tasks)
    again = mssl.load(mssl.save(fitted, tmp_path / "m.npz"))
    for one in (fitted, again):
        one.fit(DATA.X, DATA.y, tasks=DATA.tasks)
    assert np.array_equal(fitted.coef_, again.coef_)
    assert fitted.n_iter_ == again.n_iter_


def test_unfitted_models_keep_their_parameters(tmp_path):
    unfitted = MultiTaskGLM(SparsePrecision(0.7, on="residual"), tol=float("inf"))
    assert same(unfitted, mssl.load(mssl.save(unfitted, tmp_path / "m.npz")))


def test_values_of_every_kind_survive():
    values = {
        "floats": [0.1, float("nan"), float("inf"), -float("inf"), -0.0, 5e-324],
        ("tuple", 1): (1, (2.5, "é\ud800"), None, True, 10**40),
        "scalars": [
            np.float32(0.1),
            np.int8(-3),
            np.str_("ü"),
            np.bool_(True),
            np.datetime64("2000-01"),
            np.uint64(2**63),
        ],
        "arrays": [np.arange(6.0).reshape(2, 3).T, np.zeros((0, 3)), np.array(["a", "bcd"]), np.array(1j)],
        "objects": np.array([["a", 1], [None, 2.5]], dtype=object),
        "sparse": sparse.random_array((5, 4), density=0.3, rng=0, format="csc"),
    }
    encoder = Encoder()
    tree = encoder.encode(values, "values")
    assert same(values, Decoder(encoder.arrays).decode(tree))


def test_an_array_held_twice_is_stored_once():
    array = np.arange(5.0)
    encoder = Encoder()
    first, second = Decoder(encoder.arrays).decode(encoder.encode([array, array], "x"))
    assert len(encoder.arrays) == 1
    assert first is second


@pytest.mark.parametrize("order", "CF")
def test_tables_of_mostly_zeros_are_stored_as_their_entries(order):
    table = np.zeros((200, 300), order=order)
    table[[3, 7, 9], [5, 299, 0]] = [1.5, -0.0, np.nan]
    marks = np.asarray(table != 0, order=order)
    encoder = Encoder()
    tree = encoder.encode([table, marks, table], "x")
    assert sum(array.nbytes for array in encoder.arrays) < 100
    first, second, third = Decoder(encoder.arrays).decode(tree)
    assert same([table, marks], [first, second])
    assert third is first


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": [10**6, 10**6]}, "too large"),
        ({"shape": [-200, 300]}, "too large"),
        ({"shape": [2, 3]}, "do not fit"),
    ],
)
def test_zeros_cannot_fill_the_memory(change, message):
    table = np.zeros((200, 300))
    table[3, 5] = 1.0
    encoder = Encoder()
    tree = encoder.encode(table, "x") | change
    with pytest.raises(ModelFileError, match=message):
        Decoder(encoder.arrays).decode(tree)


def test_a_file_grows_with_the_edges_not_with_the_pairs(tmp_path):
    data = make_clustered_tasks(n_tasks=600, clusters=[[0, 1, 2]], n_features=5, n_samples=12, random_state=0)
    fitted = MSSLRegressor(graph_penalty=0.999).fit(data.X, data.y, tasks=data.tasks)
    path = mssl.save(fitted, tmp_path / "m.npz")
    assert fitted.graph_.n_edges < 600
    assert path.stat().st_size < 8 * 600**2 / 4  # a quarter of one table
    again = mssl.load(path)
    assert same(fitted.graph_.weights, again.graph_.weights)
    with pytest.raises(DataError, match="before you save"):
        again.graph_.relations()


@pytest.mark.parametrize("strange", [print, lambda: 0, {1, 2}, b"bytes", np.ma.array([1.0]), np.random.default_rng(0)])
def test_what_is_not_ours_is_refused_by_name(strange, tmp_path):
    with pytest.raises(ModelFileError, match=r"MSSLRegressor\.tol is .*cannot hold"):
        mssl.save(MSSLRegressor(tol=strange), tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_plain_npz_and_the_same_every_time(model, file, tmp_path):
    with np.load(file, allow_pickle=False) as archive:
        assert all(archive[name].dtype.kind != "O" for name in archive.files)
    assert mssl.save(mssl.load(file), tmp_path / "again.npz").read_bytes() == file.read_bytes()


def test_header(model, file, tmp_path):
    header = read_header(file)
    assert header["class"] == "MSSLRegressor"
    assert header["tasks"] == ["a", "b", "z", "ç d"]
    assert header["certificate"]["relative_gap"] == model.result_.relative_gap
    assert header["packages"]["numpy"] == np.__version__
    assert "model" not in header
    noted = mssl.save(model, tmp_path / "noted.npz", notes={"rows": 40})
    assert read_header(noted)["notes"] == {"rows": 40}
    with pytest.raises(ModelFileError, match="notes"):
        mssl.save(model, tmp_path / "bad.npz", notes={"rows": np.arange(3)})


def test_another_process_reads_the_same(model, file):
    code = "import mssl, sys; sys.stdout.buffer.write(mssl.load(sys.argv[1]).coef_.tobytes())"
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, check=True)
    assert done.stdout == model.coef_.tobytes()


class Trap:
    """Would betray itself if it were ever unpickled."""

    def __reduce__(self):
        return os.abort, ()


def hostile(data):
    """Name, the reason for which it has to be refused, and content of files that are no models."""
    members, header = members_of(data), header_of(data)
    bomb = np.zeros(2**24, np.uint8)
    pickled = io.BytesIO()
    np.save(pickled, np.array([Trap()], dtype=object), allow_pickle=True)
    deep = b'{"format": "mssl-model", "version": 2, "model": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    model = header["model"]
    yield "empty", "not a zip", b""
    yield "no zip", "not a zip", b"PK\x03\x04 nothing"
    yield "truncated", "not a zip", data[: len(data) // 2]
    yield "one byte", "CRC", data.replace(b"mssl-model", b"mssl-modem")
    yield "checksum", "checksum does not match", signed(members, salt=b"salt")
    yield "object array", "header that mssl does not write", signed(members | {"array_0.npy": pickled.getvalue()})
    yield "zip bomb", "compressed", signed(members | {"array_0.npy": npy(bomb)}, zipfile.ZIP_DEFLATED)
    yield "absurd shape", "which its bytes do not fill", signed(members | {"array_0.npy": npy_head(2**40)})
    yield "absurd size", "claim to be larger than the file", claiming(members, "array_0.npy", 2**28)
    yield "extra member", "members that no model file has", signed(members | {"extra.npy": npy(bomb[:3])})
    yield "path trick", "members that no model file has", signed(members | {"../../evil.npy": npy(bomb[:3])})
    fewer = {name: members[name] for name in members if name != "array_3.npy"}
    yield "missing member", "members that no model file has", signed(fewer)
    more = members | {f"array_{len(members) - 2}.npy": npy(bomb[:3])}
    yield "unused array", "arrays that no object uses", signed(more)
    yield "version", "format version 4", with_header(data, header | {"version": 4})
    yield "version type", "format version True", with_header(data, header | {"version": True})
    yield "format", "does not hold a model", with_header(data, header | {"format": "other"})
    yield "no model", "holds no model", with_header(data, {"format": "mssl-model", "version": 2})
    yield "deep", "nested more|recursion", with_header(data, deep)
    yield "long number", "digits", with_header(data, b'{"format": "mssl-model", "version": ' + b"1" * 10_000 + b"}")
    yield "not a dict", "does not hold a model", with_header(data, [1, 2])
    for name in ("__class__", "predict", "_x__y", "a b", "fit"):
        worse = model | {"v": model["v"] | {name: 1}}
        yield f"attribute {name}", "attributes .* do not fit", with_header(data, header | {"model": worse})
    lacking = {"#": "object", "class": "fixed_precision", "v": {}}
    yield "parameter missing", "required", with_header(data, header | {"model": lacking})
    yield "no estimator", "holds no estimator", with_header(data, header | {"model": [1]})
    yield "no object", "not an enumeration", with_header(data, header | {"model": model | {"#": "enum"}})
    status = {"#": "object", "class": "status", "v": {}}
    yield "no enumeration", "not a class that a model", with_header(data, header | {"model": status})


def test_hostile_files_are_refused_for_the_right_reason(file, tmp_path):
    for _, reason, content in hostile(file.read_bytes()):
        bad = tmp_path / "bad.npz"
        bad.write_bytes(content)
        with pytest.raises(ModelFileError, match=rf"bad\.npz.*({reason})"):
            mssl.load(bad)


FOREIGN = [
    *("os.system", "trap_module.Trap", "sklearn.linear_model.Ridge", "mssl_regressor.", "Status", "__class__", ""),
    *("mssl.estimators.MSSLRegressor", "mssl.files.codec.Encoder", "mssl.exceptions.DataError", "MSSLRegressor"),
]
FOREIGN_PATHS = [  # those of version 1
    *("os.system", "trap_module.Trap", "trap_module.MSSLRegressor", "sklearn.linear_model.Ridge", "mssl_regressor"),
    *("mssl.files.codec.Encoder", "mssl.exceptions.DataError", "mssl.glasso.graphical_lasso", "mssl.penalties.Penalty"),
    *("mssl.solvers.alternation._View", "mssl.estimators.MSSLRegressor.fit", "mssl.trap_module.Trap"),
]


@pytest.mark.parametrize(
    ("version", "kind", "name"),
    [*((2, "class", name) for name in FOREIGN), *((1, "class", name) for name in FOREIGN_PATHS)]
    + [(2, "user_class", name) for name in FOREIGN],
)
def test_a_file_cannot_choose_its_classes(version, kind, name, file, tmp_path, monkeypatch):
    """A module that a file names is not imported, and a class that is not ours is not made, even if it would fit."""
    trap = (
        "from pathlib import Path\nfrom sklearn.base import BaseEstimator\nPath(__file__).with_name('sprung').touch()"
    )
    (tmp_path / "trap_module.py").write_text(f"{trap}\nclass Trap(BaseEstimator): ...\nMSSLRegressor = Trap\n")
    monkeypatch.syspath_prepend(tmp_path)
    header = header_of(file.read_bytes()) | {"version": version, "model": {"#": "object", kind: name, "v": {}}}
    bad = tmp_path / "bad.npz"
    bad.write_bytes(with_header(file.read_bytes(), header))
    reason = "names the class .*, which is" if kind == "class" or not name.isidentifier() else "not part of mssl. Pass"
    with pytest.raises(ModelFileError, match=reason):
        mssl.load(bad)
    assert not (tmp_path / "sprung").exists()
    assert "trap_module" not in sys.modules


# Files are read for ever, so no word may be taken back.
PROMISED = """\
mssl_regressor mssl_classifier multi_task_glm multi_task_classifier average_model best_member climatology
mssl_regressor_cv mssl_classifier_cv multi_task_glm_cv stability_selection task_k_fold moving_window_split
task_time_series_split gaussian bernoulli poisson gamma l1 elastic_net l21 nuclear independent one_ridge
fixed_precision known_edges graph_laplacian mean_regularized pooled sparse_precision task_covariance clustered frame
structure_step fit_result record status graphical_lasso_result glasso_status task_graph table_schema column_schema"""


def test_words_stay_and_name_one_class_each():
    assert set(PROMISED.split()) <= set(WORDS)
    classes = [class_of(word) for word in WORDS]
    assert len(set(classes)) == len(classes) == len({cls.__name__ for cls in classes})
    assert all(map(_is_storable, classes))


def _concrete(cls):
    below = [deeper for child in cls.__subclasses__() for deeper in _concrete(child)]
    ours = cls.__module__.startswith("mssl.") and not cls.__name__.startswith("_")
    return below + ([cls] if ours and not isabstract(cls) else [])


def test_everything_that_a_model_is_made_of_has_a_word():
    from mssl.losses import Loss
    from mssl.penalties import Penalty
    from mssl.structures import Structure

    public = [value for name in mssl.__all__ if isinstance(value := getattr(mssl, name), type)]
    made_of = [cls for base in (Loss, Penalty, Structure) for cls in _concrete(base)]
    models = [cls for cls in public if issubclass(cls, BaseEstimator)]
    known = {class_of(word) for word in WORDS}
    assert {*made_of, *models} - known == set()


def test_the_annotations_of_everything_in_a_file_can_be_evaluated():
    """Names that a module imports for type checkers only are names of classes that files may hold."""
    for word in WORDS:
        assert _rules(class_of(word))["tasks_"].shape == "K"


def test_a_file_names_no_module(file):
    """Not even in a header that tells of a whole search."""
    tree = str(header_of(file.read_bytes())["model"])
    assert "mssl." not in tree
    assert "'fit_result'" in tree
    assert "'converged'" in tree


ODD_ARRAYS = {
    "transposed": lambda a: a.T if a.ndim > 1 else a[:, None],
    "one more": lambda a: np.concatenate([a, a[:1]]),
    "nothing": lambda a: a[:0],
    "text": lambda a: a.astype(str),
    "not finite": lambda a: np.full_like(a, np.nan),
    "complex": lambda a: a.astype(complex),
    "half": lambda a: a.astype(np.float16),
    "a list": lambda a: a.tolist(),
}


@pytest.mark.parametrize("name", ["coef_", "intercept_", "noise_variance_", "mean_coef_", "precision_", "covariance_"])
@pytest.mark.parametrize("kind", ODD_ARRAYS)
def test_arrays_of_known_names_are_checked(name, kind, model, tmp_path):
    """Whatever a checksum says: an array that predictions or pictures rely on has its kind, its shape, its numbers."""
    if kind == "transposed" and name in ("precision_", "covariance_"):
        pytest.skip("a symmetric matrix")
    odd = copy.copy(model)
    setattr(odd, name, ODD_ARRAYS[kind](getattr(model, name)))
    mssl.save(odd, tmp_path / "odd.npz")
    with pytest.raises(ModelFileError, match=rf"{name[:-1]}|does not fit the other arrays"):
        mssl.load(tmp_path / "odd.npz")


def test_no_array_of_a_bayesian_model_fails_later(tmp_path):
    """Each array of the file in its turn is made odd: the file is refused, or the model works."""
    random = np.random.default_rng(0)
    X, tasks = random.standard_normal((24, 2)), np.repeat(list("abc"), 8)
    bad = tmp_path / "bad.npz"
    fitted = mssl.BayesianMSSLRegressor("mean+ard", features="spline")
    fitted.fit(X, X[:, 0] + random.standard_normal(24), tasks=tasks)
    members = members_of(mssl.save(fitted, bad).read_bytes())
    refused = 0
    for name in sorted(set(members) - {"header.npy", "checksum.npy"}):
        array = np.lib.format.read_array(io.BytesIO(members[name]))
        for change in list(ODD_ARRAYS.values())[:5]:
            if not array.ndim or (array.dtype.kind != "f" and change is ODD_ARRAYS["not finite"]):
                continue
            bad.write_bytes(signed(members | {name: npy(np.ascontiguousarray(change(array)))}))
            try:
                odd = mssl.load(bad)
            except ModelFileError:
                refused += 1
                continue
            assert np.isfinite(odd.predict(X, tasks=tasks)).all()
            odd.predict_interval(X, tasks=tasks)
            str(odd.summary())
    assert refused > 2 * len(members)


def test_a_search_comes_with_all_that_tells_of_it(tmp_path):
    X, tasks = np.random.default_rng(0).standard_normal((40, 3)), np.repeat([0, 1], 20)
    search = mssl.MSSLRegressorCV(param_grid={"graph_penalty": [0.1, 0.3]}, cv=2).fit(X, X[:, 0], tasks=tasks)
    del search.n_splits_
    mssl.save(search, tmp_path / "partial.npz")
    with pytest.raises(ModelFileError, match="n_splits_ of MSSLRegressorCV is missing"):
        mssl.load(tmp_path / "partial.npz")


@pytest.mark.parametrize("name", ["intercept", "input", "loss", "tasks", "features", "layout"])
def test_weights_come_with_all_that_predictions_need(name, file, tmp_path):
    header = header_of(file.read_bytes())
    fitted = header["model"]["v"]["fitted_"]["v"]
    del (fitted if name in fitted else fitted["input"]["v"])[name]
    (tmp_path / "partial.npz").write_bytes(with_header(file.read_bytes(), header))
    with pytest.raises(ModelFileError, match=name):
        mssl.load(tmp_path / "partial.npz")


ODD_VALUES = {
    "task_column": [[0], np.zeros(3)],
    "n_features_in_": [-1, 3.5, "4", 10**6, True],
    "tasks_": [np.array(["a"] * 4), np.zeros((4, 1)), "abcd"],
    "features_": [np.array(["x"])],
    "layout_": ["wide", 1, None],
    "encoder_": [1.0],
    "ignored_columns_": ["abc", [1.0]],
    "loss_": ["gaussian", None, 3],
    "result_": [1.0, []],
    "mean_variance_": ["low"],
    "unseen_": ["guess", None],
    "errors_": [1.0, {}, {"std": None, "dof": None, "log_likelihood": "low", "rows": None}],
    "column_quantiles_": [np.zeros(3), np.array([["a"]])],
}


@pytest.mark.parametrize("name", ODD_VALUES)
def test_values_of_known_names_are_checked(name, model, tmp_path):
    for value in ODD_VALUES[name]:
        odd = copy.copy(model)
        setattr(odd, name, value)
        mssl.save(odd, tmp_path / "odd.npz")
        with pytest.raises(ModelFileError, match=name.removesuffix("_")):
            mssl.load(tmp_path / "odd.npz")


def test_two_classes_are_two(tmp_path):
    random = np.random.default_rng(0)
    X, tasks = random.standard_normal((40, 3)), np.repeat([0, 1], 20)
    model = mssl.MSSLClassifier().fit(X, X[:, 0] > 0, tasks=tasks)
    for classes in (np.array([False]), np.array([1, 1]), np.array([0, 1, 2]), np.array([0.0, np.nan]), [0, 1]):
        model.classes_ = classes
        mssl.save(model, tmp_path / "odd.npz")
        with pytest.raises(ModelFileError, match="classes_"):
            mssl.load(tmp_path / "odd.npz")


def test_a_pipe_is_no_model_file_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="not a plain file"):
        mssl.load(tmp_path / "pipe")


def test_names_with_nul_are_refused(model, tmp_path):
    with pytest.raises(ModelFileError, match="NUL"):
        mssl.save(model, tmp_path / "a\0b")
    with pytest.raises(ModelFileError):
        mssl.load(tmp_path / "a\0b")


def test_places_that_are_no_files(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere.npz", Path("/dev/null")):
        with pytest.raises(ModelFileError):
            mssl.load(path)


def try_mutations(file, folder, count, seed):
    """Load damaged copies: each raises ModelFileError, or gives the very same model, or (if signed) some model."""
    data, original, random = file.read_bytes(), mssl.load(file), np.random.default_rng(seed)
    bad = folder / "mutated.npz"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused, slowest = 0, 0.0
    for k in range(count):
        resigned = k % 2 == 1
        bad.write_bytes((forge if resigned else scratch)(data, random))
        began = time.perf_counter()
        try:
            loaded = mssl.load(bad)
        except ModelFileError:
            refused += 1
        else:
            assert isinstance(loaded, MSSLRegressor) if resigned else same(loaded, original)
        slowest = max(slowest, time.perf_counter() - began)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert slowest < 5
    assert grown < 2**28, f"memory grew by {grown >> 20} MiB"
    return refused


def test_mutated_files_never_crash(file, tmp_path):
    assert try_mutations(file, tmp_path, 1500, seed=0) > 1000


@pytest.mark.slow
def test_ten_thousand_mutated_files_never_crash(file, tmp_path):
    assert try_mutations(file, tmp_path, 10_000, seed=1) > 7000


def test_write_failures_leave_nothing(model, tmp_path):
    with pytest.raises(ModelFileError, match="cannot be written"):
        mssl.save(model, tmp_path / "no such folder" / "m.npz")
    with pytest.raises(ModelFileError, match="cannot be written"):
        mssl.save(model, tmp_path)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import sys, numpy as np, mssl
first, second = (mssl.load(path) for path in sys.argv[1:3])
print("ready", flush=True)
while True:
    mssl.save(first, sys.argv[3])
    mssl.save(second, sys.argv[3])
"""


def test_sigkill_during_save_leaves_a_whole_file(tmp_path):
    fitted = MODELS["independent"]().fit(DATA.X, DATA.y, tasks=DATA.tasks)
    paths = []
    for value in (1.0, 2.0):
        fitted.coef_ = np.full((13, 30), value)
        paths.append(str(mssl.save(fitted, tmp_path / f"{value}.npz")))
    target = tmp_path / "target.npz"
    mssl.save(fitted, target)
    for pause in (0.0, 0.003, 0.01, 0.02):
        child = subprocess.Popen([sys.executable, "-c", KILLED, *paths, str(target)], stdout=subprocess.PIPE)
        child.stdout.readline()
        time.sleep(pause)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert mssl.load(target).coef_[0, 0] in (1.0, 2.0)


@pytest.mark.parametrize("strange", [42, None, "model", MSSLRegressor, {"coef": 1}])
def test_only_estimators_are_saved(strange, tmp_path):
    with pytest.raises(ParameterError, match="give an estimator of mssl"):
        mssl.save(strange, tmp_path / "u.npz")
    assert not list(tmp_path.iterdir())


def test_the_header_tells_parameters_as_values(tmp_path):
    model = MSSLRegressor(graph_penalty=np.float64(0.5), coef_penalty=[0.1, (1, None)], tol=float("inf"))
    told = read_header(mssl.save(model, tmp_path / "m.npz"))["parameters"]
    assert told["graph_penalty"] == 0.5
    assert told["coef_penalty"] == [0.1, [1, None]]
    assert told["tol"] == "inf"
    assert told["fit_intercept"] is True


@pytest.mark.parametrize("penalty", [AdaptiveL1(1.0, np.array([0.5, np.inf, 0.0, 1.0]), positive=True), MCP(2.0, 4.0)])
def test_penalties_on_single_weights_come_back_as_they_were(tmp_path, penalty):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 4)), rng.standard_normal((30, 3))
    model = MultiTaskGLM(Independent(1.0), penalty).fit(X, y)
    save(model, tmp_path / "model.mssl")
    loaded = load(tmp_path / "model.mssl")
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert loaded.result_.status is model.result_.status
    assert np.array_equal(clone(loaded).fit(X, y).coef_, model.coef_)
