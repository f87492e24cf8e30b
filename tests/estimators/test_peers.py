"""What the tests of scikit-learn's linear models and graphical lassos demand of numbers, demanded of ours.

The claims are theirs, restated for this package (whose losses are sums and whose penalties therefore n times theirs), on
data of our own; tolerances are those that scikit-learn 1.9 asks of its own solvers: ``rtol=1e-7`` where none is said, six
digits for the graphical lasso, 1e-9 for a penalised GLM by Newton's method.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import nnls
from sklearn import covariance
from sklearn.datasets import load_iris
from sklearn.linear_model import (
    ElasticNet,
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    MultiTaskLasso,
    PoissonRegressor,
    Ridge,
    lasso_path,
)

from mssl import GraphicalLasso, GraphicalLassoCV, MultiTaskClassifier, MultiTaskGLM, graphical_lasso
from mssl.features import Linear
from mssl.losses import Gaussian
from mssl.penalties import L1, L21
from mssl.structures import Independent

TIGHT = 1e-12
LOSSES = ["gaussian", "poisson", "gamma"]


def ours(l1: float = 0.0, ridge: float = 0.0, loss: str = "gaussian", **more: Any) -> MultiTaskGLM:
    r"""Σ loss + ½ ridge ‖w‖² + l1 ‖w‖₁, in the units of the data."""
    penalty = L1(l1, positive=more.pop("positive", False))
    given = {"loss__noise_variance": 1.0, "features": Linear(scale=False), "tol": TIGHT} | more
    return MultiTaskGLM(Independent(ridge), penalty, loss=loss).set_params(**given)


def classifier(l1: float = 0.0, ridge: float = 0.0, **more: Any) -> MultiTaskClassifier:
    """The same of the logistic loss."""
    return MultiTaskClassifier(Independent(ridge), L1(l1), features=Linear(scale=False), **({"tol": TIGHT} | more))


def rows(seed: int = 0, n: int = 60, d: int = 5, loss: str = "gaussian") -> tuple[Any, Any]:
    """Correlated features, and targets that the loss allows, about a line through most of them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal((n, 1))
    line = 0.5 + X @ np.linspace(-0.4, 0.5, d)
    if loss == "poisson":
        return X, rng.poisson(np.exp(line)).astype(float)
    return X, rng.gamma(3.0, np.exp(line) / 3.0) if loss == "gamma" else line + 0.3 * rng.standard_normal(n)


def same(first: Any, second: Any, *, rtol: float = 1e-7, atol: float = 0.0) -> None:
    """Equal weights and intercepts, of models of one task or of as many."""
    np.testing.assert_allclose(np.atleast_2d(first.coef_), np.atleast_2d(second.coef_), rtol=rtol, atol=atol)
    np.testing.assert_allclose(np.ravel(first.intercept_), np.ravel(second.intercept_), rtol=rtol, atol=max(atol, 1e-9))


# ---- coordinate descent


@pytest.mark.parametrize("share", [1e-8, 0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_one_feature_is_soft_thresholded(share: float, ridge: float) -> None:
    x, y = np.array([-2.0, 1.0, 3.0, 0.5]), np.array([-1.0, 0.4, 2.0, 0.1])
    top = float(x @ y)
    model = ours(share * top, ridge, fit_intercept=False).fit(x[:, None], y)
    expected = max(top - share * top, 0.0) / (float(x @ x) + ridge)
    np.testing.assert_allclose(model.coef_, [[expected]], atol=1e-6)
    np.testing.assert_allclose(model.predict(np.array([[2.0], [-4.0]])), [2 * expected, -4 * expected], atol=1e-6)
    assert model.result_.relative_gap == pytest.approx(0.0, abs=1e-7)


def test_nothing_to_explain() -> None:
    model = ours(0.1, fit_intercept=False).fit(np.array([[-1.0], [0.0], [1.0]]), np.zeros(3))
    assert np.all(model.coef_ == 0)
    assert np.all(model.predict(np.array([[2.0], [5.0]])) == 0)


@pytest.mark.parametrize("shape", [(80, 6), (30, 60)], ids=["tall", "wide"])
@pytest.mark.parametrize("alpha", [0.02, 0.3])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
def test_the_elastic_net_of_scikit_learn(shape: tuple[int, int], alpha: float, l1_ratio: float) -> None:
    X, y = rows(1, *shape)
    theirs = ElasticNet(alpha, l1_ratio=l1_ratio, tol=1e-14, max_iter=10**6).fit(X, y)
    # A gap of 1e-12 is within the rounding of F on some processors, and ends as a stall with the same weights.
    model = ours(len(y) * alpha * l1_ratio, len(y) * alpha * (1 - l1_ratio), tol=1e-11).fit(X, y)
    same(model, theirs, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(model.coef_[0] != 0, theirs.coef_ != 0)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("l1", [0.0, 2.0])
def test_default_tolerances_leave_five_digits(loss: str, l1: float) -> None:
    """A gap of 1e-6 alone would leave 1e-3: the few iterations at the end matter."""
    X, y = rows(2, loss=loss)
    same(ours(l1, 6.0, loss, tol=1e-6).fit(X, y), ours(l1, 6.0, loss, tol=1e-14).fit(X, y), rtol=2e-5, atol=2e-6)


def test_a_path_is_its_points() -> None:
    X, y = rows(3, 40, 12)
    alphas, coefs, _ = lasso_path(X - X.mean(axis=0), y - y.mean(), alphas=12, tol=1e-14)
    model = ours(warm_start=True)
    for alpha, coef in zip(alphas, coefs.T, strict=True):
        warm = model.set_params(penalty=L1(len(y) * alpha)).fit(X, y)
        same(warm, ours(len(y) * alpha).fit(X, y), rtol=1e-6, atol=1e-10)
        np.testing.assert_allclose(warm.coef_[0], coef, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_all_weights_are_zero_from_the_largest_penalty_on(intercept: bool) -> None:
    X, y = rows(4, 50, 8)
    centred = X - X.mean(axis=0) if intercept else X
    top = float(np.abs(centred.T @ y).max())
    assert np.all(ours(top * (1 + 1e-12), fit_intercept=intercept).fit(X, y).coef_ == 0)
    assert np.abs(ours(0.95 * top, fit_intercept=intercept).fit(X, y).coef_).max() > 1e-3


@pytest.mark.parametrize("ridge", [1e-2, 1.0, 1e3])
@pytest.mark.parametrize("shape", [(60, 5), (20, 40)], ids=["tall", "wide"])
def test_without_l1_it_is_ridge_regression(ridge: float, shape: tuple[int, int]) -> None:
    X, y = rows(5, *shape)
    same(ours(0.0, ridge).fit(X, y), Ridge(ridge, solver="svd").fit(X, y), rtol=5e-7, atol=3e-11)


@pytest.mark.parametrize("intercept", [True, False])
def test_without_penalties_it_is_least_squares(intercept: bool) -> None:
    X, y = rows(6)
    theirs = LinearRegression(fit_intercept=intercept).fit(X, y)
    same(ours(fit_intercept=intercept).fit(X, y), theirs, atol=1e-11)
    twice = np.hstack([X, X])  # weights are not unique, predictions are
    np.testing.assert_allclose(ours(fit_intercept=intercept).fit(twice, y).predict(twice), theirs.predict(X))


def test_non_negative_weights() -> None:
    X, y = rows(7, 60, 6)
    assert ours(1.0).fit(X, y).coef_.min() < 0
    assert ours(1.0, positive=True).fit(X, y).coef_.min() >= 0
    free = ours(positive=True, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(free.coef_[0], nnls(X, y)[0], atol=1e-6, rtol=0)
    theirs = ElasticNet(0.05, positive=True, tol=1e-14).fit(X, y)
    same(ours(len(y) * 0.025, len(y) * 0.025, positive=True).fit(X, y), theirs, rtol=1e-6, atol=1e-9)


def test_unrelated_tasks_are_fitted_as_if_alone() -> None:
    X, y = rows(8, 40, 10)
    Y = np.column_stack([y, -2 * y + X[:, 0], np.abs(y)])
    joint = ours(3.0, 0.5).fit(X, Y)
    for k in range(3):
        alone = ours(3.0, 0.5).fit(X, Y[:, k])
        np.testing.assert_allclose(joint.coef_[k], alone.coef_[0], atol=1e-6)
        np.testing.assert_allclose(joint.intercept_[k], alone.intercept_[0], atol=1e-6)


def test_features_chosen_jointly() -> None:
    X, y = rows(9, 40, 8)
    Y = np.column_stack([y, y + 0.3 * X[:, 1], -y])
    theirs = MultiTaskLasso(0.1, tol=1e-14, max_iter=10**6).fit(X, Y)
    model = MultiTaskGLM(
        Independent(0.0), L21(len(y) * 0.1), loss=Gaussian(noise_variance=1.0), features=Linear(scale=False), tol=TIGHT
    ).fit(X, Y)
    same(model, theirs, rtol=1e-6, atol=1e-9)
    equal = model.fit(X, np.column_stack([y, y]))
    np.testing.assert_allclose(equal.coef_[0], equal.coef_[1], atol=1e-6)


@pytest.mark.parametrize(("l1", "ridge"), [(3.0, 0.0), (0.0, 3.0), (2.0, 2.0)])
@pytest.mark.parametrize("loss", LOSSES)
def test_sparse_and_dense_rows(l1: float, ridge: float, loss: str) -> None:
    X, y = rows(10, loss=loss)
    X = np.where(np.abs(X) < 0.6, 0.0, X)
    same(ours(l1, ridge, loss).fit(sparse.csr_array(X), y), ours(l1, ridge, loss).fit(X, y), rtol=5e-7, atol=1e-9)


@pytest.mark.parametrize(("l1", "ridge"), [(3.0, 0.0), (0.0, 3.0), (2.0, 2.0)])
@pytest.mark.parametrize("loss", [*LOSSES, "bernoulli"])
def test_weights_of_rows_are_repeats(l1: float, ridge: float, loss: str) -> None:
    X, y = rows(11, loss=loss if loss != "bernoulli" else "gaussian")
    y = (y > 0.5).astype(int) if loss == "bernoulli" else y
    make = classifier if loss == "bernoulli" else lambda l1, ridge: ours(l1, ridge, loss)
    plain = make(l1, ridge).fit(X, y)
    near = {"rtol": 1e-6, "atol": 1e-9}
    same(make(l1, ridge).fit(X, y, sample_weight=np.ones(len(y))), plain, **near)
    # Weights and penalties in other units
    same(make(7 * l1, 7 * ridge).fit(X, y, sample_weight=np.full(len(y), 7.0)), plain, **near)
    # Weight zero: the row is not there, whatever it holds
    absent = np.arange(len(y)) % 4 == 1
    wild = np.where(absent[:, None], 1e3 * X, X)
    same(make(l1, ridge).fit(wild, y, sample_weight=1.0 - absent), make(l1, ridge).fit(X[~absent], y[~absent]), **near)
    # Weight two: the row is there twice
    counts = 1 + np.arange(len(y)) % 3
    repeated = make(l1, ridge).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    same(make(l1, ridge).fit(X, y, sample_weight=counts), repeated, **near)


def test_single_precision_has_four_digits() -> None:
    X, y = rows(12, 20, 10)
    for model in (ours(2.0), ours(0.0, 2.0), ours(1.0, 1.0, positive=True)):
        double = model.fit(X, y)
        coef, intercept = double.coef_, double.intercept_
        single = model.fit(X.astype(np.float32), y.astype(np.float32))
        np.testing.assert_allclose(single.coef_, coef, atol=1.5e-4)
        np.testing.assert_allclose(single.intercept_, intercept, atol=1.5e-4)


# ---- generalised linear models


def newton(X: Any, y: Any, loss: str, ridge: float, intercept: bool) -> tuple[Any, float]:
    """An independent solver: plain Newton steps, halved while the objective rises."""
    Z = np.column_stack([X, np.ones(len(y))]) if intercept else X
    penalty = ridge * np.diag(np.r_[np.ones(X.shape[1]), np.zeros(Z.shape[1] - X.shape[1])])

    def parts(w: Any) -> tuple[float, Any, Any]:
        eta = Z @ w
        e = np.exp(eta)
        value, slope, curve = {
            "gaussian": (0.5 * (y - eta) ** 2, eta - y, np.ones(len(y))),
            "poisson": (e - y * eta, e - y, e),
            "gamma": (y / e + eta, 1 - y / e, y / e),
            "bernoulli": (np.logaddexp(0, eta) - y * eta, e / (1 + e) - y, e / (1 + e) ** 2),
        }[loss]
        return value.sum() + 0.5 * w @ penalty @ w, Z.T @ slope + penalty @ w, (Z.T * curve) @ Z + penalty

    w = np.zeros(Z.shape[1])
    for _ in range(60):
        value, slope, hessian = parts(w)
        step = np.linalg.solve(hessian, slope)
        t = 1.0
        while parts(w - t * step)[0] > value + 1e-12 * abs(value) and t > 1e-6:
            t /= 2
        w = w - t * step
    return w[: X.shape[1]], float(w[-1]) if intercept else 0.0


@pytest.mark.parametrize("loss", [*LOSSES, "bernoulli"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 5.0])
def test_nine_digits_of_newtons_method(loss: str, intercept: bool, ridge: float) -> None:
    X, y = rows(13, loss=loss if loss != "bernoulli" else "gaussian")
    y = (y > 0.4).astype(float) if loss == "bernoulli" else y
    if loss == "bernoulli" and ridge == 0:
        y[::5] = 1 - y[::5]  # no plane parts them
    make = classifier if loss == "bernoulli" else lambda **given: ours(loss=loss, **given)
    coef, level = newton(X, y, loss, ridge, intercept)
    # Unpenalised problems are asked for seven digits there, penalised ones for nine
    rtol = 1e-9 if ridge else 1e-7
    model = make(ridge=ridge, fit_intercept=intercept).fit(X, y)
    np.testing.assert_allclose(model.coef_[0], coef, rtol=rtol)
    np.testing.assert_allclose(model.intercept_, [level], rtol=rtol)
    # Features twice: halves of the weights; rows twice: twice the loss
    if ridge:
        halves = make(ridge=2 * ridge, fit_intercept=intercept).fit(np.hstack([X, X]), y)
        np.testing.assert_allclose(halves.coef_[0], np.r_[coef, coef] / 2, rtol=5e-9)
        np.testing.assert_allclose(halves.intercept_, [level], rtol=5e-9)
    twice = make(ridge=2 * ridge, fit_intercept=intercept).fit(np.vstack([X, X]), np.r_[y, y])
    np.testing.assert_allclose(twice.coef_[0], coef, rtol=5e-9 if ridge else 1e-6)
    np.testing.assert_allclose(twice.intercept_, [level], rtol=5e-9 if ridge else 1e-6)


@pytest.mark.parametrize(("loss", "peer"), [("poisson", PoissonRegressor), ("gamma", GammaRegressor)])
def test_the_glms_of_scikit_learn(loss: str, peer: Any) -> None:
    X, y = rows(14, loss=loss)
    theirs = peer(alpha=0.1, solver="newton-cholesky", tol=1e-12).fit(X, y)
    model = ours(ridge=0.1 * len(y), loss=loss).fit(X, y)
    same(model, theirs, rtol=1e-9)
    np.testing.assert_allclose(model.predict(X), theirs.predict(X), rtol=1e-7)
    assert model.score(X, y) == pytest.approx(theirs.score(X, y), rel=1e-9)


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
@pytest.mark.parametrize("intercept", [True, False])
def test_targets_on_the_curve_give_its_weights(loss: str, intercept: bool) -> None:
    coef, level = np.array([0.2, -0.1, 0.05]), 0.6 if intercept else 0.0
    X = rows(15, 40, 3)[0]
    model = ours(loss=loss, fit_intercept=intercept).fit(X, np.exp(X @ coef + level))
    np.testing.assert_allclose(model.coef_[0], coef, rtol=1e-6)
    np.testing.assert_allclose(model.intercept_, [level], rtol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_second_fit_from_the_first_is_the_same(loss: str) -> None:
    X, y = rows(16, loss=loss)
    model = ours(0.0, 3.0, loss, warm_start=True).fit(X, y)
    coef, score = model.coef_, model.score(X, y)
    np.testing.assert_allclose(model.fit(X, y).coef_, coef, rtol=1e-9)
    assert model.score(X, y) == pytest.approx(score, rel=1e-5)
    stopped = ours(0.0, 3.0, loss, warm_start=True, tol=1e-2).fit(X, y)
    np.testing.assert_allclose(stopped.set_params(tol=TIGHT).fit(X, y).coef_, coef, rtol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_endless_ridges_leave_the_mean(loss: str) -> None:
    X, y = rows(17, loss=loss)
    model = ours(ridge=1e15, loss=loss).fit(X, y)
    np.testing.assert_allclose(model.coef_, 0.0, atol=1e-10)
    level = y.mean() if loss == "gaussian" else np.log(y.mean())
    np.testing.assert_allclose(model.intercept_, [level], atol=1e-10)


# ---- classification


@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_logistic_regression_of_scikit_learn(C: float, intercept: bool) -> None:
    X, y = rows(18, 80)
    labels = np.where(y > 0.5, "yes", "no")
    theirs = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-10, fit_intercept=intercept).fit(X, labels)
    model = classifier(ridge=1 / C, fit_intercept=intercept).fit(X, labels)
    same(model, theirs, rtol=1e-5)
    np.testing.assert_array_equal(model.classes_, theirs.classes_)
    np.testing.assert_array_equal(model.predict(X), theirs.predict(X))
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(X), rtol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    # The same problem with numbers for labels, and with the labels exchanged
    same(classifier(ridge=1 / C, fit_intercept=intercept).fit(X, (y > 0.5).astype(int)), model)
    mirrored = classifier(ridge=1 / C, fit_intercept=intercept).fit(X, (y <= 0.5).astype(int))
    np.testing.assert_allclose(-mirrored.coef_, model.coef_, rtol=1e-6)


@pytest.mark.parametrize("l1_ratio", [1.0, 0.4])
def test_sparse_logistic_regression(l1_ratio: float) -> None:
    X, y = rows(19, 80)
    labels = (y > 0.5).astype(int)
    theirs = LogisticRegression(C=0.5, l1_ratio=l1_ratio, solver="saga", tol=1e-9, max_iter=10**5, random_state=0)
    model = classifier(l1_ratio / 0.5, (1 - l1_ratio) / 0.5).fit(X, labels)
    same(model, theirs.fit(X, labels), rtol=0, atol=1.5e-3)


def test_weights_of_classes_are_weights_of_their_rows() -> None:
    X, y = rows(20, 80)
    labels = (y > 0.2).astype(int)
    by_class = classifier(ridge=1.0, class_weight={0: 1.0, 1: 2.5}).fit(X, labels)
    by_row = classifier(ridge=1.0).fit(X, labels, sample_weight=np.where(labels == 1, 2.5, 1.0))
    same(by_class, by_row, rtol=0, atol=1e-10)
    balanced = classifier(ridge=1.0, class_weight="balanced").fit(X, labels)
    shares = len(labels) / (2 * np.bincount(labels))
    same(balanced, classifier(ridge=1.0, class_weight=dict(enumerate(shares))).fit(X, labels), rtol=0, atol=1e-6)


# ---- graphical lasso


def covariances() -> dict[str, Any]:
    """Of many rows, of fewer rows than columns, of flowers, and of flowers whose last column hardly moves."""
    rng = np.random.default_rng(21)
    flowers = load_iris().data
    still = flowers[100:112].copy()
    still[:, 3] = 2.0 + 1e-3 * rng.standard_normal(12)
    draws = {
        "tall": rng.standard_normal((60, 10)) @ rng.standard_normal((10, 10)) / 3,
        "wide": rng.standard_normal((8, 15)),
        "flowers": flowers,
        "still": still,
    }
    return {name: covariance.empirical_covariance(X) for name, X in draws.items()}


@pytest.mark.parametrize("name", covariances())
@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_six_digits_of_the_optimality_conditions(name: str, share: float) -> None:
    """At the default tolerance: Σ − S is α sign(Ω) on the edges, within ±α elsewhere, and zero on the diagonal."""
    S = covariances()[name]
    off = ~np.eye(len(S), dtype=bool)
    alpha = share * float(np.abs(S[off]).max())
    size = float(S.diagonal().max())
    found = graphical_lasso(S, alpha, penalize_diagonal=False)
    # An independent inverse, so that nothing rests on the covariance that is given
    excess = np.linalg.inv(found.precision) - S
    edges = off & (found.precision != 0)
    np.testing.assert_allclose(excess[edges], alpha * np.sign(found.precision[edges]), atol=1e-6 * size)
    assert np.all(np.abs(excess[off & ~edges]) <= alpha + 1e-6 * size)
    np.testing.assert_allclose(excess.diagonal(), 0.0, atol=1e-6 * size)
    tight = graphical_lasso(S, alpha, penalize_diagonal=False, tol=1e-13)
    np.testing.assert_allclose(found.covariance, tight.covariance, atol=1e-6 * size)
    np.testing.assert_allclose(found.precision, tight.precision, atol=1e-5 * tight.precision.max())
    np.testing.assert_array_equal(found.precision != 0, tight.precision != 0)


@pytest.mark.parametrize("name", ["tall", "flowers"])
@pytest.mark.parametrize("share", [0.05, 0.3])
def test_the_graphical_lasso_of_scikit_learn(name: str, share: float) -> None:
    S = covariances()[name]
    alpha = share * float(np.abs(S - np.diag(np.diag(S))).max())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = covariance.graphical_lasso(S, alpha, tol=1e-10, enet_tol=1e-12, max_iter=2000)
    found = graphical_lasso(S, alpha, penalize_diagonal=False)
    np.testing.assert_allclose(found.covariance, theirs[0], atol=1e-6 * S.max())
    np.testing.assert_allclose(found.precision, theirs[1], atol=1e-5 * theirs[1].max())


def test_two_variables_in_closed_form() -> None:
    S = np.array([[4.0, -1.0], [-1.0, 2.0]])
    for alpha in (0.0, 0.3, 0.999, 1.0, 3.0):
        sigma = np.array([[4.0, -max(1.0 - alpha, 0.0)], [-max(1.0 - alpha, 0.0), 2.0]])
        found = graphical_lasso(S, alpha, penalize_diagonal=False)
        np.testing.assert_allclose(found.covariance, sigma, atol=1e-6)
        np.testing.assert_allclose(found.precision, np.linalg.inv(sigma), atol=1e-6)


def test_without_a_penalty_it_is_the_inverse() -> None:
    X = np.random.default_rng(22).standard_normal((100, 10))
    S = covariance.empirical_covariance(X)
    np.testing.assert_allclose(GraphicalLasso(0.0, covariance="precomputed").fit(S).precision_, np.linalg.inv(S))
    np.testing.assert_allclose(graphical_lasso(S, 0.0).precision, np.linalg.inv(S))


def test_rows_their_covariance_and_centred_rows_are_one_problem() -> None:
    X = np.random.default_rng(23).standard_normal((60, 5)) + np.arange(5)
    model = GraphicalLasso(0.05).fit(X)
    given = GraphicalLasso(0.05, covariance="precomputed").fit(covariance.empirical_covariance(X))
    np.testing.assert_allclose(model.covariance_, given.covariance_, rtol=1e-6)
    centred = GraphicalLasso(0.05, assume_centered=True).fit(X - X.mean(axis=0))
    np.testing.assert_allclose(model.precision_, centred.precision_, atol=1e-6)


def test_folds_are_summed_up_in_their_means() -> None:
    X = np.random.default_rng(24).standard_normal((60, 4)) @ (np.eye(4) + 0.5)
    model = GraphicalLassoCV(alphas=[0.3, 0.05, 0.1], cv=3).fit(X)
    table = np.array([model.cv_results_[f"split{i}_test_score"] for i in range(3)])
    np.testing.assert_allclose(model.cv_results_["mean_test_score"], table.mean(axis=0))
    np.testing.assert_allclose(model.cv_results_["std_test_score"], table.std(axis=0))
    for kind in (list, tuple, np.array):
        assert GraphicalLassoCV(alphas=kind([0.05, 0.3, 0.1]), cv=3).fit(X).alpha_ == model.alpha_
