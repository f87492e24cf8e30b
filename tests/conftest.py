"""Shared pieces of the tests."""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import settings

mpl.use("Agg")
# The same examples every time, so that a change is judged by what it changes; --hypothesis-profile=search looks for new.
settings.register_profile("mssl", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=300, print_blob=True)
settings.load_profile("mssl")


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
