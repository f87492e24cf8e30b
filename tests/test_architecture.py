"""The tree's own laws: who may import whom, how deep, and what importing mssl costs."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import mssl

SOURCE = Path(mssl.__file__).parent

# A module may import from its own layer and from those above it in this list, at load or inside functions. The longest
# name that fits decides: files.atomic and files.checkpoint serve everybody, the other files know the estimators.
LAYERS = [
    {
        "exceptions",
        "_html",
        "_renamed",
        "_typing",
        "_validation",
        "_progress",
        "_moved",
        "files.atomic",
        "files.checkpoint",
    },
    {"kernels"},
    {"data", "losses", "penalties", "features", "metrics"},
    {"judge"},
    {"model"},
    {"glasso"},
    {"structures"},
    {"solvers"},
    {"evidence", "priors"},
    {"graph"},
    {"plots"},
    {"estimators"},
    {
        *("model_selection", "paper", "presets", "transfer", "datasets", "climate"),
        *("files", "methods"),
    },
    {"report"},
    {"cli", "__main__"},
]
MOST_ROOT_MODULES = 15
LONGEST_CHAIN = 16


def name_of(path: Path) -> str:
    """The module's name without the package's."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"}


def layer_of(name: str) -> int:
    found = [
        (len(known), number)
        for number, names in enumerate(LAYERS)
        for known in names
        if name == known or name.startswith(f"{known}.")
    ]
    assert found, f"{name} lies in no room that the plan knows"
    return max(found)[1]


def _resolve(name: str) -> str | None:
    """The file behind a dotted name, which may end in something that the file holds, or be one of the public names."""
    name = mssl._HOMES.get(name, name)
    while name:
        if name in FILES:
            return name
        name = name.rpartition(".")[0]
    return None


@cache
def imports(name: str, inside_functions: bool = True) -> frozenset[str]:
    """Modules of mssl that a module imports, for type checkers only left out."""
    found: set[str] = set()
    nodes: list[ast.AST] = list(ast.parse(FILES[name].read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif inside_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes += ast.iter_child_nodes(node)
    modules = {_resolve(target.removeprefix("mssl.")) for target in found if target.startswith("mssl.")}
    return frozenset(module for module in modules if module is not None and module != name)


@pytest.mark.parametrize("name", FILES)
def test_imports_point_inwards_also_inside_functions(name: str) -> None:
    outward = {target for target in imports(name) if layer_of(target) > layer_of(name)}
    assert not outward, f"{name} imports from a room that builds on it: {sorted(outward)}"


def test_only_the_command_knows_the_papers_experiments() -> None:
    """By its text: the old names in _moved are strings."""
    knowing = {name for name, path in FILES.items() if "mssl_reproduction" in path.read_text(encoding="utf-8")}
    assert knowing == {"cli.data", "_moved"}


def test_the_wheel_the_source_and_the_checks_hold_both_packages() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    targets = project["hatch"]["build"]["targets"]
    packages = [Path(place) for place in targets["wheel"]["packages"]]
    assert {package.name for package in packages} == {"mssl", "mssl_reproduction"}
    folders = {package.parts[0] for package in packages}
    assert folders <= set(targets["sdist"]["include"])
    assert folders == set(project["mypy"]["files"])


def _longest_chain(inside_functions: bool) -> list[str]:
    done: dict[str, list[str]] = {}
    path: list[str] = []

    def walk(name: str) -> list[str]:
        if name in path:
            raise AssertionError(f"a cycle of imports: {' → '.join([*path[path.index(name) :], name])}")
        if name not in done:
            path.append(name)
            chains = [walk(target) for target in sorted(imports(name, inside_functions))]
            path.pop()
            done[name] = [name, *max(chains, key=len, default=[])]
        return done[name]

    return max((walk(name) for name in FILES), key=len)


@pytest.mark.parametrize("inside_functions", [False, True])
def test_no_cycles_and_no_long_chains(inside_functions: bool) -> None:
    chain = _longest_chain(inside_functions)
    assert len(chain) <= LONGEST_CHAIN, f"{len(chain)} modules deep: {' → '.join(chain)}"


def test_the_hall_is_small() -> None:
    rooms = {path.name for path in SOURCE.glob("*.py")} - {"_moved.py", "_renamed.py"}  # these go with the next release
    assert len(rooms) <= MOST_ROOT_MODULES, sorted(rooms)


def test_every_public_name_resolves() -> None:
    for name in mssl.__all__:
        assert getattr(mssl, name) is not None
    assert set(mssl.__all__) - {"__version__"} == set(mssl._HOMES)
    assert set(mssl.__all__) <= set(dir(mssl))
    with pytest.raises(AttributeError, match="public names"):
        mssl.no_such_name


def fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_old_import_paths_answer_with_a_warning() -> None:
    code = """
import importlib, warnings
from mssl._moved import MOVED
for old, new in MOVED.items():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert importlib.import_module(old) is importlib.import_module(new), old
    assert [w.category for w in told] == [FutureWarning] and new in str(told[0].message), (old, told)
print("all")
"""
    assert fresh(code).strip() == "all"


def test_import_is_light() -> None:
    heavy = ["numba", "pandas", "matplotlib", "xarray", "sklearn", "scipy"]
    loaded = fresh(f"import sys, mssl; print([m for m in {heavy} if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_estimators_load_no_compiler_and_no_plotting() -> None:
    heavy = ["numba", "matplotlib", "xarray", "networkx", "pooch"]
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
