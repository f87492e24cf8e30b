"""Model files of version 2, which held fitted attributes one by one, load and answer the same."""

from pathlib import Path

import numpy as np
import pytest
from damage import header_of, with_header

import mssl
from mssl.exceptions import ModelFileError
from mssl.files.models import read_header

FILES = sorted(Path(__file__).with_name("version_2").glob("*.npz"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_answers_are_those_of_then(file, tmp_path):
    header = read_header(file)
    assert header["version"] == 2
    notes, model = header["notes"], mssl.load(file)
    X, tasks, answer = np.asarray(notes["X"]), notes["tasks"], np.asarray(notes["answer"])
    atol = 1e-5 if file.stem == "classifier" else 1e-12  # probabilities were integrated by another quadrature
    assert np.allclose(getattr(model, notes["method"])(X, tasks=tasks), answer, rtol=1e-12, atol=atol)
    again = mssl.load(mssl.save(model, tmp_path / "again.npz"))
    assert np.allclose(getattr(again, notes["method"])(X, tasks=tasks), answer, rtol=1e-12, atol=atol)
    assert (tmp_path / "again.npz").stat().st_size <= 1.1 * file.stat().st_size + 1024
    if file.stem != "baseline":
        assert list(again.graph_.relations(1.0)) == list(model.graph_.relations(1.0))
        str(model.summary())


@pytest.mark.parametrize("name", ["intercept_", "tasks_", "features_", "layout_", "loss_"])
def test_weights_come_with_all_that_predictions_need(name, tmp_path):
    data = next(file for file in FILES if file.stem == "regressor").read_bytes()
    header = header_of(data)
    del header["model"]["v"][name]
    (tmp_path / "partial.npz").write_bytes(with_header(data, header))
    with pytest.raises(ModelFileError):
        mssl.load(tmp_path / "partial.npz")
