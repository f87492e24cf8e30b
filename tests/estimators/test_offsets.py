"""Laws of offsets and of penalty factors: what is known of the predictor, and what a feature's weights cost."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.model_selection import KFold

import mssl
from mssl import BayesianMSSLRegressor, MSSLClassifier, MSSLRegressor, MSSLRegressorCV, MultiTaskGLM
from mssl.exceptions import DataError, LayoutError, ParameterError
from mssl.features import Linear
from mssl.losses import Gamma, Gaussian, Huber, Poisson
from mssl.penalties import L1, AdaptiveL1
from mssl.structures import Independent, MeanRegularized, SparsePrecision, TaskCovariance


def counts(seed=0, K=4, n=40, d=3):
    rng = np.random.default_rng(seed)
    X, tasks = rng.standard_normal((K * n, d)), np.repeat(np.arange(K), n)
    W = 0.3 * rng.standard_normal(d) + 0.2 * rng.standard_normal((K, d))
    exposure = np.exp(rng.normal(size=K * n))
    rate = np.exp(np.einsum("nd,nd->n", X, W[tasks]))
    return X, rng.poisson(exposure * rate).astype(float), tasks, exposure, rng


@pytest.mark.parametrize("loss", [Gaussian(), Huber(0.7), Poisson(), Gamma()], ids=lambda loss: loss.name)
def test_absorbed_offsets_change_the_loss_by_a_constant(loss):
    rng = np.random.default_rng(1)
    y, offset, weights = rng.gamma(2.0, size=20), rng.normal(size=20), rng.uniform(0.5, 2.0, size=20)
    other, w = loss.absorb(y, offset, weights)
    etas = rng.normal(size=(5, 20))
    given = [weights * loss.value(y, eta + offset) for eta in etas]
    absorbed = [w * loss.value(other, eta) for eta in etas]
    differences = np.asarray(given) - absorbed
    np.testing.assert_allclose(differences, np.broadcast_to(differences[0], differences.shape), rtol=1e-10, atol=1e-10)


def test_counts_with_exposures_have_the_likelihood_of_the_model():
    X, y, tasks, exposure, _ = counts()
    model = MultiTaskGLM(Independent(2.0), loss="poisson", features=Linear(scale=False), tol=1e-12)
    model.fit(X, y, tasks=tasks, offset=np.log(exposure))
    for k in range(4):
        own = tasks == k
        A, target, known = np.c_[X[own], np.ones(own.sum())], y[own], np.log(exposure[own])

        def cost(b, A=A, target=target, known=known):
            eta = A @ b + known
            return np.sum(np.exp(eta) - target * eta) + b[:3] @ b[:3]

        best = minimize(cost, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).x
        np.testing.assert_allclose(np.append(model.coef_[k], model.intercept_[k]), best, atol=1e-5)


def test_an_exposure_may_be_cut_into_parts():
    X, y, tasks, exposure, rng = counts()
    first = rng.binomial(y.astype(int), 0.3).astype(float)
    twice = lambda values: np.concatenate([values, values])  # noqa: E731
    model = MultiTaskGLM(Independent(1.0), loss="poisson", tol=1e-12)
    whole = clone(model).fit(X, y, tasks=tasks, offset=np.log(exposure))
    parts = np.log(np.concatenate([0.3 * exposure, 0.7 * exposure]))
    cut = model.fit(twice(X), np.concatenate([first, y - first]), tasks=twice(tasks), offset=parts)
    np.testing.assert_allclose(cut.coef_, whole.coef_, atol=1e-7)


@pytest.mark.parametrize("model", [MSSLRegressor(loss="poisson"), BayesianMSSLRegressor("mean+ard", loss="poisson")])
def test_a_constant_offset_is_an_intercept(model):
    X, y, tasks, exposure, _ = counts()
    plain = model.fit(X, y, tasks=tasks, offset=np.log(exposure))
    coef, intercept = plain.coef_, plain.intercept_
    expected = plain.predict(X, tasks=tasks, offset=np.log(exposure))
    shifted = model.fit(X, y, tasks=tasks, offset=np.log(exposure) + 1.5)
    np.testing.assert_allclose(shifted.coef_, coef, atol=1e-3)
    np.testing.assert_allclose(shifted.intercept_, intercept - 1.5, atol=1e-3)
    np.testing.assert_allclose(
        shifted.predict(X, tasks=tasks, offset=np.log(exposure) + 1.5), expected, rtol=3e-3, atol=1e-6
    )


@pytest.mark.parametrize("layout", ["long", "shared", "aligned"])
def test_least_squares_with_an_offset_is_least_squares_of_the_rest(layout):
    rng = np.random.default_rng(2)
    n, K, d = 30, 3, 4
    X = {"long": (n * K, d), "shared": (n, d), "aligned": (n, K, d)}[layout]
    X, y = rng.standard_normal(X), rng.standard_normal(n * K)
    named = {"tasks": np.tile(np.arange(K), n)} if layout == "long" else {}
    y = y if layout == "long" else y.reshape(n, K)
    offset = rng.standard_normal(y.shape)
    model = MSSLRegressor().fit(X, y, offset=offset, **named)
    rest = MSSLRegressor().fit(X, y - offset, **named)
    np.testing.assert_allclose(model.coef_, rest.coef_)
    np.testing.assert_allclose(model.predict(X, offset=offset, **named), rest.predict(X, **named) + offset)


def test_a_search_with_exposures_is_one_over_weighted_rates():
    X, y, tasks, exposure, _ = counts(n=25)
    settings = {
        "param_grid": {"graph_penalty": [0.1, 1.0], "coef_penalty": [0.0, 1.0]},
        "estimator": MSSLRegressor(loss="poisson"),
    }
    settings["cv"] = list(KFold(3, shuffle=True, random_state=0).split(X))
    model = MSSLRegressorCV(**settings).fit(X, y, tasks=tasks, offset=np.log(exposure))
    rates = MSSLRegressorCV(**settings).fit(X, y / exposure, tasks=tasks, sample_weight=exposure)
    assert model.best_params_ == rates.best_params_
    np.testing.assert_allclose(model.coef_, rates.coef_)
    explained = model.score(X, y, tasks=tasks, offset=np.log(exposure))
    assert explained > model.score(X, y, tasks=tasks, offset=0)


@pytest.mark.parametrize("kind", ["one", "search", "bayesian"])
def test_a_forgotten_offset_is_named_once(kind, tmp_path):
    X, y, tasks, exposure, _ = counts(n=25)
    made = {
        "one": MSSLRegressor(loss="poisson"),
        "search": MSSLRegressorCV(
            MSSLRegressor(loss="poisson"),
            {"graph_penalty": [0.5], "coef_penalty": [0.0], "prior_strength": [1.0]},
            cv=2,
        ),
        "bayesian": BayesianMSSLRegressor("mean", loss="poisson"),
    }[kind]
    model = mssl.load(mssl.save(made.fit(X, y, tasks=tasks, offset=np.log(exposure)), tmp_path / "m.npz"))
    rates = model.predict(X, tasks=tasks, offset=0)  # asked for: no warning
    with pytest.warns(UserWarning, match="offset is not given") as told:
        np.testing.assert_array_equal(model.predict(X, tasks=tasks), rates)
    assert len(told) == 1
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match="offset is not given"):
        model.score(X, y, tasks=tasks)
    made.fit(X, y, tasks=tasks).predict(X, tasks=tasks)  # none was given: nothing is missed


def test_offsets_that_no_model_can_use_are_refused():
    X, y, tasks, exposure, _ = counts()
    offset = np.log(exposure)
    with pytest.raises(ParameterError, match="bernoulli loss takes none"):
        MSSLClassifier().fit(X, y > 0, tasks=tasks, offset=offset)
    with pytest.raises(LayoutError, match="offset has shape"):
        MSSLRegressor(loss="poisson").fit(X, y, tasks=tasks, offset=offset[:-1])
    with pytest.raises(DataError, match="offset is 'days'; give one number per row"):
        MSSLRegressor(loss="poisson").fit(X, y, tasks=tasks, offset="days")
    with pytest.raises(DataError, match="offset holds missing"):
        MSSLRegressor(loss="poisson").fit(X, y, tasks=tasks, offset=np.log(np.zeros(len(y)) * np.nan))
    with pytest.raises(ParameterError, match="target_transform"):
        MSSLRegressor(target_transform="log").fit(X, y + 1, tasks=tasks, offset=offset)
    with pytest.raises(ParameterError, match="scorers know no offsets"):
        MSSLRegressorCV(scoring="r2").fit(X, y, tasks=tasks, offset=offset)


def lines(seed=3, K=3, n=50, d=4):
    rng = np.random.default_rng(seed)
    X, tasks = rng.standard_normal((K * n, d)) * [1.0, 5.0, 0.2, 1.0] + 3.0, np.repeat(np.arange(K), n)
    y = X @ [1.0, -0.4, 2.0, 0.3] + rng.standard_normal(K * n)
    return X, y, tasks


def test_free_features_are_those_of_ordinary_least_squares():
    X, y, tasks = lines()
    model = MultiTaskGLM(
        Independent(1e4), L1(1e3), penalty_factor=[0.0, 1.0, 0.0, 1.0], loss=Gaussian(noise_variance=1.0), tol=1e-10
    )
    heavy = model.fit(X, y, tasks=tasks)
    np.testing.assert_allclose(heavy.coef_[:, [1, 3]], 0.0)
    for k in range(3):
        A = np.c_[X[tasks == k][:, [0, 2]], np.ones(50)]
        np.testing.assert_allclose(heavy.coef_[k, [0, 2]], np.linalg.lstsq(A, y[tasks == k])[0][:2], rtol=0.02)


def test_one_factor_for_all_features_is_a_stronger_penalty():
    X, y, tasks = lines()
    dear = MultiTaskGLM(Independent(2.0), L1(3.0), penalty_factor=np.full(4, 2.0), tol=1e-12).fit(X, y, tasks=tasks)
    strong = MultiTaskGLM(Independent(8.0), L1(6.0), tol=1e-12).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(dear.coef_, strong.coef_, rtol=1e-6)


def test_factors_of_an_l1_penalty_are_those_of_the_adaptive_lasso():
    X, y, tasks = lines()
    factors = np.array([0.5, 1.0, 2.0, 4.0])
    given = MultiTaskGLM(
        Independent(1e-9), L1(20.0), penalty_factor=factors, loss=Gaussian(noise_variance=1.0), tol=1e-12
    ).fit(X, y, tasks=tasks)
    adaptive = MultiTaskGLM(
        Independent(1e-9), AdaptiveL1(20.0, factors), loss=Gaussian(noise_variance=1.0), tol=1e-12
    ).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(given.coef_, adaptive.coef_, rtol=1e-5, atol=1e-7)


def test_folds_of_moments_and_of_rows_take_the_same_factors():
    X, y, tasks = lines()
    model = MultiTaskGLM(Independent(1.0), L1(1.0), penalty_factor=[0.0, 3.0, 1.0, 1.0])
    grid = {"penalty__alpha": [0.0, 5.0, 50.0], "structure__alpha": [1.0, 30.0]}
    cv = list(KFold(3, shuffle=True, random_state=0).split(X))
    by_moments = MSSLRegressorCV(model, grid, refit="best", cv=cv).fit(X, y, tasks=tasks)
    by_rows = MSSLRegressorCV(model, grid, refit="best", cv=cv, scoring="neg_mean_squared_error").fit(X, y, tasks=tasks)
    plain = MSSLRegressorCV(clone(model).set_params(penalty_factor=None), grid, refit="best", cv=cv).fit(
        X, y, tasks=tasks
    )
    np.testing.assert_allclose(by_moments.coef_, by_rows.coef_, rtol=0.2)
    assert np.abs(by_moments.coef_ - plain.coef_).max() > 1e-4


def test_factors_are_checked():
    X, y, tasks = lines()
    with pytest.raises(ParameterError, match="one per feature"):
        MultiTaskGLM(penalty_factor=np.ones(5)).fit(X, y, tasks=tasks)
    with pytest.raises(ParameterError, match="penalty_factor"):
        MultiTaskGLM(penalty_factor=[-1.0, 1.0, 1.0, 1.0]).fit(X, y, tasks=tasks)
    with pytest.raises(ParameterError, match=r"factors are above 0.*small factor, such as 0\.1"):
        MultiTaskGLM(SparsePrecision(0.1), penalty_factor=[0.0, 1.0, 1.0, 1.0]).fit(X, y, tasks=tasks)


@pytest.mark.parametrize("structure", [SparsePrecision(0.1), TaskCovariance(0.3), MeanRegularized()])
def test_a_structure_learns_from_weights_times_factors(structure):
    """Factors are other units of the features: the same model as of features divided by them."""
    X, y, tasks = lines()
    factors = np.array([0.1, 1.0, 2.0, 4.0])
    options = {"features": Linear(scale=False), "tol": 1e-10}
    given = MultiTaskGLM(structure, penalty_factor=factors, **options).fit(X, y, tasks=tasks)
    scaled = MultiTaskGLM(structure, **options).fit(X / factors, y, tasks=tasks)
    np.testing.assert_allclose(given.coef_, scaled.coef_ / factors, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(given.precision_, scaled.precision_, rtol=1e-4)
    assert np.abs(given.coef_ - MultiTaskGLM(structure, **options).fit(X, y, tasks=tasks).coef_).max() > 1e-4


def test_related_residuals_leave_features_free():
    """The graph is learned from residuals: weights of a feature that costs nothing are those of a vanishing penalty."""
    rng = np.random.default_rng(0)
    X, errors = rng.standard_normal((60, 3)), rng.standard_normal((60, 4)) @ np.linalg.cholesky(0.5 + 0.5 * np.eye(4)).T
    y = X @ rng.standard_normal((3, 4)) + errors
    structure = SparsePrecision(0.1, on="residual")
    free = MultiTaskGLM(structure, L1(500.0), penalty_factor=[0.0, 1.0, 1.0], tol=1e-8).fit(X, y)
    alone = MultiTaskGLM(structure, L1(0.05), tol=1e-8).fit(X[:, :1], y)
    np.testing.assert_allclose(free.coef_[:, 1:], 0.0)
    np.testing.assert_allclose(free.coef_[:, 0], alone.coef_[:, 0], rtol=1e-3)


@pytest.mark.parametrize(
    "model",
    [
        MSSLRegressor(0.1),
        MultiTaskGLM(loss=Huber(1.0)),
        BayesianMSSLRegressor("ridge", features="linear", calibrate=False),
    ],
    ids=["MSSL", "Huber", "Bayesian"],
)
def test_offsets_of_any_size_move_the_targets_where_the_link_is_the_identity(model):
    X, _, tasks, _, rng = counts()
    y, offset = X[:, 0] + rng.normal(size=len(X)), 2000.0 + 500.0 * rng.normal(size=len(X))
    plain = clone(model).fit(X, y, tasks=tasks).predict(X, tasks=tasks)
    moved = clone(model).fit(X, y + offset, tasks=tasks, offset=offset).predict(X, tasks=tasks, offset=offset)
    np.testing.assert_allclose(moved - offset, plain, atol=1e-6)
    with pytest.raises(DataError, match="missing or infinite values"):
        clone(model).fit(X, y, tasks=tasks, offset=np.where(tasks == 0, np.inf, 0.0))
    with pytest.raises(DataError, match="beyond ±300"):
        MultiTaskGLM(loss="poisson").fit(X, np.abs(np.round(y)), tasks=tasks, offset=offset)


def test_an_exposure_as_offset_is_pointed_out():
    X, _, tasks, _, rng = counts()
    days = rng.integers(2, 200, len(X)).astype(float)
    y = rng.poisson(0.1 * days).astype(float)
    with pytest.warns(
        UserWarning, match=r"offset looks like an exposure itself \(\d to 199\).*offset=np.log\(exposure\)"
    ):
        MultiTaskGLM(loss="poisson").fit(X, y, tasks=tasks, offset=days)
