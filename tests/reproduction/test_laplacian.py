"""Laws of the Laplacian score."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.utils.estimator_checks import parametrize_with_checks

from mssl.exceptions import ParameterError
from mssl_reproduction.laplacian import LaplacianScore


def brute_force(X, k, weights, bandwidth):
    """The definition, with dense n × n matrices."""
    squares = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    nearest = np.argsort(squares, axis=1)[:, :k]
    joined = np.zeros(squares.shape, dtype=bool)
    np.put_along_axis(joined, nearest, True, axis=1)
    t = squares[joined].mean() if bandwidth is None else bandwidth
    joined |= joined.T
    S = np.where(joined, np.exp(-squares / t) if weights == "heat" else 1.0, 0.0)
    D = np.diag(S.sum(axis=1))
    ones = np.ones(len(X))
    scores = []
    for f in X.T:
        centred = f - (f @ D @ ones) / (ones @ D @ ones) * ones
        scores.append((centred @ (D - S) @ centred) / (centred @ D @ centred))
    return np.array(scores)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(8, 40),
    k=st.integers(1, 6),
    weights=st.sampled_from(["heat", "binary"]),
    bandwidth=st.sampled_from([None, 3.0]),
    as_sparse=st.booleans(),
)
def test_scores_are_the_definition(seed, n, k, weights, bandwidth, as_sparse):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 7))
    X[:, 3:] *= rng.random((n, 4)) < 0.7
    X[0, 3:] = 1.0  # no column is constant
    X[1, 3:] = -1.0
    given_X = sparse.csr_array(X) if as_sparse else X
    fitted = LaplacianScore(3, n_neighbors=k, weights=weights, bandwidth=bandwidth).fit(given_X)
    expected = brute_force(X, k, weights, bandwidth)
    np.testing.assert_allclose(fitted.scores_, expected, rtol=1e-8)
    assert fitted.support_.sum() == 3
    assert fitted.scores_[fitted.support_].max() <= fitted.scores_[~fitted.support_].min()


def test_many_edges_are_summed_over_chunks():
    X = np.random.default_rng(0).standard_normal((400, 5))
    np.testing.assert_allclose(LaplacianScore(2).fit(X).scores_, brute_force(X, 5, "heat", None), rtol=1e-8)


def test_score_of_a_feature_ignores_its_origin_and_scale_on_a_given_graph():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 4))
    X = np.column_stack([X, X[:, 0] * 1e-6, X[:, 0] * 1e-6 + 3.0])
    scores = LaplacianScore(2).fit(X).scores_
    np.testing.assert_allclose(scores[4:], scores[0], rtol=1e-3)


def test_constant_features_come_last_in_both_forms():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 6)) * (rng.random((30, 6)) < 0.6)
    X[:, 1], X[:, 4] = 0.0, 0.1
    for form in (X, sparse.csr_array(X)):
        fitted = LaplacianScore(4).fit(form)
        assert np.isposinf(fitted.scores_[[1, 4]]).all()
        assert np.isfinite(fitted.scores_[[0, 2, 3, 5]]).all()
        assert fitted.get_support().tolist() == [True, False, True, True, False, True]


def test_sparse_stays_sparse_and_equals_dense():
    X = sparse.random_array((80, 50), density=0.2, rng=np.random.default_rng(3), format="csr")
    selector = LaplacianScore(0.3)
    chosen = selector.fit_transform(X)
    assert sparse.issparse(chosen)
    assert chosen.shape == (80, 15)
    dense = LaplacianScore(0.3).fit(X.toarray())
    np.testing.assert_allclose(selector.scores_, dense.scores_, rtol=1e-10)
    np.testing.assert_array_equal(chosen.toarray(), dense.transform(X.toarray()))


def test_duplicate_rows_are_neighbours():
    X = np.repeat(np.random.default_rng(4).standard_normal((10, 3)), 2, axis=0)
    scores = LaplacianScore(1, n_neighbors=1).fit(X).scores_
    np.testing.assert_allclose(scores, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"n_features_to_select": 0}, "is 0; give a whole number ≥ 1, or a share"),
        ({"n_features_to_select": 1.5}, r"is 1\.5; give a number above 0 and ≤ 1, or a whole number"),
        ({"n_features_to_select": "many"}, "is 'many'; give"),
        ({"n_neighbors": 0}, "n_neighbors is 0; give a whole number ≥ 1"),
        ({"weights": "cold"}, "weights is 'cold'; allowed are 'heat', 'binary'"),
        ({"bandwidth": 0.0}, r"bandwidth is 0\.0; give a number above 0, or None"),
        ({"bandwidth": 1e-300}, "bandwidth is 1e-300; give a number near .*every edge weight is zero"),
    ],
)
def test_bad_parameters_are_explained(parameters, words):
    with pytest.raises(ParameterError, match=words):
        LaplacianScore(**parameters).fit(np.random.default_rng(0).standard_normal((20, 3)))


@parametrize_with_checks([LaplacianScore(n_features_to_select=1)])
def test_scikit_learn_conventions(estimator, check):
    check(estimator)
