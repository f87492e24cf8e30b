"""Laws of the single maps: what they span, what they are orthogonal to, and what they do outside of the rows."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.preprocessing import SplineTransformer

from mssl.exceptions import DataError, ParameterError
from mssl.features import Interactions, Linear, Spline


def projector(F):
    q, _ = np.linalg.qr(F)
    return q @ q.T


@pytest.mark.parametrize("degree", [2, 3])
def test_line_and_spline_span_what_scikit_learn_spans(rng, degree):
    x = rng.gamma(2.0, size=(80, 1))
    knots = np.quantile(x, np.linspace(0, 1, 4), axis=0, method="inverted_cdf")
    theirs = SplineTransformer(degree=degree, knots=knots).fit_transform(x)
    ours = np.column_stack([np.ones(80), x, Spline(degree=degree).fit_transform(x)])
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(projector(ours), projector(theirs), atol=1e-9)


def test_features_are_centred_scaled_and_without_the_line(rng):
    X = np.column_stack([rng.normal(size=60), rng.integers(0, 5, 60), rng.uniform(size=60) ** 3])
    spline = Spline().fit(X)
    F = spline.transform(X)
    np.testing.assert_allclose(F.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose((F**2).mean(axis=0), 1.0)
    for feature, column in zip(F.T, spline.column_of_, strict=True):
        assert abs(feature @ (X[:, column] - X[:, column].mean())) < 1e-8


def test_units_of_a_column_do_not_matter(rng):
    X = rng.normal(size=(50, 2))
    moved = X * [1e6, 1e-5] + [3e6, 7.0]
    np.testing.assert_allclose(Spline().fit_transform(moved), Spline().fit_transform(X), atol=1e-7)


def test_straight_lines_outside_of_the_training_range(rng):
    x = rng.uniform(size=(70, 1))
    spline = Spline(degree=3).fit(x)
    for edge, outwards in ((x.max(), 1.0), (x.min(), -1.0)):
        far = spline.transform(edge + outwards * np.linspace(0, 5, 6)[:, None])
        np.testing.assert_allclose(np.diff(far, n=2, axis=0), 0.0, atol=1e-8)
        step = 1e-6
        beside = spline.transform(edge + outwards * step * np.asarray([[-1.0], [0.0], [1.0]]))
        np.testing.assert_allclose(beside[2] - beside[1], beside[1] - beside[0], atol=1e-9)


def test_levels_keep_values_of_their_own(rng):
    x = rng.choice([0.0, 1.0, 4.0, 9.0], size=(40, 1))
    F = np.column_stack([np.ones(40), x, Spline().fit_transform(x)])
    assert F.shape[1] == 4
    free = rng.normal(size=4)[np.searchsorted([0.0, 1.0, 4.0, 9.0], x[:, 0])]
    np.testing.assert_allclose(projector(F) @ free, free, atol=1e-10)
    spline = Spline().fit(x)
    between = spline.transform([[1.0], [2.5], [4.0]])
    np.testing.assert_allclose(between[1], 0.5 * (between[0] + between[2]), atol=1e-12)


@pytest.mark.parametrize("column", [np.full(30, 3.0), np.arange(30.0) % 2, 1.0 + 1e-17 * np.arange(30)])
def test_columns_without_curves(rng, column):
    X = np.column_stack([column, rng.normal(size=30)])
    spline = Spline().fit(X)
    assert spline.column_of_.tolist() == [1, 1, 1]
    assert np.isfinite(spline.transform(X + 5.0)).all()


def test_ties_leave_as_many_functions_as_there_can_be(rng):
    x = np.where(rng.uniform(size=200) < 0.9, 0.0, rng.uniform(size=200))[:, None]
    F = Spline().fit_transform(x)
    assert F.shape == (200, 3)
    assert np.linalg.matrix_rank(np.column_stack([np.ones(200), x, F])) == 5


def test_weights_count_rows(rng):
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    y = y + 2 * X[:, 0] * X[:, 1]
    times = rng.integers(0, 4, 40)
    for made in (Spline(), Interactions()):
        weighted = clone(made).fit(X, y, times).transform(X)
        repeated = clone(made).fit(np.repeat(X, times, axis=0), np.repeat(y, times)).transform(X)
        np.testing.assert_allclose(weighted, repeated, atol=1e-9)


def test_curves_reach_all_rows_however_light(rng):
    """Sums of weights over twenty decades are rounded before the last light row, which may lie anywhere."""
    x = rng.normal(size=(200, 1))
    weights = np.exp(rng.uniform(0, 50, 200))
    curves = Spline().fit(x, None, weights).curves_[0]
    ends = curves.centre + curves.scale * curves.knots[[0, -1]]
    np.testing.assert_allclose(ends, [x.min(), x.max()])


def test_the_right_pairs_are_found_and_few_by_chance(rng):
    X = rng.normal(size=(300, 8)) + 2.0
    pairs = Interactions().fit(X, X[:, 1] * X[:, 6] - (X[:, 1] + X[:, 6]) * 2 + rng.normal(size=300))
    assert pairs.pairs_[0].tolist() == [1, 6]
    F = pairs.transform(X)
    line = np.column_stack([np.ones(300), X[:, [1, 6]]])
    np.testing.assert_allclose(line.T @ F[:, 0], 0.0, atol=1e-8)
    np.testing.assert_allclose((F**2).mean(axis=0), 1.0)
    by_chance = [len(Interactions().fit(X, rng.normal(size=(300, 3))).pairs_) for _ in range(20)]
    assert np.mean(by_chance) < 0.3


def test_no_pair_of_a_constant_or_of_dependent_values(rng):
    switch = (rng.uniform(size=50) < 0.5).astype(float)
    X = np.column_stack([switch, 1 - switch, np.ones(50)])
    pairs = Interactions().fit(X)
    assert pairs.pairs_.shape == (0, 2)
    assert pairs.transform(X).shape == (50, 0)


def test_names(rng):
    X = np.column_stack([rng.normal(size=30), rng.integers(0, 2, 30), rng.integers(0, 3, 30)])
    names = ["age", "sex", "parity"]
    assert Linear().fit(X).get_feature_names_out(names).tolist() == names
    ages = [f"age: spline {k}" for k in (1, 2, 3)]
    assert Spline().fit(X).get_feature_names_out(names).tolist() == [*ages, "parity: spline 1"]
    assert Interactions().fit(X).get_feature_names_out(names).tolist() == ["age × sex", "age × parity", "sex × parity"]
    assert Spline().fit(X).get_feature_names_out()[0] == "x0: spline 1"


def test_what_is_refused(rng):
    X = rng.normal(size=(30, 8))
    for wrong in ({"degree": 1}, {"n_knots": 2}, {"max_levels": 0}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            Spline(**wrong).fit(X)
    with pytest.raises(DataError, match="28 pairs"):
        Interactions().fit(X)
