"""The coordinate search: what it asks for, and what a graph has to show before it is taken."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import sem

from mssl.model_selection.scores import ScoreTable
from mssl.model_selection.search_space import SearchSpace, coordinate_search
from mssl.solvers.base import Status

NOISE = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])


def space(**changes):
    grids = ("graph_penalties", "coef_penalties", "couplings", "shrinkages", "shared_means", "variance_floors")
    facts = {"coef_limit": 1.0, "mean_variance": 1.0, "many_tasks": False, "without_graph": True}
    return SearchSpace(**(dict.fromkeys(grids) | facts | {"graph_limit": lambda params: 0.9} | changes))


def searched(monkeypatch, score, **changes):
    """The table after a search in which every setting has the task scores that a function of its parameters says."""

    def follow(fold, template, chain):
        result = SimpleNamespace(status=Status.CONVERGED, W=np.ones(3), history=[SimpleNamespace(edges=0)])
        yield from (SimpleNamespace(params=params, result=result) for params in chain)

    monkeypatch.setattr("mssl.model_selection.scores.follow", follow)
    fold = SimpleNamespace(task_scores=lambda point: np.asarray(score(point.params), dtype=float))
    table = ScoreTable(None, [fold] * 3)
    coordinate_search(table, space(**changes))
    return table


@pytest.mark.parametrize(("gain", "learns"), [(-1.0, False), (0.9, False), (1.1, True)])
def test_a_graph_has_to_beat_one_ridge_by_a_standard_error(monkeypatch, gain, learns):
    def score(params):
        return -5.0 + (NOISE + gain * sem(NOISE) if np.isfinite(params["graph_penalty"]) else 0.0 * NOISE)

    table = searched(monkeypatch, score)
    assert np.isfinite(table.best().params["graph_penalty"]) == learns
    assert np.isfinite(table.best_with_graph.params["graph_penalty"])
