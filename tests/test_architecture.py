"""The tree's own laws: who may import whom, and what importing mssl costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mssl

SOURCE = Path(mssl.__file__).parent

# A module may import from its own layer and the layers above it in this list, never from those below.
LAYERS = [
    {
        "exceptions",
        "checks",
        "files",
        "threads",
        "_jit",
        "_apart",
        "_kernel",
        "_dense_kernels",
        "_elimination_kernels",
        "_glasso_kernels",
        "_gram_kernels",
        "_weight_kernels",
        "_working_set_kernels",
        "_residual_kernels",
        "_group_kernels",
        "_small_weight_kernels",
        "_small_graph_kernels",
        "_joint_kernels",
    },
    {"_glasso_problem", "_glasso_solvers", "glasso"},
    {"losses", "penalties", "structures", "inputs", "labels", "data", "_blocks", "design", "coupling", "certificates"},
    {"objective"},
    {"solvers"},
    {"graph", "_graph_text", "_communities", "metrics", "prediction", "summary", "estimators", "classification"},
]
LAST = len(LAYERS)
OUTER = {
    "views": LAST + 1,
    "_plot_support": LAST + 1,
    "plots": LAST + 1,
    "report": LAST + 1,
    "experiments": LAST + 2,
    "cli": LAST + 3,
    "__main__": LAST + 3,
}


def layer_of(module: str) -> int:
    part = module.split(".")[1] if "." in module else ""
    for number, names in enumerate(LAYERS):
        if part in names:
            return number
    return OUTER.get(part, LAST)


def imports_at_load(path: Path) -> set[str]:
    """Modules of mssl that are imported when the file is loaded (not inside functions)."""
    found: set[str] = set()
    nodes = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "mssl"}
        elif isinstance(node, ast.If | ast.Try):
            nodes += node.body
    return {name for name in found if name.startswith("mssl.")}


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=[str(p.relative_to(SOURCE)) for p in FILES])
def test_imports_point_inwards(path: Path) -> None:
    module = "mssl." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    if path == SOURCE / "__init__.py":
        assert not imports_at_load(path)
        return
    outward = {name for name in imports_at_load(path) if layer_of(name) > layer_of(module)}
    assert not outward, f"{module} imports from a layer that builds on it: {outward}"


def test_every_public_name_resolves() -> None:
    for name in mssl.__all__:
        assert getattr(mssl, name) is not None
    assert set(mssl.__all__) - {"__version__"} == set(mssl._HOMES)
    assert set(mssl.__all__) <= set(dir(mssl))
    with pytest.raises(AttributeError, match="public names"):
        mssl.no_such_name


def fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_is_light() -> None:
    heavy = ["numba", "pandas", "matplotlib", "xarray", "bokeh", "sklearn", "scipy"]
    loaded = fresh(f"import sys, mssl; print([m for m in {heavy} if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_estimators_load_no_compiler_and_no_plotting() -> None:
    heavy = ["numba", "matplotlib", "xarray", "bokeh", "networkx", "pooch"]
    loaded = fresh(f"import sys; from mssl import MSSLRegressor; print([m for m in {heavy} if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_nothing_in_the_tree_names_a_machine() -> None:
    words = ["/" + "work/", "/" + "root/", "pypi" + ".org", "files.python" + "hosted"]
    root = Path(__file__).parents[1]
    texts = [
        p for p in root.rglob("*") if p.suffix in {".py", ".md", ".toml", ".cff", ".yml"} and ".venv" not in p.parts
    ]
    bad = [
        f"{p.relative_to(root)}: {w}"
        for p in texts
        if "venv" not in p.parts
        for w in words
        if w in p.read_text("utf-8")
    ]
    assert not bad
