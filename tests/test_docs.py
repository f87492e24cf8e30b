"""The code in the pages runs, top to bottom, as a reader would try it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from shown import differences, run

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *("../README", "index", "start", "layouts", "reading-the-graph", "uncertainty", "features", "folds"),
    *("guides/climate", "guides/hospitals", "guides/statistician", "guides/engineer"),
]
FIRST = ("../README", "start", "guides/hospitals")


@pytest.mark.filterwarnings("ignore:Tasks .* were not there:UserWarning")
@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("skops")
    monkeypatch.chdir(tmp_path)
    text = (DOCS / f"{page}.md").resolve().read_text(encoding="utf-8")
    assert "```python" in text
    shown = run(text, f"{page}.md")[1]
    assert shown or page not in (*FIRST, "index")
    wrong = [line for _, told, printed in shown for line in differences(told, printed)]
    assert not wrong, "\n".join(["python tests/tools/shown.py PAGE writes what is printed.", *wrong])


@pytest.mark.parametrize(
    ("told", "printed", "agree"),
    [
        ("R² 0.493, 22 pairs", "R² 0.4931, 22 pairs", True),
        ("R² 0.493, 22 pairs", "R² 0.51, 22 pairs", False),
        ("R² 0.493, 22 pairs", "R² 0.493, 24 pairs", False),
        ("a  b\n1  2", "a b\n1 2", True),
        ("a\nb", "a", False),
        ("p 3.6e-11", "p 3.61e-11", True),
        ("p 3.6e-11", "p 4.6e-11", False),
        ("time  2.0 s", "time  9.1 s", True),
    ],
)
def test_shown_output_is_compared_by_lines_and_numbers(told: str, printed: str, agree: bool) -> None:
    assert (not differences(told, printed)) is agree


def first_pages() -> ModuleType:
    """The benchmark, which is not part of every installation."""
    if not (ROOT / "benchmarks").is_dir():
        pytest.skip("benchmarks are not part of this installation")
    sys.path.insert(0, str(ROOT))
    from benchmarks import first_pages

    return first_pages


def test_tables_of_the_first_pages_are_the_measured_ones() -> None:
    benchmark = first_pages()
    measured = benchmark.table(json.loads(benchmark.FILE.read_text("utf-8")))
    for page in FIRST:
        text = (DOCS / f"{page}.md").resolve().read_text(encoding="utf-8")
        rows = [line for line in text.splitlines() if line.startswith(("| el-nino", "| hospitals"))]
        assert rows
        assert set(rows) <= set(measured)
    for name, lost in json.loads(benchmark.FILE.read_text("utf-8")).items():
        for rival in ("pooled ridge", "ridge per task"):
            ahead = [np.sqrt(np.mean(lost[rival], axis=1)) - np.sqrt(np.mean(lost["default"], axis=1))]
            folds = np.sqrt(lost[rival]) - np.sqrt(lost["default"])
            for one in (*ahead, folds.ravel()):
                assert np.mean(one) > 2 * np.std(one, ddof=1) / np.sqrt(one.size), (name, rival)


@pytest.mark.parametrize("name", ["el-nino", "hospitals"])
def test_the_default_is_ahead_of_both_rivals_on_the_first_pages_data(name: str) -> None:
    lost = first_pages().measure(name, [0], ("default", "pooled ridge", "ridge per task"))
    means = {method: np.mean(errors) for method, errors in lost.items()}
    assert means["default"] < min(means["pooled ridge"], means["ridge per task"])


def test_what_a_reader_is_told_to_install_can_be_found() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    assert not [page.name for page in pages if "pip install 'mssl[all" in page.read_text(encoding="utf-8")]


def test_every_page_is_reached_from_the_front_page() -> None:
    reached = re.findall(r"^([\w/-]+)$", (DOCS / "index.md").read_text(encoding="utf-8"), re.M)
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    made = {page for page in pages if page.startswith(("_build", "gallery", "generated"))}
    assert pages - made - {"index"} == set(reached) - {"gallery/index"}
