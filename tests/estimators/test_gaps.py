"""Laws of predictions given other tasks' targets, and of r-MSSL with missing targets."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.exceptions import ConvergenceWarning
from tests.campaign import problems

import mssl
from mssl import MSSLRegressor, MSSLRegressorCV
from mssl.estimators import gaps
from mssl.estimators.spec import FitSpec
from mssl.exceptions import DataError, NotAlignedError, ParameterError
from mssl.metrics import conditional_score
from mssl.model.conditional import conditional
from mssl.solvers.base import Status


def stations(n=150, K=4, d=3, seed=0, shared=False):
    random = np.random.default_rng(seed)
    root = np.linalg.cholesky(0.7 + 0.3 * np.eye(K))
    E = random.standard_normal((n, K)) @ root.T
    if shared:
        X = random.standard_normal((n, d))
        return X, X @ random.standard_normal((d, K)) + E
    X = random.standard_normal((n, K, d))
    return X, np.einsum("nkd,kd->nk", X, random.standard_normal((K, d))) + 1.0 + E


def with_gaps(Y, share=0.25, seed=1):
    gaps = np.array(Y)
    gaps[np.random.default_rng(seed).random(Y.shape) < share] = np.nan
    return gaps


def test_prediction_is_the_conditional_mean_and_known_targets_stay():
    X, Y = stations()
    model = MSSLRegressor(0.05, relation="residual").fit(X, Y)
    known = with_gaps(Y)
    mean, deviation = model.predict(X, known=known, return_std=True)
    answer = conditional(model.predict(X), model.residual_covariance_, known)
    np.testing.assert_allclose(mean, answer.mean)
    np.testing.assert_allclose(deviation**2, answer.variance)
    given = np.isfinite(known)
    np.testing.assert_array_equal(mean[given], Y[given])
    np.testing.assert_array_equal(model.impute(X, known), mean)
    nothing, all_of_it = model.predict(X, known=np.full(Y.shape, np.nan), return_std=True)
    np.testing.assert_allclose(nothing, model.predict(X))
    np.testing.assert_allclose(all_of_it, np.tile(np.sqrt(np.diag(model.residual_covariance_)), (len(Y), 1)))


def test_known_neighbours_help_and_intervals_cover():
    X, Y = stations(n=600, K=6)
    model = MSSLRegressorCV(
        MSSLRegressor(relation="residual"), {"coef_penalty": [0.0]}, scoring="conditional", cv=3
    ).fit(X[:150], Y[:150])
    known = with_gaps(Y[150:])
    gaps = np.isnan(known)
    mean, deviation = model.predict(X[150:], known=known, return_std=True)
    errors = (mean - Y[150:])[gaps]
    alone = (model.predict(X[150:]) - Y[150:])[gaps]
    assert np.mean(errors**2) < 0.6 * np.mean(alone**2)
    assert 0.86 < np.mean(np.abs(errors) < 1.645 * deviation[gaps]) < 0.94


def test_conditional_score_is_the_mean_log_density_given_the_others():
    X, Y = stations(n=60)
    model = MSSLRegressor(0.1, relation="residual").fit(X, Y)
    densities = []
    for k in range(4):
        known = Y.copy()
        known[:, k] = np.nan
        mean, deviation = model.predict(X, known=known, return_std=True)
        densities.append(stats.norm.logpdf(Y[:, k], mean[:, k], deviation[:, k]))
    assert conditional_score(model, X, Y) == pytest.approx(np.mean(densities))


@pytest.mark.parametrize("shared", [False, True])
def test_fit_with_gaps_maximises_the_likelihood_of_known_targets(shared):
    X, Y = stations(n=40, K=3, d=1, shared=shared)
    known = with_gaps(Y)
    model = MSSLRegressor(0.0, relation="residual", coef_penalty=1e-8, tol=1e-9).fit(X, known)
    wide = np.broadcast_to(X[:, None, :], (40, 3, 1)) if shared else X

    def criterion(flat):
        coef, intercept, half = flat[:3].reshape(3, 1), flat[3:6], np.zeros((3, 3))
        half[np.tril_indices(3)] = flat[6:]
        sigma = half @ half.T
        E = known - np.einsum("nkd,kd->nk", wide, coef) - intercept
        total = 0.0
        for row in E:
            seen = np.isfinite(row)
            if seen.any():
                total -= stats.multivariate_normal.logpdf(row[seen], cov=sigma[np.ix_(seen, seen)])
        return total

    # The penalty on the diagonal of Ω, a thousandth of the variances, is left out.
    start = np.concatenate(
        [model.coef_.ravel(), model.intercept_, np.linalg.cholesky(model.covariance_)[np.tril_indices(3)]]
    )
    best = optimize.minimize(criterion, start, method="BFGS", options={"gtol": 1e-5})
    assert criterion(start) - best.fun < 0.01
    np.testing.assert_allclose(model.coef_.ravel(), best.x[:3], atol=0.01)


def test_rounds_that_go_to_and_fro_come_to_an_end_and_say_so(monkeypatch):
    """With more features than rows the constants of F follow the filled targets, and two fits can lead to each other."""
    random = np.random.default_rng([992211, 34])
    given = problems.problem(random, large=random.random() < 0.02)
    model = problems.estimator(random, given)
    fits, fit = [], FitSpec.fit
    monkeypatch.setattr(FitSpec, "fit", lambda *args: fits.append(fit(*args)) or fits[-1])
    with pytest.warns(
        ConvergenceWarning, match="missing targets change from round to round.*; the known targets do not determine"
    ):
        given.fit(model)
    assert len(fits) < 60
    assert fits[-1].status is Status.CONVERGED
    assert model.result_.status is Status.UNSETTLED


def test_rounds_end_at_their_fixed_point(monkeypatch):
    """Whatever the way there: from the last state a round leads back to it."""
    X, Y = stations(n=60)
    last = {}

    class Watched(gaps._Rounds):
        def next(self, state, warm):
            after, fit = super().next(state, warm)
            last.update(rounds=self, after=after, fit=fit)
            return after, fit

    monkeypatch.setattr(gaps, "_Rounds", Watched)
    MSSLRegressor(0.2, relation="residual", tol=1e-10).fit(X, with_gaps(Y, 0.5))
    rounds, after, fit = last["rounds"], last["after"], last["fit"]
    made = len(rounds.changes)
    again, _ = rounds.next(after, fit[2])
    np.testing.assert_allclose(again, after, atol=1e-5)
    assert made < 40  # plain rounds take more than 100


def test_units_of_the_tasks_do_not_matter():
    X, Y = stations(n=80)
    known, units = with_gaps(Y, 0.3), np.array([1e-8, 1.0, 1e8, 1e3])
    here, there = (MSSLRegressor(0.1, relation="residual", tol=1e-9).fit(X, known * u) for u in (1.0, units))
    np.testing.assert_allclose(there.coef_ / units[:, None], here.coef_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(there.covariance_ / np.outer(units, units), here.covariance_, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("seed", [5, 9, 10])
def test_rounds_that_creep_for_long_go_on_until_they_settle(seed):
    """Two tasks with two known targets: a plateau of tens of rounds before the changes fall."""
    X, Y = stations(n=60, seed=seed, shared=True)
    known = with_gaps(Y, 0.2, seed=seed)
    for task, first in ((1, 0), (2, 5)):
        known[:, task] = np.nan
        known[first : first + 2, task] = Y[first : first + 2, task]
    assert MSSLRegressor(0.1, relation="residual").fit(X, known).result_.status is Status.CONVERGED


def test_without_gaps_nothing_changes_and_all_gaps_of_a_row_drop_it():
    X, Y = stations(n=60)
    extra = np.concatenate([Y, np.full((1, 4), np.nan)])
    there = MSSLRegressor(0.2, relation="residual").fit(np.concatenate([X, X[:1]]), extra)
    here = MSSLRegressor(0.2, relation="residual").fit(X, Y)
    np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-4)
    np.testing.assert_allclose(there.precision_, here.precision_, rtol=1e-3, atol=1e-3)


def test_gaps_cost_little_and_evidence_counts_them():
    X, Y = stations(n=400)
    known = with_gaps(Y, 0.3)
    whole, gaps = (MSSLRegressor(0.1, relation="residual").fit(X, y) for y in (Y, known))
    np.testing.assert_allclose(gaps.covariance_, whole.covariance_, atol=0.25)
    counts = np.isfinite(known).astype(float)
    assert gaps.graph_._evidence().freedom[0, 1] <= counts[:, 0] @ counts[:, 1]
    assert len(gaps.graph_.relations()) == 6


def test_search_of_one_setting_is_the_fit_with_gaps():
    X, Y = stations(n=60)
    known = with_gaps(Y)
    grids = {
        "param_grid": {
            "coef_penalty": [0.1],
            "prior_strength": [1.0],
            "graph_penalty__shrinkage": [0.0],
            "graph_penalty__variance_floor": [0.1],
        }
    }
    search = MSSLRegressorCV(
        MSSLRegressor(relation="residual"),
        cv=3,
        **{**grids, "param_grid": {**grids["param_grid"], "graph_penalty": [0.2]}},
    ).fit(X, known)
    alone = MSSLRegressor(relation="residual").set_params(**search.best_params_).fit(X, known)
    np.testing.assert_allclose(search.coef_, alone.coef_, atol=1e-10)
    np.testing.assert_allclose(search.precision_, alone.precision_, atol=1e-10)
    np.testing.assert_allclose(search.impute(X, known), alone.impute(X, known), atol=1e-10)


@pytest.mark.parametrize("scoring", [None, "conditional"])
def test_folds_judge_known_targets_as_if_gaps_were_rare(scoring):
    X, Y = stations(n=90)
    grids = {
        "param_grid": {
            "coef_penalty": [0.0],
            "prior_strength": [1.0],
            "graph_penalty__shrinkage": [0.0],
            "graph_penalty__variance_floor": [0.1],
        }
    }
    known = Y.copy()
    known[::30, 1] = np.nan  # a thirtieth of one task
    search = MSSLRegressorCV(
        MSSLRegressor(relation="residual"),
        scoring=scoring,
        cv=3,
        **{**grids, "param_grid": {**grids["param_grid"], "graph_penalty": [0.05, 0.5]}},
    )
    whole, gaps = (search.fit(X, y).cv_results_["mean_test_score"] for y in (Y, known))
    np.testing.assert_allclose(gaps, whole, rtol=0.1)


def test_a_model_with_gaps_is_saved(tmp_path):
    X, Y = stations(n=60)
    known = with_gaps(Y)
    model = MSSLRegressor(0.2, relation="residual").fit(X, known)
    again = mssl.load(mssl.save(model, tmp_path / "model.npz"))
    np.testing.assert_array_equal(again.impute(X, known), model.impute(X, known))


def test_what_cannot_be_conditioned_on_is_refused():
    X, Y = stations(n=40, shared=True)
    with pytest.raises(ParameterError, match="covariance of the tasks' residuals"):
        MSSLRegressor().fit(X, Y).predict(X, known=Y)
    model = MSSLRegressor(0.2, relation="residual", coef_penalty=0.1).fit(X, Y)
    with pytest.raises(DataError, match=r"shape \(40, 3\); give \(40, 4\)"):
        model.predict(X, known=Y[:, :3])
    with pytest.raises(DataError, match="not numbers"):
        model.predict(X, known=np.full(Y.shape, "a"))
    with pytest.raises(NotAlignedError, match="row weights differ"):
        MSSLRegressor(relation="residual").fit(X, with_gaps(Y), sample_weight=np.full(40, 2.0))


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_task_with_one_known_target_is_measured_by_the_others():
    X, Y = stations(n=20)
    Y = 1e12 * Y
    Y[1:, 0] = np.nan
    model = MSSLRegressor(0.1, relation="residual").fit(X, Y)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.residual_covariance_).all()


def test_known_targets_of_a_transformed_model_are_in_the_users_units(rng):
    X = rng.normal(size=(200, 2))
    logs = X @ rng.normal(size=(2, 3)) + rng.normal(size=(200, 1)) + 0.3 * rng.normal(size=(200, 3))
    known = np.exp(logs[150:])
    known[:, 2] = np.nan
    models = [MSSLRegressor(0.05, 1e-3, relation="residual", target_transform=kind) for kind in (None, "log")]
    plain, transformed = (
        model.fit(X[:150], y) for model, y in zip(models, (logs[:150], np.exp(logs[:150])), strict=True)
    )
    mean, std = plain.predict(X[150:], known=np.log(known), return_std=True)
    own, spread = transformed.predict(X[150:], known=known, return_std=True)
    np.testing.assert_allclose(own[:, :2], known[:, :2])
    np.testing.assert_allclose(own[:, 2], np.exp(mean + std**2 / 2)[:, 2], rtol=1e-6)
    np.testing.assert_allclose(spread[:, 2], (own * np.sqrt(np.expm1(std**2)))[:, 2], rtol=1e-3)
    assert not spread[:, :2].any()
    with pytest.raises(DataError, match="logarithms"):
        transformed.predict(X[150:], known=-known)
