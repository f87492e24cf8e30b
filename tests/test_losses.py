"""Laws of the losses: derivatives, conjugates, balance, deviance, and no overflow where none is needed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from negative_binomial import NegativeBinomial
from scipy.optimize import minimize
from scipy.special import digamma, logit
from scipy.stats import nbinom
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold

from mssl import BayesianMSSLRegressor, MSSLRegressor, MSSLRegressorCV, MultiTaskGLM
from mssl.exceptions import DataError, ParameterError
from mssl.features import Linear
from mssl.losses import LOSSES, Bernoulli, Gamma, Gaussian, Huber, Loss, Poisson, resolve_loss
from mssl.model_selection import TaskKFold
from mssl.structures import Independent

RNG = np.random.default_rng(0)
TARGETS = {
    "gaussian": RNG.normal(size=60),
    "huber": RNG.standard_t(2, size=60),
    "bernoulli": RNG.integers(0, 2, size=60).astype(float),
    "poisson": RNG.poisson(3.0, size=60).astype(float),
    "gamma": RNG.gamma(2.0, size=60),
    "negative binomial": RNG.poisson(RNG.gamma(2.0, size=60)).astype(float),
}
ETA = np.concatenate([RNG.normal(scale=2.0, size=57), [-4.0, 0.0, 4.0]])


# A loss of a user stands beside those of the package: the same laws, one class and one row.
CASES = [*LOSSES, Huber(0.8), NegativeBinomial(0.7)]
LINKS = {
    "gaussian": np.asarray,
    "huber": np.asarray,
    "bernoulli": logit,
    "poisson": np.log,
    "gamma": np.log,
    "negative binomial": np.log,
}


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> tuple[Loss, np.ndarray]:
    loss = resolve_loss(request.param)
    return loss, TARGETS[loss.name]


def test_gradient_is_the_derivative_of_the_value(case):
    loss, y = case
    h = 1e-6
    slope = (loss.value(y, ETA + h) - loss.value(y, ETA - h)) / (2 * h)
    np.testing.assert_allclose(loss.gradient(y, ETA), slope, rtol=1e-6, atol=1e-7)


def test_observed_curvature_is_the_second_derivative(case):
    loss, y = case
    h = 1e-5
    curve = (loss.gradient(y, ETA + h) - loss.gradient(y, ETA - h)) / (2 * h)
    np.testing.assert_allclose(loss.observed_curvature(y, ETA), curve, rtol=1e-6, atol=1e-7)


def test_derivatives_together_are_those_apart(case):
    loss, y = case
    far = np.concatenate([ETA, np.linspace(-60, 60, len(ETA))])
    gradient, curvature = loss.derivatives(np.tile(y, 2), far)
    np.testing.assert_allclose(gradient, loss.gradient(np.tile(y, 2), far), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(curvature, loss.observed_curvature(np.tile(y, 2), far), rtol=1e-12)


def test_sums_of_derivatives_are_those_of_the_rows(case):
    loss, y = case
    weights, starts = RNG.uniform(0.5, 2.0, size=len(y)), np.array([0, 17, 40])
    far = np.where(np.arange(len(y)) < 40, ETA, 30 * ETA)
    gradient, curvature = loss.derivatives(y, far)
    slopes, curves = loss.derivative_sums(y, far, weights, starts)
    np.testing.assert_allclose(slopes, np.add.reduceat(weights * gradient, starts), rtol=1e-12)
    np.testing.assert_allclose(curves, np.add.reduceat(weights * curvature, starts), rtol=1e-12)


def test_expected_curvature_is_the_mean_of_the_observed(case):
    loss, _ = case
    eta = np.linspace(-2, 2, 7)
    mean = loss.inverse_link(eta)
    # The observed curvature is linear in y for every loss here, so its mean is its value at the mean target.
    np.testing.assert_allclose(loss.curvature(mean, eta), loss.observed_curvature(mean, eta), rtol=1e-12)


def test_curvature_stays_below_its_bound(case):
    loss, y = case
    if loss.curvature_bound is not None:
        assert loss.curvature(y, ETA).max() <= loss.curvature_bound
        assert loss.curvature(y, np.zeros_like(y)).max() == pytest.approx(loss.curvature_bound)
    elif loss.name == "negative binomial":  # bounded row by row, not over all targets
        assert np.all(loss.observed_curvature(y, ETA) <= (y + loss.theta) / 4)
    else:
        assert max(loss.observed_curvature(y, np.full_like(y, shift)).max() for shift in (-20.0, 20.0)) > 1e6


def test_gradient_vanishes_at_the_link_of_the_target(case):
    loss, y = case
    inside = np.clip(y, 0.2, 0.8) if loss.name == "bernoulli" else np.maximum(y, 0.5) if loss.edges else y
    eta = LINKS[loss.name](inside)
    np.testing.assert_allclose(loss.gradient(inside, eta), 0.0, atol=1e-12)
    np.testing.assert_allclose(loss.inverse_link(eta), inside, rtol=1e-12)


def test_deviance_is_twice_the_loss_above_a_perfect_fit(case):
    loss, y = case
    inside = np.clip(y, 0.2, 0.8) if loss.name == "bernoulli" else np.maximum(y, 0.5) if loss.edges else y
    lost = 2 * (loss.value(inside, ETA) - loss.value(inside, LINKS[loss.name](inside)))
    np.testing.assert_allclose(loss.deviance(inside, loss.inverse_link(ETA)), lost, rtol=1e-9, atol=1e-12)
    assert np.all(loss.deviance(y, loss.inverse_link(ETA)) >= 0)


def test_deviance_at_a_predictor_is_the_deviance_at_its_mean(case):
    loss, y = case
    np.testing.assert_allclose(
        loss.deviance_at(y, ETA), loss.deviance(y, loss.inverse_link(ETA)), rtol=1e-9, atol=1e-12
    )


def test_deviance_at_a_predictor_stays_finite_where_the_mean_rounds_to_an_edge():
    sure_and_wrong = Bernoulli().deviance_at(np.array([1.0, 0.0]), np.array([-900.0, 900.0]))
    np.testing.assert_allclose(sure_and_wrong, 1800.0)
    assert np.isfinite(Poisson().deviance_at(np.array([3.0]), np.array([-900.0]))).all()


@settings(deadline=None, max_examples=60)
@given(name=st.sampled_from(sorted(LOSSES)), eta=st.floats(-8, 8), share=st.floats(0, 1), other=st.floats(-8, 8))
def test_fenchel_young(name, eta, share, other):
    loss, y = resolve_loss(name), TARGETS[name]
    here, there = np.full_like(y, eta), np.full_like(y, other)
    u = loss.gradient(y, here)
    touching = loss.value(y, here) + loss.conjugate(y, u) - u * here
    size = 1.0 + np.abs(loss.value(y, here)) + np.abs(u * here)
    assert np.all(np.abs(touching) <= 1e-9 * size)
    part = share * u
    above = loss.value(y, there) + loss.conjugate(y, part) - part * there
    assert np.all(above >= -1e-9 * (1.0 + np.abs(loss.value(y, there)) + np.abs(part * there)))


def test_closed_intercepts_balance_the_gradient(case):
    loss, y = case
    weights, starts = RNG.uniform(0.5, 2.0, size=60), np.array([0, 10, 35])
    b = loss.balance(y, ETA, weights, starts)
    if b is None:
        assert isinstance(loss, Bernoulli | Huber | NegativeBinomial)  # these have no closed form
        return
    slopes = np.add.reduceat(weights * loss.gradient(y, ETA + np.repeat(b, [10, 25, 25])), starts)
    np.testing.assert_allclose(slopes, 0.0, atol=1e-10)


def test_extreme_predictors_give_no_nan(case):
    loss, y = case
    for eta in (-1e300, -800.0, 800.0, 1e300):
        with np.errstate(over="ignore"):
            parts = [loss.value(y, np.full_like(y, eta)), loss.gradient(y, np.full_like(y, eta))]
        assert not any(np.isnan(part).any() for part in parts)
    assert not np.isnan(loss.curvature(y, np.array([-800.0, 800.0] * 30))).any()


def test_balance_survives_huge_predictors():
    y, weights, starts = np.array([1.0, 3.0]), np.ones(2), np.array([0])
    for loss in (Poisson(), Gamma()):
        b = loss.balance(y, np.array([1e5, -1e5]), weights, starts)
        assert np.all(np.isfinite(b))


def test_ranges():
    assert Bernoulli().in_range(np.array([0.0, 1.0, 0.5, 2.0])).tolist() == [True, True, False, False]
    assert Poisson().in_range(np.array([0.0, 2.5, -1.0, np.inf])).tolist() == [True, True, False, False]
    assert Gamma().in_range(np.array([1e-9, 0.0, -1.0, np.nan])).tolist() == [True, False, False, False]
    assert Gaussian().in_range(np.array([-1.0, np.inf])).tolist() == [True, False]


def test_variances_are_those_of_the_family():
    mean = np.array([0.2, 0.7])
    assert np.allclose(Bernoulli().variance(mean), mean * (1 - mean))
    assert np.allclose(Poisson().variance(mean), mean)
    assert np.allclose(Gamma().variance(mean), mean**2)
    assert np.allclose(Gaussian().variance(mean), 1.0)


def test_unknown_loss_is_named():
    with pytest.raises(ParameterError, match="allowed are 'gaussian'"):
        resolve_loss("hinge")
    assert isinstance(resolve_loss(Poisson()), Poisson)


# A loss of a user with a parameter: fitted, searched, cloned


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(3)
    tasks = np.repeat([0, 1, 2], 150)
    X = rng.normal(size=(450, 3))
    mean = np.exp(1.0 + X @ np.array([0.6, -0.4, 0.0]))
    return X, rng.poisson(mean * rng.gamma(0.5, 2.0, size=450)).astype(float), tasks


@pytest.mark.parametrize("model", [MSSLRegressor(0.1, tol=1e-8), MultiTaskGLM(Independent(2.0), tol=1e-8)])
def test_a_loss_of_a_user_is_fitted_to_its_certificate(counts, model):
    X, y, tasks = counts
    loss = NegativeBinomial(0.5)
    fitted = clone(model).set_params(loss=loss).fit(X, y, tasks=tasks)
    assert fitted.result_.relative_gap <= 1e-8
    if isinstance(fitted, MultiTaskGLM):  # the gradient of what is minimised vanishes, written out by hand
        eta = np.einsum("nd,nd->n", X, fitted.coef_[tasks]) + fitted.intercept_[tasks]
        slope = loss.gradient(y, eta)
        pooled = np.sqrt(np.mean([X[tasks == k].var(axis=0) for k in range(3)], axis=0))
        for k in range(3):
            own = tasks == k
            assert abs(slope[own].sum()) < 1e-2
            np.testing.assert_allclose(X[own].T @ slope[own] / pooled + 2.0 * pooled * fitted.coef_[k], 0.0, atol=1e-2)
    other = clone(model).set_params(loss=NegativeBinomial(50.0)).fit(X, y, tasks=tasks)
    assert np.abs(fitted.coef_ - other.coef_).max() > 1e-3
    near = clone(model).set_params(loss=NegativeBinomial(1e4)).fit(X, y, tasks=tasks)
    poisson = clone(model).set_params(loss="poisson").fit(X, y, tasks=tasks)
    np.testing.assert_allclose(near.coef_, poisson.coef_, atol=5e-3)


def test_a_parameter_of_a_loss_is_cloned_and_set():
    model = MultiTaskGLM(loss=NegativeBinomial(0.5))
    copy = clone(model).set_params(loss__theta=3.0)
    assert (model.loss.theta, copy.loss.theta) == (0.5, 3.0)
    assert model.get_params()["loss__theta"] == 0.5
    assert clone(Poisson(4.0)).get_params() == {"noise_variance": 4.0}


def test_a_parameter_of_a_loss_is_searched(counts):
    X, y, tasks = counts
    frame = np.column_stack([X, tasks])
    grid = {"loss__theta": [0.05, 0.5, 50.0]}
    folds = KFold(3, shuffle=True, random_state=0)
    model = MSSLRegressor(0.1, loss=NegativeBinomial(), task_column=3)

    def likelihood(fitted, X, y):
        mean, theta = fitted.predict(X), fitted.loss_.theta
        return np.mean(nbinom.logpmf(y, theta, theta / (theta + mean)))

    search = GridSearchCV(model, grid, scoring=likelihood, cv=folds).fit(frame, y)
    assert search.best_params_ == {"loss__theta": 0.5}  # what the counts were drawn with
    general = MultiTaskGLM(Independent(2.0), loss=NegativeBinomial(), task_column=3)
    ours = MSSLRegressorCV(general, grid, refit="best", scoring=likelihood, cv=folds).fit(frame, y)
    theirs = GridSearchCV(general, grid, scoring=likelihood, cv=folds).fit(frame, y)
    assert ours.best_params_ == theirs.best_params_ == {"loss__theta": 0.5}
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], rtol=1e-3)
    assert ours.loss_.theta == 0.5


@pytest.mark.filterwarnings("ignore:All targets are positive")
def test_losses_of_different_kinds_are_searched_by_one_yardstick(counts):
    X, y, tasks = counts
    search = MSSLRegressorCV(MultiTaskGLM(Independent(2.0)), {"loss": ["gaussian", "poisson"]}, refit="best", cv=3)
    search.fit(X, y + 1, tasks=tasks)
    fits = [MultiTaskGLM(Independent(2.0), loss=loss).fit(X, y + 1, tasks=tasks) for loss in ("gaussian", "poisson")]
    best = fits[["gaussian", "poisson"].index(search.best_params_["loss"])]
    np.testing.assert_allclose(search.coef_, best.coef_, rtol=1e-6)
    # The yardstick is the given estimator's: squared errors of the means, in units of one noise for both losses.
    splits = list(TaskKFold(3).split(X, y + 1, tasks))
    losses = [Gaussian(noise_variance=4.0), Poisson(noise_variance=4.0)]
    given = MultiTaskGLM(Independent(2.0), loss=losses[0])
    search = MSSLRegressorCV(given, {"loss": losses}, refit="best", cv=splits, search_tol=1e-8)
    scores = search.fit(X, y + 1, tasks=tasks).cv_results_["mean_test_score"]
    for score, loss in zip(scores, losses, strict=True):
        by_hand = []
        for train, test in splits:
            model = clone(given).set_params(loss=loss, tol=1e-8).fit(X[train], y[train] + 1, tasks=tasks[train])
            errors = (model.predict(X[test], tasks=tasks[test]) - y[test] - 1) ** 2
            by_hand.append(-np.mean([errors[tasks[test] == k].mean() for k in range(3)]) / 4.0)
        assert score == pytest.approx(np.mean(by_hand), rel=1e-4)
    with pytest.raises(DataError, match="out of range for the gamma loss"):
        search.set_params(param_grid={"loss": ["gaussian", "gamma"]}).fit(X, y, tasks=tasks)


def test_huber_fits_are_those_of_a_general_solver_and_stay_put_under_outliers(rng):
    X, tasks = rng.normal(size=(120, 3)), np.repeat([0, 1], 60)
    y = X @ [1.0, -2.0, 0.5] + 0.3 * rng.standard_t(2, size=120)
    loss = Huber(0.4)
    model = (
        MultiTaskGLM(Independent(2.0), loss=loss, features=Linear(scale=False), tol=1e-10)
        .set_params(loss__noise_variance=1.0)
        .fit(X, y, tasks=tasks)
    )
    rows = tasks == 0

    def objective(w):
        return loss.value(y[rows], X[rows] @ w[:3] + w[3]).sum() + w[:3] @ w[:3]

    found = minimize(objective, np.zeros(4), method="BFGS", options={"gtol": 1e-8}).x
    np.testing.assert_allclose(np.r_[model.coef_[0], model.intercept_[0]], found, atol=1e-5)
    wild = y.copy()
    wild[:3] += 1e4
    plain, robust = (MSSLRegressor(loss=one).set_params(loss__noise_variance=1.0) for one in ("gaussian", loss))
    moved = [np.abs(m.fit(X, wild, tasks=tasks).coef_ - [1.0, -2.0, 0.5]).max() for m in (plain, robust)]
    assert moved[1] < 0.3 < moved[0]


# --- likelihoods -----------------------------------------------------------------------------------------------------


LIKELIHOODS = [Gaussian(), Bernoulli(), Poisson(), Gamma(), NegativeBinomial(0.7)]


@pytest.mark.parametrize("loss", LIKELIHOODS, ids=lambda loss: loss.name)
@pytest.mark.parametrize("dispersion", [1.0, 0.3])
@pytest.mark.parametrize("eta", [-0.7, 1.2])
def test_densities_integrate_to_the_distribution_function_and_have_its_moments(loss, dispersion, eta):
    dispersion = dispersion if loss.has_dispersion else 1.0
    if loss.discrete:
        y, width = np.arange(2.0 if loss.labels else 3000.0), 1.0
    else:
        y = np.linspace(-12 if loss.identity else 1e-9, 80, 400_001)
        width = y[1] - y[0]
    mass = np.exp(loss.log_density(y, np.full(len(y), eta), dispersion)) * width
    mean = loss.inverse_link(np.full(1, eta))[0]
    whole = slice(None, None, max(len(y) // 50, 1))
    below = loss.cdf(y, np.full(len(y), mean), dispersion)
    np.testing.assert_allclose(
        (np.cumsum(mass) - (0 if loss.discrete else 0.5) * (mass + mass[0]))[whole],
        below[whole],
        atol=1e-6 if loss.discrete else 2e-4,
    )
    assert mass @ y == pytest.approx(mean, rel=1e-3, abs=1e-4)
    variance = loss.variance(np.full(1, mean), dispersion)[0]
    assert mass @ (y - mean) ** 2 == pytest.approx(variance, rel=2e-3, abs=1e-4)


@pytest.mark.parametrize("loss", LIKELIHOODS, ids=lambda loss: loss.name)
def test_forecasts_have_densities_quantiles_and_moments_of_one_distribution(loss):
    """Student's t of many degrees of freedom is normal."""
    forecast = loss.forecast(*(np.full(4000, value) for value in (0.6, 0.3, 0.5, 1e7)))
    y = (
        np.arange(2.0 if loss.labels else 4000.0)
        if loss.discrete
        else np.linspace(-9 if loss.identity else 1e-9, 60, 4000)
    )
    mass = np.exp(forecast.take(np.arange(len(y))).log_density(y)) * (y[1] - y[0])
    assert mass.sum() == pytest.approx(1, abs=1e-5 if loss.discrete else 3e-3)
    mean, variance = (part[0] for part in forecast.moments())
    assert mass @ y == pytest.approx(mean, rel=5e-3)
    assert mass @ (y - mean) ** 2 == pytest.approx(variance, rel=2e-2)
    if not loss.labels:
        levels = np.array([0.1, 0.5, 0.9])
        for level, end in zip(levels, forecast.take(np.arange(1)).quantile(levels)[0], strict=True):
            if loss.discrete:
                assert mass[y < end].sum() < level + 1e-6
                assert mass[y <= end].sum() >= level - 1e-6
            else:
                assert mass[y <= end].sum() == pytest.approx(level, abs=1e-2)


def test_slopes_in_the_logarithm_of_a_parameter_are_those_of_the_density():
    y, eta, theta = np.array([0.0, 3.0, 11.0]), np.array([0.2, 1.0, -0.5]), 0.7
    found = NegativeBinomial(theta).parameter_slopes(y, eta)
    rate = np.exp(eta)
    exact = digamma(y + theta) - digamma(theta) + np.log(theta / (theta + rate)) + 1 - (y + theta) / (theta + rate)
    np.testing.assert_allclose(found, theta * exact[None], rtol=1e-6)
    assert Poisson().parameter_slopes(y, eta).shape == (0, 3)


@pytest.mark.parametrize("theta", [0.6, 5.0])
def test_a_loss_of_a_user_is_fitted_by_evidence_and_its_parameter_is_learned(theta):
    random = np.random.default_rng(1)
    K, n = 4, 160
    X, tasks = random.normal(size=(2 * K * n, 2)), np.tile(np.repeat(np.arange(K), n), 2)
    rate = np.exp(1 + X @ [0.5, -0.3] + 0.2 * random.normal(size=K)[tasks])
    y = random.poisson(random.gamma(theta, rate / theta)).astype(float)
    train, test = slice(0, K * n), slice(K * n, None)
    model = BayesianMSSLRegressor("mean", loss=NegativeBinomial(2.0), features="linear", cv=3)
    model.fit(X[train], y[train], tasks=tasks[train])
    assert model.loss_.theta == pytest.approx(theta, rel=0.35)
    assert model.loss.theta == 2.0
    low, high = model.predict_interval(X[test], 0.9, tasks=tasks[test]).T
    assert np.mean((low <= y[test]) & (y[test] <= high)) > 0.86
    assert np.mean(y[test] < high) > 0.88
    np.testing.assert_allclose(model.coef_.mean(axis=0), [0.5, -0.3], atol=0.15)
    mean, std = model.predict(X[test], tasks=tasks[test], return_std=True)
    np.testing.assert_allclose(np.mean(((y[test] - mean) / std) ** 2), 1.0, rtol=0.35)
    plain = BayesianMSSLRegressor("mean", loss="poisson", features="linear", cv=3)
    plain.fit(X[train], y[train], tasks=tasks[train])
    assert model.evidence_ > plain.evidence_ + 5
    assert model.held_out_.score > plain.held_out_.score


def test_a_loss_without_a_density_is_refused_by_bayesian_fits():
    with pytest.raises(ParameterError, match="log_base"):
        BayesianMSSLRegressor(loss=Huber()).fit(np.zeros((4, 1)), np.arange(4.0), tasks=[0, 0, 1, 1])
