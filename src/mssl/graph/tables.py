"""Tables of pairs of tasks: the support of a precision, and significant relations and edges."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar, overload

from mssl._html import Html, tag
from mssl.exceptions import require
from mssl.graph.export import safe_cells, short_name, written

if TYPE_CHECKING:
    from rich.table import Table

# Number of rows that a table prints or a page shows, to fit on a screen; CSV files and data frames hold all rows.
SHOWN = 20
# Default false discovery rate, and the level of the global test. A smaller value shows fewer false pairs and misses
# more true ones. It is a convention.
FDR = 0.1
# Number of permutations of the default global test: fewer take less time, more resolve smaller p-values. Nineteen have
# the smallest p-value 0.05, half of the default rate.
PERMUTATIONS = round(2 / FDR) - 1
Row = TypeVar("Row", bound=tuple[Any, ...])


class Edge(NamedTuple):
    """Two tasks, their partial correlation, and the selection frequency of the edge (None if not measured)."""

    task_i: Hashable
    task_j: Hashable
    weight: float = 1.0
    confidence: float | None = None


class Relation(NamedTuple):
    """Two tasks and the test of their relation.

    Attributes
    ----------
    task_i, task_j
        The tasks.
    weight : float
        Correlation of the weights or residuals (relations), or partial correlation (edges), corrected for estimation
        error.
    low, high : float
        90 % confidence interval of the weight.
    p, q : float
        p-value, and the smallest false discovery rate at which the pair is selected.
    sign_probability : float
        Confidence that the sign of the weight is correct, 1 − p/2.
    """

    task_i: Hashable
    task_j: Hashable
    weight: float
    low: float
    high: float
    p: float
    q: float
    sign_probability: float


def text_table(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells, the heading first, as aligned columns of text."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def html_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> Html:
    """Return a heading and lines of cells as an HTML table."""
    names = tag("tr", *(tag("th", Html(name), scope="col") for name in head))
    body = (tag("tr", *(tag("td", Html(cell)) for cell in line)) for line in lines)
    return tag("table", tag("thead", names), tag("tbody", *body))


@dataclass(frozen=True, repr=False)
class PairTable(Sequence[Row]):
    """A sequence of rows about pairs of tasks that can be printed and converted to CSV or a data frame.

    Attributes
    ----------
    rows : sequence of tuples
        The pairs. The first two entries of each row are the tasks.
    untested : str
        Reason why no pair was tested; empty if pairs were tested.
    """

    rows: Sequence[Row]
    untested: str = field(default="", kw_only=True)
    _head: ClassVar[tuple[str, ...]]
    _formats: ClassVar[tuple[str, ...]]  # Formats of the numbers that follow the tasks.

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(self.rows))

    @property
    def pairs(self) -> list[tuple[Hashable, Hashable]]:
        """The two tasks of each row."""
        return [(row[0], row[1]) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Row | Self:
        return replace(self, rows=self.rows[index]) if isinstance(index, slice) else self.rows[index]

    def summary(self) -> str:
        """Return one sentence about the table, or an empty text."""
        return ""

    def _notes(self) -> list[str]:
        hidden = len(self) - SHOWN
        return [f"… {hidden} more"] if hidden > 0 else []

    def _cells(self) -> list[list[str]]:
        """Return the rows that are printed, as display text."""
        lines = [list(map(short_name, row[:2])) for row in self.rows[:SHOWN]]
        for row, line in zip(self.rows, lines, strict=False):
            line += ["" if x is None else format(x, form) for x, form in zip(row[2:], self._formats, strict=True)]
        return lines

    def __repr__(self) -> str:
        table = text_table([self._head, *self._cells()]) if len(self) or not self.summary() else ""
        return "\n".join(filter(None, [self.summary(), table, "; ".join(self._notes())]))

    def _html(self) -> Html:
        """Return the table as HTML."""
        table = html_table(self._head, self._cells()) if len(self) else Html()
        return Html(tag("p", Html(self.summary())), table, tag("p", Html("; ".join(self._notes()))))

    def _repr_html_(self) -> str:
        return str(self._html())

    def __rich__(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(*self._head, caption="; ".join(self._notes()) or None)
        for row in self._cells():
            table.add_row(*(Text(cell) for cell in row))
        return table

    def to_frame(self) -> Any:
        """Return the table as a pandas DataFrame (extra ``tables``)."""
        pandas: Any = require("pandas", "tables", f"{type(self).__name__}.to_frame")
        return pandas.DataFrame(list(self.rows), columns=list(self._head))

    def to_csv(self, path: str | os.PathLike[str] | None = None, *, safe: bool | None = None) -> str:
        """Return the table as CSV text, and write it to `path` if one is given.

        If no pair was tested, a last line that starts with ``#`` gives the reason.

        Parameters
        ----------
        path : path, optional
            The file to write.
        safe : bool, optional
            Whether names that could act as formulas or terminal commands are made safe by
            :func:`mssl.graph.export.safe_cell`. False writes all names unchanged. By default they are made safe, with a
            warning.
        """
        make = safe_cells({name for row in self.rows for name in row[:2]}, safe) or (lambda name: name)
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self._head)
        writer.writerows((make(row[0]), make(row[1]), *row[2:]) for row in self.rows)
        return written(buffer.getvalue() + (f"# {self.untested}\n" if self.untested else ""), path)


@dataclass(frozen=True, repr=False)
class EdgeTable(PairTable[Edge]):
    """Pairs with a non-zero entry in a precision matrix.

    Attributes
    ----------
    false_edges : float or None
        Upper bound on the expected number of false edges in the graph, from stability selection.
    """

    false_edges: float | None = None
    _head = Edge._fields
    _formats = ("+.3f", ".2f")

    def _notes(self) -> list[str]:
        words = super()._notes()
        if self.false_edges is not None:
            words.append(f"at most {self.false_edges:.2g} edges of the graph are expected to be false")
            if len(self) and self.false_edges >= len(self):
                words.append(f"the {len(self)} shown may all be chance")
        return words


@dataclass(frozen=True, repr=False)
class RelationTable(PairTable[Relation]):
    """Significant pairs of tasks, strongest evidence first.

    Attributes
    ----------
    level : {"relations", "edges"}
        Correlations, or partial correlations.
    fdr : float
        False discovery rate: the expected share of false rows.
    n_pairs : int
        Number of tested pairs.
    method : {"bh", "by"}
        Procedure that controls the false discovery rate: Benjamini and Hochberg's, or Benjamini and Yekutieli's, which
        is valid under any dependence of the tests.
    overall : float or None
        p-value of the global test with 19 permutations, or None before it has run. Summaries, reports and commands run
        it.
    """

    level: str
    fdr: float
    n_pairs: int
    method: str = "bh"
    overall: float | None = None
    _head = Relation._fields
    _formats = ("+.2f", "+.2f", "+.2f", ".2g", ".2g", ".3f")

    @property
    def expected_false(self) -> float:
        """Expected number of false rows: the false discovery rate times the number of rows."""
        return self.fdr * len(self)

    def summary(self) -> str:
        """Return one sentence: number of pairs, expected number of false ones, and result of the global test."""
        if self.untested:
            return self.untested
        noun = "relation" if self.level == "relations" else "conditional edge"
        rate = f"{self.fdr:.0%}" + (" under any dependence" if self.method == "by" else "")
        if not len(self):
            return f"no {noun} between tasks can be told from chance at {rate}"
        plural, pairs = "" if len(self) == 1 else "s", "pair" if self.n_pairs == 1 else "pairs"
        text = (
            f"{len(self)} {noun}{plural} among {self.n_pairs} {pairs} at a false discovery rate of {rate}: "
            f"at most {self.expected_false:.1f} of them are expected to be false"
        )
        p = "" if self.overall is None else f"p = {self.overall:.2g} by {PERMUTATIONS} permutations"
        if not self.supported:
            return f"the overall test does not support this list ({p}): {text}"
        return f"{text}; overall test: {p}" if p and self.level == "relations" else text

    @property
    def supported(self) -> bool:
        """Whether the table has pairs and the global test, if it ran, does not contradict them."""
        return len(self) > 0 and (self.overall is None or self.overall <= FDR)
