"""Which problems a run goes through, in which order; a problem is built when its turn comes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

from benchmarks.problems import GraphStep, JointLasso, Problem, WeightStep, WholeFit

Plan = list[Callable[[], Problem]]

SMALL, WIDE, TALL = (30, 13, 60), (500, 15, 400), (10, 250, 600)
KINDS = ("erdos-renyi", "chain", "blocks", "blocks + outliers")


def graph(full: bool) -> Plan:
    """Ω-steps."""
    plan: Plan = []
    shares = (0.3, 0.5, 0.7) if full else (0.5,)
    for p in (13, 50, 250) if full else (13, 50):
        kinds = KINDS if full else KINDS[:2]
        plan += [
            partial(GraphStep, kind, p, n, share) for share, kind, n in product(shares, kinds, (max(p // 2, 4), 10 * p))
        ]
        plan += [partial(GraphStep, "low-rank", p, 10, share) for share in shares]
    return plan


def large_graph(full: bool) -> Plan:
    """Ω-steps on which rivals need minutes."""
    sizes = (1000, 2000) if full else ()
    return [partial(GraphStep, "erdos-renyi", p, n, s) for p in sizes for n in (10 * p, p // 2) for s in (0.3, 0.5)]


def weights(full: bool) -> Plan:
    """W-steps: Gaussian, then coupled, then the other families."""
    plan: Plan = []
    correlations = (0.5, 0.95) if full else (0.5,)
    for shape, rho, share in product((SMALL, TALL, WIDE) if full else (SMALL, TALL), correlations, (0.02, 0.3, 0.0)):
        plan.append(partial(WeightStep, shape, share, rho))
    for shape, share in product((SMALL, TALL), (0.02, 0.3)):
        plan.append(partial(WeightStep, shape, share, shared=True))
        plan.append(partial(WeightStep, shape, share, updates=1))
    for shape, share in product((SMALL, TALL, WIDE) if full else (SMALL,), (0.02, 0.3)):
        plan.append(partial(WeightStep, shape, share, coupled=True))
    for family, share in (("logistic", 0.0), ("logistic", 0.02), ("logistic", 0.3), ("poisson", 0.0)):
        plan += [partial(WeightStep, shape, share, family=family) for shape in ((SMALL, TALL) if full else (SMALL,))]
    return plan


def large_weights(full: bool) -> Plan:
    """W-steps on which rivals need minutes."""
    shapes = ((200, 1000, 100), (2000, 50, 300), (784, 45, 5000)) if full else ()
    return [partial(WeightStep, shape, s, shared=shape[2] == 5000) for shape, s in product(shapes, (0.3, 0.02))]


def joint_lasso(full: bool) -> Plan:
    """Features chosen by all tasks together."""
    shapes = ((30, 13, 60), (500, 15, 400)) if full else ((30, 13, 60),)
    return [partial(JointLasso, shape, share) for shape, share in product(shapes, (0.05, 0.3))]


def fits(full: bool) -> Plan:
    """Whole fits."""
    shapes = (SMALL, TALL, WIDE) if full else (SMALL,)
    correlations = (0.0, 0.5, 0.95) if full else (0.5,)
    cases = product(shapes, correlations, (0.02, 0.2))
    return [partial(WholeFit, shape, 0.3, gamma, correlation) for shape, correlation, gamma in cases]


def growth(full: bool) -> Plan:
    """Whole fits from rows to certificate, one dimension growing at a time; degree 4 at the start.

    The last one is what breaks the growth: few rows of correlated features, where the graph keeps getting denser.
    """
    shapes: list[tuple[int, int, int]] = []
    shapes += [(20, K, 200) for K in ((100, 200, 500, 1000, 2000) if full else (50, 100, 200))]
    shapes += [(d, 20, 800) for d in ((25, 50, 100, 200, 400) if full else (10, 20, 40))]
    shapes += [(20, 20, n) for n in ((1000, 4000, 16000, 64000) if full else (500, 1000, 2000))]
    plan: Plan = [partial(WholeFit, shape, None, 0.02, 0.0, group="growth") for shape in shapes]
    return [*plan, partial(WholeFit, (20, 100, 40), None, 0.02, 0.5, group="growth")]


GROUPS: dict[str, Callable[[bool], Plan]] = {
    "graph": graph,
    "weights": weights,
    "fit": fits,
    "joint lasso": joint_lasso,
    "growth": growth,
    "large graph": large_graph,
    "large weights": large_weights,
}
