"""In the place of scikit-learn's graphical lassos: the same answers, at a better certificate."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import covariance
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.utils.estimator_checks import check_estimator

import mssl
from mssl import GraphicalLasso, GraphicalLassoCV
from mssl.exceptions import DataError, ParameterError


def draw(seed, n=80, p=6):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) / np.sqrt(p) + rng.normal(size=p)


def objective(S, precision, alpha):
    off = precision - np.diag(np.diag(precision))
    return np.sum(S * precision) - np.linalg.slogdet(precision)[1] + alpha * np.abs(off).sum()


@pytest.mark.parametrize("estimator", [GraphicalLasso(), GraphicalLassoCV(cv=2)])
def test_check_estimator(estimator):
    results = check_estimator(estimator, on_skip=None, on_fail=None)
    assert not [(r["check_name"], r["exception"]) for r in results if r["status"] not in ("passed", "skipped")]


@given(seed=st.integers(0, 10**6), p=st.integers(2, 8), share=st.floats(0.01, 1.2), centred=st.booleans())
@settings(deadline=None, max_examples=30)
def test_the_same_estimate_as_scikit_learns(seed, p, share, centred):
    X = draw(seed, p=p)
    S = covariance.empirical_covariance(X, assume_centered=centred)
    alpha = share * np.abs(S - np.diag(np.diag(S))).max()
    ours = GraphicalLasso(alpha, assume_centered=centred, tol=1e-9).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = covariance.GraphicalLasso(alpha, assume_centered=centred, tol=1e-8, enet_tol=1e-8, max_iter=500).fit(X)
    value = objective(S, ours.precision_, alpha)
    assert value == pytest.approx(ours.costs_[-1][0], rel=1e-9, abs=1e-9)
    assert value <= objective(S, theirs.precision_, alpha) + ours.costs_[-1][1] + 1e-9
    np.testing.assert_allclose(ours.covariance_, theirs.covariance_, atol=1e-3 * np.abs(S).max())
    # The diagonal is not penalised, so that variances are the data's own, as exactly as the gap g says: F is
    # self-concordant, so that relative errors are at most about √(2 g).
    np.testing.assert_allclose(np.diag(ours.covariance_), np.diag(S), rtol=2 * np.sqrt(ours.costs_[-1][1]) + 1e-12)
    np.testing.assert_allclose(ours.location_, theirs.location_, atol=1e-12)
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=1e-3, abs=1e-3)
    np.testing.assert_allclose(ours.mahalanobis(X), theirs.mahalanobis(X), rtol=0.05, atol=1e-3)
    assert ours.error_norm(S) == pytest.approx(theirs.error_norm(S), rel=1e-2, abs=1e-4 * np.abs(S).max())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alphas", [4, [0.01, 0.3, 0.05]])
def test_the_same_choice_as_scikit_learns(seed, alphas):
    chain = np.eye(8) + 0.4 * (np.eye(8, k=1) + np.eye(8, k=-1))
    X = np.random.default_rng(seed).multivariate_normal(np.zeros(8), np.linalg.inv(chain), size=60)
    cv = KFold(3, shuffle=True, random_state=0)
    ours = GraphicalLassoCV(alphas=alphas, cv=cv, tol=1e-9).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs may not converge
        theirs = covariance.GraphicalLassoCV(alphas=alphas, cv=cv, tol=1e-7, enet_tol=1e-7, max_iter=2000).fit(X)
    assert set(ours.cv_results_) == set(theirs.cv_results_)
    np.testing.assert_allclose(ours.cv_results_["alphas"][:4], theirs.cv_results_["alphas"][:4], rtol=1e-6)
    tiny = GraphicalLassoCV(alphas=[1e-7], cv=cv).fit(X).cv_results_["mean_test_score"]
    np.testing.assert_allclose(tiny[0], tiny[1], rtol=1e-3)
    assert ours.cv_results_["mean_test_score"][-1] == tiny[1]
    assert ours.alpha_ == pytest.approx(theirs.alpha_, rel=0.05)
    best = ours.cv_results_["mean_test_score"][:-1].max()
    assert best >= theirs.cv_results_["mean_test_score"][:-1].max() - 1e-4
    np.testing.assert_array_equal(ours.precision_, GraphicalLasso(ours.alpha_, tol=1e-9).fit(X).precision_)


def test_a_covariance_may_be_given():
    X = draw(0)
    S = covariance.empirical_covariance(X)
    one, other = GraphicalLasso(0.1).fit(X), GraphicalLasso(0.1, covariance="precomputed").fit(S)
    np.testing.assert_allclose(one.precision_, other.precision_, rtol=1e-9)
    np.testing.assert_array_equal(other.location_, 0.0)
    with pytest.raises(ParameterError, match="'precomputed' and None"):
        GraphicalLasso(covariance="given").fit(S)


def test_it_is_searched_cloned_and_saved(tmp_path, capsys):
    X = draw(1)
    search = GridSearchCV(GraphicalLasso(), {"alpha": [0.01, 0.1, 1.0]}, cv=3).fit(X)
    assert search.best_params_["alpha"] in (0.01, 0.1, 1.0)
    for model in (GraphicalLasso(0.2, verbose=1), GraphicalLassoCV(cv=3, n_refinements=2, verbose=1)):
        fitted = clone(model).fit(X)
        assert capsys.readouterr().err
        again = mssl.load(mssl.save(fitted, tmp_path / "m.npz"))
        np.testing.assert_array_equal(again.precision_, fitted.precision_)
        assert again.score(X) == fitted.score(X)


def test_impossible_parameters_are_named():
    X = draw(2)
    for model, words in (
        (GraphicalLasso(-1.0), "alpha is -1"),
        (GraphicalLassoCV(alphas=1), "alphas is 1"),
        (GraphicalLassoCV(alphas=[0.1, 0.0]), "alphas is 0"),
        (GraphicalLassoCV(n_refinements=0), "n_refinements is 0"),
    ):
        with pytest.raises((ParameterError, DataError), match=words):
            model.fit(X)
    with pytest.raises(DataError, match="uncorrelated"):
        GraphicalLassoCV().fit(np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]] * 5))
