"""The graph of a Bayesian fit that a task has joined."""

import numpy as np
import pytest

from mssl import BayesianMSSLRegressor
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import ParameterError


def test_a_task_that_joined_leaves_the_relations_of_the_others():
    data = make_clustered_tasks(n_features=20, n_samples=40, random_state=0)
    model = BayesianMSSLRegressor("mean", features="linear", calibrate=False).fit(data.X, data.y, tasks=data.tasks)
    before = model.graph_.relations(fdr=1.0)
    model.adapt(data.X[:5], data.y[:5], task="new")
    after = model.graph_.relations(fdr=1.0)
    assert len(model.graph_) == 14
    p = {frozenset(row[:2]): row.p for row in after}
    np.testing.assert_allclose([p[frozenset(row[:2])] for row in before], [row.p for row in before])
    assert all(value > 0.99 for pair, value in p.items() if "new" in pair)


def test_rows_of_another_task_do_not_join():
    pandas = pytest.importorskip("pandas")
    data = make_clustered_tasks(n_features=3, n_samples=15, random_state=0)
    frame = pandas.DataFrame(data.X, columns=["a", "b", "c"]).assign(site=data.tasks)
    model = BayesianMSSLRegressor("mean", features="linear", calibrate=False, task_column="site").fit(frame, data.y)
    with pytest.raises(ParameterError, match="the column 'site' holds"):
        model.adapt(frame[:5], data.y[:5], task="new")
    model.adapt(frame[:5].assign(site="new"), data.y[:5], task="new")
    alone = BayesianMSSLRegressor("mean", features="linear", calibrate=False, task_column="site").fit(frame, data.y)
    alone.adapt(frame[:5].drop(columns="site"), data.y[:5], task="new")
    np.testing.assert_array_equal(model.coef_, alone.coef_)
