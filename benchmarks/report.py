"""The page: bars, ratios, accuracies, failures and growth, as the file of results has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import floors
from benchmarks.instructions import KEPT
from benchmarks.measures import CAP, GOAL, LEAST_CAP, exponent, geometric_mean

Row = dict[str, Any]
VERSIONS = Path(__file__).parent / "versions.json"
REMARKS = VERSIONS.with_suffix(".md")  # on what the comparison with the version before shows
FEW = 20  # variables of a small component
PEERS = ("scikit-learn", "scikit-learn, Gram", "skglm", "celer", "gglasso")
TITLES = {
    "graph": "Ω-step: the graphical lasso",
    "large graph": "Ω-step: large graphs",
    "weights": "W-step: the weights for a given Ω",
    "large weights": "W-step: large problems",
    "joint lasso": "Features chosen jointly (ℓ2,1)",
    "fit": "Whole fits against the paper's algorithms",
    "growth": "Growth of a whole fit",
}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def by_problem(records: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Records by problem, then by solver."""
    problems: dict[str, dict[str, Row]] = {}
    for record in records:
        problems.setdefault(record["problem"], {})[record["solver"]] = record
    return problems


def ratio(record: Row | None, ours: Row) -> float | None:
    """Time over ours, where both reached the goal."""
    if record is None or record["outcome"] != "reached" or ours["outcome"] != "reached":
        return None
    return float(record["seconds"] / ours["seconds"])


def cell(record: Row | None, ours: Row) -> str:
    """A ratio, or how it failed."""
    if record is None or record["outcome"] == "skipped":
        return "–"
    known = ratio(record, ours)
    if known is not None:
        return f"{known:.1f}" if known < 100 else f"{known:.0f}"
    if record["outcome"] == "stopped":
        return f"> {record['seconds'] / ours['seconds']:.0f}" if ours["seconds"] else "stopped"
    reached = record["suboptimality"]
    return record["outcome"] + (f" ({reached:.0e})" if reached is not None and np.isfinite(reached) else "")


def megabytes(record: Row) -> str:
    """Peak memory of a run."""
    return "" if record["peak_bytes"] is None else f"{record['peak_bytes'] / 2**20:.1f}"


def group_section(name: str, entry: Row) -> str:
    """Ratios of one group, the accuracy reached, failures."""
    problems = by_problem(entry["records"])
    names = list(dict.fromkeys(record["solver"] for record in entry["records"]))
    others = [n for n in names if n != "mssl"]
    head = ["problem", "mssl, ms", "suboptimality", "peak MiB", *others]
    rows = []
    for problem, records in problems.items():
        ours = records["mssl"]
        time = f"{1e3 * ours['seconds']:.2f}" if ours["seconds"] else ours["outcome"]
        accuracy = "" if ours["suboptimality"] is None else f"{ours['suboptimality']:.0e}"
        label = problem.partition("/")[2]
        rows.append([label, time, accuracy, megabytes(ours), *(cell(records.get(other), ours) for other in others)])
    parts = [f"## {TITLES.get(name, name)}\n", table(head, rows), summary(problems, others)]
    if entry["not run"]:
        parts.append(f"{entry['not run']} more problems of this group were not run: the time allowed was over.\n")
    return "\n".join(parts)


def summary(problems: dict[str, dict[str, Row]], others: Sequence[str]) -> str:
    """Geometric mean, least ratio, failures and reasons of each rival."""
    rows = []
    for other in others:
        pairs = [(r[other], r["mssl"]) for r in problems.values() if other in r]
        ratios = [known for record, ours in pairs if (known := ratio(record, ours)) is not None]
        count = {
            o: sum(record["outcome"] == o for record, _ in pairs) for o in ("missed", "stopped", "raised", "skipped")
        }
        reasons = sorted({record["reason"] for record, _ in pairs if record["reason"]})
        figures = [f"{geometric_mean(ratios):.1f}", f"{min(ratios):.2f}"] if ratios else ["–", "–"]
        accuracies = [r["suboptimality"] for r, _ in pairs if r["outcome"] == "reached"]
        accuracy = f"{np.median(accuracies):.0e}" if accuracies else "–"
        rows.append(
            [other, str(len(ratios)), *figures, accuracy, *(str(v) for v in count.values()), "; ".join(reasons)]
        )
    head = [
        "rival",
        "compared",
        "mean ratio",
        "least ratio",
        "its suboptimality",
        "missed",
        "stopped",
        "raised",
        "skipped",
        "why",
    ]
    return table(head, rows) if rows else ""


# --- bars -------------------------------------------------------------------------------------------------------


def verdict(met: bool | None) -> str:
    """In one word."""
    return "not measured" if met is None else "met" if met else "**not met**"


def bars(results: Row) -> str:
    """What was promised, what was measured."""
    groups = results["groups"]
    rows: list[list[str]] = []

    def add(bar: str, measured: str, met: bool | None) -> None:
        rows.append([bar, measured, verdict(met)])

    graph_bars(groups, add)
    weight_bars(groups, add)
    fit_bars(groups, add)
    growth_bars(groups, add)
    operation_bars(groups.get("operations", {}), add)
    return "## Bars\n\n" + table(["bar", "measured", ""], rows)


Add = Callable[[str, str, bool | None], None]


def graph_bars(groups: Row, add: Add) -> None:
    """Ratios of the Ω-step."""
    records = groups.get("graph", {}).get("records", []) + groups.get("large graph", {}).get("records", [])
    problems = by_problem(records)
    for peer in ("scikit-learn", "skglm", "gglasso"):
        small = [r for r in problems.values() if r["mssl"]["axes"]["p"] <= 250 and peer in r]
        ratios = [known for r in small if (known := ratio(r[peer], r["mssl"])) is not None]
        text, met = "", None
        if ratios:
            mean = geometric_mean(ratios)
            text, met = f"{mean:.1f} in {len(ratios)} problems that it solved of {len(small)}", mean >= 15
        add(f"Ω-step, p ≤ 250: {peer} needs ≥ 15 times our time in geometric mean", text, met)
    known = {
        f"{name.partition('/')[2]} ({peer})": value
        for name, r in problems.items()
        for peer in ("scikit-learn", "skglm", "gglasso")
        if (value := ratio(r.get(peer), r["mssl"])) is not None
    }
    slowest = min(known, key=known.__getitem__, default=None)
    largest = max((r["mssl"]["axes"]["p"] for r in problems.values()), default=0)
    text = "" if slowest is None else f"least ratio {known[slowest]:.2f} at {slowest}; measured up to p = {largest}"
    add("Ω-step: never slower than a peer", text, None if slowest is None else known[slowest] >= 1)


def weight_bars(groups: Row, add: Add) -> None:
    """Ratios of the W-step with diagonal Ω."""
    records = groups.get("weights", {}).get("records", []) + groups.get("large weights", {}).get("records", [])
    problems = by_problem(records)
    gaussian = {n: r for n, r in problems.items() if r["mssl"]["axes"]["family"] == "gaussian"}
    ratios: dict[tuple[str, str], float] = {}
    for name, records in gaussian.items():
        if records["mssl"]["axes"]["updates"] < 2:
            continue
        for peer in PEERS:
            value = ratio(records.get(peer), records["mssl"])
            if value is not None:
                ratios[name, peer] = value
    slowest = min(ratios, key=ratios.__getitem__, default=None)
    text = (
        "" if slowest is None else f"least ratio {ratios[slowest]:.1f} at {slowest[0].partition('/')[2]} ({slowest[1]})"
    )
    add(
        "W-step, diagonal Ω, two updates: never slower than a peer",
        text,
        None if slowest is None else ratios[slowest] >= 1,
    )
    for shape in ("(30, 13, 60)", "(10, 250, 600)"):
        matching = [v for (name, _), v in ratios.items() if shape in name]
        text = f"least {min(matching):.1f}, geometric mean {geometric_mean(matching):.1f}" if matching else ""
        add(f"W-step at {shape}: every peer needs ≥ 15 times our time", text, min(matching) >= 15 if matching else None)


def fit_bars(groups: Row, add: Add) -> None:
    """Whole fits against the paper's algorithm; where that was stopped, what it had used counts."""
    problems = by_problem(groups.get("fit", {}).get("records", []))
    for shape, bar in (("(30, 13, 60)", 40), ("(500, 15, 400)", 15), ("(10, 250, 600)", 100)):
        found, stopped = [], 0
        for name, records in problems.items():
            paper, ours = records.get("paper (FISTA + ADMM)"), records["mssl"]
            if shape in name and paper is not None and paper["seconds"] and ours["seconds"]:
                found.append(paper["seconds"] / ours["seconds"])
                stopped += paper["outcome"] == "stopped"
        text = f"{min(found):.0f} … {max(found):.0f}, geometric mean {geometric_mean(found):.0f}" if found else ""
        text += f" ({stopped} of {len(found)} stopped before the end)" if stopped else ""
        add(
            f"whole fit at {shape}: the paper's needs ≥ {bar} times our time",
            text,
            min(found) >= bar if found else None,
        )


def growth_series(entry: Row, axis: str) -> tuple[list[float], list[float]]:
    """Sizes and seconds of the problems in which one dimension grows."""
    fixed = {"K": {"d": 20, "n": 200}, "d": {"K": 20, "n": 800}, "n": {"d": 20, "K": 20}}[axis]
    chosen = [
        (float(r["axes"][axis]), r["seconds"])
        for r in entry.get("records", [])
        if r["outcome"] == "reached"
        and r["axes"]["correlation"] == 0
        and all(r["axes"][key] == value for key, value in fixed.items())
    ]
    chosen = sorted(dict(chosen).items())
    return [size for size, _ in chosen], [seconds for _, seconds in chosen]


def growth_bars(groups: Row, add: Add) -> None:
    """Exponents."""
    for axis, bar, limit in (
        ("K", "whole fit grows no faster than K^2.2 (d = 20, λ chosen for degree 4 at every K)", 2.2),
        ("n", "whole fit linear in n", 1.1),
    ):
        sizes, seconds = growth_series(groups.get("growth", {}), axis)
        if len(sizes) < 2:
            add(bar, "", None)
            continue
        slope = exponent(sizes, seconds)
        last = exponent(sizes[-2:], seconds[-2:])
        text = f"{axis}^{slope:.2f} over {sizes[0]:.0f} … {sizes[-1]:.0f}; {axis}^{last:.2f} between the last two"
        add(bar, text, max(slope, last) <= limit)


def operation_bars(entry: Row, add: Add) -> None:
    """Yardsticks and first use."""
    for p in (1000, 2000):
        cases = [y for y in entry.get("yardsticks", []) if y["p"] == p]
        worst = max((y["cold"] / y["eigh"] for y in cases), default=None)
        text = "" if worst is None else f"at most {worst:.2f} of one eigh"
        add(f"Ω-step, p = {p} Erdős–Rényi: ≤ 0.6 of one eigh", text, None if worst is None else worst <= 0.6)
    warm = max((y["warm"] / y["cold"] for y in entry.get("yardsticks", [])), default=None)
    text = "" if warm is None else f"at most {warm:.2f} of cold"
    add("warm re-solve after a relative change of 1e-3: ≤ 0.6 of cold", text, None if warm is None else warm <= 0.6)
    first = entry.get("daily use", {}).get("first fit of a fresh process, above importing scikit-learn")
    text = "" if first is None else f"{first:.2f} s"
    bar = "import and first fit of a fresh process, above importing scikit-learn: ≤ 0.5 s"
    add(bar, text, None if first is None else first <= 0.5)
    for what, name, limit in (("fit", "a process that imports mssl and fits once", 2.5), ("demo", "`mssl demo`", 15)):
        seconds = entry.get("first use", {}).get(what)
        text = "" if seconds is None else f"{seconds:.2f} s"
        add(f"{name}, from start to end: ≤ {limit} s", text, None if seconds is None else seconds <= limit)
    as_called_bars(entry.get("as called", []), add)
    weak = entry.get("weakly penalised", [])
    text = "; ".join(f"{tuple(w['shape'])} {w['descent'] / w['solve']:.1f} ({w['descent ended']})" for w in weak)
    least = min((w["descent"] / w["solve"] for w in weak), default=None)
    bar = "weakly penalised W-steps (γ = 0.002 γ_max, d = 500–2000): coordinate descent alone needs ≥ 2 times our time"
    add(bar, text, None if least is None else least >= 2)
    both = entry.get("two cores", [])
    text = "; ".join(f"{b['what']} {b['one'] / b['two']:.2f}{'' if b['same'] else ', other result'}" for b in both)
    gains = [b["one"] / b["two"] for b in both if "-step" in b["what"]]
    same = all(b["same"] for b in both)
    add("two cores: ≥ 1.5 times on large problems, same results", text, same and min(gains) >= 1.5 if both else None)


def as_called_bars(cases: Sequence[Row], add: Add) -> None:
    """The two functions named `graphical_lasso`, scikit-learn's as it comes."""
    for p, least in ((50, 50), (250, 15)):
        ratios = [case["theirs"] / case["ours"] for case in cases if case["p"] == p]
        text, met = "", None
        if ratios:
            mean = geometric_mean(ratios)
            text, met = f"{min(ratios):.0f} … {max(ratios):.0f}, geometric mean {mean:.0f}", mean >= least
        bar = f"`graphical_lasso` at p = {p}, to an objective no worse: scikit-learn's defaults need ≥ {least}"
        add(f"{bar} times our time in geometric mean", text, met)


# --- the rest ---------------------------------------------------------------------------------------------------


def operations_section(entry: Row) -> str:
    """Yardsticks and daily use."""
    rows = [
        [
            str(y["p"]),
            str(y["n"]),
            str(y["share"]),
            f"{y['degree']:.1f}",
            f"{1e3 * y['cold']:.2f}",
            f"{y['cold'] / y['eigh']:.2f}",
            f"{y['warm'] / y['cold']:.2f}",
            "–" if y.get("compiled") is None else f"{y['compiled']:.2f}",
            f"{y['relative gap']:.0e}",
        ]
        for y in entry["yardsticks"]
    ]
    head = [
        "p",
        "n",
        "α/α_max",
        "mean degree",
        "cold, ms",
        "cold / eigh",
        "warm / cold",
        "compiled / cold",
        "certified gap",
    ]
    uses = [[name, f"{1e3 * seconds:.1f}"] for name, seconds in entry["daily use"].items()]
    text = "## Ω-step against one `scipy.linalg.eigh`, and warm starts (Erdős–Rényi)\n\n" + table(head, rows)
    text += (
        "\n*compiled / cold*: the share of a cold solve inside the one compiled call (screening, components, descent "
        "and certificate); the rest looks at the input.\n"
    )
    return text + "\n## Daily use\n\n" + table(["what", "CPU ms"], uses)


DEGREE = (
    "λ is chosen anew for four edges a task at every K. At the default λ the mean degree grows with K, and time "
    "faster: [scale.md](scale.md) has growth at default settings."
)


def growth_section(results: Row, figure: str | None) -> str:
    """Exponents and the figure."""
    lines = []
    for axis in ("K", "d", "n"):
        sizes, seconds = growth_series(results["groups"].get("growth", {}), axis)
        if len(sizes) > 1:
            points = ", ".join(f"{size:.0f}: {second:.3g} s" for size, second in zip(sizes, seconds, strict=True))
            lines.append(f"- time ∝ {axis}^{exponent(sizes, seconds):.2f} ({points})")
    picture = f"\n![Growth of processor time]({figure})\n" if figure else ""
    return "\n".join(
        [
            "\n## Exponents\n",
            "Least-squares slopes of logarithms, from rows to certificate.",
            DEGREE,
            "",
            *lines,
            picture,
        ]
    )


def figures(results: Row, folder: Path) -> str | None:
    """Processor time against p, K, d and n, as one PNG; its name, or None without matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError:
        return None
    mpl.use("Agg")
    from matplotlib import pyplot

    groups = results["groups"]
    picture, axes = pyplot.subplots(1, 4, figsize=(14, 3.6), layout="constrained")
    for solver, points in graph_series(groups).items():
        label = f"{solver}: p^{exponent(*zip(*points, strict=True)):.1f}" if len(points) > 1 else solver
        axes[0].loglog(*zip(*points, strict=True), "o-", label=label)
    axes[0].set(xlabel="p, Ω-step (Erdős–Rényi, n = 10 p, α = α_max / 2)", ylabel="CPU seconds")
    for ax, axis in zip(axes[1:], ("K", "d", "n"), strict=True):
        sizes, seconds = growth_series(groups.get("growth", {}), axis)
        if len(sizes) > 1:
            ax.loglog(sizes, seconds, "o-", label=f"mssl: {axis}^{exponent(sizes, seconds):.2f}")
            ax.set_xticks(sizes, [f"{size:.0f}" for size in sizes], fontsize=8)
        ax.set(xlabel=f"{axis}, whole fit")
    for ax in axes:
        ax.xaxis.set_minor_formatter("")  # less than a decade would get labels that overlap
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=7)
    name = "benchmarks-growth.png"
    picture.savefig(folder / name, dpi=110)
    pyplot.close(picture)
    return name


def graph_series(groups: Row) -> dict[str, list[tuple[float, float]]]:
    """Sizes and seconds of each solver on one kind of graph."""
    series: dict[str, list[tuple[float, float]]] = {}
    for name in ("graph", "large graph"):
        for record in groups.get(name, {}).get("records", []):
            axes = record["axes"]
            alike = axes["kind"] == "erdos-renyi" and axes["share"] == 0.5 and axes["n"] == 10 * axes["p"]
            if alike and record["outcome"] == "reached":
                series.setdefault(record["solver"], []).append((axes["p"], record["seconds"]))
    return {solver: sorted(points) for solver, points in series.items()}


def instructions() -> str:
    """The kept counts in words."""
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return ", ".join(f"{name} {counted / 1e6:.2f} million" for name, counted in kept.items()) or "not counted yet"


def preface(results: Row) -> str:
    """What the figures mean and where they come from."""
    rows = []
    for name, entry in results["groups"].items():
        m, load = entry["machine"], "{:.1f}"
        after = load.format(entry["load after"][0]) if "load after" in entry else "–"
        size = "full" if entry["full"] else "quick"
        cells = [name, entry["when"], size, m["cpu"], str(m["cores"]), load.format(m["load"][0]), after]
        rows.append([*cells, entry.get("note", "")])
    head = ["group", "when", "size", "processor", "cores", "load before", "load after", "note"]
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return f"""# Benchmarks

Written by `python -m benchmarks report` from `benchmarks/results.json`; `python -m benchmarks run --full` fills it.
No figure here is typed by hand, but for the remarks on the version before (`benchmarks/versions.md`).

- **Time** is processor time with one BLAS thread for every solver, the least of interleaved repeats (runs under 10 ms
  are looped). Ratios are times of a rival over ours (ours = 1). Our certificate is inside our time. With nothing set
  ours takes as long: public methods give BLAS one thread where no matrix has 2000 rows.
- **Accuracy**: every solver gets the loosest of its settings whose output has a suboptimality of at most {GOAL:.0e},
  computed here from that output by one criterion: (value − lower bound) / max(1, |lower bound|), the lower bound by
  duality. For whole fits, which are not jointly convex, it is the joint certificate.
- "missed (x)": no setting reached it, x is the best that was seen. "> r": stopped after r times our time; a rival is
  stopped at {CAP:.0f} times our time, but not before {LEAST_CAP:.0f} s and at the latest after 10 s (3 s in quick runs)
  of processor time (450 s for whole fits by the paper's algorithm).
  "–": cannot solve the problem, or is absent; reasons are below each table.
- **Peak** is what a run adds to the memory of its process.
- Instructions a call, by valgrind, for checks without noise (`python -m benchmarks.instructions`): {instructions()}.
- Versions: {versions}.

Accuracy of predictions and graphs is measured by scripts of their own: `benchmarks.glm`, `benchmarks.structures`,
`benchmarks.selection`, `benchmarks.rivals`.

{table(head, rows)}
A load above the number of cores means that the machine was shared while it was measured: processor time then grows too
(caches and clocks are shared), so ratios mean more than times.
"""


def versions_section(rows: Sequence[Row]) -> str:
    """This version's time over an older one's: means, and every problem that got slower; empty without figures."""
    known = [row | {"ratio": row["new"] / row["old"]} for row in rows if "new" in row]
    if not known:
        return ""
    groups: dict[str, list[Row]] = {}
    for row in known:
        groups.setdefault(row["group"], []).append(row)
    small = [row for row in known if row.get("fact", FEW + 1) <= FEW and row["group"].endswith(("250", "1000"))]
    if small:
        groups[f"graph, p ≥ 250, components of at most {FEW}"] = small
    means = []
    for name, found in groups.items():
        ratios = [row["ratio"] for row in found]
        slower = sum(value > 1.05 for value in ratios)
        figures = [f"{value:.2f}" for value in (geometric_mean(ratios), min(ratios), max(ratios))]
        means.append([name, str(len(found)), *figures, str(slower)])
    slow = [
        [f"{row['group']}: {row['name']}", f"{1e3 * row['old']:.3g}", f"{1e3 * row['new']:.3g}", f"{row['ratio']:.2f}"]
        for row in sorted(known, key=lambda row: -row["ratio"])
        if row["ratio"] > 1.05
    ]
    text = (
        "## Against the version before\n\nBoth trees in turns, each in a process of its own, to a relative gap of 1e-6 "
        "(`python -m benchmarks.versions`). Ratios are this version's time over the older one's.\n\n"
    )
    text += table(["group", "problems", "geometric mean", "least", "largest", "slower by more than 5 %"], means)
    text += "\n" + REMARKS.read_text(encoding="utf-8")
    return text + ("\n" + table(["slower", "before, ms", "now, ms", "ratio"], slow) if slow else "")


def page(results: Row, figure: str | None) -> str:
    """The whole page."""
    groups = results["groups"]
    fits = by_problem(groups.get("fit", {}).get("records", []))
    parts = [preface(results), bars(results), floors.section(results, fits)]
    parts += [group_section(name, groups[name]) for name in TITLES if name in groups and groups[name]["records"]]
    parts.append(growth_section(results, figure))
    if VERSIONS.exists():
        parts.append(versions_section(json.loads(VERSIONS.read_text(encoding="utf-8"))))
    if "operations" in groups:
        parts.append(operations_section(groups["operations"]))
    return "\n".join(parts).rstrip() + "\n"
