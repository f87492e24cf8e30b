"""The code in the pages runs, top to bottom, as a reader would try it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
PAGES = [
    *("../README", "index", "start", "layouts", "reading-the-graph", "uncertainty", "features", "folds"),
    *("guides/climate", "guides/hospitals", "guides/statistician", "guides/engineer"),
]


@pytest.mark.filterwarnings("ignore:Tasks .* were not there:UserWarning")
@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("skops")
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((DOCS / f"{page}.md").resolve().read_text(encoding="utf-8"))
    assert blocks
    names: dict[str, object] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}.md, block {number + 1}", "exec"), names)


def test_every_page_is_reached_from_the_front_page() -> None:
    reached = re.findall(r"^([\w/-]+)$", (DOCS / "index.md").read_text(encoding="utf-8"), re.M)
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    made = {page for page in pages if page.startswith(("_build", "gallery", "generated"))}
    assert pages - made - {"index"} == set(reached) - {"gallery/index"}
