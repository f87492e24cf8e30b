"""Joint feature selection by descent over features against proximal gradients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from watching import look_always
from written_out import compressed, random_gram, random_precision

from mssl import kernels


class Groups:
    """½ Σ s_k v_k'H_k v_k − q'V + ½ tr(V'CV) + alpha Σ_j ‖V_·j‖."""

    def __init__(self, K, m, seed, *, one=False, rows=None, share=0.5):
        rng = np.random.default_rng(seed)
        self.H = np.stack([random_gram(rng, m, rows) for _ in range(1 if one else K)])
        self.scale, self.C = rng.uniform(0.5, 2.0, K), random_precision(rng, K)
        self.lift = np.abs(self.C).sum(axis=1)
        self.q = np.stack([self.H[k % len(self.H)] @ v for k, v in enumerate(rng.standard_normal((K, m)))])
        self.alpha = share * float(np.max(np.linalg.norm(self.q, axis=0), initial=1e-3))
        curvature = np.concatenate([np.linalg.eigvalsh(h)[-1:] for h in self.H]) if m else np.ones(1)
        self.most = float(self.scale.max(initial=1.0) * curvature.max() + np.linalg.eigvalsh(self.C).max(initial=1.0))
        # the smooth part is at least 0 everywhere, as a sum of squares would be
        self.constant = -self.smooth(self.solved()) + 0.1

    def product(self, V):
        H = np.broadcast_to(self.H, (len(V), *self.H.shape[1:]))
        return self.scale[:, None] * np.einsum("kij,kj->ki", H, V) + self.C @ V

    def smooth(self, V):
        return float(np.vdot(V, 0.5 * self.product(V) - self.q))

    def solved(self):
        K, m = self.q.shape
        columns = [self.product(e.reshape(K, m)).ravel() for e in np.eye(K * m)]
        return np.linalg.solve(np.reshape(columns, (K * m, K * m)), self.q.ravel()).reshape(K, m)

    def value(self, V):
        return self.smooth(V) + self.alpha * np.linalg.norm(V, axis=0).sum()

    def twin(self, steps=4000):
        """Accelerated proximal gradients, in plain words."""
        V = Y = np.zeros_like(self.q)
        for i in range(steps):
            Z = Y - (self.product(Y) - self.q) / self.most
            sizes = np.linalg.norm(Z, axis=0)
            new = Z * np.maximum(1 - self.alpha / self.most / np.maximum(sizes, 1e-300), 0)
            Y = new + i / (i + 3) * (new - V)
            V = new
        return V

    def descend(self, V, tol, most):
        G = self.product(V) - self.q
        grams, links = (self.H, self.scale, self.q), ((*compressed(self.C), None, 0.0), self.lift)
        facts = kernels.group_descent(grams, links, self.alpha, self.constant, V, G, tol, most)
        np.testing.assert_allclose(G, self.product(V) - self.q, atol=1e-9)
        return facts


@given(
    K=st.integers(1, 4),
    m=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    one=st.booleans(),
    share=st.sampled_from([0.05, 0.4, 0.9, 1.1]),
)
def test_descent_over_features_ends_where_proximal_gradients_do(K, m, seed, one, share):
    case = Groups(K, m, seed, one=one, share=share)
    V = np.zeros((K, m))
    _, gap = case.descend(V, 1e-12, 10_000)
    assert gap <= 1e-12
    answer = case.twin()
    np.testing.assert_allclose(V, answer, atol=1e-5)
    assert case.value(V) <= case.value(answer) + 1e-12
    if share > 1:
        assert not V.any()


@given(K=st.integers(1, 4), m=st.integers(1, 6), seed=st.integers(0, 10**6), most=st.integers(1, 6))
def test_the_bound_of_joint_selection_holds_wherever_it_stops(K, m, seed, most):
    case = Groups(K, m, seed)
    V = np.random.default_rng(seed).standard_normal((K, m))
    made, gap = case.descend(V, 0.0, most)
    best = np.zeros((K, m))
    case.descend(best, 1e-13, 10_000)
    assert made >= 1
    assert case.value(V) - case.value(best) <= gap + 1e-12


def test_one_task_alone_is_the_lasso():
    case = Groups(1, 30, 0, share=0.2)
    V = np.zeros((1, 30))
    case.descend(V, 1e-13, 10_000)
    slope = (case.product(V) - case.q)[0]
    used = V[0] != 0
    assert 0 < used.sum() < 30
    np.testing.assert_allclose(slope[used], -case.alpha * np.sign(V[0, used]), atol=1e-6)
    assert np.all(np.abs(slope[~used]) <= case.alpha)


@pytest.mark.parametrize(("K", "m"), [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_select(K, m):
    V = np.zeros((K, m))
    H, ones = np.zeros((max(K, 1), m, m)), np.ones(K)
    links = ((*compressed(np.eye(K)), None, 0.0), ones)
    _, gap = kernels.group_descent((H, ones, V.copy()), links, 0.1, 1.0, V, V.copy(), 1e-9, 10)
    assert gap == 0.0


def test_looks_at_signals_change_no_bit(monkeypatch):
    case = Groups(5, 40, 1, rows=20, share=0.1)
    V, again = np.zeros((5, 40)), np.zeros((5, 40))
    facts = case.descend(V, 1e-12, 5000)
    assert facts[0] > 5
    look_always(monkeypatch)
    assert case.descend(again, 1e-12, 5000) == facts
    assert np.array_equal(V, again)
