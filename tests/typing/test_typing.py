"""A type checker knows the public names, their parameters and what they return."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import mssl

pytest.importorskip("mypy")
HERE = Path(__file__).parent
REFUSED = re.compile(r"# refused: (.*)$")


def check(path: Path, folder: Path) -> list[tuple[int, str]]:
    """Lines and messages of mypy about one file, with nothing but strict settings."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    command += ["--no-error-summary", f"--cache-dir={folder}", str(path)]
    source = Path(mssl.__file__).parents[1]
    # An installed package is found by itself, and mypy refuses site-packages as a path of its own.
    found_by_path = {} if source.name == "site-packages" else {"MYPYPATH": str(source)}
    done = subprocess.run(command, capture_output=True, text=True, env={**found_by_path, "PATH": ""}, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert done.stderr == ""
    found = [re.match(r"(.*?):(\d+): error: (.*)", line) for line in done.stdout.splitlines()]
    return [(int(match[2]), match[3]) for match in found if match and Path(match[1]).name == path.name]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_correct_use_is_accepted(cache: Path) -> None:
    assert check(HERE / "correct_use.py", cache) == []


def test_mistakes_are_refused_and_nothing_else(cache: Path) -> None:
    path = HERE / "wrong_use.py"
    lines = path.read_text("utf-8").splitlines()
    expected = {number: found[1] for number, line in enumerate(lines, 1) if (found := REFUSED.search(line))}
    assert len(expected) == 15
    messages = dict(check(path, cache))
    assert set(messages) == set(expected)
    for number, words in expected.items():
        assert words in messages[number]


def test_correct_use_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile((HERE / "correct_use.py").read_text("utf-8"), "correct_use.py", "exec"), {"__name__": "user"})
    assert (tmp_path / "model.npz").exists()
