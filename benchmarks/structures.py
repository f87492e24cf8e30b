"""What the structures and penalties cost: r-MSSL in Choleskys, joint selection and low rank against plain FISTA.

Run with one BLAS thread: ``OMP_NUM_THREADS=1 python benchmarks/structures.py``.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np
from scipy import linalg
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold

from benchmarks.reference import composite_gap, fista
from mssl import MSSLRegressor
from mssl.data.design import Design
from mssl.datasets import make_residual_graph
from mssl.model.coupling import Coupling
from mssl.penalties import L21, Nuclear
from mssl.solvers.quadratic import StepProblem, make_quadratic
from mssl.solvers.weights import solve_quadratic


def timed(function, repeats=1):
    best, answer = np.inf, None
    for _ in range(repeats):
        start = perf_counter()
        answer = function()
        best = min(best, perf_counter() - start)
    return best, answer


def residual_cost():
    """One fit at (d, K, n) = (10, 250, 600), λ = λ_max / 2, in dense Choleskys of the 2500 × 2500 Hessian."""
    A = np.random.default_rng(0).standard_normal((2500, 2500))
    A = A @ A.T + 100 * np.eye(2500)
    unit, _ = timed(lambda: linalg.cholesky(A), 3)
    clusters = [list(range(i, i + 10)) for i in range(0, 200, 10)]
    for shared in (True, False):
        data = make_residual_graph(
            random_state=0,
            n_tasks=250,
            n_features=10,
            n_samples=600,
            clusters=clusters,
            shared_design=shared,
            layout="shared" if shared else "aligned",
        )
        limit = MSSLRegressor(0.3, 5.0, relation="residual").limits(data.X, data.y).graph_penalty
        model = MSSLRegressor(0.5 * limit, 5.0, relation="residual")
        seconds, _ = timed(lambda model=model, data=data: model.fit(data.X, data.y), 3)
        print(
            f"r-MSSL, {'shared' if shared else 'own'} X: {seconds:.3f} s = {seconds / unit:.2f} Choleskys "
            f"({model.result_.message}, {model.graph_.n_edges} edges)"
        )


def residual_accuracy():
    """Test error against least squares, and the area under the graph's ROC curve, λ and γ by cross-validation."""
    ratios, areas = [], []
    upper = np.triu_indices(13, 1)
    grid = {"graph_penalty": [0.05, 0.1, 0.2, 0.35, 0.5], "coef_penalty": [2.0, 4.0, 6.0, 8.0, 12.0]}
    for seed in range(5):
        data = make_residual_graph(random_state=seed)
        search = GridSearchCV(
            MSSLRegressor(relation="residual", tol=1e-4),
            grid,
            cv=KFold(5, shuffle=True, random_state=0),
            scoring="neg_mean_squared_error",
        )
        model = search.fit(data.X, data.y).best_estimator_
        plain = LinearRegression().fit(data.X, data.y)
        errors = [np.sqrt(np.mean((m.predict(data.X_test) - data.y_test) ** 2)) for m in (model, plain)]
        ratios.append(errors[0] / errors[1])
        areas.append(roc_auc_score(data.adjacency[upper], np.abs(model.partial_correlation_[upper])))
    print(f"r-MSSL / least squares, RMSE: {np.mean(ratios):.3f} {np.round(ratios, 3)}; AUC {np.mean(areas):.3f}")


def penalties(d=500, K=15, n=400):
    """Time to a relative gap of 1e-6 from zero, Grams given, against FISTA without and with restarts.

    The reference evaluates the loss to backtrack (three products an iteration); the best of two runs counts for all.
    """
    free, zero = Coupling.diagonal_only(np.zeros(K)), np.zeros((K, d))
    for correlation in (0.0, 0.8):
        rng = np.random.default_rng(0)
        root = np.linalg.cholesky(correlation ** np.abs(np.subtract.outer(np.arange(d), np.arange(d))))
        Xs = [rng.standard_normal((n, d)) @ root.T for _ in range(K)]
        W = rng.standard_normal((K, 3)) @ rng.standard_normal((3, d)) / np.sqrt(d)
        y = np.concatenate([X @ w + 0.5 * rng.standard_normal(n) for X, w in zip(Xs, W, strict=True)])
        design = Design.build(np.concatenate(Xs), n * np.arange(K + 1))
        quadratic = make_quadratic(design, np.ones(len(y)), y)
        tol = 1e-6 * quadratic.value(zero)
        for kind in (L21, Nuclear):
            limit = kind(1.0).strength_max(quadratic.gradient(zero))
            solve_quadratic(StepProblem.of(quadratic, free, kind(0.9 * limit)), zero, tol=tol)
            for share in (0.05, 0.2, 0.5):
                penalty = kind(share * limit)

                def certificate(V, G, penalty=penalty, quadratic=quadratic):
                    return composite_gap(quadratic.value(V), V, G, free, penalty)

                def reference(restart, q=quadratic, p=penalty, t=tol, c=certificate):
                    return fista(q, free, None, zero, tol=t, prox=p.prox, gap=c, restart=restart)

                plain, slow = timed(lambda run=reference: run(False), 2)
                again, better = timed(lambda run=reference: run(True), 2)
                fast, quick = timed(
                    lambda q=quadratic, p=penalty, t=tol: solve_quadratic(StepProblem.of(q, free, p), zero, tol=t), 2
                )
                print(
                    f"{kind.__name__:8s} correlation {correlation}, {share:.2f} of the largest strength: FISTA "
                    f"{plain:.3f} s ({slow.n_iter}), with restarts {again:.3f} s ({better.n_iter}), here {fast:.3f} s "
                    f"({quick.n_iter}): {plain / fast:.1f} and {again / fast:.1f} times"
                )


PARTS = {"residual_cost": residual_cost, "residual_accuracy": residual_accuracy, "penalties": penalties}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(PARTS), help="run one part")
    only = parser.parse_args().only
    for part in PARTS if only is None else [only]:
        PARTS[part]()
