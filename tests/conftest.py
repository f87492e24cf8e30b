"""Shared pieces of the tests."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import settings

mpl.use("Agg")
# Two ways to run the tests that hypothesis writes examples for:
# * the default profile takes the same few examples every time, so that a change is judged by what it changes;
# * `pytest --hypothesis-profile=scheduled` takes fresh and many ones, and is meant for a timer, say once a night. The
#   seed is printed at the top of the report; `--hypothesis-seed=SEED` beside the profile repeats the very same run, and
#   a failing example comes with a @reproduce_failure line to paste above its test.
settings.register_profile("mssl", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("scheduled", deadline=None, max_examples=300, print_blob=True, database=None)
settings.load_profile("mssl")


def pytest_configure(config: pytest.Config) -> None:
    """Give a scheduled run a seed of its own, unless one was asked for, before hypothesis reads it."""
    if config.getoption("--hypothesis-profile", None) == "scheduled" and config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(secrets.randbits(32))


def pytest_report_header(config: pytest.Config) -> str:
    """The seed of hypothesis, so that a run can be repeated."""
    seed = config.getoption("--hypothesis-seed", None)
    return "hypothesis seed: " + ("the same examples every time" if seed is None else f"--hypothesis-seed={seed}")


@pytest.fixture(autouse=True)
def _closed_figures() -> Iterator[None]:
    """Figures that a test leaves open would warn in a later one."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data; tests that need it skip elsewhere."""
    folder = os.environ.get("MSSL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs the real data sets: set MSSL_DATA to their folder")
    return Path(folder)
