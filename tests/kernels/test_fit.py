"""Whole fits of few tasks; that their rounds are those of Python is tested with the alternation."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from written_out import random_gram

from mssl import kernels

BY = kernels.FixedPoint(5.0, 0.1, 0.2, 100)


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


@pytest.mark.parametrize("penalised", [True, False])
@pytest.mark.parametrize("tau", [0.0, 0.5])
def test_the_start_is_a_fixed_point(penalised, tau):
    """With the found variances the weights' mean squares are these variances, and the weights are the best ones."""
    H, scale, q = tables()
    (K, d), e, v = q.shape, np.full(4, 0.05), np.ones(4)
    W = np.zeros((K, d))
    assert loss(penalised).start(2.0, tau, e, 10.0, 1e-8, BY, v, W, 1000)
    P = np.diag(2.0 / (v + e))
    C = np.linalg.inv(np.linalg.inv(P) + tau)
    mean = tau * (C @ W).sum(axis=0)
    rho = 1.0 / (1.0 / tau + P.sum()) if tau else 0.0
    np.testing.assert_allclose(((W - mean) ** 2).mean(axis=1) + rho, v, rtol=1e-6)
    slope = scale[:, None] * np.einsum("kij,kj->ki", H, W) - q + C @ W
    t = 0.1 if penalised else 0.0
    np.testing.assert_allclose(slope, np.clip(slope, -t, t), atol=1e-4)
    np.testing.assert_allclose(slope[W != 0], -t * np.sign(W[W != 0]), atol=1e-4)


def test_a_start_whose_descent_creeps_is_none():
    """Columns that nearly agree: a few sweeps are not enough, and the caller has better ways than thousands of them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 1)) + 1e-3 * rng.standard_normal((30, 8))
    H, q = np.stack([x.T @ x, x.T @ x]), rng.standard_normal((2, 30)) @ x
    creeping = kernels.TaskLoss(H, np.ones(2), q, 5.0, (kernels.ABSOLUTE, False, np.full((1, 2, 8), 1e-6)), None)
    for sweeps, whole in ((3, False), (10**7, True)):
        v, W = np.ones(2), np.zeros((2, 8))
        assert creeping.start(1e-6, 0.0, np.full(2, 0.05), 1.0, 1e-4, BY, v, W, sweeps) is whole


def test_what_does_not_belong_together_is_refused():
    H, scale, q = tables()
    penalty, kept = (kernels.ABSOLUTE, False, np.full((1, 4, 3), 0.1)), (np.zeros(4), np.empty(H.shape))
    with pytest.raises(TypeError, match="or, without one"):
        kernels.TaskLoss(H, scale, q, 0.0, penalty, kept)
    with pytest.raises(TypeError, match="or, without one"):
        kernels.TaskLoss(H, scale, q, 0.0, None, None)
    with pytest.raises(TypeError, match="code"):
        kernels.TaskLoss(H, scale, q, 0.0, (kernels.MINIMAX_CONCAVE, False, np.ones((2, 4, 3))), None)
    with pytest.raises(TypeError, match="shape"):
        kernels.TaskLoss(H[:2], scale, q, 0.0, penalty, None)
    with pytest.raises(TypeError, match="share memory"):
        kernels.TaskLoss(H, scale, q, 0.0, None, (kept[0], H))
    v = np.ones(4)
    with pytest.raises(TypeError, match="share memory"):
        loss().start(1.0, 0.0, v, 1.0, 1e-6, BY, v, np.zeros((4, 3)), 10)
    with pytest.raises(TypeError, match="shape"):
        loss().start(1.0, 0.0, np.ones(3), 1.0, 1e-6, BY, v, np.zeros((4, 3)), 10)


def test_a_loss_survives_pickling():
    made, again = loss(), pickle.loads(pickle.dumps(loss()))
    answers = []
    for one in (made, again):
        v, W = np.ones(4), np.zeros((4, 3))
        assert one.start(1.0, 0.0, np.full(4, 0.1), 1.0, 1e-6, BY, v, W, 100)
        answers.append((v, W))
    np.testing.assert_array_equal(answers[0][1], answers[1][1])


def test_nothing_is_read_beyond_single_tasks_and_features():
    for K, d in ((1, 1), (1, 5), (5, 1), (50, 20)):
        for penalised in (True, False):
            made, unit, v, W = loss(penalised, K=K, d=d), np.eye(K), np.ones(K), np.zeros((K, d))
            assert made.start(1.0, 0.3, np.full(K, 0.1), 1.0, 1e-6, BY, v, W, 100)
            limits = kernels.RoundsLimits(1e-8, 0.3, 0.1, 1e-12, 2)
            options = {"ready": True, "known": False, "max_inner": 500}
            prior = (1.0, 0.3, 0.1, v, np.full(K, 0.1), np.full((K, K), 0.05))
            rounds = kernels.FitRounds(made, *prior, limits, W, unit, unit, **options)
            ended, table = rounds.run(50)
            assert ended in (kernels.DONE, kernels.AGAIN)
            assert table
            assert np.all(np.diff([row[0] for row in table]) <= 1e-10)
            np.testing.assert_allclose(rounds.omega @ rounds.sigma, unit, atol=1e-8)
