"""Tables as CSV, Markdown, LaTeX and HTML."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mssl.exceptions import DataError
from mssl.files.atomic import write_text
from mssl_reproduction.stats import mean_and_spread, winners

_LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{"} | {
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "²": r"$^2$", "λ": r"$\lambda$",
    "γ": r"$\gamma$", "−": "--", "–": "--", "≤": r"$\le$", "≥": r"$\ge$", "α": r"$\alpha$", "η": r"$\eta$",
    "×": r"$\times$", "°": r"$^\circ$", "ℓ": r"$\ell$", "₂": r"$_2$", "₁": r"$_1$", "…": r"\ldots{}", "Ω": r"$\Omega$",
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A number, with its spread over runs where there are several (not None or NaN), in bold for the winners."""

    value: float
    spread: float | None = None
    digits: int = 2
    bold: bool = False

    @property
    def spreads(self) -> bool:
        """Whether the spread is known."""
        return self.spread is not None and not np.isnan(self.spread)

    def __str__(self) -> str:
        if not self.spreads:
            return f"{self.value:.{self.digits}f}"
        return f"{self.value:.{self.digits}f} ± {self.spread:.{self.digits}f}"


FEWEST_RUNS = 5  # from which on a cell may be bold


def compared_cells(
    runs: Mapping[str, Any],
    *,
    digits: int = 2,
    overlap: float = 0.0,
    higher_is_better: bool = False,
    unfair: Sequence[str] = (),
) -> list[Cell]:
    """Mean and spread of every method's runs; the best and those not significantly worse in bold.

    Where no method is worse, or there are fewer than five runs, bold would say nothing, and no cell is.

    Parameters
    ----------
    runs : mapping of method to (n,) array
    digits : int
        Decimals to show.
    overlap : float
        As for :func:`mssl_reproduction.stats.paired_p_value`.
    higher_is_better : bool
        Errors are better when low, areas under a curve when high.
    unfair : sequence of str
        Methods that know what is not known in practice, and so do not take part.
    """
    sign = -1.0 if higher_is_better else 1.0
    best = winners({m: sign * np.asarray(v) for m, v in runs.items() if m not in unfair}, overlap=overlap)
    told = not all(best.values()) and min(len(v) for v in runs.values()) >= FEWEST_RUNS
    return [Cell(*mean_and_spread(v), digits=digits, bold=told and best.get(m, False)) for m, v in runs.items()]


@dataclass(frozen=True)
class Table:
    """A table with a name (that of its files), a caption, columns and rows of cells, texts or numbers.

    Examples
    --------
    >>> table = Table("errors", "Error (%)", ["method", "error"], [["LR", Cell(5.8, 0.1, bold=True)]])
    >>> print(table.markdown())
    | method | error |
    | :-- | --: |
    | LR | **5.80 ± 0.10** |
    >>> print(table.csv(), end="")
    method,error,error sd
    LR,5.8,0.1
    """

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise DataError(
                f"A row of table {self.name!r} has {len(wrong[0])} cells; give one for each of its "
                f"{len(self.columns)} columns."
            )

    def csv(self) -> str:
        """Numbers in full; a spread has a column of its own."""
        spreads = [
            any(isinstance(row[k], Cell) and row[k].spreads for row in self.rows) for k in range(len(self.columns))
        ]
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        pairs = list(zip(self.columns, spreads, strict=True))
        writer.writerow([name for column, two in pairs for name in ([column, f"{column} sd"] if two else [column])])
        for row in self.rows:
            writer.writerow([part for cell, two in zip(row, spreads, strict=True) for part in _plain(cell, two)])
        return stream.getvalue()

    def markdown(self) -> str:
        """A pipe table."""
        marks = [":--" if self._is_text(k) else "--:" for k in range(len(self.columns))]
        lines = [[_pipe(column) for column in self.columns], marks]
        lines += [[_emphasised(_pipe(_shown(cell)), cell, "**{}**") for cell in row] for row in self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def latex(self) -> str:
        """A booktabs table."""
        align = "".join("l" if self._is_text(k) else "r" for k in range(len(self.columns)))
        body = [
            " & ".join(_emphasised(_tex(_shown(cell)), cell, r"\textbf{{{}}}") for cell in row) + r" \\"
            for row in self.rows
        ]
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_tex(self.caption)}}}",
                rf"\begin{{tabular}}{{{align}}}",
                r"\toprule",
                " & ".join(_tex(column) for column in self.columns) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def html(self) -> str:
        """A table element with a caption."""
        head = "".join(f"<th>{html.escape(column)}</th>" for column in self.columns)
        body = "".join(
            "<tr>"
            + "".join(
                ("<td>" if self._is_text(k) else "<td class='number'>")
                + _emphasised(html.escape(_shown(cell)), cell, "<b>{}</b>")
                + "</td>"
                for k, cell in enumerate(row)
            )
            + "</tr>\n"
            for row in self.rows
        )
        return (
            f"<table><caption>{html.escape(self.caption)}</caption>\n<thead><tr>{head}</tr></thead>\n"
            f"<tbody>\n{body}</tbody></table>"
        )

    def write(self, folder: Path) -> list[Path]:
        """Write the table as CSV, Markdown and LaTeX."""
        texts = {"csv": self.csv(), "md": f"{self.caption}\n\n{self.markdown()}\n", "tex": self.latex()}
        return [write_text(folder / f"{self.name}.{ending}", text) for ending, text in texts.items()]

    def _is_text(self, column: int) -> bool:
        return any(isinstance(row[column], str) and any(c.isalpha() for c in row[column]) for row in self.rows)


def _shown(cell: Any) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _plain(cell: Any, two: bool) -> list[Any]:
    if isinstance(cell, Cell):
        return [repr(cell.value), repr(cell.spread) if cell.spreads else ""] if two else [repr(cell.value)]
    return [cell, ""] if two else [cell]


def _emphasised(text: str, cell: Any, pattern: str) -> str:
    return pattern.format(text) if isinstance(cell, Cell) and cell.bold else text


def _pipe(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def _tex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
