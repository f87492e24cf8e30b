"""The coordinate search: what it asks for, and that its contests have equal standing."""

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from mssl._progress import Progress
from mssl.judge.parallel import Workers
from mssl.model_selection.scores import Contest
from mssl.model_selection.search_space import STAGES, SearchSpace, coordinate_search, full_search
from mssl.solvers.base import Status

NOISE = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])


def space(given=None, **changes):
    facts = {"coef_limit": 1.0, "mean_variance": 1.0, "many_tasks": False, "without_graph": True, "normalised": True}
    made = object.__new__(SearchSpace)
    vars(made).update(facts | {"given": given or {}, "graph_limit": lambda params: 0.9} | changes)
    return made


def searched(monkeypatch, score, search=coordinate_search, progress=None, **changes):
    """The contest after a search in which every setting has the task scores that a function of its parameters says."""

    def follow(fold, template, chain):
        result = SimpleNamespace(status=Status.CONVERGED, W=np.ones(3), history=[SimpleNamespace(edges=0)])
        yield from (SimpleNamespace(params=params, result=result) for params in chain)

    monkeypatch.setattr("mssl.model_selection.scores.follow", follow)

    def scores(point):
        by_task = np.asarray(score(point.params), dtype=float)
        return by_task.mean(), float("nan"), by_task

    fold = SimpleNamespace(scores=scores)
    contest = Contest({}, None, None, [fold] * 3, None, Workers(progress=progress or Progress(0, "", 1)))
    search(contest, space(**changes))
    return contest


@pytest.mark.parametrize("winner", ["ridge", "sparse", "graph"])
def test_contests_have_equal_standing(monkeypatch, winner):
    def kind(params):
        return "graph" if np.isfinite(params["graph_penalty"]) else "sparse" if params["coef_penalty"] > 0 else "ridge"

    contest = searched(monkeypatch, lambda params: NOISE + 1e-6 * (kind(params) == winner))
    assert kind(contest.best) == winner
    assert np.isfinite(contest.best_with_graph["graph_penalty"])
    kinds = [kind(params) for params in contest.table.params]
    assert {name: kinds.count(name) >= 20 for name in ("ridge", "sparse", "graph")} == dict.fromkeys(kinds, True)


@pytest.mark.parametrize("search", [coordinate_search, full_search])
def test_given_grids_are_not_left(monkeypatch, search):
    grids = {"graph_penalty": [0.7, 0.1], "coef_penalty": [0.0, 3.0], "prior_strength": [0.3, 5.0]}
    grids |= {
        "graph_penalty__shrinkage": [0.0, 0.2],
        "shared_mean": [0.4, False],
        "graph_penalty__variance_floor": [0.1, 0.6],
    }
    random = np.random.default_rng(0)
    for name, values in grids.items():
        contest = searched(monkeypatch, lambda params: random.normal(-1, 0.1, 4), search, given={name: values})
        assert {params[name] for params in contest.table.params} == set(values)
    contest = searched(monkeypatch, lambda params: random.normal(-1, 0.1, 4), full_search, given=grids)
    assert len(contest.table.params) == 2**6


def test_a_search_has_no_more_stages_than_it_announces(monkeypatch):
    class Stages:
        names: ClassVar = []

        def stage(self, name, pieces):
            self.names.append(name)

        def advance(self, pieces=1):
            pass

    def score(params):
        """Everything pays: a weaker mean, γ, shrinkage and a graph."""
        mean = {True: 1.0, False: 1e9}.get(params["shared_mean"], params["shared_mean"])
        gain = 100.0 * np.isfinite(params["graph_penalty"]) - np.log10(mean) + params["graph_penalty__shrinkage"]
        return np.full(4, gain + 10.0 * (params["coef_penalty"] > 0))

    searched(monkeypatch, score, progress=Stages(), many_tasks=True)
    assert len(Stages.names) == STAGES
    Stages.names.clear()
    searched(monkeypatch, score, progress=Stages(), without_graph=False)
    assert len(Stages.names) <= STAGES
