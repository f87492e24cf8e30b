"""Whole fits of few tasks; that their rounds are those of Python is tested with the alternation."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from written_out import random_gram

from mssl import kernels


def tables(K=4, d=3, seed=0):
    rng = np.random.default_rng(seed)
    H = np.stack([random_gram(rng, d, 10) for _ in range(K)])
    return H, rng.uniform(0.5, 2.0, K), np.matmul(H, rng.standard_normal((K, d, 1)))[:, :, 0]


def loss(penalised=True, **options):
    H, scale, q = tables(**options)
    K, d = q.shape
    penalty = (kernels.ABSOLUTE, False, np.full((1, K, d), 0.1))
    return kernels.TaskLoss(
        H, scale, q, 5.0, *((penalty, None) if penalised else (None, (np.zeros(K), np.empty(H.shape))))
    )


def test_what_does_not_belong_together_is_refused():
    H, scale, q = tables()
    penalty, kept = (kernels.ABSOLUTE, False, np.full((1, 4, 3), 0.1)), (np.zeros(4), np.empty(H.shape))
    with pytest.raises(TypeError, match="or, without one"):
        kernels.TaskLoss(H, scale, q, 0.0, penalty, kept).passed(1)
    with pytest.raises(TypeError, match="or, without one"):
        kernels.TaskLoss(H, scale, q, 0.0, None, None).passed(1)
    with pytest.raises(TypeError, match="code"):
        kernels.TaskLoss(H, scale, q, 0.0, (kernels.MINIMAX_CONCAVE, False, np.ones((2, 4, 3))), None).passed(1)
    with pytest.raises(TypeError, match="shape"):
        kernels.TaskLoss(H[:2], scale, q, 0.0, penalty, None).passed(1)
    with pytest.raises(TypeError, match="share memory"):
        kernels.TaskLoss(H, scale, q, 0.0, None, (kept[0], H)).passed(1)


def rounds_of(made, tau=0.3):
    """Rounds from weights of zero and unrelated tasks."""
    K, d = made.q.shape
    unit, limits = np.eye(K), (1e-8, 0.3, 0.1, 1e-12, 2)
    prior = (1.0, tau, 0.1, np.ones(K), np.full(K, 0.1), np.full((K, K), 0.05))
    options = {"ready": False, "known": False, "max_inner": 500}
    return kernels.FitRounds(made, prior, limits, (np.zeros((K, d)), unit, unit), **options)


def test_a_loss_survives_pickling():
    answers = [rounds_of(one) for one in (loss(), pickle.loads(pickle.dumps(loss())))]
    tables = [one.run(50) for one in answers]
    assert tables[0] == tables[1]
    np.testing.assert_array_equal(answers[0].W, answers[1].W)


def test_nothing_is_read_beyond_single_tasks_and_features():
    for K, d in ((1, 1), (1, 5), (5, 1), (50, 20)):
        for penalised in (True, False):
            rounds = rounds_of(loss(penalised, K=K, d=d))
            ended, table = rounds.run(50)
            assert ended in (kernels.DONE, kernels.AGAIN)
            assert table
            assert np.all(np.diff([row[0] for row in table]) <= 1e-10)
            np.testing.assert_allclose(rounds.omega @ rounds.sigma, np.eye(K), atol=1e-8)
