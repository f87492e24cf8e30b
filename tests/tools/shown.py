"""Output that pages show: the block ``text`` right after a block of Python, or of commands ``mssl …``.

    python tests/tools/shown.py README.md docs/start.md docs/guides/hospitals.md

runs these pages top to bottom and writes what they really print into them.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```\n(\n```text\n(.*?)^```\n)?", re.M | re.S)
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
COMMAND = [sys.executable, "-m", "mssl"]


def _printed(kind: str, block: str, names: dict[str, Any], label: str, shown: bool) -> str:
    """What a block prints; commands are run only where their output is shown."""
    if kind == "python":
        with contextlib.redirect_stdout(io.StringIO()) as stream:
            exec(compile(block, label, "exec"), names)
        return stream.getvalue()
    lines = [shlex.split(line) for line in block.splitlines()] if shown else []
    assert all(line[0] == "mssl" for line in lines), f"{label} shows the output of other commands than mssl"
    return "".join(
        subprocess.run([*COMMAND, *line[1:]], check=True, stdout=subprocess.PIPE, text=True, encoding="utf-8").stdout
        for line in lines
    )


def run(text: str, label: str) -> tuple[str, list[tuple[str, str, str]]]:
    """Run a page in the current folder: the page with what it prints, and (block, shown, printed) of each such block."""
    names: dict[str, Any] = {}
    outputs: list[tuple[str, str, str]] = []
    count = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal count
        kind, block, after, shown = match.groups()
        count += kind == "python"
        printed = _printed(kind, block, names, f"{label}, {kind} block {count}", after is not None)
        if after is None:
            return match[0]
        printed = "".join(line.rstrip() + "\n" for line in printed.splitlines())
        outputs.append((block, shown, printed))
        return f"```{kind}\n{block}```\n\n```text\n{printed}```\n"

    return BLOCK.sub(replace, text), outputs


def _unit(number: str) -> float:
    """What a step of the last digit is worth."""
    mantissa, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def _close(one: str, other: str) -> bool:
    """Numbers within 1 %, or one step of the last digit: what another BLAS may change."""
    a, b = float(one), float(other)
    step = 1.001 * max(_unit(one), _unit(other)) if "." in one + other else 0.0
    return abs(a - b) <= max(0.01 * abs(a), step)


def differences(shown: str, printed: str) -> list[str]:
    """Lines whose words differ, or whose numbers do but for rounding; of the time only the words count."""
    lines = []
    for one, other in zip(shown.splitlines(), printed.splitlines(), strict=False):
        words = [" ".join(NUMBER.sub("#", line).split()) for line in (one, other)]
        numbers = list(zip(NUMBER.findall(one), NUMBER.findall(other), strict=False))
        if words[0] != words[1] or not (one.startswith("time ") or all(_close(*pair) for pair in numbers)):
            lines.append(f"shown:   {one}\nprinted: {other}")
    if len(shown.splitlines()) != len(printed.splitlines()):
        lines.append(f"shown:\n{shown}\nprinted:\n{printed}")
    return lines


if __name__ == "__main__":
    import warnings

    warnings.filterwarnings("ignore", "Tasks .* were not there:UserWarning")
    for page in [Path(name).resolve() for name in sys.argv[1:]]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            found, _ = run(page.read_text("utf-8"), page.name)
            os.chdir(page.parent)
        page.write_text(found, "utf-8")
