"""Scales of targets: there and back, means by quadrature and by chance, the choice, and predictions in user's units."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm, yeojohnson

import mssl
from mssl import MSSLRegressor, MSSLRegressorCV
from mssl.data import read_tasks
from mssl.data.targets import TargetTransform, learn_transform
from mssl.exceptions import DataError, ParameterError

SCALES = [TargetTransform("log"), *(TargetTransform("yeo-johnson", p, 0.5, 2.0) for p in (0.0, 0.3, 1.0, 1.7, 2.0))]


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_there_and_back_in_order_with_the_slope_as_told(scale):
    y = np.linspace(0.01, 40, 200) if scale.kind == "log" else np.linspace(-40, 40, 201)
    z = scale.forward(y)
    assert np.all(np.diff(z) > 0)
    np.testing.assert_allclose(scale.inverse(z), y, rtol=1e-10, atol=1e-10)
    h = 1e-6
    slope = (scale.forward(y + h) - scale.forward(y - h)) / (2 * h)
    np.testing.assert_allclose(np.exp(scale.log_slope(y)), slope, rtol=1e-5)


@given(st.floats(0.0, 2.0), st.lists(st.floats(-50, 50), min_size=1, max_size=5))
def test_powers_are_those_of_scipy(power, values):
    y = np.asarray(values)
    np.testing.assert_allclose(
        TargetTransform("yeo-johnson", power).forward(y), yeojohnson(y, power), atol=1e-9, rtol=1e-9
    )


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize(("mu", "sd"), [(0.3, 0.2), (-1.0, 1.0)])
def test_means_are_integrals(scale, mu, sd):
    wanted = quad(
        lambda z: float(scale.inverse(np.asarray(z))) * norm.pdf(z, mu, sd),
        mu - 12 * sd,
        mu + 12 * sd,
        limit=200,
        points=[0.0],
    )[0]
    np.testing.assert_allclose(scale.mean(np.asarray([mu]), np.asarray([sd**2])), wanted, rtol=2e-3)
    np.testing.assert_allclose(scale.mean(np.asarray([mu]), np.zeros(1)), scale.inverse(np.asarray([mu])), rtol=1e-12)


def drawn(rng, link, n=150, K=3):
    X, tasks = rng.normal(size=(n * K, 4)), np.repeat(np.arange(K), n)
    return X, link(X @ [0.6, -0.4, 0.3, 0.0] + 0.3 * tasks + 0.4 * rng.normal(size=n * K)), tasks


@pytest.mark.parametrize(
    ("link", "kind"), [(np.exp, "log"), (np.asarray, None), (lambda z: np.sinh(z) * np.exp(0.5 * z), "yeo-johnson")]
)
def test_auto_finds_the_scale_that_the_data_were_made_on(rng, link, kind):
    X, y, tasks = drawn(rng, link)
    found = learn_transform("auto", read_tasks(X, y, tasks=tasks))
    assert (None if found is None else found.kind) == kind


def test_a_scale_that_says_the_same_is_not_taken():
    """Far from zero logarithms are all but linear: each of the two scales is the better one in half of the draws."""
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, tasks = rng.normal(size=(90, 2)), np.repeat([0, 1, 2], 30)
        y = 50.0 + X @ [1.0, -1.0] + rng.normal(size=90)
        found.append(learn_transform("auto", read_tasks(X, y, tasks=tasks)))
    assert found == [None] * 20


def test_units_do_not_choose(rng):
    X, y, tasks = drawn(rng, np.exp)
    powers = [
        learn_transform("yeo-johnson", read_tasks(X, a * y + b, tasks=tasks)).power for a, b in ((1, 0), (1e4, -7e3))
    ]
    np.testing.assert_allclose(powers[0], powers[1], rtol=1e-3)


@pytest.mark.parametrize("layout", ["long", "shared"])
def test_predictions_are_means_in_the_users_units(rng, layout, tmp_path):
    X, y, tasks = drawn(rng, np.exp, 400)
    named = {"tasks": tasks}
    if layout == "shared":
        X, named = X[:400], {}
        y = np.exp(X @ [0.6, -0.4, 0.3, 0.0] + 0.5 * rng.normal(size=(3, 400))).T
    model = MSSLRegressor(target_transform="log").fit(X, y, **named)
    np.testing.assert_allclose(model.predict(X, **named).mean(), y.mean(), rtol=0.05)
    inside = MSSLRegressor().fit(X, np.log(y), **named)
    np.testing.assert_array_equal(inside.coef_, model.coef_)
    noise = inside.noise_variance_**0.5
    noise = noise if layout == "shared" else noise[tasks]
    np.testing.assert_allclose(model.predict(X, **named), np.exp(inside.predict(X, **named) + 0.5 * noise**2))
    again = mssl.load(mssl.save(model, tmp_path / "m.npz"))
    np.testing.assert_array_equal(again.predict(X, **named), model.predict(X, **named))
    search = MSSLRegressorCV(
        MSSLRegressor(target_transform="auto"), {"graph_penalty": [np.inf], "coef_penalty": [0.0]}, cv=2
    ).fit(X, y, **named)
    assert search.target_.kind == "log"
    assert search.predict(X, **named).shape == y.shape


def test_positive_targets_that_are_predicted_negative_get_one_hint(rng):
    X, y, tasks = drawn(rng, lambda z: np.exp(2 * z))
    with pytest.warns(UserWarning, match="target_transform='log' or loss='gamma'") as told:
        MSSLRegressor().fit(X, y, tasks=tasks)
    assert len(told) == 1
    MSSLRegressor().fit(X, y - 50 * y.std(), tasks=tasks)
    MSSLRegressor().fit(X, y + 50 * y.std(), tasks=tasks)
    MSSLRegressor(target_transform="log").fit(X, y, tasks=tasks)


def test_what_is_refused(rng):
    X, y, tasks = drawn(rng, np.asarray)
    with pytest.raises(DataError, match="yeo-johnson"):
        MSSLRegressor(target_transform="log").fit(X, y, tasks=tasks)
    with pytest.raises(ParameterError, match="target_transform"):
        MSSLRegressor(target_transform="sqrt").fit(X, y, tasks=tasks)
    with pytest.raises(ParameterError, match="Gaussian loss"):
        MSSLRegressor(target_transform="log", loss="gamma").fit(X, np.exp(y), tasks=tasks)
    assert MSSLRegressor(target_transform="auto").fit(X, np.ones(len(y)), tasks=tasks).target_ is None
