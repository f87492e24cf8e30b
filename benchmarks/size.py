"""How much code there is: ``python -m benchmarks.size`` counts lines room by room.

Comments, blank lines and docstrings do not count.

Version 0.1.0 had 20 893 lines in ``src`` by the same count.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUFFIXES = {".py", ".c", ".h"}
MOST_APART = 2900  # lines of the paper's experiments
SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def python_lines(text: str) -> int:
    """Lines of a Python file that hold code."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            first = node.body[0]
            documented |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SKIPPED:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def c_lines(text: str) -> int:
    """Lines of a C file that hold code."""
    bare = re.sub(r"/\*.*?\*/|//[^\n]*", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    return sum(1 for line in bare.splitlines() if line.strip())


def count(path: Path) -> int:
    """Lines of code of one file."""
    text = path.read_text(encoding="utf-8")
    return python_lines(text) if path.suffix == ".py" else c_lines(text)


def main() -> None:
    """Print the rooms of the package, the total, and the paper's experiments apart."""
    source, paper = ROOT / "src" / "mssl", ROOT / "reproduction" / "mssl_reproduction"
    files, apart = ([p for p in sorted(place.rglob("*")) if p.suffix in SUFFIXES] for place in (source, paper))
    rooms: dict[str, int] = {}
    for path in files:
        inside = path.relative_to(source).parts
        room = inside[0] if len(inside) > 1 else "(root)"
        rooms[room] = rooms.get(room, 0) + count(path)
    for room, lines in sorted(rooms.items(), key=lambda entry: -entry[1]):
        sys.stdout.write(f"{room:18s}{lines:7d}\n")
    sys.stdout.write(f"{'src/mssl':18s}{sum(rooms.values()):7d} in {len(files)} files\n")
    sys.stdout.write(f"{'reproduction':18s}{sum(map(count, apart)):7d} in {len(apart)} files (at most {MOST_APART})\n")


if __name__ == "__main__":
    main()
