"""Where a bar is not met: where the time goes, the least that has to be done, and what was tried."""

from __future__ import annotations

import cProfile
import pstats
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri
from threadpoolctl import threadpool_limits

from benchmarks.measures import cpu_seconds
from benchmarks.problems import WholeFit
from benchmarks.solvers import ours_fit
from mssl.solvers.fit import fit_prepared

Row = dict[str, Any]

# What a profile calls the pieces of a fit: the first part whose file and function match. The time of a call into the
# library is that of the function that makes it.
PARTS = (
    ("graph steps", "mssl/kernels/", ("graph_lasso",)),
    ("certificates of the graph", "mssl/kernels/", ("graph_gap",)),
    ("weight steps", "mssl/kernels/", ("_sweep", "weight_descent", "weight_system", "group_descent")),
    ("factorisations and inverses", "glasso/solver", ("_inverted",)),
)
REST = "Python, NumPy and the start"


def shares(problem: WholeFit) -> dict[str, float]:
    """Shares of a whole fit's time by its pieces."""
    profile = cProfile.Profile()
    profile.runcall(ours_fit, problem, 1e-6)
    spent = dict.fromkeys([*(name for name, _, _ in PARTS), REST], 0.0)
    for (file, _, function), row in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        part = next(
            (name for name, module, names in PARTS if module in file and function in (names or (function,))), REST
        )
        spent[part] += row[2]
    total = sum(spent.values())
    return {name: value / total for name, value in spent.items()}


def whole_fits() -> list[Row]:
    """Fits of 250 tasks: rounds, pieces, and the factorisations without which there is no certificate."""
    found = []
    for correlation in (0.0, 0.5):
        problem = WholeFit((10, 250, 600), 0.3, 0.02, correlation)
        ours_fit(problem, 1e-6)
        result = fit_prepared(problem.prepared, problem.structure, problem.penalty)
        omega = np.asfortranarray(result.structure.precision)
        invert = cpu_seconds(lambda omega=omega: [dpotri(dpotrf(omega)[0]) for _ in range(20)])[0] / 20
        found.append(
            {
                "name": problem.name,
                "seconds": min(cpu_seconds(lambda problem=problem: ours_fit(problem, 1e-6))[0] for _ in range(5)),
                "rounds": len(result.history),
                "inverse": invert,
                "shares": shares(problem),
            }
        )
    return found


def run() -> Row:
    """All profiles, as the file of results keeps them."""
    with threadpool_limits(1):
        return {"whole fits": whole_fits()}


TRIED = {
    "fit": (
        "What is kept: momentum in the alternation, graph steps that are solved as loosely as the round allows and "
        "start from the last dual point, certificates by a bound of the spectral radius instead of a second "
        "factorisation. Tried without gain: Anderson acceleration of the rounds, direct solves inside the column "
        "problems, looser or tighter first tolerances of the columns and of the steps, fewer passes per column, "
        "momentum only where rounds gain little."
    ),
    "warm": (
        "What is kept: a start from the last dual point, which needs no inverse, and certificates with it where they "
        "are far from the optimum."
    ),
}


def fit_floor(profiles: list[Row], fits: dict[str, Any]) -> str:
    """Whole fits of many tasks: where the time goes, and what a certificate costs."""
    names = [*(name for name, _, _ in PARTS), REST]
    lines = ["| problem | mssl, ms | a hundredth of the paper's, ms | rounds | floor, ms | " + " | ".join(names) + " |"]
    lines.append("|" + "---|" * (5 + len(names)))
    for profile in profiles:
        paper = fits.get(profile["name"], {}).get("paper (FISTA + ADMM)", {}).get("seconds")
        cells = [
            profile["name"].split("/", 1)[1],
            f"{1e3 * profile['seconds']:.1f}",
            "–" if paper is None else f"{10 * paper:.1f}",
            str(profile["rounds"]),
            f"{2e3 * profile['rounds'] * profile['inverse']:.1f}",
            *(f"{100 * profile['shares'][name]:.0f} %" if name in profile["shares"] else "–" for name in names),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return (
        "**Whole fits at (10, 250, 600).** Little correlation and a small γ leave an easy problem, on which the "
        "paper's algorithm ends after a few rounds, each with some eigendecompositions. Every round of ours inverts "
        "two matrices of the size of Ω, one for the graph step and one for the certificate; *floor* is the time of "
        "these inversions alone.\n\n" + "\n".join(lines) + "\n\n" + TRIED["fit"] + "\n"
    )


def section(results: Row, fits: dict[str, Any]) -> str:
    """The text of the page; empty where nothing was profiled."""
    entry = results["groups"].get("floors")
    if entry is None:
        return ""
    head = "## Bars that are not met: profile, floor, and what was tried\n\n"
    warm = (
        "**Warm re-solves.** The table of yardsticks below has the share of a cold solve that descent takes; the rest "
        "is paid by a warm one too. " + TRIED["warm"] + "\n"
    )
    return head + "\n".join([fit_floor(entry["whole fits"], fits), warm])
