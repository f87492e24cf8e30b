"""Scores of predictions."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from mssl.metrics import area_under_curve


@pytest.mark.parametrize("weighted", [False, True])
def test_the_area_under_the_curve_is_scikit_learns(weighted):
    random = np.random.default_rng(0)
    y, score = random.integers(2, size=60), random.integers(20, size=60) / 7  # with ties
    weights = random.uniform(size=60) if weighted else None
    assert area_under_curve(y, score, weights) == pytest.approx(roc_auc_score(y, score, sample_weight=weights))


def test_one_class_alone_has_no_area():
    assert np.isnan(area_under_curve(np.ones(3), np.arange(3.0)))
