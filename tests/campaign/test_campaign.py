"""The campaign finds what it is there for: planted faults are found, sound fits are not complained about."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.campaign import oracle, problems
from tests.campaign.__main__ import _follow
from tests.campaign.parts import PARTS

import mssl
from mssl.paper import PaperMSSL

pytestmark = pytest.mark.filterwarnings("ignore")


def sound(family="gaussian", **parameters):
    random = np.random.default_rng(3)
    X, tasks = random.standard_normal((80, 4)), np.repeat(np.arange(4), 20)
    eta = X @ random.standard_normal(4) / 2
    y = {"gaussian": eta + random.standard_normal(80), "poisson": random.poisson(np.exp(eta)).astype(float)}[family]
    given = problems.Problem(X, y, tasks, None, family, "long", "plain", (4, 4))
    make = parameters.pop("make", mssl.MSSLRegressor)
    return given, given.fit(make(loss=family).set_params(**parameters))


CASES = [
    {},
    {"coef_penalty": 2.0},
    {"shared_mean": 0.5},
    {"make": PaperMSSL},
    {"coef_penalty__ridge": 3.0, "family": "poisson"},
]


@pytest.mark.parametrize("parameters", CASES)
def test_a_sound_fit_is_not_complained_about(parameters):
    assert list(oracle.findings(*sound(**parameters), deep=True)) == []


@pytest.mark.parametrize("parameters", CASES)
def test_wrong_weights_graphs_and_values_are_found(parameters):
    def kinds(**changes):
        given, model = sound(**parameters)
        model.result_ = replace(model.result_, **{name: change(model.result_) for name, change in changes.items()})
        return [kind for kind, _ in oracle.findings(given, model, deep=True)]

    assert "F is not its formula" in kinds(objective=lambda result: result.objective + 0.1)
    assert "better weights than the certificate allows" in kinds(W=lambda result: 1.05 * result.W)
    wrong = lambda result: replace(result.structure, precision=result.structure.precision * 1.1)  # noqa: E731
    assert "a better graph than the certificate allows" in kinds(structure=wrong)
    rising = lambda result: [result.history[0], result.history[0]._replace(objective=1e9)]  # noqa: E731
    assert "F rises" in kinds(history=rising)


def test_numbers_that_are_not_finite_are_found():
    given, model = sound()
    model.intercept_ = np.full(4, np.nan)
    assert [kind for kind, _ in oracle.findings(given, model, deep=False)] == ["intercept_ is not finite"]


def test_wrong_graphical_lassos_are_found(monkeypatch, tmp_path):
    """A graph, an objective, a gap that are not right, and a refusal: every case of each kind that shows."""
    solve = mssl.graphical_lasso

    def kinds(wrong):
        monkeypatch.setattr(mssl, "graphical_lasso", wrong)
        cases = (PARTS["graphs"][0](np.random.default_rng([5, index]), tmp_path) for index in range(8))
        return {kind for case in cases for kind, _ in case}

    def refusing(*_, **__):
        raise mssl.exceptions.DataError("no")

    def changed(**changes):
        def wrong(*args, **settings):
            result = solve(*args, **settings)
            return replace(result, **{name: change(getattr(result, name)) for name, change in changes.items()})

        return wrong

    assert kinds(refusing) == {"a graphical lasso that is refused"}
    assert "an objective that is not its formula" in kinds(changed(objective=lambda value: value + 0.1))
    assert "a precision that is not positive definite" in kinds(changed(precision=lambda omega: -omega))
    assert "converged with a gap beyond the tolerance" in kinds(changed(gap=lambda gap: gap + 1.0))
    assert "a better graph than the gap allows" in kinds(changed(precision=lambda omega: 1.1 * omega))


@pytest.mark.parametrize("part", PARTS)
def test_every_part_runs_and_finds_nothing(part, tmp_path):
    """A few cases of each, always the same ones; thousands of others are up to ``python -m tests.campaign``."""
    if part == "netcdf":
        pytest.importorskip("xarray")
        pytest.skip("HDF5 may end the process; the campaign runs this part in one of its own")
    if part == "tables":
        pytest.importorskip("pyarrow")
    for index in range({"searches": 1, "kills": 2}.get(part, 8)):
        assert list(PARTS[part][0](np.random.default_rng([5, index]), tmp_path)) == []


@pytest.mark.parametrize(("code", "said"), [("import os; os.abort()", "dies"), ("", "")])
def test_a_worker_that_dies_is_a_finding_and_not_the_end(code, said, capsys):
    tally: Counter[str] = Counter()
    begin = "print('{\"begin\": 7}', flush=True);"
    last, done = _follow([sys.executable, "-c", begin + code], "fits", 1, tally, 0.0)
    assert (last, done, tally.total()) == ((7, 0, 1) if said else (None, 0, 0))
    assert said in capsys.readouterr().out


def test_the_command_knows_its_parts():
    command = [sys.executable, "-m", "tests.campaign", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 2
    assert "parts are fits, searches" in done.stderr
