"""Who solves: adapters of this package, of the paper's algorithms and of every peer.

An adapter is a function of a problem and one accuracy setting. Its settings go from loose to tight; a measurement
takes the loosest that reaches the suboptimality asked for, so that nobody is asked for more than that.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import linear_model
from sklearn.covariance import graphical_lasso as sklearn_graphical_lasso

from benchmarks.problems import GraphStep, JointLasso, Problem, WeightStep, WholeFit
from benchmarks.reference import fista
from mssl.glasso.solver import graphical_lasso
from mssl.losses import Gaussian
from mssl.solvers.fit import Settings, fit_prepared, prepare, start
from mssl.structures import SparsePrecision, StructureStep

Array = NDArray[np.float64]
TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10)
OWN = (1e-6, 1e-7, 1e-8)


@dataclass(frozen=True)
class Solver:
    """One way to solve a group of problems.

    Attributes
    ----------
    name, group : str
        Its name in tables, and the problems it is for.
    run : callable
        Output for a problem and a setting.
    settings : tuple of float
        Accuracy settings, loose to tight.
    package : str
        What has to be importable.
    unfit : callable
        Why it cannot solve a problem, or "".
    longest : float or None
        Processor seconds after which it is stopped at the latest, where that is not what all others get.
    """

    name: str
    group: str
    run: Callable[[Any, float], Any]
    settings: tuple[float, ...] = TOLERANCES
    package: str = "mssl"
    unfit: Callable[[Any], str] = lambda problem: ""
    longest: float | None = None

    def why_not(self, problem: Problem) -> str:
        """Why it is skipped for a problem, or "" when it is not."""
        try:
            importlib.import_module(self.package)
        except Exception as error:  # a peer may fail in any way; the table says how
            return f"{self.package} cannot be imported: {type(error).__name__}: {error}"
        return self.unfit(problem)


def versions() -> dict[str, str]:
    """Installed versions of all packages that take part."""
    found = {}
    for name in ("mssl", "numpy", "scipy", "scikit-learn", "skglm", "celer", "gglasso"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


# --- graphical lasso ---------------------------------------------------------------------------------------------


def ours_graph(problem: GraphStep, tol: float) -> Array:
    return graphical_lasso(problem.S, problem.alpha, penalize_diagonal=False, tol=tol).precision


def paper_graph(problem: GraphStep, tol: float) -> Array:
    return graphical_lasso(
        problem.S, problem.alpha, penalize_diagonal=False, tol=tol, solver="admm", max_iter=10_000
    ).precision


def sklearn_graph(problem: GraphStep, tol: float) -> Array:
    """Its tolerance is an absolute gap, of an objective that grows with p; it may stop after its default 100 rounds."""
    total = tol * len(problem.S)
    return np.asarray(sklearn_graphical_lasso(problem.S, problem.alpha, tol=total, enet_tol=min(tol, 1e-4))[1])


def skglm_graph(problem: GraphStep, tol: float) -> Array:
    from skglm.covariance import GraphicalLasso

    model = GraphicalLasso(alpha=problem.alpha, tol=tol, inner_tol=tol, max_iter=1000)
    return np.asarray(model.fit(problem.S, mode="precomputed").precision_)


def gglasso_graph(problem: GraphStep, tol: float) -> Array:
    from gglasso.solver.single_admm_solver import block_SGL

    with redirect_stdout(StringIO()):
        answer = block_SGL(problem.S, problem.alpha, np.eye(len(problem.S)), tol=tol, rtol=tol, max_iter=10_000)
    # Θ is sparse and Ω positive definite; where both are, they agree to the accuracy reached.
    return min((answer["Theta"], answer["Omega"]), key=problem.value)


# --- weights of K tasks -----------------------------------------------------------------------------------------


def ours_weights(problem: WeightStep, tol: float) -> Any:
    return problem.solve(tol)


def paper_weights(problem: WeightStep, tol: float) -> Any:
    """FISTA without restart, each C from the last one's weights."""
    if problem.family != "gaussian":
        return problem.solve(tol, solver="fista")
    quadratic = problem.quadratic()
    W = np.zeros((quadratic.n_tasks, quadratic.n_features))
    goal, t = tol * quadratic.value(W), np.full(len(W), problem.threshold)
    answers = []
    for coupling in problem.couplings:
        W = fista(quadratic, coupling, t, W, tol=goal, max_iter=100_000, restart=False).W
        means = problem.X.mean(axis=1)
        answers.append((W, quadratic.intercepts(W) - np.einsum("kd,kd->k", np.broadcast_to(means, W.shape), W)))
    return answers


def per_task(problem: WeightStep, make: Callable[[float, int], Any]) -> list[tuple[Array, Array]]:
    """One model a task, kept from one ridge to the next so that it can start warm."""
    K, n = problem.y.shape
    models, answers = [None] * K, []
    for ridge in problem.ridges:
        W, b = np.empty((K, problem.X.shape[2])), np.empty(K)
        for k in range(K):
            fresh = make(ridge, n)
            if models[k] is None:
                models[k] = fresh
            else:
                models[k].set_params(
                    **{name: getattr(fresh, name) for name in ("alpha", "l1_ratio", "C") if hasattr(fresh, name)}
                )
            model = models[k].fit(problem.X[0 if problem.shared else k], problem.y[k])
            W[k], b[k] = np.ravel(model.coef_), np.ravel(model.intercept_)[0]
        answers.append((W, b))
    return answers


def elastic_net(cls: Any, problem: WeightStep, **settings: Any) -> list[tuple[Array, Array]]:
    def make(ridge: float, n: int) -> Any:
        total = problem.threshold + ridge
        return cls(alpha=total / n, l1_ratio=problem.threshold / total, warm_start=True, **settings)

    return per_task(problem, make)


def sklearn_logistic(problem: WeightStep, tol: float) -> Any:
    """lbfgs for a ridge; saga is its only solver of the elastic net."""
    t, shared = problem.threshold, {"tol": tol, "max_iter": 100_000, "warm_start": True}

    def make(ridge: float, n: int) -> Any:
        if t == 0:
            return linear_model.LogisticRegression(C=1 / ridge, **shared)
        return linear_model.LogisticRegression(C=1 / (t + ridge), l1_ratio=t / (t + ridge), solver="saga", **shared)

    return per_task(problem, make)


def sklearn_weights(problem: WeightStep, tol: float) -> Any:
    if problem.family == "logistic":
        return sklearn_logistic(problem, tol)
    if problem.family == "poisson":
        settings = {"solver": "newton-cholesky", "tol": tol, "max_iter": 10_000, "warm_start": True}
        return per_task(problem, lambda ridge, n: linear_model.PoissonRegressor(alpha=ridge / n, **settings))
    if problem.threshold == 0:
        return per_task(problem, lambda ridge, n: linear_model.Ridge(alpha=ridge))
    return elastic_net(linear_model.ElasticNet, problem, tol=tol, max_iter=100_000)


def sklearn_gram_weights(problem: WeightStep, tol: float) -> Any:
    return elastic_net(linear_model.ElasticNet, problem, tol=tol, max_iter=100_000, precompute=True)


def skglm_weights(problem: WeightStep, tol: float) -> Any:
    if problem.family == "logistic":
        from skglm import SparseLogisticRegression

        return elastic_net(SparseLogisticRegression, problem, tol=tol, max_iter=1000)
    from skglm import ElasticNet

    return elastic_net(ElasticNet, problem, tol=tol, max_iter=1000)


def celer_weights(problem: WeightStep, tol: float) -> Any:
    from celer import ElasticNet

    return elastic_net(ElasticNet, problem, tol=tol, max_iter=1000)


def coupled(problem: WeightStep) -> str:
    return "solves one task at a time" if problem.axes["coupled"] else ""


def only_sparse(*families: str) -> Callable[[WeightStep], str]:
    def unfit(problem: WeightStep) -> str:
        if problem.family not in families:
            return f"has no elastic net for {problem.family} targets"
        return coupled(problem) or ("needs an ℓ1 penalty" if problem.threshold == 0 else "")

    return unfit


def sklearn_unfit(problem: WeightStep) -> str:
    if problem.family == "poisson" and problem.threshold > 0:
        return "PoissonRegressor has no ℓ1 penalty"
    return coupled(problem)


# --- joint lasso ------------------------------------------------------------------------------------------------


def joint(cls: Any, problem: JointLasso, **settings: Any) -> tuple[Array, Array]:
    model = cls(alpha=problem.alpha / len(problem.Y), **settings).fit(problem.X, problem.Y)
    return np.asarray(model.coef_), np.asarray(model.intercept_)


def sklearn_joint(problem: JointLasso, tol: float) -> Any:
    return joint(linear_model.MultiTaskLasso, problem, tol=tol, max_iter=100_000)


def skglm_joint(problem: JointLasso, tol: float) -> Any:
    from skglm import MultiTaskLasso

    return joint(MultiTaskLasso, problem, tol=tol, max_iter=1000)


def celer_joint(problem: JointLasso, tol: float) -> Any:
    from celer import MultiTaskLasso

    return joint(MultiTaskLasso, problem, tol=tol, max_iter=1000)


# --- whole fits -------------------------------------------------------------------------------------------------


def ours_fit(problem: WholeFit, tol: float) -> Any:
    prepared = replace(problem.prepared, settings=Settings(tol=tol))
    result = fit_prepared(prepared, problem.structure, problem.penalty)
    return result.W, result.structure


def ours_from_rows(problem: WholeFit, tol: float) -> Any:
    prepared = prepare(problem.data, Gaussian(), Settings(tol=tol))
    result = fit_prepared(prepared, problem.structure, problem.penalty)
    return result.W, result.structure


def with_fista(problem: WholeFit, tol: float) -> tuple[Any, Any, Any]:
    """The data, the structure and the weights of the start, all by the paper's solvers.

    The start defines F's constants, so that it belongs to a whole fit; they are then those of our own start, which
    agree to 1e-3, so that all minimise one function.
    """
    settings = Settings(tol=tol, solver="fista", max_iter=10_000, max_inner=10**6)
    prepared = replace(problem.prepared, settings=settings)
    structure = SparsePrecision(problem.structure.alpha, solver="admm")
    return prepared, structure, start(prepared, structure, prepared.problem(problem.penalty))[1]


def helped_fit(problem: WholeFit, tol: float) -> Any:
    """The paper's solvers with our start, our accuracies and restarts."""
    prepared, structure, W = with_fista(problem, tol)
    result = fit_prepared(prepared, structure, problem.penalty, origin=(problem.frame, W))
    return result.W, result.structure


def paper_fit(problem: WholeFit, tol: float) -> Any:
    """The algorithm as printed: W = 0, Ω = I, FISTA, ADMM from anew, each step to the accuracy that is needed."""
    prepared, structure, _ = with_fista(problem, tol)
    step_problem, frame = prepared.problem(problem.penalty), problem.frame
    K, d = prepared.base.linear.shape
    W, step, size = np.zeros((K, d)), StructureStep(np.eye(K), np.eye(K)), 1.0
    while True:
        weights = fista(
            step_problem.source,
            structure.couple(step),
            step_problem.penalty,
            W,
            tol=0.3 * tol * size,
            max_iter=10**6,
            restart=False,
        )
        W = weights.W
        S = structure.moment(W, frame)
        step = structure.certify(S, step, frame)
        size = max(1.0, abs(step_problem.value(W) + step.value))
        if weights.gap + step.gap <= tol * size:
            return W, step
        step = structure.update(S, replace(step, warm=None), frame, 0.3 * tol * size)


SOLVERS = (
    Solver("mssl", "graph", ours_graph, OWN),
    Solver("paper (ADMM)", "graph", paper_graph, OWN),
    Solver("scikit-learn", "graph", sklearn_graph, package="sklearn"),
    Solver("skglm", "graph", skglm_graph, package="skglm"),
    Solver("gglasso", "graph", gglasso_graph, package="gglasso"),
    Solver("mssl", "weights", ours_weights, OWN),
    Solver("paper (FISTA)", "weights", paper_weights, OWN),
    Solver("scikit-learn", "weights", sklearn_weights, package="sklearn", unfit=sklearn_unfit),
    Solver("scikit-learn, Gram", "weights", sklearn_gram_weights, package="sklearn", unfit=only_sparse("gaussian")),
    Solver("skglm", "weights", skglm_weights, package="skglm", unfit=only_sparse("gaussian", "logistic")),
    Solver("celer", "weights", celer_weights, package="celer", unfit=only_sparse("gaussian")),
    Solver("mssl", "joint lasso", lambda problem, tol: problem.solve(tol), OWN),
    Solver("FISTA", "joint lasso", lambda problem, tol: problem.solve(tol, solver="fista"), OWN),
    Solver("scikit-learn", "joint lasso", sklearn_joint, package="sklearn"),
    Solver("skglm", "joint lasso", skglm_joint, package="skglm"),
    Solver("celer", "joint lasso", celer_joint, package="celer"),
    Solver("mssl", "fit", ours_fit, (1e-6,)),
    Solver("paper (FISTA + ADMM)", "fit", paper_fit, (1e-6,), longest=450.0),
    Solver("paper, helped", "fit", helped_fit, (1e-6,)),
    Solver("mssl", "growth", ours_from_rows, (1e-6,)),
)


def solvers_of(group: str) -> list[Solver]:
    """The solvers of a group, ours first."""
    return [solver for solver in SOLVERS if solver.group == group]
