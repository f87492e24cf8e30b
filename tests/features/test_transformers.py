"""Any scikit-learn transformer is a map: its span, its columns, weights, saving and refusals."""

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import KBinsDiscretizer, PolynomialFeatures, SplineTransformer

import mssl
from mssl.exceptions import ParameterError
from mssl.features import FeatureBlocks, Spline
from mssl.features.maps import Transformed

TRANSFORMERS = [
    SplineTransformer(),
    SplineTransformer(n_knots=3, degree=2, sparse_output=True),
    PolynomialFeatures(3),
    RBFSampler(n_components=15, random_state=0),
    Nystroem(n_components=12, random_state=0),
]


@pytest.fixture
def X(rng):
    return rng.uniform(-1, 2, size=(120, 3))


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=lambda made: type(made).__name__)
def test_lines_and_features_span_what_lines_and_the_transformer_span(rng, X, transformer):
    blocks = FeatureBlocks([transformer]).fit(X)
    made = transformer.fit_transform(X)
    own = np.column_stack([X, made.toarray() if hasattr(made, "toarray") else made])
    y = rng.normal(size=120)
    ours = LinearRegression().fit(blocks.transform(X), y).predict(blocks.transform(X))
    np.testing.assert_allclose(ours, LinearRegression().fit(own, y).predict(own), atol=1e-6)
    F = blocks.transform(X)[:, 3:]
    np.testing.assert_allclose(F.mean(axis=0), 0.0, atol=1e-8)
    np.testing.assert_allclose(F.std(axis=0), 1.0, atol=1e-8)


def test_features_know_the_columns_that_they_are_made_of(X):
    made = Transformed(SplineTransformer(n_knots=4)).fit(X)
    width = len(made.column_of_) // 3
    np.testing.assert_array_equal(made.column_of_, np.repeat([0, 1, 2], width))
    F = made.transform(X)
    for j in range(3):
        np.testing.assert_allclose(F[:, made.column_of_ == j].T @ X[:, j], 0.0, atol=1e-8)
    products = Transformed(PolynomialFeatures(2)).fit(X)
    names = products.get_feature_names_out(["a", "b", "c"]).tolist()
    assert names == ["a^2", "a b", "a c", "b^2", "b c", "c^2"]
    assert products.column_of_.tolist() == [0, -1, -1, 1, -1, 2]


def test_a_linear_transformer_adds_nothing(X):
    assert FeatureBlocks([PCA(2)]).fit(X).transform(X).shape == X.shape


def test_weights_are_repeated_rows(rng, X):
    copies = rng.integers(1, 4, 120)
    transformer = SplineTransformer(knots="quantile", n_knots=3)
    weighted = Transformed(transformer).fit(X, sample_weight=copies)
    repeated = Transformed(transformer).fit(np.repeat(X, copies, axis=0))
    np.testing.assert_array_equal(weighted.column_of_, repeated.column_of_)


@pytest.mark.parametrize("estimator", [mssl.BayesianMSSLRegressor, mssl.MSSLRegressor, mssl.MultiTaskGLM])
def test_estimators_take_transformers_as_they_take_maps(rng, estimator, tmp_path):
    tasks = np.repeat(np.arange(4), 60)
    X = rng.uniform(-2, 2, size=(240, 2))
    y = np.sin(2 * X[:, 0]) * (1 + 0.1 * tasks) + X[:, 1] + 0.1 * rng.normal(size=240)
    curved = estimator(features=[SplineTransformer(n_knots=6)]).fit(X, y, tasks)
    straight = estimator(features="linear").fit(X, y, tasks)
    residuals = [np.mean((model.predict(X, tasks) - y) ** 2) for model in (curved, straight)]
    assert residuals[0] < 0.25 * residuals[1]
    new = rng.uniform(-2, 2, size=(7, 2))
    np.testing.assert_allclose(
        curved.predict(new, tasks[:7]), [curved.predict(row[None], [0])[0] for row in new], rtol=1e-12
    )


def test_a_saved_model_predicts_the_same(rng, tmp_path):
    tasks, X = np.repeat([0, 1], 40), rng.uniform(size=(80, 2))
    model = mssl.MSSLRegressor(features=[PolynomialFeatures(2)]).fit(X, X[:, 0] * X[:, 1], tasks)
    mssl.save(model, tmp_path / "model.mssl")
    np.testing.assert_array_equal(mssl.load(tmp_path / "model.mssl").predict(X, tasks), model.predict(X, tasks))


@pytest.mark.parametrize("strange", [[SplineTransformer], [3.0], ["spline"], [LinearRegression()]])
def test_what_transforms_nothing_is_refused(X, strange):
    with pytest.raises(ParameterError, match="transformers"):
        FeatureBlocks(strange).fit(X)


def test_maps_and_transformers_stand_side_by_side(X):
    blocks = FeatureBlocks([Spline(), KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf")]).fit(X)
    assert blocks.block_names_ == ["linear", "spline", "KBinsDiscretizer"]
