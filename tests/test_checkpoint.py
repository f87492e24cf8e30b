"""Checkpoints: killed runs continue bit-identically, foreign and damaged files are refused or repaired."""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from mssl import MSSLRegressorCV, StabilitySelection
from mssl.datasets import make_clustered_tasks
from mssl.model_selection import CheckpointError, board, checkpoint, stability
from mssl.model_selection.checkpoint import Checkpoint, fingerprint

GRID = {"graph_penalties": [0.5, 0.1], "coef_penalties": [0.0, 3.0], "couplings": [0.5, 1.0], "shared_means": [False]}


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
    monkeypatch.setattr(board, "score_chain", lambda *_: pytest.fail("computed again"))
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
    plain = board.score_chain
    monkeypatch.setattr(board, "score_chain", lambda *args: calls.append(1) or plain(*args))
    for cut in (0, 5, ends[0], ends[2] - 1, ends[2], ends[3] + 7):
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


SCRIPT = """
    import sys, time
    import numpy as np
    from mssl import MSSLRegressorCV, StabilitySelection
    from mssl.datasets import make_clustered_tasks
    from mssl.model_selection import board, checkpoint, stability

    stop, count = int(sys.argv[3]), 0
    plain = checkpoint.append
    def append(path, record):
        global count
        plain(path, record)
        print("done", flush=True)
        count += 1
        if count == stop:
            time.sleep(600)
    checkpoint.append = append
    data = make_clustered_tasks(n_tasks=4, clusters=[[0, 1]], n_features=8, n_samples=20, random_state=0)
    if sys.argv[1] == "cv":
        model = MSSLRegressorCV([0.5, 0.1], [0.0], couplings=[0.5, 1.0], shared_means=[False], cv=3, checkpoint=sys.argv[2])
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
    for changes in ({"cv": 4}, {"coef_penalties": [0.0]}, {"scale_features": False}):
        with pytest.raises(CheckpointError, match="other data or other settings"):
            _search(path, **changes)
    data = _data()
    with pytest.raises(CheckpointError, match="other data"):
        MSSLRegressorCV(**GRID, cv=3, checkpoint=path).fit(data.X, data.y + 1e-9, tasks=data.tasks)
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


def test_files_of_others_are_not_touched(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes\nsecond line\n")
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        _search(path)
    assert path.read_text() == "my notes\nsecond line\n"
    body = {"format": "mssl checkpoint 99", "identity": ""}
    path.unlink()
    checkpoint.append(path, body)
    with pytest.raises(CheckpointError, match="this version"):
        _search(path)


def test_paths_that_cannot_be_used(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be"):
        _search(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be written"):
        _search(tmp_path / "missing" / "run")


def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch):
    path = tmp_path / "run"
    _search(path)
    whole = path.read_bytes()
    ends = np.cumsum([len(line) + 1 for line in whole.split(b"\n")[:-1]])
    path.unlink()
    plain = checkpoint._write
    writes = []

    def full(file, line):
        writes.append(line)
        if len(writes) == 4:
            file.write(line[: len(line) // 2])
            file.flush()
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(file, line)

    monkeypatch.setattr(checkpoint, "_write", full)
    with pytest.raises(CheckpointError, match=r"No space left.*what was finished is kept"):
        _search(path)
    kept = path.read_bytes()
    assert len([line for line in kept.split(b"\n") if line]) == 3
    assert kept.endswith(b"\n")
    monkeypatch.setattr(checkpoint, "_write", plain)
    _search(path)
    assert len(path.read_bytes().split(b"\n")) == len(ends) + 1


def test_values_come_back_exactly(tmp_path):
    values = [0.1, 1 / 3, 1e-300, -0.0, float(np.nextafter(1, 2)), float("inf")]
    record = Checkpoint(tmp_path / "run", "x")
    record.add("a", values)
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
