"""The parts of the campaign: each makes one case from random numbers and says what is wrong with it."""

from __future__ import annotations

import gzip
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from tests.campaign import oracle, problems
from tests.tools import damage

import mssl
from mssl import penalties, structures
from mssl.exceptions import ModelFileError, MSSLError

Finding = tuple[str, Any]

MOST_SECONDS = 6.0  # of CPU time for a small case; nothing of this size should take longer


class _TooSlowError(BaseException):
    """A case took more CPU time than it may."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Interrupt what takes more CPU time."""

    def stop(*_: Any) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _place(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:120]} ({Path(last.filename).name}:{last.lineno})"


def _fitted(given: Any, model: Any, seconds: float) -> Iterator[Finding]:
    """Fit, and say what went wrong on the way; a stated error is a good end."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            with limited(seconds):
                given.fit(model)
        except MSSLError:
            return
        except _TooSlowError:
            yield f"takes more than {seconds:g} s of CPU time", f"{given} {model}"
            return
        except Exception as error:
            yield "raw error in fit", f"{_place(error)} {given} {model}"
            return
    if any(
        issubclass(warning.category, RuntimeWarning) and not issubclass(warning.category, ConvergenceWarning)
        for warning in seen
    ):
        yield "a warning of NumPy comes through", f"{given} {model}"
    result = getattr(model, "result_", None)
    told = any(issubclass(warning.category, ConvergenceWarning) for warning in seen)
    if result is not None and result.status.name not in ("CONVERGED", "SETTLED", "STATIONARY") and not told:
        yield "ends without its certificate, and says nothing", f"{result.message} {given} {model}"


def fits(random: np.random.Generator, folder: Path) -> Iterator[Finding]:
    """A fit of any loss, structure and penalty: finite, F never rises, nothing better within the certificate."""
    given = problems.problem(random, large=random.random() < 0.02)
    model = problems.estimator(random, given)
    large = given.shape[0] > 8 or given.shape[1] > 10
    wrong = list(_fitted(given, model, 5 * MOST_SECONDS if large else MOST_SECONDS))
    yield from wrong
    if wrong or not hasattr(model, "coef_"):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, figure in oracle.findings(given, model, deep=not large and random.random() < 0.3):
            yield kind, f"{figure:.2e} {model.result_.status.name} {given} {model}"
        if random.random() < 0.1:
            again = given.fit(clone(model))
            if not np.array_equal(again.coef_, model.coef_):
                yield "a second fit differs", f"{np.abs(again.coef_ - model.coef_).max():.2e} {given} {model}"


def searches(random: np.random.Generator, folder: Path) -> Iterator[Finding]:
    """A cross-validated or Bayesian estimator: finite numbers, stated errors, bounded time."""
    given = problems.problem(random)
    model = problems.search(random, given)
    wrong = list(_fitted(given, model, 20 * MOST_SECONDS))
    yield from wrong
    if not wrong and hasattr(model, "coef_"):
        # Of an average over several settings the search itself is judged: no setting's optimum is expected of it.
        averaged = len(getattr(model, "members_", ())) > 1
        fitted = model if averaged else getattr(model, "best_estimator_", model)
        for kind, figure in oracle.findings(given, fitted, deep=False):
            yield kind, f"{figure:.2e} {given} {model}"


def graphs(random: np.random.Generator, folder: Path) -> Iterator[Finding]:
    """A graphical lasso: positive definite, the objective that it says, and nothing better than its gap allows."""
    p = int(random.integers(2, 30))
    kind = str(random.choice(["sample", "smooth", "low rank", "sizes"]))
    t = np.sort(random.random(p))
    Z = random.standard_normal((int(random.integers(2, 60)), p))
    S = np.exp(-((t[:, None] - t) ** 2) / 0.1) if kind == "smooth" else Z.T @ Z / len(Z)
    if kind == "sizes":
        S = S * np.outer(*[10.0 ** random.uniform(-6, 6, p)] * 2)
    alpha, floor = float(10.0 ** random.uniform(-5, 0.5)), float(10.0 ** random.uniform(-5, 0))
    scale = np.sqrt(np.outer(S.diagonal(), S.diagonal()))
    tol, solver = float(10.0 ** random.uniform(-9, -3)), "admm" if random.random() < 0.1 else "bcd"
    label = f"{kind} p={p} alpha={alpha:.2e} floor={floor:.2e} tol={tol:.2e} {solver}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with limited(MOST_SECONDS):
                settings = {"weights": scale, "diagonal_penalty": floor * S.diagonal(), "tol": tol, "solver": solver}
                result = mssl.graphical_lasso(S, alpha, **settings)
        except MSSLError as error:  # every one of these problems has a solution
            yield "a graphical lasso that is refused", f"{error} {label}"
            return
        except _TooSlowError:
            yield f"takes more than {MOST_SECONDS:g} s of CPU time", label
            return
        except Exception as error:
            yield "raw error in a graphical lasso", f"{_place(error)} {label}"
            return
    # In units of the variances, where sizes take no digits from eigenvalues.
    unit = np.sqrt((1.0 + floor) * S.diagonal())
    R, Z = S / np.outer(unit, unit), result.precision * np.outer(unit, unit)
    L = alpha * scale / np.outer(unit, unit)
    np.fill_diagonal(R, 1.0)
    np.fill_diagonal(L, 0.0)
    least_eigenvalue = np.linalg.eigvalsh(Z)[0] if np.isfinite(Z).all() else -np.inf
    if least_eigenvalue <= 0:
        yield "a precision that is not positive definite", f"{least_eigenvalue:.2e} {label}"
        return
    start, least = oracle.graph_values(R, L, Z)
    rounding = 1e-13 * p * float(np.abs(Z).max())
    formula = start + 2.0 * float(np.log(unit).sum())
    if abs(formula - result.objective) > rounding + 1e-9 * (abs(formula) + p):
        yield "an objective that is not its formula", f"{formula - result.objective:.2e} {label}"
    if start - least > result.gap + rounding + 1e-10 * p:
        yield "a better graph than the gap allows", f"{start - least:.2e}, gap {result.gap:.2e} {label}"
    if result.status.name == "CONVERGED" and result.gap > tol * max(1.0, abs(result.objective)):
        yield "converged with a gap beyond the tolerance", f"{result.gap:.2e} {label}"


def _small_table(random: np.random.Generator) -> tuple[list[str], list[list[tuple[Any, ...]]]]:
    rows = [
        (f"t{k % 3}", float(random.standard_normal()), float(random.standard_normal()), "uvw"[k % 3]) for k in range(45)
    ]
    return ["task", "y", "x", "kind"], [list(zip(*rows, strict=True))]


def _write_odd_columns(path: Path, random: np.random.Generator) -> None:
    """A table of columns as other programs may write them, the task and the target too."""
    import pyarrow as pa
    from pyarrow import feather, parquet

    words = [("u", "v", "ü w")[k] for k in random.integers(3, size=45)]
    whole, half = random.integers(9, size=45), random.standard_normal(45).round(3)
    columns = {
        "text": pa.array([None, *words[1:]], pa.large_string()),
        "categories": pa.array(words).dictionary_encode(),
        "odd categories": pa.DictionaryArray.from_arrays(whole % 3, ["a", None, "a"]),
        "numbered": pa.array(whole).dictionary_encode(),
        "small": pa.array(whole, pa.int8()),
        "large": pa.array(whole.astype(np.uint64) + 2**63),
        "single": pa.array(half, pa.float32()),
        "decimal": pa.array(half).cast(pa.decimal128(20, 3)),
        "truth": pa.array(whole > 4),
        "none": pa.nulls(45),
        "date": pa.array(whole, pa.int32()).cast(pa.date32()),
        "zone": pa.array(whole, pa.timestamp("ns", "Nowhere/Land")),
        "duration": pa.array(whole, pa.duration("ms")),
        "bytes": pa.array([b"\xff"] * 45),
        "list": pa.array([[1]] * 45),
        "double": pa.array(half),
    }
    chosen = [str(name) for name in random.choice(list(columns), size=int(random.integers(3, 6)), replace=False)]
    if path.suffix == ".parquet" and "odd categories" in chosen:  # which Parquet does not take
        chosen.remove("odd categories")
    table = pa.table([columns[name] for name in chosen], names=["task", "y", *chosen[2:]])
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=20, compression=str(random.choice(["none", "zstd"])))
    else:
        feather.write_feather(table, path, chunksize=20, compression=str(random.choice(["uncompressed", "zstd"])))


KEPT = {
    "regressor": mssl.MSSLRegressor,
    "classifier": mssl.MSSLClassifier,
    "clusters": lambda: mssl.MultiTaskGLM(structures.Clustered(2), penalties.Nuclear(0.1)),
    "search": lambda: mssl.MSSLRegressorCV(param_grid={"graph_penalty": [0.1, 0.5]}, cv=2),
    "bayesian": lambda: mssl.BayesianMSSLRegressor("mean+ard", features="spline"),
}


def models(random: np.random.Generator, folder: Path) -> Iterator[Finding]:
    """A damaged or forged model file: refused, or the very same model, or (forged) one that works or refuses to."""
    kind = str(random.choice(list(KEPT)))
    path, bad = folder / f"{kind}.npz", folder / "damaged.npz"
    X, tasks = np.random.default_rng(0).standard_normal((40, 3)), np.repeat(np.arange(4), 10)
    if not path.exists():
        y = X @ [1.0, 2.0, 0.0] + 0.1 * X[:, 0] ** 2
        mssl.save(KEPT[kind]().fit(X, y > 0 if kind == "classifier" else y, tasks=tasks), path)
    forged = random.random() < 0.5
    bad.write_bytes((damage.forge if forged else damage.scratch)(path.read_bytes(), random))
    try:
        with limited(MOST_SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = mssl.load(bad)
            if not forged and not np.array_equal(model.coef_, mssl.load(path).coef_):
                yield "a damaged model file is read with other numbers", kind
            if hasattr(model, "coef_"):
                answers = model.predict(X, tasks=tasks)
                if answers.dtype.kind == "f" and not np.isfinite(answers).all():
                    yield "a forged model predicts what is not finite", kind
                str(model.summary())
            repr(model)
    except (MSSLError, ValueError) as error:
        # scikit-learn checks the number of features by itself, with a ValueError.
        if not isinstance(error, MSSLError) and "features" not in str(error):
            yield "raw error of a model file", f"{kind} {_place(error)}"
    except _TooSlowError:
        yield "a model file that takes long", kind
    except Exception as error:
        yield "raw error of a model file", f"{kind} {_place(error)}"


def tables(random: np.random.Generator, folder: Path) -> Iterator[Finding]:
    """A damaged table of any format, or one of odd columns: read, or refused in words."""
    from mssl.files.formats import write_table
    from mssl.files.tables import learn_schema, read_table

    name = str(random.choice(["a.csv", "a.tsv", "a.csv.gz", "a.parquet", "a.feather"]))
    path = folder / name
    others = name in ("a.parquet", "a.feather") and random.random() < 0.5
    if others:
        _write_odd_columns(path, random)
    else:
        write_table(path, *_small_table(random))
    content = path.read_bytes()
    if name in ("a.csv", "a.tsv") and random.random() < 0.5:
        odd = [
            b",",
            b"\n",
            b'"',
            b"\xff",
            b"\0",
            b"nan",
            b"1e999",
            b"=1+1",
            b"\r",
            b"\xef\xbb\xbf",
            b"1,5",
            b"\xe2\x80\xae",
        ]
        place = int(random.integers(len(content)))
        content = content[:place] + odd[int(random.integers(len(odd)))] + content[place:]
    elif not others or random.random() < 0.7:
        content = damage.scratch(content, random)
    if name == "a.csv.gz" and random.random() < 0.3:
        content = gzip.compress(damage.scratch(gzip.decompress(path.read_bytes()), random))
    path.write_bytes(content)
    try:
        with limited(MOST_SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = read_table(path, text=["task"])
            encoded = learn_schema(table, "task", "y").encode(table, with_target=True)
            if not np.isfinite(encoded.X).all():
                yield "a table gives features that are not finite", name
    except MSSLError:
        pass
    except _TooSlowError:
        yield "a table that takes long", name
    except Exception as error:
        yield "raw error of a table", f"{name} {_place(error)}"


def netcdf(random: np.random.Generator, folder: Path) -> Iterator[Finding]:
    """A damaged NetCDF file: read, or refused in words. HDF5 itself may end the process, which does not count here."""
    import xarray

    from mssl.climate.grids import loaded, open_field, pick

    packed = {"tas": {"zlib": True, "fletcher32": True}}
    ways: dict[str, Any] = {"classic": {"engine": "scipy"}, "plain": {}, "packed": {"encoding": packed}}
    kind = str(random.choice(list(ways)))
    whole, bad = folder / f"{kind}.nc", folder / "damaged.nc"
    if not whole.exists():
        values = np.random.default_rng(0).standard_normal((24, 3, 4))
        months = np.arange("2000-01", "2002-01", dtype="datetime64[M]").astype("datetime64[ns]")
        axes = {"time": months, "lat": [0.0, 10.0, 20.0], "lon": [0.0, 10.0, 20.0, 30.0]}
        field = xarray.DataArray(values, coords=axes, dims=("time", "lat", "lon"), name="tas")
        field.to_dataset().to_netcdf(whole, **ways[kind])
    bad.write_bytes(damage.scratch(whole.read_bytes(), random))
    try:
        with limited(MOST_SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded(pick(open_field(bad), None, "the file"), "the file")
    except MSSLError:
        pass
    except _TooSlowError:
        yield "a NetCDF file that takes long", kind
    except Exception as error:
        yield "raw error of a NetCDF file", f"{kind} {_place(error)}"


def _killed(work: Callable[[], None], after: float, kind: signal.Signals) -> bool:
    """Do some work in a fork that gets a signal after so many seconds; whether it came in time."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = 0
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, 1)
            os.dup2(devnull, 2)
            work()
        except BaseException:
            code = 1
        os._exit(code)
    end, hit = time.monotonic() + after, False
    while True:
        ended, _ = os.waitpid(child, os.WNOHANG)
        if ended:
            return hit
        if not hit and time.monotonic() >= end:
            os.kill(child, kind)
            hit = True
        time.sleep(0.001)


def kills(random: np.random.Generator, folder: Path) -> Iterator[Finding]:
    """A kill in the middle of a save or of a search: the old file or the new one, the same result, nothing left."""
    kind = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT][int(random.integers(3))]
    data = np.random.default_rng(0)
    X, tasks = data.standard_normal((60, 4)), np.repeat(np.arange(3), 20)
    y = X.sum(axis=1) + data.standard_normal(60)
    if random.random() < 0.7:
        path = folder / "kept.npz"
        versions = [mssl.MSSLRegressor(graph_penalty=price).fit(X, y, tasks=tasks) for price in (0.2, 0.4)]
        for model in versions:
            model.table = None
            model.note_ = np.full((700, 700), model.graph_penalty)
        mssl.save(versions[0], path)
        began = time.monotonic()
        mssl.save(versions[0], path)
        _killed(lambda: mssl.save(versions[1], path), random.uniform(0, 1.2) * (time.monotonic() - began), kind)
        try:
            if mssl.load(path).note_[0, 0] not in (0.2, 0.4):
                yield "a killed save leaves another model", kind.name
        except ModelFileError as error:
            yield "a killed save loses the old model", f"{kind.name} {error}"
        mssl.save(versions[0], folder / "next.npz")
        if any(file.suffix == ".tmp" for file in folder.iterdir()):
            yield "a killed save leaves a file behind", kind.name
        return
    checkpoint = folder / f"search-{random.integers(2**60)}"
    plain = folder / "search.pickle"

    def search(path: Path | None) -> Any:
        return mssl.MSSLRegressorCV(cv=2, checkpoint=path).fit(X, y, tasks=tasks)

    if not plain.exists():
        began = time.monotonic()
        found = search(None)
        plain.write_bytes(pickle.dumps((found.coef_, found.best_score_, time.monotonic() - began)))
    coef, score, seconds = pickle.loads(plain.read_bytes())
    for _ in range(2):
        _killed(lambda: search(checkpoint), random.uniform(0, seconds), kind)
    found = search(checkpoint)
    if not np.array_equal(found.coef_, coef) or found.best_score_ != score:
        yield "a resumed search ends elsewhere", kind.name
    if any(file.suffix == ".tmp" for file in folder.iterdir()):
        yield "a killed search leaves a file behind", kind.name


PARTS: dict[str, tuple[Callable[[np.random.Generator, Path], Iterator[Finding]], float]] = {
    # Each part with its share of the time.
    "fits": (fits, 0.5),
    "searches": (searches, 0.1),
    "graphs": (graphs, 0.08),
    "models": (models, 0.08),
    "tables": (tables, 0.12),
    "netcdf": (netcdf, 0.04),
    "kills": (kills, 0.08),
}
