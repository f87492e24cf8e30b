"""Laws of the generators: the stated truth is the truth of what they draw."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mssl.datasets import make_climate_like, make_clustered_tasks, make_residual_graph
from mssl.exceptions import LayoutError, ParameterError

KINDS = ["centres", "equicorrelated", "chain", "sparse"]


def split(values, tasks, names):
    return [values[tasks == name] for name in names]


def test_default_is_the_papers_problem():
    problem = make_clustered_tasks(random_state=0)
    assert problem.coef.shape == (13, 30)
    assert problem.X.shape == (13 * 60, 30)
    assert problem.X_test.shape == (13 * 40, 30)
    assert problem.clusters.tolist() == [0] * 4 + [1] * 6 + [-1] * 3
    assert problem.adjacency.sum() == 4 * 3 + 6 * 5
    assert not problem.intercept.any()
    for part in split(problem.X, problem.tasks, problem.task_names):
        np.testing.assert_array_equal(part, problem.X[:60])


def test_names_sort_into_the_order_of_the_tasks():
    problem = make_clustered_tasks(n_tasks=120, random_state=0)
    assert problem.task_names.tolist() == sorted(problem.task_names.tolist())
    assert list(dict.fromkeys(problem.tasks.tolist())) == problem.task_names.tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("amplitude", [1.0, 0.3])
def test_precision_inverts_covariance_on_the_graph(kind, amplitude):
    problem = make_clustered_tasks(kind, amplitude=amplitude, random_state=0)
    np.testing.assert_allclose(problem.precision @ problem.covariance, np.eye(13), atol=1e-10)
    np.testing.assert_array_equal((problem.precision != 0) & ~np.eye(13, dtype=bool), problem.adjacency)
    np.testing.assert_array_equal(problem.precision, problem.precision.T)


@pytest.mark.parametrize("kind", KINDS)
def test_coefficients_have_the_stated_covariance(kind):
    d = 40_000
    problem = make_clustered_tasks(
        kind, n_features=d, n_samples=1, n_test=1, n_nonzero=d * 8 // 30, amplitude=0.7, random_state=1
    )
    moment = problem.coef @ problem.coef.T / d
    # Products of two Gaussians (thinned for "sparse") have variance below 15 here: five standard errors.
    np.testing.assert_allclose(moment, problem.covariance, atol=5 * 0.49 * np.sqrt(15 / d))


def test_centres_covariance_is_the_closed_form():
    problem = make_clustered_tasks("centres", spread=0.3, random_state=0)
    assert problem.covariance[0, 0] == pytest.approx(1.09)
    assert problem.covariance[0, 1] == 1.0
    assert problem.covariance[0, 4] == 0.0
    assert problem.covariance[12, 12] == 1.0


def test_chain_joins_neighbours_only():
    problem = make_clustered_tasks("chain", n_tasks=6, clusters=[range(6)], correlation=0.5, random_state=0)
    rows, columns = np.nonzero(problem.adjacency)
    assert (np.abs(rows - columns) == 1).all()
    assert rows.size == 10


@pytest.mark.parametrize("make", [make_clustered_tasks, make_residual_graph])
def test_without_correlation_the_graph_is_empty(make):
    assert not make(kind="equicorrelated", correlation=0.0, random_state=0).adjacency.any()


def test_sparse_supports_are_shared_inside_clusters():
    problem = make_clustered_tasks("sparse", random_state=3)
    support = problem.coef != 0
    assert (support.sum(axis=1) == 8).all()
    for cluster in (0, 1):
        members = support[problem.clusters == cluster]
        assert (members == members[0]).all()
    assert len(np.unique(support, axis=0)) > 2


def test_gaussian_residuals_have_the_stated_noise():
    noise = np.linspace(0.5, 2.0, 13)
    problem = make_clustered_tasks(n_samples=5000, n_features=5, noise=noise, intercept_scale=2.0, random_state=0)
    fits = [
        X @ problem.coef[k] + problem.intercept[k]
        for k, X in enumerate(split(problem.X, problem.tasks, problem.task_names))
    ]
    residuals = np.array(split(problem.y, problem.tasks, problem.task_names)) - np.array(fits)
    np.testing.assert_allclose(residuals.std(axis=1), noise, rtol=0.05)
    np.testing.assert_allclose(residuals.mean(axis=1), 0, atol=5 * 2.0 / np.sqrt(5000))
    assert np.ptp(problem.intercept) > 1


@pytest.mark.parametrize("family", ["binary", "poisson"])
def test_targets_of_classes_and_counts_follow_their_law(family):
    d = 20
    problem = make_clustered_tasks(
        "equicorrelated",
        n_features=d,
        n_samples=20_000,
        n_test=10,
        n_tasks=4,
        clusters=[(0, 1, 2)],
        amplitude=3 / np.sqrt(d) if family == "binary" else 0.1,
        intercept_scale=0.5,
        shared_design=False,
        family=family,
        random_state=5,
    )
    for k, name in enumerate(problem.task_names):
        rows = problem.tasks == name
        predictor = problem.X[rows] @ problem.coef[k] + problem.intercept[k]
        mean = 1 / (1 + np.exp(-predictor)) if family == "binary" else np.exp(predictor)
        variance = mean * (1 - mean) if family == "binary" else mean
        scores = ((problem.y[rows] - mean) / np.sqrt(variance)) @ np.column_stack([np.ones(20_000), predictor])
        np.testing.assert_allclose(scores / np.sqrt(20_000), 0, atol=5 * max(1, predictor.std()))
        assert set(np.unique(problem.y[rows]).tolist()) >= {0, 1}
    assert problem.y.dtype.kind == "i"


def test_issue_classification_problem_is_expressible():
    problem = make_clustered_tasks(
        "equicorrelated",
        n_features=20,
        n_samples=25,
        n_test=1500,
        amplitude=3 / np.sqrt(20),
        shared_design=False,
        family="binary",
        intercept_scale=0.5,
        random_state=0,
    )
    assert problem.X_test.shape == (13 * 1500, 20)
    assert problem.covariance[0, 0] == pytest.approx(9 / 20)
    assert problem.covariance[4, 9] == pytest.approx(0.8 * 9 / 20)


@pytest.mark.parametrize("make", [make_clustered_tasks, make_residual_graph])
def test_layouts_hold_the_same_numbers(make):
    long, shared, aligned = (make(layout=layout, random_state=7) for layout in ("long", "shared", "aligned"))
    n, K = shared.y.shape
    for suffix in ("", "_test"):
        n = shared["X" + suffix].shape[0]
        np.testing.assert_array_equal(long["y" + suffix].reshape(K, n).T, shared["y" + suffix])
        np.testing.assert_array_equal(aligned["y" + suffix], shared["y" + suffix])
        np.testing.assert_array_equal(long["X" + suffix].reshape(K, n, -1)[3], shared["X" + suffix])
        np.testing.assert_array_equal(aligned["X" + suffix][:, 5], shared["X" + suffix])
        assert shared["tasks" + suffix] is None
        assert aligned["tasks" + suffix] is None


def test_own_designs_differ_between_tasks():
    problem = make_residual_graph(shared_design=False, layout="aligned", random_state=0)
    assert problem.X.shape == (60, 13, 30)
    assert not np.array_equal(problem.X[:, 0], problem.X[:, 1])


def test_more_rows_leave_truth_and_test_set_alone():
    few, many = (make_clustered_tasks(n_samples=n, random_state=11) for n in (20, 90))
    np.testing.assert_array_equal(few.coef, many.coef)
    np.testing.assert_array_equal(few.X_test, many.X_test)
    np.testing.assert_array_equal(few.y_test, many.y_test)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(KINDS),
    family=st.sampled_from(["gaussian", "binary", "poisson"]),
    sizes=st.lists(st.integers(1, 9), min_size=3, max_size=3),
)
def test_a_seed_determines_everything(seed, kind, family, sizes):
    def draw():
        return make_clustered_tasks(
            kind,
            n_tasks=3,
            n_features=10,
            n_samples=sizes,
            n_test=2,
            clusters=[(0, 2)],
            shared_design=False,
            amplitude=0.2,
            family=family,
            random_state=seed,
        )

    first, second = draw(), draw()
    for key in ("X", "y", "X_test", "y_test", "coef", "tasks"):
        np.testing.assert_array_equal(first[key], second[key])
    assert [int((first.tasks == name).sum()) for name in first.task_names] == sizes
    assert first.clusters.tolist() == [0, -1, 0]


def test_residuals_have_the_stated_covariance_and_coefficients_the_density():
    problem = make_residual_graph(n_samples=20_000, random_state=0, intercept_scale=1.0)
    residuals = problem.y - problem.X @ problem.coef.T - problem.intercept
    np.testing.assert_allclose(residuals.T @ residuals / 20_000, problem.covariance, atol=5 * np.sqrt(2 / 20_000))
    assert (problem.coef != 0).sum() == round(0.3 * 13 * 30)
    np.testing.assert_allclose(np.diag(problem.covariance), 1.0)
    assert problem.covariance[0, 1] == pytest.approx(0.8)
    np.testing.assert_allclose(problem.precision @ problem.covariance, np.eye(13), atol=1e-12)


def test_frames():
    pandas = pytest.importorskip("pandas")
    array = make_clustered_tasks(random_state=0)
    long = make_clustered_tasks(as_frame=True, random_state=0)
    assert isinstance(long.X, pandas.DataFrame)
    assert long.X.columns.tolist() == ["task", *array.feature_names]
    np.testing.assert_array_equal(long.X.drop(columns="task").to_numpy(), array.X)
    np.testing.assert_array_equal(long.X["task"].to_numpy().astype(str), array.tasks)
    assert isinstance(long.y, pandas.Series)
    shared = make_clustered_tasks(layout="shared", as_frame=True, random_state=0)
    assert shared.y.columns.tolist() == array.task_names.tolist()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"layout": "wide"}, ParameterError, "long"),
        ({"kind": "rings"}, ParameterError, "centres"),
        ({"family": "gamma"}, ParameterError, "poisson"),
        ({"layout": "shared", "shared_design": False}, LayoutError, "layout='aligned'"),
        ({"layout": "aligned", "shared_design": False, "n_samples": [5] * 12 + [6]}, LayoutError, "long"),
        ({"n_samples": [5] * 12 + [6]}, LayoutError, "shared_design=False"),
        ({"layout": "aligned", "as_frame": True}, LayoutError, "three axes"),
        ({"n_samples": [5, 6]}, ParameterError, "13 tasks"),
        ({"clusters": [(0, 13)]}, ParameterError, "task 13"),
        ({"clusters": [(0, 1), (1, 2)]}, ParameterError, "twice"),
        ({"spread": 0.0}, ParameterError, "positive definite"),
        ({"kind": "equicorrelated", "correlation": 1.0}, ParameterError, "positive definite"),
        ({"kind": "sparse", "n_nonzero": 31}, ParameterError, "n_nonzero is 31"),
        ({"n_tasks": 0}, ParameterError, "n_tasks is 0"),
        ({"noise": [1.0, 2.0]}, ParameterError, "noise is .*shape"),
        ({"amplitude": 0.0}, ParameterError, "amplitude"),
        ({"family": "poisson", "amplitude": 50.0}, ParameterError, "smaller amplitude"),
    ],
)
def test_bad_arguments_are_explained(arguments, error, words):
    with pytest.raises(error, match=words):
        make_clustered_tasks(random_state=0, **arguments)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"density": 1.5}, ParameterError),
        ({"noise": 0.0}, ParameterError),
        ({"kind": "centres"}, ParameterError),
        ({"shared_design": False}, LayoutError),
    ],
)
def test_bad_residual_arguments(arguments, error):
    with pytest.raises(error):
        make_residual_graph(**arguments)


# --- the climate-like ensemble ----------------------------------------------------------------------------------


def test_climate_residuals_have_the_stated_precision():
    world = make_climate_like(n_lat=3, n_lon=4, n_members=4, n_samples=20_000, n_links=2, noise=0.7, random_state=0)
    residuals = world.y - np.einsum("nkm,km->nk", world.X, world.coef) - world.intercept
    np.testing.assert_allclose(np.diag(world.covariance), 0.49)
    np.testing.assert_allclose(residuals.T @ residuals / 20_000, world.covariance, atol=5 * 0.49 * np.sqrt(2 / 20_000))
    np.testing.assert_allclose(world.precision @ world.covariance, np.eye(12), atol=1e-10)
    np.testing.assert_array_equal((world.precision != 0) & ~np.eye(12, dtype=bool), world.adjacency)


def test_climate_graph_is_the_grid_with_long_range_links():
    world = make_climate_like(n_lat=4, n_lon=6, n_links=3, random_state=1)
    rows, columns = np.divmod(np.arange(24), 6)
    steps = np.abs(rows[:, None] - rows) + np.abs(columns[:, None] - columns)
    expected = steps == 1
    for left, right in world.links:
        assert steps[left, right] > 2
        expected[left, right] = expected[right, left] = True
    np.testing.assert_array_equal(world.adjacency, expected)
    assert not make_climate_like(coupling=0.0, random_state=1).adjacency.any()


def test_climate_members_have_season_bias_and_trend():
    world = make_climate_like(
        n_lat=2, n_lon=2, box=(-40, 40, 0, 10), n_links=0, n_samples=1200, trend=1.0, bias=3.0, random_state=2
    )
    means = np.array([world.y[world.calendar == month].mean(axis=0) for month in range(1, 13)])
    south = world.coordinates[:, 0] < 0
    assert (means.argmax(axis=0)[south] == 0).all()
    assert (means.argmax(axis=0)[~south] == 6).all()
    members = world.X.mean(axis=0)
    assert members.std(axis=1).min() > 1
    assert (world.X[-120:].mean(axis=(0, 2)) - world.X[:120].mean(axis=(0, 2))) == pytest.approx(9.0, abs=0.3)
    # The warming goes on in the test months, which follow at once.
    assert world.months_test[0] == world.months[-1] + 1
    assert world.X_test.mean() > world.X[-120:].mean()


def test_climate_layouts_hold_the_same_numbers():
    aligned, long = (make_climate_like(layout=layout, random_state=3) for layout in ("aligned", "long"))
    name = aligned.task_names[6]
    rows = long.tasks == name
    np.testing.assert_array_equal(long.X[rows], aligned.X[:, 6])
    np.testing.assert_array_equal(long.y[rows], aligned.y[:, 6])
    np.testing.assert_array_equal(long.months[rows], aligned.months)
    assert long.calendar.shape == long.y.shape


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"layout": "shared"}, LayoutError, "rows of its own"),
        ({"n_links": 10_000}, ParameterError, "distant pairs"),
        ({"box": (10, -10, 0, 20)}, ParameterError, "south"),
        ({"n_members": 0}, ParameterError, "n_members"),
        ({"noise": 0.0}, ParameterError, "noise is 0"),
        ({"coupling": -1.0}, ParameterError, "coupling is -1"),
    ],
)
def test_bad_climate_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        make_climate_like(**arguments)
