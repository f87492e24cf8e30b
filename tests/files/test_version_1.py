"""Model files that version 0.1.0 wrote load and predict the same."""

from pathlib import Path

import numpy as np
import pytest
from damage import header_of, with_header

import mssl
from mssl.files.codec import VERSION, Decoder
from mssl.files.models import read_header
from mssl.penalties import L1

FILES = sorted(Path(__file__).with_name("version_1").glob("*.npz"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_answers_are_those_of_then(file, tmp_path):
    header = read_header(file)
    assert header["version"] == 1
    notes = header["notes"]
    model = mssl.load(file)
    assert type(model).__name__ == header["class"]
    X, answer = np.asarray(notes["X"]), np.asarray(notes["answer"])
    assert np.allclose(getattr(model, notes["method"])(X, tasks=notes["tasks"]), answer, rtol=1e-12, atol=1e-12)
    assert model.graph_.n_edges == header["edges"]
    assert model.result_.relative_gap == header["certificate"]["relative_gap"]
    assert str(model.result_.status) == header["certificate"]["status"]
    again = mssl.load(mssl.save(model, tmp_path / "again.npz"))
    assert read_header(tmp_path / "again.npz")["version"] == VERSION
    assert np.array_equal(
        getattr(again, notes["method"])(X, tasks=notes["tasks"]),
        getattr(model, notes["method"])(X, tasks=notes["tasks"]),
    )


def test_three_files_are_kept():
    assert [file.stem for file in FILES] == ["classifier_search", "general_search", "regressor"]


def test_a_class_can_say_what_its_attributes_of_then_are_now(monkeypatch):
    old = {"#": "object", "class": "mssl.penalties.L1", "v": {"strength": 3.0}}
    monkeypatch.setattr(L1, "_state_from_version_1", lambda state: {"alpha": state["strength"]}, raising=False)
    assert Decoder([], version=1).decode(old).alpha == 3.0
    new = {"#": "object", "class": "l1", "v": {"alpha": 2.0}}
    assert Decoder([], version=2).decode(new).alpha == 2.0


def test_parameters_that_came_later_have_their_defaults(tmp_path):
    data = FILES[2].read_bytes()
    header = header_of(data)
    del header["model"]["v"]["warm_start"]
    (tmp_path / "older.npz").write_bytes(with_header(data, header))
    assert mssl.load(tmp_path / "older.npz").warm_start is mssl.MSSLRegressor().warm_start
