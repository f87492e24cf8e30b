"""The suite measures what it says: criteria that are bounds, solvers that agree, a page from a tiny run."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet

ROOT = Path(__file__).parent.parent
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("benchmarks are not part of this installation", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from benchmarks import bars, growth, measures, operations, report, versions  # noqa: E402
from benchmarks.problems import GraphStep, JointLasso, WeightStep, WholeFit  # noqa: E402
from benchmarks.solvers import SOLVERS, Solver, solvers_of  # noqa: E402

PROBLEMS = [
    lambda: GraphStep("blocks", 12, 24, 0.4),
    lambda: WeightStep((4, 3, 30), 0.1),
    lambda: WeightStep((4, 3, 30), 0.0, shared=True),
    lambda: WeightStep((4, 3, 30), 0.1, coupled=True),
    lambda: WeightStep((4, 3, 60), 0.05, family="logistic"),
    lambda: WeightStep((4, 3, 60), 0.0, family="poisson"),
    lambda: JointLasso((10, 3, 40), 0.2),
]


@pytest.fixture(params=PROBLEMS, ids=lambda build: "")
def problem(request):
    return request.param()


@pytest.mark.filterwarnings("ignore")
def test_all_solvers_reach_one_minimum_and_none_is_below_the_bound(problem):
    reached = []
    solvers_of(problem.group)[0].run(problem, 1e-1)  # loads late, which is not what the limit of time is for
    for solver in solvers_of(problem.group):
        if solver.package == "skglm":  # compiles for many seconds
            continue
        record = measures.attempt(solver, problem, 20.0)
        assert record.outcome == "reached" or record.reason, record
        if record.outcome == "reached":
            assert -1e-9 <= record.suboptimality <= measures.GOAL
            reached.append(solver.name)
    assert {"mssl", "scikit-learn"} <= set(reached) or problem.axes.get("coupled")


def test_steps_with_nearly_all_weights_and_on_two_cores_end():
    (found,) = operations.weakly_penalised(full=False)
    assert found["support"] > 0.9
    assert found["descent ended"] in {"converged", "max_iter", "stalled"}
    assert all(record["same"] for record in operations.two_cores(full=False))


@pytest.mark.filterwarnings("ignore")
def test_worse_output_is_worse_by_the_criterion(problem):
    loose = solvers_of(problem.group)[0].run(problem, 1e-1)
    tight = solvers_of(problem.group)[0].run(problem, 1e-8)
    assert problem.suboptimality(tight) <= 1e-7
    assert problem.value(tight) <= problem.value(loose) + 1e-9
    assert problem.lower_bound <= problem.value(tight) + 1e-12 * abs(problem.value(tight))


def test_criterion_of_weights_is_the_elastic_nets_own():
    problem = WeightStep((3, 2, 25), 0.2, updates=1)
    W, b = problem.solve(1e-8)[0]
    total = 0.0
    for k in range(2):
        residual = problem.y[k] - problem.X[k] @ W[k] - b[k]
        ridge = problem.ridges[0]
        total += 0.5 * residual @ residual + 0.5 * ridge * W[k] @ W[k] + problem.threshold * np.abs(W[k]).sum()
        both = problem.threshold + ridge
        model = ElasticNet(alpha=both / 25, l1_ratio=problem.threshold / both, tol=1e-12, max_iter=10**6)
        np.testing.assert_allclose(model.fit(problem.X[k], problem.y[k]).coef_, W[k], atol=1e-4)
    assert problem.value([(W, b)]) == pytest.approx(total, rel=1e-12)


def test_infeasible_graph_is_infinitely_bad():
    problem = GraphStep("chain", 5, 20, 0.5)
    assert problem.suboptimality(-np.eye(5)) == np.inf
    assert problem.suboptimality(np.full((5, 5), np.nan)) == np.inf


def test_joint_certificate_of_ours_and_of_the_paper():
    problem = WholeFit((5, 6, 30))
    values = {}
    for solver in solvers_of("fit"):
        output = solver.run(problem, 1e-6)
        assert problem.suboptimality(output) <= 1e-6 * (1 + 1e-3)
        values[solver.name] = problem.value(output)
    # F is not jointly convex: from W = 0 and Ω = I the paper's algorithm may settle elsewhere, higher or lower.
    assert values["mssl"] == pytest.approx(values["paper, helped"], rel=1e-5)


def test_lassos_of_tasks_agree_with_their_rival_and_with_the_bound():
    problem = bars.TaskLasso((12, 3, 20), 0.1)
    ours, theirs = problem.solve(1e-10), problem.peer(1e-12, precompute=True)
    np.testing.assert_allclose(ours[0], theirs[0], atol=1e-5)
    assert 0 <= problem.suboptimality(ours) <= 1e-8
    assert problem.suboptimality((1.01 * ours[0], ours[1])) > 1e-6
    assert problem.bound_at(np.zeros_like(ours[0])) < problem.bound_at(0.9 * ours[0]) < problem.value(ours)


def test_trees_are_compared_by_the_same_code_in_their_own_processes():
    trees = [versions.Tree(ROOT), versions.Tree(ROOT)]
    where = "import mssl\nwork = lambda: sum(range({}))\nfact = lambda: mssl.__file__\n"
    found = versions.compare(versions.Case("g", "sums", where.format(10**5)), *trees, turns=2)
    assert found["fact"].startswith(str(ROOT))
    assert 0.3 < found["new"] / found["old"] < 3
    short = versions.compare(versions.Case("g", "sums", where.format(10**3)), *trees, turns=2)
    assert short["new"] < 0.2 * found["new"]
    assert trees[0].ask(loops=1000)["seconds"] < 10 * short["new"]  # seconds are those of one call
    broken = versions.compare(versions.Case("g", "none", "work = lambda: 1 / 0"), *trees, turns=2)
    assert "ZeroDivisionError" in broken["error"]
    assert versions.compare(versions.Case("g", "sums", where.format(10)), *trees, turns=1)["new"] > 0
    for tree in trees:
        tree.close()


def test_page_tells_which_problems_got_slower():
    rows = [{"group": "graph, p = 250", "name": f"x{i}", "fact": 5, "old": 1.0, "new": i} for i in (0.25, 1.0, 4.0)]
    text = report.versions_section([*rows, {"group": "a", "name": "b", "error": "e"}])
    assert "| graph, p = 250 | 3 | 1.00 | 0.25 | 4.00 | 1 |" in text
    assert "| graph, p ≥ 250, components of at most 20 | 3 | 1.00" in text
    assert "graph, p = 250: x4.0 | 1e+03 | 4e+03 | 4.00" in text
    assert "x1.0" not in text
    assert report.versions_section([]) == ""


def test_failures_are_told_apart():
    problem = GraphStep("chain", 5, 20, 0.5)

    def busy(problem, setting):
        while True:
            sum(range(1000))

    def broken(problem, setting):
        raise ValueError("cannot")

    def wrong(problem, setting):
        return np.eye(5) * 100

    outcomes = {
        function.__name__: measures.attempt(Solver("x", "graph", function, (1e-3,)), problem, 1.0)
        for function in (busy, broken, wrong)
    }
    assert {name: r.outcome for name, r in outcomes.items()} == {
        "busy": "stopped",
        "broken": "raised",
        "wrong": "missed",
    }
    assert "cannot" in outcomes["broken"].reason
    absent = measures.attempt(Solver("x", "graph", busy, package="no_such_package"), problem, 1.0)
    assert absent.outcome == "skipped"
    assert "no_such_package" in absent.reason


def test_exponent_of_a_power():
    assert measures.exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2)
    assert measures.geometric_mean([1, 100]) == pytest.approx(10)


def test_memory_of_a_run_is_at_least_what_it_holds():
    def hungry(problem, setting):
        return np.ones(2**24) + setting  # 128 MiB that are touched: more than a process keeps of what it freed

    peak = measures.peak_memory(Solver("x", "graph", hungry), GraphStep("chain", 5, 20, 0.5), 1.0)
    assert 2**27 <= peak <= 2**29


@pytest.mark.filterwarnings("ignore")
def test_page_of_a_tiny_run(tmp_path, monkeypatch):
    quick = [s for s in SOLVERS if s.package != "skglm"]
    monkeypatch.setattr(measures, "solvers_of", lambda group: [s for s in quick if s.group == group])
    records = measures.compare(GraphStep("chain", 6, 20, 0.5), longest=2.0, budget=0.05)
    assert [r.solver for r in records] == [s.name for s in quick if s.group == "graph"]
    entry = {"machine": measures.machine(), "when": "now", "full": False, "not run": 2, "load after": [0.0]}
    entry["records"] = [measures.as_dict(record) for record in records]
    results = json.loads(json.dumps({"groups": {"graph": entry}, "versions": {"mssl": "1"}}))
    text = report.page(results, report.figures(results, tmp_path))
    assert "chain/p=6/n=20" in text
    assert "2 more problems" in text
    assert "not measured" in text


def test_command_says_what_it_can_do():
    command = [sys.executable, "-m", "benchmarks", "run", "--help"]
    out = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert "--quick" in out
    assert "--full" in out


def test_the_page_of_growth_shows_what_was_measured():
    cases, page = json.loads(growth.RESULTS.read_text())["cases"], growth.PAGE.read_text(encoding="utf-8")
    assert set(cases) <= set(growth.CASES)
    for part in (growth.table(cases), growth.exponents(cases), growth.accuracy(cases)):
        assert len(part) > 100
        assert part in page
