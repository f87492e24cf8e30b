r"""What is wrong with a fit, found without its solvers: F by its documented formula, and descents of our own.

A fit that says it has converged cannot be improved in the weights alone, nor in the graph alone, by more than its
certificate. Constants that a fit estimates (noise, variances, :math:`\tau^2`) and the features' scales are taken from
it; losses, penalties, the prior, the minimisers are written out here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import optimize, sparse
from scipy.special import expit, xlogy

from mssl.solvers.base import Status
from mssl.structures import SparsePrecision

Finding = tuple[str, float]

_FORMULA = 1e-6  # relative difference of F from its formula that rounding explains
_SLACK = 1e-8  # relative improvement beyond the certificate that rounding explains


def _losses(family: str, y: np.ndarray, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Loss of each row above the smallest possible one, and its slope in the predictor."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if family == "gaussian":
            return 0.5 * (y - eta) ** 2, eta - y
        if family == "bernoulli":
            return np.logaddexp(0.0, eta) - y * eta, expit(eta) - y
        if family == "poisson":
            return np.exp(eta) - y * eta - (y - xlogy(y, y)), np.exp(eta) - y
        ratio = y * np.exp(-eta)
        return ratio + eta - 1.0 - np.log(y), 1.0 - ratio


def graph_values(R: np.ndarray, L: np.ndarray, Z: np.ndarray, iterations: int = 300) -> tuple[float, float]:
    """tr(RZ) − log det Z + Σ L|Z| at Z, and the least value that alternating directions find from there."""

    def value(Z: np.ndarray) -> float:
        eigenvalues = np.linalg.eigvalsh(Z)  # a determinant is positive with two negative ones as well
        if eigenvalues[0] <= 0:
            return np.inf
        return float(np.sum(R * Z) - np.log(eigenvalues).sum() + np.sum(L * np.abs(Z)))

    start = least = value(Z)
    U, rho = np.zeros_like(Z), 1.0
    for _ in range(iterations):
        values, vectors = np.linalg.eigh(rho * (Z - U) - R)
        T = (vectors * ((values + np.sqrt(values**2 + 4 * rho)) / (2 * rho))) @ vectors.T
        new = np.sign(T + U) * np.maximum(np.abs(T + U) - L / rho, 0.0)
        primal, dual = np.linalg.norm(T - new), rho * np.linalg.norm(new - Z)
        Z, U = new, U + T - new
        least = min(least, value(Z))
        factor = 2.0 if primal > 10 * dual else 0.5 if dual > 10 * primal else 1.0
        rho, U = rho * factor, U / factor
    return start, least


class Judge:
    """One fit with its rows in the solver's units."""

    def __init__(self, given: Any, model: Any) -> None:
        labels = {name: v for name, v in (("tasks", given.tasks), ("sample_weight", given.weights)) if v is not None}
        data = model._read(given.X, given.y, labels.get("tasks"), labels.get("sample_weight"))
        self.spec = model.to_spec(data)
        prepared = self.spec.prepare(data)
        self.model, self.result, self.family = model, model.result_, given.family
        self.K, self.d = model.coef_.shape
        dense = data.X.toarray() if sparse.issparse(data.X) else np.asarray(data.X, dtype=float)
        dense = np.tile(dense, (self.K, 1)) if data.shared else dense
        self.X, self.y = dense / prepared.design.scales, data.y / prepared.unit
        self.task = np.repeat(np.arange(self.K), np.diff(data.offsets))
        self.c = (1.0 if data.weights is None else data.weights) / prepared.noise[self.task]
        self.root = np.sqrt(1.0 / prepared.noise)[:, None]
        self.W, self.b = self.result.W, model.intercept_ / prepared.unit
        self.tau = prepared.mean_of(self.spec.structure)
        self.intercept = self.spec.settings.fit_intercept
        self.size = max(1.0, abs(self.result.objective))
        self.on_edge = (
            self.intercept
            and given.family in ("poisson", "bernoulli")
            and any(np.all(self.y[self.task == k] == edge) for k in range(self.K) for edge in (0.0, 1.0))
        )

    # The weights' side.

    def loss(self, W: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Loss, and its gradients in weights and intercepts."""
        values, slopes = _losses(self.family, self.y, np.einsum("nd,nd->n", self.X, W[self.task]) + b[self.task])
        g = np.where(self.c > 0, self.c * slopes, 0.0)
        gradient = np.zeros((self.K, self.d))
        np.add.at(gradient, self.task, g[:, None] * self.X)
        return float(np.sum(np.where(self.c > 0, self.c * values, 0.0))), gradient, np.bincount(self.task, g, self.K)

    def rounding(self) -> float:
        """What the last digits of targets, predictors and intercepts make of the loss."""
        eta = np.einsum("nd,nd->n", self.X, self.W[self.task]) + self.b[self.task]
        terms = np.einsum("nd,nd->n", np.abs(self.X), np.abs(self.W[self.task])) + np.abs(self.y)
        digits = np.finfo(float).eps * terms + np.finfo(self.b.dtype).eps * np.abs(self.b[self.task])
        own = 0.0 if self.family == "gaussian" else np.finfo(float).eps * (1.0 + np.abs(eta))  # of terms that cancel
        return float(np.sum(self.c * (np.abs(_losses(self.family, self.y, eta)[1]) * digits + digits**2 + own)))

    def penalty(self, W: np.ndarray) -> float:
        kind, V = type(self.spec.penalty).__name__, self.root * W
        alpha = float(getattr(self.spec.penalty, "alpha", 0.0))
        if kind in ("L1", "ElasticNet"):
            return alpha * float(np.abs(V).sum()) + 0.5 * float(getattr(self.spec.penalty, "ridge", 0.0)) * float(
                np.sum(V**2)
            )
        if kind == "L21":
            return alpha * float(np.sqrt(np.sum(V**2, axis=0)).sum())
        return alpha * float(np.linalg.svd(V, compute_uv=False).sum())

    # The documented F.

    def formula(self) -> float | None:
        """F for a learned sparse precision on coefficients; None for other structures."""
        s, scale, omega = self.spec.structure, self.result.scale, self.result.structure.precision
        if (
            not isinstance(s, SparsePrecision)
            or s.on != "coef"
            or s.correlation != "pearson"
            or s.edge_constraints is not None
        ):
            return None
        eta, r, v = s.strength, scale.n_rows, scale.variances
        if s.normalize:
            share = max(1 / 8, self.K / (10 * r)) if s.variance_floor == "auto" else s.variance_floor
            e = share * scale.sampling_variances
            a = np.outer(np.sqrt(v + e), np.sqrt(v + e))
        else:
            e, a = np.full(self.K, float(s.alpha)), np.ones((self.K, self.K))
        P = eta * omega
        m, extra = np.zeros(self.d), 0.0
        if self.tau > 0:
            m = (P.sum(axis=1) @ self.W) / (1.0 / self.tau + P.sum())
            extra = 0.5 * float(m @ m) / self.tau + 0.5 * r * float(np.log1p(self.tau * P.sum()))
        nu = s.shrinkage * r
        S = ((self.W - m) @ (self.W - m).T + nu * np.diag(v)) / (r + nu)
        edges = np.where(np.eye(self.K, dtype=bool), 0.0, a * np.abs(omega))
        prior = np.sum(S * omega) - np.linalg.slogdet(omega)[1] + s.alpha * edges.sum() + e @ omega.diagonal()
        self.graph = (
            S + (1.0 / (1.0 / self.tau + P.sum()) if self.tau > 0 else 0.0) / (1.0 + s.shrinkage),
            s.alpha * a,
            e,
            0.5 * (r + nu) * eta,
        )
        return self.loss(self.W, self.b)[0] + self.penalty(self.W) + 0.5 * (r + nu) * eta * float(prior) + extra

    def judge(self, deep: bool) -> Iterator[Finding]:
        """Everything that is wrong with a fit that says it has converged."""
        if self.on_edge or self.spec.structure.relates != "coef" or type(self.spec.penalty).__name__ == "MCP":
            return
        F = self.formula()
        loss, rounding = self.loss(self.W, self.b)[0], self.rounding()
        if F is not None and not abs(F - self.result.objective) <= _FORMULA * max(self.size, abs(loss)) + rounding:
            yield "F is not its formula", abs(F - self.result.objective) / self.size
        record = self.result.history[-1]
        if deep and F is not None and self.K > 1 and np.isfinite(self.spec.structure.alpha):
            gained = self.better_graph()
            if gained > record.gap_structure + _SLACK * self.size:
                yield "a better graph than the certificate allows", gained / self.size
        C = self.spec.structure.couple(self.result.structure, self.tau)
        if deep and self.tau * float(C.precision.sum()) < 1e8:
            before = loss + 0.5 * float(np.sum(self.W * (C.dense() @ self.W))) + self.penalty(self.W)
            # Weights that nearly agree, and a mean that costs nothing: C times them cancels.
            rounding += np.finfo(float).eps * float(np.sum(np.abs(self.W) * (np.abs(C.dense()) @ np.abs(self.W))))
            if self.tau == 0 and self.spec.structure.profile() is not None and self.penalty(np.ones_like(self.W)) == 0:
                before = self.result.objective  # of the best Ω for all weights; that of the fit is a smoothed one
            gained = before - self.better_weights(C.dense())
            if gained > record.gap_weights + _SLACK * max(self.size, abs(before)) + rounding:
                yield "better weights than the certificate allows", gained / self.size

    # Minimisers of our own.

    def better_graph(self) -> float:
        """What alternating directions on the graph alone gain, in units of F."""
        S, prices, e, weight = self.graph
        omega = self.result.structure.precision
        D = np.sqrt(S.diagonal() + e)
        R, L = S / np.outer(D, D), prices / np.outer(D, D)
        np.fill_diagonal(R, 1.0)
        np.fill_diagonal(L, 0.0)

        start, least = graph_values(R, L, omega * np.outer(D, D))
        return weight * (start - least) if np.isfinite(start) else 0.0

    def better_weights(self, C: np.ndarray) -> float:
        """The least value of loss, coupling and penalty that a quasi-Newton or proximal descent finds from the fit."""
        kind = type(self.spec.penalty).__name__
        if kind in ("L21", "Nuclear") and getattr(self.spec.penalty, "alpha", 0.0) > 0:
            return self._proximal(C, kind)
        n, ridge = self.W.size, float(getattr(self.spec.penalty, "ridge", 0.0))
        price = float(getattr(self.spec.penalty, "alpha", 0.0)) * np.broadcast_to(self.root, self.W.shape).ravel()
        totals = np.bincount(self.task, self.c, self.K)
        means = np.zeros((self.K, self.d))
        if self.intercept:  # what the descent sees is better conditioned for centred features
            np.add.at(means, self.task, self.c[:, None] * self.X)
            means /= np.where(totals > 0, totals, 1.0)[:, None]

        def value(z: np.ndarray) -> tuple[float, np.ndarray]:
            V = (z[:n] - z[n : 2 * n]).reshape(self.W.shape)
            b = z[2 * n :] - np.sum(means * V, axis=1) if self.intercept else np.zeros(self.K)
            f, G, g = self.loss(V, b)
            G = G - g[:, None] * means + C @ V + ridge * self.root**2 * V
            f += 0.5 * float(np.sum(V * (C @ V))) + 0.5 * ridge * float(np.sum((self.root * V) ** 2))
            f += float(price @ (z[:n] + z[n : 2 * n]))
            slopes = [G.ravel() + price, price - G.ravel(), *([g] if self.intercept else [])]
            return (f, np.concatenate(slopes)) if np.isfinite(f) else (1e300, np.zeros(len(z)))

        start = [np.maximum(self.W, 0.0).ravel(), np.maximum(-self.W, 0.0).ravel()]
        bounds = [(0.0, None)] * (2 * n)
        if self.intercept:
            start.append(self.b + np.sum(means * self.W, axis=1))
            bounds += [(None, None)] * self.K
        limits = {"maxiter": 150, "maxfun": 250, "ftol": 1e-15, "gtol": 1e-12}
        with np.errstate(all="ignore"):
            found = optimize.minimize(
                value, np.concatenate(start), jac=True, method="L-BFGS-B", bounds=bounds, options=limits
            )
        return float(found.fun)

    def _proximal(self, C: np.ndarray, kind: str) -> float:
        alpha, W, b, L = float(self.spec.penalty.alpha), self.W, self.b, 1.0

        def smooth(W: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
            f, G, g = self.loss(W, b)
            return f + 0.5 * float(np.sum(W * (C @ W))), G + C @ W, g

        least = np.inf
        for _ in range(150):
            f, G, g = smooth(W, b)
            if not np.isfinite(f) or not np.isfinite(G).all():
                break  # the search went astray: what it found before counts
            least = min(least, f + self.penalty(W))
            for _ in range(60):
                V = self.root * W - G / self.root / L
                if kind == "L21":
                    norms = np.sqrt(np.sum(V**2, axis=0))
                    V = V * np.maximum(1.0 - alpha / L / np.where(norms > 0, norms, 1.0), 0.0)
                else:
                    left, t, right = np.linalg.svd(V, full_matrices=False)
                    V = (left * np.maximum(t - alpha / L, 0.0)) @ right
                new, c = V / self.root, b - g / L if self.intercept else b
                D, e = new - W, c - b
                bound = f + float(np.sum(G * D) + g @ e) + 0.5 * L * float(np.sum((self.root * D) ** 2) + e @ e)
                if smooth(new, c)[0] <= bound + 1e-13 * abs(f):
                    break
                L *= 2.0
            W, b, L = new, c, 0.8 * L
        return least


def findings(given: Any, model: Any, *, deep: bool) -> Iterator[Finding]:
    """Everything that is wrong with a fitted estimator."""
    for name in ("coef_", "intercept_", "noise_variance_", "precision_", "covariance_", "objective_", "mean_coef_"):
        value = getattr(model, name, None)
        if value is not None and not np.isfinite(np.asarray(value, dtype=float)).all():
            yield f"{name} is not finite", np.nan
            return
    predicted = given.predict(model)
    if predicted.dtype.kind == "f" and not np.isfinite(predicted).all():
        yield "predictions are not finite", np.nan
    result = getattr(model, "result_", None)
    if result is None:
        return
    values = np.array([record.objective for record in result.history])
    # Alternations with rank correlations have no joint objective: their weights and graphs belong to different ones.
    joint = result.status is not Status.SETTLED and getattr(model, "correlation", "pearson") == "pearson"
    if joint and len(values) > 1:
        rise = float(np.diff(values).max()) / max(1.0, abs(values[-1]))
        if rise > 1e-9:
            yield "F rises", rise
    # A feature that hardly varies, or sizes of 1e90, leave an oracle in other units without digits of its own.
    # Weights that are an average over several settings are the optimum of none of them.
    averaged = len(getattr(model, "members_", ())) > 1
    if result.status is Status.CONVERGED and given.kind not in ("nearly constant", "extreme") and not averaged:
        yield from Judge(given, model).judge(deep)
