"""Laws of standard errors and of the summary."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mssl
from mssl import BayesianMSSLRegressor, MSSLClassifier, MSSLRegressor, MSSLRegressorCV, MultiTaskGLM
from mssl.datasets import make_clustered_tasks
from mssl.estimators.summary import summarise
from mssl.features import Linear
from mssl.losses import Gaussian
from mssl.penalties import L1
from mssl.structures import Independent

DATA = make_clustered_tasks(n_features=4, n_samples=25, random_state=0)


def test_without_a_prior_they_are_those_of_least_squares():
    X, y, tasks = DATA.X, DATA.y, DATA.tasks
    model = MultiTaskGLM(Independent(1e-9), loss=Gaussian(noise_variance=1.0)).fit(X, y, tasks=tasks)
    for k, task in enumerate(model.tasks_):
        A = X[tasks == task]
        A = A - A.mean(axis=0)
        np.testing.assert_allclose(model.coef_std_[k], np.sqrt(np.diag(np.linalg.inv(A.T @ A))), rtol=1e-6)
    np.testing.assert_allclose(model.effective_dof_, 4.0, rtol=1e-6)
    rest = [
        np.sum((y[tasks == t] - LinearRegression().fit(X[tasks == t], y[tasks == t]).predict(X[tasks == t])) ** 2)
        for t in model.tasks_
    ]
    expected = -0.5 * (len(y) * np.log(2 * np.pi) + np.sum(rest))
    assert model.log_likelihood_ == pytest.approx(expected, rel=1e-6)


def test_they_are_the_posterior_of_a_dense_gaussian():
    X, y, tasks = DATA.X, DATA.y, DATA.tasks
    model = MSSLRegressor(
        0.2, shared_mean=0.5, loss=Gaussian(noise_variance=0.49), features=Linear(scale=False), prior_strength=1.5
    ).fit(X, y, tasks=tasks)
    K, d = model.coef_.shape
    prior = np.linalg.inv(1.5 * model.precision_) + 0.5
    H = np.kron(np.linalg.inv(prior), np.eye(d))
    grams = []
    for k, task in enumerate(model.tasks_):
        A = X[tasks == task] - X[tasks == task].mean(axis=0)
        grams.append(A.T @ A / 0.49)
        H[k * d : (k + 1) * d, k * d : (k + 1) * d] += grams[-1]
    inverse = np.linalg.inv(H)
    np.testing.assert_allclose(model.coef_std_, np.sqrt(np.diag(inverse)).reshape(K, d), rtol=1e-6)
    dof = [np.trace(gram @ inverse[k * d : (k + 1) * d, k * d : (k + 1) * d]) for k, gram in enumerate(grams)]
    np.testing.assert_allclose(model.effective_dof_, dof, rtol=1e-6)


def test_of_labels_they_are_the_curvature_at_the_fit():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = (X @ [1.0, -0.5] + rng.logistic(size=60) > 0).astype(int)
    model = MSSLClassifier(np.inf, prior_strength=2.0, shared_mean=False, features=Linear(scale=False), tol=1e-10)
    model.fit(X, y, tasks=np.zeros(60, dtype=int))
    A = np.c_[X, np.ones(60)]

    def slope(b):
        p = 1 / (1 + np.exp(-A @ b))
        return A.T @ (p - y) + np.append(2.0 * b[:2], 0.0)

    fitted = np.append(model.coef_[0], model.intercept_[0])
    H = approx_fprime(fitted, slope, 1e-6)
    np.testing.assert_allclose(model.coef_std_[0], np.sqrt(np.diag(np.linalg.inv(H)))[:2], rtol=1e-4)


def test_units_of_the_user():
    X, y, tasks = DATA.X, DATA.y, DATA.tasks
    plain = MSSLRegressor(tol=1e-12).fit(X, y, tasks=tasks)
    other = MSSLRegressor(tol=1e-12).fit(X * [1.0, 10.0, 1.0, 0.1], 100 * y, tasks=tasks)
    np.testing.assert_allclose(other.coef_std_, 100 * plain.coef_std_ / [1.0, 10.0, 1.0, 0.1], rtol=1e-5)
    n = len(y)
    assert other.log_likelihood_ == pytest.approx(plain.log_likelihood_ - n * np.log(100.0), rel=1e-6)


def test_where_there_are_none_it_says_so():
    X, y, tasks = DATA.X, DATA.y, DATA.tasks
    model = MultiTaskGLM(Independent(1.0), L1(0.5)).fit(X, y, tasks=tasks)
    assert model.coef_std_ is None
    assert "no standard errors" in str(model.summary())
    assert np.isnan(model.summary().to_frame()["std_error"]).all()


def test_saved_models_keep_them(tmp_path):
    model = MSSLRegressor().fit(DATA.X, DATA.y, tasks=DATA.tasks)
    mssl.save(model, tmp_path / "m.mssl")
    loaded = mssl.load(tmp_path / "m.mssl")
    np.testing.assert_array_equal(loaded.coef_std_, model.coef_std_)
    assert str(loaded.summary()) == str(model.summary())


@pytest.mark.parametrize(
    "model",
    [
        MSSLRegressor(),
        MSSLRegressorCV(param_grid={"graph_penalty": [0.3], "coef_penalty": [0.0]}, cv=3),
        BayesianMSSLRegressor("mean+ard", features="linear"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_text_page_and_frame_tell_the_same(model):
    summary = model.fit(DATA.X, DATA.y, tasks=DATA.tasks).summary(level=0.8)
    frame = summary.to_frame()
    assert len(frame) == model.coef_.size
    inside = (frame["lower"] <= frame["estimate"]) & (frame["estimate"] <= frame["upper"])
    assert inside.all()
    np.testing.assert_allclose(frame["upper"] - frame["lower"], 2 * 1.2815515655 * frame["std_error"], rtol=1e-8)
    text, page = str(summary), summary._repr_html_()
    for name, value in summary.facts:
        assert name in text
        assert value in text
        assert name in page
    assert ("cross-validated score" in text) == hasattr(model, "best_score_")
    assert ("log evidence" in text) == hasattr(model, "evidence_")


def test_a_pipeline_is_summed_up_by_its_last_step():
    alone = MSSLRegressor().fit(StandardScaler().fit_transform(DATA.X), DATA.y, tasks=DATA.tasks)
    pipe = make_pipeline(StandardScaler(), MSSLRegressor()).fit(DATA.X, DATA.y, msslregressor__tasks=DATA.tasks)
    assert str(summarise(pipe)) == str(alone.summary())


def test_the_column_of_tasks_is_no_feature():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(DATA.X, columns=["a", "b", "c", "d"]).assign(site=DATA.tasks)
    model = MSSLRegressor(task_column="site").fit(frame, DATA.y)
    assert list(model.feature_names_in_) == list(model.features_) == ["a", "b", "c", "d"]
    assert model.n_features_in_ == model.coef_.shape[1]
    expected = model.predict(frame)
    np.testing.assert_array_equal(model.predict(frame.drop(columns="site"), tasks=DATA.tasks), expected)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))
    numbered = MSSLRegressor(task_column=0).fit(np.c_[np.unique(DATA.tasks, return_inverse=True)[1], DATA.X], DATA.y)
    assert numbered.n_features_in_ == 5  # columns of an array are known by their number
    later = MSSLRegressor().fit(DATA.X, DATA.y, tasks=DATA.tasks).set_params(task_column=0)
    with pytest.raises(mssl.exceptions.DataError, match="X has 3 features, this model 4"):
        later.predict(DATA.X, tasks=DATA.tasks)


def test_the_order_of_features_is_that_of_their_effects_whatever_the_units():
    X, y, tasks = DATA.X, DATA.y, DATA.tasks
    units = np.array([1.0, 1e4, 1e-3, 10.0])
    tables = [summarise(MSSLRegressor(tol=1e-8).fit(X * scale, y, tasks=tasks)) for scale in (np.ones(4), units)]
    orders = [[line[0] for line in table._lines()[1:]] for table in tables]
    assert orders[0] == orders[1]
    assert orders[0] != np.argsort(-np.abs(tables[1].estimate).mean(axis=0)).tolist()
    assert all("× spread of the column" in str(table) for table in tables)
    assert "conditional on the fitted penalties, graph and noise" in str(tables[0])
    assert "BayesianMSSLRegressor" in str(tables[0])
