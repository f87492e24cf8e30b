"""Scores of candidates: paired differences and their errors, early stopping, who wins."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import sem

from mssl.judge.held_out import CERTIFIED, TASKS, advantages, no_gain_left, wins
from mssl.model_selection.scores import Contest, score_chain
from mssl.solvers.base import Status


def report(by_task):
    """The report of settings whose tasks have these scores (folds, tasks) and whose score is their mean."""
    by_task = np.asarray(by_task, dtype=float)
    facts = np.zeros((len(by_task), TASKS))
    facts[:, 0] = np.nanmean(by_task, axis=1)
    return np.hstack([facts, by_task])


@pytest.fixture
def scripted(monkeypatch):
    """Folds that give every setting the task scores that a function of its parameters says; nothing is fitted."""

    def follow(fold, template, chain):
        result = SimpleNamespace(status=Status.CONVERGED, W=np.ones(3), history=[SimpleNamespace(edges=0)])
        yield from (SimpleNamespace(params=params, result=result) for params in chain)

    monkeypatch.setattr("mssl.model_selection.scores.follow", follow)

    def folds(n_folds, score):
        def one(number):
            def scores(point):
                by_task = np.asarray(score(number, point.params), dtype=float)
                return by_task.mean(), 0.5, by_task

            return SimpleNamespace(scores=scores)

        return [one(number) for number in range(n_folds)]

    return folds


@given(st.integers(0, 10**6), st.integers(2, 10), st.integers(2, 30), st.floats(-3, 3), st.floats(-3, 3))
def test_the_error_of_a_difference_is_the_larger_of_those_over_folds_and_over_tasks(seed, folds, tasks, a, b):
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((folds, tasks))
    # Differences that vary mostly over folds, mostly over tasks, or both; what the two have in common cancels.
    gains = 10**a * rng.standard_normal((folds, 1)) + 10**b * rng.standard_normal(tasks) + 0.1
    gain, error = advantages(report(base + gains), report(base))
    assert gain == pytest.approx(gains.mean(), rel=1e-6, abs=1e-9)
    assert error == pytest.approx(max(sem(gains.mean(axis=1)), sem(gains.mean(axis=0))), rel=1e-6, abs=1e-9)


def test_tasks_that_no_fold_scores_do_not_count():
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, 4, 6))
    lost = np.full((4, 1), np.nan)
    some = other.copy()
    some[0, 0] = np.nan  # a task that one fold does not score has the mean of the others
    with_lost = advantages(report(np.hstack([one, lost])), report(np.hstack([other, lost])))
    assert with_lost == pytest.approx(advantages(report(one), report(other)))
    by_task = np.append((one - other)[1:, 0].mean(), (one - other)[:, 1:].mean(axis=0))
    by_fold = one.mean(axis=1) - np.nanmean(some, axis=1)
    assert advantages(report(one), report(some))[1] == pytest.approx(max(sem(by_task), sem(by_fold)))
    several = advantages(report(one), np.stack([report(other), report(some)]))
    for number, rival in enumerate((other, some)):
        assert [part[number] for part in several] == pytest.approx(advantages(report(one), report(rival)))


@given(st.integers(2, 40), st.floats(0.01, 100.0))
def test_a_gain_in_one_task_alone_is_one_standard_error_however_large(n_tasks, size):
    base = np.zeros((5, n_tasks))
    gain = np.zeros(n_tasks)
    gain[0] = size
    better = advantages(report(base + gain), report(base))
    assert wins(better, 0.999)
    assert not wins(better, 1.001)


@pytest.mark.parametrize(("loss", "equal"), [(0.9, True), (1.1, False)])
def test_equals_are_those_within_a_standard_error_best_first(scripted, loss, equal):
    pattern = np.array([-1.0, 0.0, 1.0]) - loss * sem([-1.0, 0.0, 1.0])
    contest = Contest(
        {},
        None,
        None,
        scripted(2, lambda number, params: [np.nan] * 3 if params["a"] == 9 else -5.0 + params["a"] * pattern),
        None,
    )
    contest.evaluate("first", [{"a": 1}, {"a": 0}, {"a": 0.5}, {"a": 9}])
    table, place = contest.table, contest.table.ranking()[0]
    assert contest.best == table.params[place] == {"a": 0}
    expected = [0, 0.5, 1] if equal else [0]
    assert [table.params[found]["a"] for found in table.equals(place, 5)] == expected
    assert [table.params[found]["a"] for found in table.equals(place, 2)] == expected[:2]


def test_settings_are_scored_once_and_keep_their_numbers(scripted):
    contest = Contest({}, None, None, scripted(2, lambda number, params: [params["a"], number]), None)
    chains = [{"a": a, "graph_penalty": value} for a in (3, 1) for value in (0.1, 0.7)]
    assert contest.evaluate("first", chains) == [1, 0, 3, 2]  # λ falls
    first = contest.table.reports
    assert contest.evaluate("second", [{"a": 7}, chains[2], {"a": 7}]) == [4, 3]
    assert contest.table.params == [*(chains[place] for place in (1, 0, 3, 2)), {"a": 7}]
    assert contest.table.stages == ["first"] * 4 + ["second"]
    np.testing.assert_array_equal(contest.table.reports[:4], first)
    np.testing.assert_array_equal(contest.table.reports[:, :, TASKS], [[3, 3], [3, 3], [1, 1], [1, 1], [7, 7]])
    np.testing.assert_array_equal(contest.table.reports[:, :, TASKS + 1], [[0, 1]] * 5)


def test_without_a_fold_the_others_decide(scripted):
    scores = {0: [4.0, 0.0, 0.0], 1: [0.0, 1.0, 1.0], 2: [np.nan, 9.0, 9.0]}
    contest = Contest({}, None, None, scripted(3, lambda number, params: np.full(2, scores[params["a"]][number])), None)
    contest.evaluate("", [{"a": a} for a in scores])
    assert contest.best == {"a": 0}
    part = contest.table.without(0)
    assert part.params[part.ranking()[0]] == {"a": 1}  # what has no score in some fold has none at all
    assert part.ranking() == [1, 0]


def test_the_best_with_a_graph_is_found_among_all(scripted):
    folds = scripted(2, lambda number, params: [-params["graph_penalty"] if params["a"] else 0.0] * 2)
    contest = Contest({}, None, None, folds, None)
    contest.evaluate("", [{"a": 0, "graph_penalty": np.inf}])
    assert contest.best_with_graph is None
    contest.evaluate("", [{"a": 1, "graph_penalty": 0.5}, {"a": 1, "graph_penalty": 0.2}])
    assert contest.best_with_graph["graph_penalty"] == 0.2
    assert contest.best["a"] == 0


def reports(scores, edges):
    """What a chain of settings reports, for scores of (settings, tasks)."""
    facts = np.zeros((len(scores), TASKS))
    facts[:, 0], facts[:, 1] = scores.mean(axis=1), edges
    return np.hstack([facts, scores])


@given(st.integers(0, 10**6), st.integers(3, 60), st.floats(0, 0.01), st.floats(-0.01, 0.01), st.floats(0.01, 100.0))
def test_a_chain_stops_only_where_nothing_is_to_be_gained(seed, n_tasks, spread, gain, unit):
    rng = np.random.default_rng(seed)
    base = -1.0 - rng.random(n_tasks)
    scores = np.stack([base, base - 0.1, *(base + gain + spread * rng.standard_normal((2, n_tasks)))])
    stops = no_gain_left(reports(scores, [0, n_tasks, n_tasks, n_tasks]))
    gains = (scores[2:] - base).mean(axis=1)
    if stops:
        assert gains.max() <= 1e-3 * abs(base.mean())
    assert stops == no_gain_left(reports(unit * scores, [0, n_tasks, n_tasks, n_tasks]))
    assert not no_gain_left(reports(scores, [0, n_tasks, n_tasks, n_tasks - 1]))  # sparse graphs may still gain
    assert not no_gain_left(reports(scores[:2], [n_tasks, n_tasks]))
    highest = gains + 2 * sem(scores[2:] - base, axis=1)  # what a gain may still be
    limit = 1e-3 * abs(base.mean())
    assert stops == bool(highest.max() <= limit) or highest.max() == pytest.approx(limit, rel=1e-9)


def test_scores_after_early_stopping_are_nan(monkeypatch, scripted):
    (fold,) = scripted(1, lambda number, params: np.full(4, -1.0))
    monkeypatch.setattr("mssl.model_selection.scores.no_gain_left", lambda reports: len(reports) == 3)
    chain = [{"a": value} for value in range(5)]
    table = np.asarray(score_chain(fold, None, chain, True))
    assert table.shape == (5, TASKS + 4)
    assert np.isfinite(table[:3]).all()
    assert np.isnan(np.delete(table[3:], CERTIFIED, axis=1)).all()
    np.testing.assert_array_equal(table[:, CERTIFIED], [1, 1, 1, 0, 0])
    assert np.isfinite(score_chain(fold, None, chain, False)).all()


def test_uncertain_scores_do_not_stop_a_chain():
    base = -np.ones(8)
    spread = 0.01 * np.array([-1.0, 1.0] * 4)
    scores = np.stack([base, base, base + spread, base - spread])
    assert no_gain_left(reports(np.stack([base, base, base, base]), [0, 8, 8, 8]))
    assert not no_gain_left(reports(scores, [0, 8, 8, 8]))
