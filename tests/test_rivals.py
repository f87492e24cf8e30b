"""The comparison with rivals trains on rows that tell nothing of the rows held out."""

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("benchmarks are not part of this installation", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from benchmarks.rivals import contrasts, year_folds  # noqa: E402


@pytest.mark.parametrize("years", [2, 5, 19])
def test_contrasts_of_years_have_the_products_of_anomalies_and_no_common_sum(years):
    values = np.random.default_rng(0).normal(5.0, 1.0, (years, 12, 3))
    anomalies = values - values.mean(axis=0)
    assert contrasts(values).shape == (years - 1, 12, 3)
    ours, theirs = (np.einsum("ymd,yme->mde", rows, rows) for rows in (contrasts(values), anomalies))
    np.testing.assert_allclose(ours, theirs, atol=1e-12 * years)
    rows = contrasts(np.eye(years))  # orthonormal: independent years give independent contrasts of one variance
    np.testing.assert_allclose(rows @ rows.T, np.eye(years - 1), atol=1e-14)
    np.testing.assert_allclose(rows.sum(axis=1), 0.0, atol=1e-14)  # the climatology does not matter


@pytest.mark.parametrize(("years", "count"), [(4, 4), (18, 5)])
def test_folds_are_whole_years_each_held_out_once(years, count):
    folds = year_folds(years)
    assert len(folds) == count
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(12 * years))
    for train, test in folds:
        assert not set(train // 12) & set(test // 12)
        assert len(train) + len(test) == 12 * years
