"""Checkpoints: killed runs continue bit-identically, foreign and damaged files are refused or repaired."""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import make_scorer, mean_absolute_error

import mssl
from mssl import MSSLRegressor, MSSLRegressorCV, StabilitySelection
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import ParameterError
from mssl.features import Linear
from mssl.files import atomic, checkpoint
from mssl.files.checkpoint import FORMAT, Checkpoint, fingerprint
from mssl.model_selection import CheckpointError, TaskKFold, scores, stability

GRID = {
    "param_grid": {
        "graph_penalty": [0.5, 0.1],
        "coef_penalty": [0.0, 3.0],
        "prior_strength": [0.5, 1.0],
        "shared_mean": [False],
    }
}


def _data():
    return make_clustered_tasks(n_tasks=4, clusters=[[0, 1]], n_features=5, n_samples=20, random_state=0)


def _search(path, **changes):
    data = _data()
    settings = GRID | {"cv": 3, "checkpoint": path} | changes
    return MSSLRegressorCV(**settings).fit(data.X, data.y, tasks=data.tasks)


def _scores(search):
    return search.cv_results_["mean_test_score"]


def test_finished_work_is_not_done_again(tmp_path, monkeypatch):
    path = tmp_path / "run"
    first = _search(path)
    lines = path.read_bytes()
    monkeypatch.setattr(scores, "score_chain", lambda *_: pytest.fail("computed again"))
    second = _search(path)
    np.testing.assert_array_equal(_scores(first), _scores(second))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert path.read_bytes() == lines


def test_any_cut_of_the_file_is_continued_to_the_same_end(tmp_path, monkeypatch):
    path = tmp_path / "run"
    whole = _search(path)
    content = path.read_bytes()
    ends = np.cumsum([len(line) + 1 for line in content.split(b"\n")[:-1]])
    calls = []
    plain = scores.score_chain
    monkeypatch.setattr(scores, "score_chain", lambda *args: calls.append(1) or plain(*args))
    average = scores.score_average
    monkeypatch.setattr(scores, "score_average", lambda *args: calls.append(1) or average(*args))
    for cut in (0, ends[0], ends[2] - 1, ends[2], ends[3] + 7):
        path.write_bytes(content[:cut])
        calls.clear()
        again = _search(path)
        np.testing.assert_array_equal(_scores(whole), _scores(again))
        np.testing.assert_array_equal(whole.coef_, again.coef_)
        kept = max(0, int(np.sum(ends <= cut)) - 1)
        assert len(calls) == len(ends) - 1 - kept


def test_a_damaged_record_and_all_after_it_are_done_again(tmp_path):
    path = tmp_path / "run"
    whole = _search(path)
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"-", b"+", 1)
    path.write_bytes(b"\n".join(lines))
    np.testing.assert_array_equal(_scores(whole), _scores(_search(path)))


def test_a_second_copy_behind_the_first_is_cut_off(tmp_path):
    path = tmp_path / "run"
    whole = _search(path)
    content = path.read_bytes()
    path.write_bytes(2 * content)
    np.testing.assert_array_equal(_scores(whole), _scores(_search(path)))
    assert path.read_bytes() == content


SCRIPT = """
    import sys, time
    import numpy as np
    from mssl import MSSLRegressorCV, StabilitySelection
    from mssl.datasets import make_clustered_tasks
    from mssl.files import checkpoint
    from mssl.model_selection import scores, stability

    stop, count = int(sys.argv[3]), 0
    plain = checkpoint.append_line
    def append(*line):
        global count
        plain(*line)
        print("done", flush=True)
        count += 1
        if count == stop:
            time.sleep(600)
    checkpoint.append_line = append
    data = make_clustered_tasks(n_tasks=4, clusters=[[0, 1]], n_features=8, n_samples=20, random_state=0)
    if sys.argv[1] == "cv":
        model = MSSLRegressorCV(param_grid=dict(graph_penalty=[0.5, 0.1], coef_penalty=[0.0], prior_strength=[0.5, 1.0], shared_mean=[False]), cv=3, checkpoint=sys.argv[2])
        model.fit(data.X, data.y, tasks=data.tasks)
        answer = np.concatenate([model.coef_.ravel(), model.cv_results_["mean_test_score"]])
    else:
        model = StabilitySelection(n_subsamples=50, n_points=3, random_state=0, checkpoint=sys.argv[2])
        model.fit(data.X, data.y, tasks=data.tasks)
        answer = model.frequencies_.ravel()
    print("answer", answer.tobytes().hex(), flush=True)
"""


def _run(kind, path, stop=0):
    """The script's lines; with ``stop`` it is killed while it waits after so many records."""
    lines = []
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), kind, str(path), str(stop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            lines.append(line.strip())
            if len(lines) == stop:
                os.kill(process.pid, signal.SIGKILL)
    return lines


@pytest.mark.parametrize("kind", ["cv", "stability"])
def test_a_killed_run_continues_and_ends_the_same(tmp_path, kind):
    whole = _run(kind, tmp_path / "whole")
    killed = _run(kind, tmp_path / "killed", stop=3)
    assert killed == ["done"] * 3
    continued = _run(kind, tmp_path / "killed")
    assert continued[-1] == whole[-1]
    assert len(continued) == len(whole) - 3


def test_other_data_or_settings_are_refused_and_the_file_is_left_alone(tmp_path):
    path = tmp_path / "run"
    _search(path)
    content = path.read_bytes()
    for changes in (
        {"cv": 4},
        {"param_grid": {"coef_penalty": [0.0]}},
        {"estimator": MSSLRegressor(features=Linear(scale=False))},
    ):
        with pytest.raises(CheckpointError, match="other data or other settings"):
            _search(path, **changes)
    data = _data()
    with pytest.raises(CheckpointError, match="other data"):
        MSSLRegressorCV(cv=3, checkpoint=path, **GRID).fit(data.X, data.y + 1e-9, tasks=data.tasks)
    with pytest.raises(CheckpointError, match="other data"):
        StabilitySelection(checkpoint=path, random_state=0).fit(data.X, data.y, tasks=data.tasks)
    assert path.read_bytes() == content


def test_number_of_workers_and_verbosity_are_no_settings(tmp_path):
    path = tmp_path / "run"
    first = _search(path)
    content = path.read_bytes()
    second = _search(path, n_jobs=1, verbose=1)
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert path.read_bytes() == content


def test_a_file_of_another_version_is_refused_and_left_alone(tmp_path, monkeypatch):
    path = tmp_path / "run"
    Checkpoint(path, "abc")["piece"] = 1
    before = path.read_bytes()
    assert mssl.__version__.encode() in before
    assert FORMAT.encode() in before
    for name, said in (("__version__", "made by mssl"), ("FORMAT", "has the format")):
        with monkeypatch.context() as other:
            other.setattr(f"mssl.files.checkpoint.{name}", "something else")
            with pytest.raises(CheckpointError, match=said):
                Checkpoint(path, "abc")
    assert path.read_bytes() == before
    assert Checkpoint(path, "abc")["piece"] == 1


def test_files_of_others_are_not_touched(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes\nsecond line\n")
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        _search(path)
    assert path.read_text() == "my notes\nsecond line\n"
    body = {"format": "mssl checkpoint 99", "identity": ""}
    path.unlink()
    checkpoint.append_line(path, checkpoint._line(body))
    with pytest.raises(CheckpointError, match="this version"):
        _search(path)


def test_paths_that_cannot_be_used(tmp_path):
    with pytest.raises(CheckpointError, match="not a regular file"):
        _search(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be written"):
        _search(tmp_path / "missing" / "run")
    for device in ("/dev/full", "/dev/zero"):
        if Path(device).exists():
            with pytest.raises(CheckpointError, match="not a regular file"):
                _search(device)


def test_a_header_that_cannot_be_read_is_refused_and_nothing_is_lost(tmp_path):
    path = tmp_path / "run"
    _search(path)
    whole = path.read_bytes()
    first = whole.index(b"\n")
    contents = [whole[:cut] for cut in (1, 5, 7, 20, first)]  # headers are written whole, so these are no cut ones
    contents += [whole.replace(b"identity", b"idemtity", 1), whole[1:], whole.replace(b"{", b"[", 1), b"\n" + whole]
    contents += [b'{"crc": 3}\n', b'{"crc":0,"body":[]}\n', b"[]\n", b"\xff\xfe\n", b"\0" * 100]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"is not a checkpoint|damaged first line"):
            _search(path)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch):
    path = tmp_path / "run"
    _search(path)
    whole = path.read_bytes()
    ends = np.cumsum([len(line) + 1 for line in whole.split(b"\n")[:-1]])
    path.unlink()
    plain = atomic._write_durably
    writes = []

    def full(file, line):
        writes.append(line)
        if len(writes) == 3:
            file.write(line[: len(line) // 2])
            file.flush()
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(file, line)

    monkeypatch.setattr(atomic, "_write_durably", full)
    with pytest.raises(CheckpointError, match=r"No space left.*finished work is kept"):
        _search(path)
    kept = path.read_bytes()
    assert len([line for line in kept.split(b"\n") if line]) == 3
    assert kept.endswith(b"\n")
    monkeypatch.setattr(atomic, "_write_durably", plain)
    _search(path)
    assert len(path.read_bytes().split(b"\n")) == len(ends) + 1


def test_values_come_back_exactly(tmp_path):
    values = [0.1, 1 / 3, 1e-300, -0.0, float(np.nextafter(1, 2)), float("inf")]
    record = Checkpoint(tmp_path / "run", "x")
    record["a"] = values
    again = Checkpoint(tmp_path / "run", "x")
    assert [v.hex() for v in again["a"]] == [v.hex() for v in values]
    assert list(again) == ["a"]
    assert json.loads((tmp_path / "run").read_text().splitlines()[1])["body"]["key"] == "a"


def test_fingerprints_tell_things_apart():
    from scipy import sparse

    A = np.arange(6.0)
    things = [
        A,
        A.reshape(2, 3),
        A.astype(np.float32),
        A.tolist(),
        sparse.csr_array(A.reshape(2, 3)),
        "A",
        1,
        1.0,
        None,
    ]
    things += [{"a": 1}, {"a": 2}, {"b": 1}, [[1], [2]], [[1, 2]], np.array(["x", None], dtype=object)]
    things += [np.array(None, dtype=object), np.array("a", dtype=object)]  # of no dimension
    names = [fingerprint(thing) for thing in things]
    assert len(set(names)) == len(names)
    assert fingerprint({"a": 1, "b": A}) == fingerprint({"b": A.copy(), "a": 1})
    assert fingerprint(StabilitySelection()) != fingerprint(StabilitySelection(threshold=0.8))


def test_stability_selection_continues(tmp_path, monkeypatch):
    data = make_clustered_tasks(n_features=8, n_samples=20, random_state=0)
    settings = {"n_subsamples": 30, "n_points": 3, "random_state": 0, "checkpoint": tmp_path / "run"}
    first = StabilitySelection(**settings).fit(data.X, data.y, tasks=data.tasks)
    monkeypatch.setattr(stability, "select_rows", lambda *_: pytest.fail("computed again"))
    second = StabilitySelection(**settings).fit(data.X, data.y, tasks=data.tasks)
    np.testing.assert_array_equal(first.frequencies_, second.frequencies_)


def _error_of(power):
    def error(model, X, y):
        return -np.mean(np.abs(model.predict(X) - y) ** power)

    return error


def test_callables_and_iterators_are_recognised(tmp_path, monkeypatch):
    data, path = _data(), tmp_path / "run"

    def settings(power):
        return {"scoring": _error_of(power), "cv": TaskKFold(3).split(data.X, data.y, data.tasks)}

    first = _search(path, **settings(1.0))
    with pytest.raises(CheckpointError, match="other settings"):
        _search(path, **settings(2.0))
    with pytest.raises(CheckpointError, match="other data"):
        _search(path, **settings(1.0) | {"cv": TaskKFold(3, random_state=1).split(data.X, data.y, data.tasks)})
    monkeypatch.setattr(scores, "score_chain", lambda *_: pytest.fail("computed again"))
    np.testing.assert_array_equal(_scores(first), _scores(_search(path, **settings(1.0))))
    np.testing.assert_array_equal(_scores(first), _scores(_search(path, **settings(1.0) | {"cv": TaskKFold(3)})))


THINGS = """
    import sys
    from functools import partial
    import numpy as np
    from sklearn.metrics import make_scorer, mean_absolute_error
    from mssl.files.checkpoint import fingerprint

    blocks = [bytearray(10**5) for _ in range(int(sys.argv[1]))]  # other places in memory
    def named(x, /, y={"a", "b", "c"}, *, z=None):
        return x in {"d", "e", "f"}
    def outer(value):
        def inner(depth):
            return inner(depth - 1) if depth else value
        return inner
    class Judge:
        def __init__(self): self.words = {"g", "h", "i"}
        def method(self): pass
    random = np.random.default_rng(3)
    random.normal()
    things = [named, lambda x: named(x), outer([1]), partial(named, 1, y=2), Judge(), Judge().method, Judge, np.mean, np.add,
        random, np.random.RandomState(4), make_scorer(mean_absolute_error, greater_is_better=False), object(), iter([]), np]
    print(*map(fingerprint, things))
"""


def test_fingerprints_are_the_same_in_every_process():
    script = textwrap.dedent(THINGS)
    answers = [
        subprocess.run(
            [sys.executable, "-c", script, str(number)],
            env=os.environ | {"PYTHONHASHSEED": str(number)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for number in (1, 50)
    ]
    assert answers[0] == answers[1]
    assert len(set(answers[0])) == len(answers[0]) == 15


def test_fingerprints_tell_functions_and_generators_apart():
    ahead, other = np.random.default_rng(0), np.random.default_rng(0)
    assert fingerprint(ahead) == fingerprint(other)
    other.random()
    things = [
        lambda x: x + 1,
        lambda x: x + 2,
        lambda x: x - 1,
        lambda x, y=1: x + 1,
        lambda x, y=2: x + 1,
        lambda x, *, y=1: x + 1,
        lambda x: x.a,
        lambda x: x.b,
        lambda x: lambda y: 1,
        lambda x: lambda y: 2,
        _error_of(1.0),
        _error_of(2.0),
        partial(_error_of, 1.0),
        partial(_error_of, 2.0),
        make_scorer(mean_absolute_error),
        make_scorer(mean_absolute_error, greater_is_better=False),
        make_scorer(_error_of(1.0)),
        make_scorer(_error_of(2.0)),
        ahead,
        other,
        np.random.RandomState(0),
        np.random.RandomState(1),
        np.random.PCG64(0),
        np.random.PCG64(1),
        np.mean,
        np.median,
    ]
    names = [fingerprint(thing) for thing in things]
    assert len(set(names)) == len(names)
    assert fingerprint(_error_of(1.0)) == fingerprint(_error_of(1.0))
    quiet, loud = StabilitySelection(), StabilitySelection(n_jobs=2, verbose=1)
    assert fingerprint(quiet) == fingerprint(loud)


def test_graphs_of_a_search_are_the_same_in_every_run(tmp_path, monkeypatch):
    path = tmp_path / "run"
    plain, first = _search(None, selection="both"), _search(path, selection="both")
    path.write_bytes(path.read_bytes()[:-3000])  # some of the subsamples are lost
    first = _search(path, selection="both")
    np.testing.assert_array_equal(plain.stability_.frequencies_, first.stability_.frequencies_)
    assert plain.graph_ == first.graph_
    monkeypatch.setattr(scores, "score_chain", lambda *_: pytest.fail("computed again"))
    monkeypatch.setattr(stability, "select_rows", lambda *_: pytest.fail("computed again"))
    again = _search(path, selection="both")
    np.testing.assert_array_equal(again.stability_.frequencies_, first.stability_.frequencies_)


def test_subsamples_without_a_seed_are_refused_before_the_search(tmp_path, monkeypatch):
    path = tmp_path / "run"
    monkeypatch.setattr(scores, "score_chain", lambda *_: pytest.fail("computed"))
    for kind in ("both", "graph"):
        with pytest.raises(ParameterError, match=r"random_state=None.*give it a seed"):
            _search(path, selection=kind, stability=StabilitySelection())
    assert not path.exists()


def test_types_of_numbers_have_fingerprints_of_their_own():
    assert fingerprint(np.float64) == fingerprint(np.float64) != fingerprint(np.float32)
