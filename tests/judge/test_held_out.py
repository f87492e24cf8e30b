"""When a gain is told from chance: errors over groups, and the rule by which curves win."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mssl.judge.held_out import MARGIN, MIN_GAIN_NATS, error_of_mean, gain, wins


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(2, 9))
def test_the_error_is_the_larger_of_those_over_groups(seed, folds, tasks):
    parts = np.random.default_rng(seed).normal(size=(folds, tasks))
    fold, task = np.divmod(np.arange(parts.size), tasks)
    total, error = gain(parts.ravel(), fold, task)
    assert total == pytest.approx(parts.sum())
    over = [np.sqrt(len(sums) * np.var(sums, ddof=1)) for sums in (parts.sum(axis=1), parts.sum(axis=0))]
    assert error == pytest.approx(max(over))
    assert gain(-parts.ravel(), task, fold) == pytest.approx((-total, error))
    order = np.random.default_rng(seed).permutation(parts.size)  # neither names nor order of parts matter
    assert gain(parts.ravel()[order], 7 - fold[order] + folds, task[order]) == pytest.approx((total, error))


def test_a_group_alone_says_nothing_of_an_error():
    assert gain(np.array([1.0, 2.0]), np.zeros(2, dtype=int)) == (3.0, 0.0)
    assert error_of_mean(np.array([5.0])) == 0.0


def test_noise_seldom_wins_and_a_gain_of_many_errors_does():
    random, won = np.random.default_rng(0), 0
    task = np.arange(40) % 8
    for _ in range(2000):
        parts = random.normal(size=40) + 0.5 * random.normal(size=8)[task]  # gains and losses of whole tasks
        won += wins(gain(parts, np.arange(40), task))
    assert won < 0.04 * 2000  # one side of two errors by chance: .023, somewhat more with eight tasks
    assert wins(gain(1.0 + 0.1 * parts, np.arange(40), task))


def test_small_gains_of_log_density_do_not_win_however_sure():
    assert not wins((0.9 * MIN_GAIN_NATS, 0.0), least=MIN_GAIN_NATS)
    assert wins((1.1 * MIN_GAIN_NATS, 0.0), least=MIN_GAIN_NATS)
    assert not wins((5.0, 1.01 * 5.0 / MARGIN), least=MIN_GAIN_NATS)
