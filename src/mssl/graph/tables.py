"""Tables of pairs of tasks: the support of a precision, and relations and edges that can be told from chance."""

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

_SHOWN = 20  # rows that a table prints; its CSV and its frame have all
FDR = 0.1  # false discovery rate of what is shown unasked; the p-value up to which the global test supports it
PERMUTATIONS = round(2 / FDR) - 1  # of the global test that is made unasked: p-values from half that rate on
Row = TypeVar("Row", bound=tuple[Any, ...])


class Edge(NamedTuple):
    """Two tasks, their partial correlation, and how often the edge was selected (None if not measured)."""

    task_i: Hashable
    task_j: Hashable
    weight: float
    confidence: float | None


class Relation(NamedTuple):
    """Two tasks and what is known about their relation.

    Attributes
    ----------
    task_i, task_j
        The tasks.
    weight : float
        Correlation of their weights or residuals (relations), or partial correlation (edges), estimation error
        taken out.
    low, high : float
        Interval of the weight with 90 % coverage.
    p, q : float
        p-value, and the smallest false discovery rate at which the pair is selected.
    sign_probability : float
        Confidence that the weight has the sign that is shown, 1 − p/2.
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
    """Lines of cells, the head first, as columns of text."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def html_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> Html:
    """A head and lines of cells as a table of HTML."""
    names = tag("tr", *(tag("th", Html(name), scope="col") for name in head))
    body = (tag("tr", *(tag("td", Html(cell)) for cell in line)) for line in lines)
    return tag("table", tag("thead", names), tag("tbody", *body))


@dataclass(frozen=True, repr=False)
class PairTable(Sequence[Row]):
    """Pairs of tasks: a sequence of rows that prints well and turns into CSV or a data frame.

    Attributes
    ----------
    rows : sequence of tuples
        The pairs; each row begins with two tasks.
    untested : str
        Why no pair was tested; empty where pairs were.
    """

    rows: Sequence[Row]
    untested: str = field(default="", kw_only=True)
    _head: ClassVar[tuple[str, ...]]
    _formats: ClassVar[tuple[str, ...]]  # of the numbers that follow the tasks

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(self.rows))

    @property
    def pairs(self) -> list[tuple[Hashable, Hashable]]:
        """The two tasks of every row."""
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
        """One sentence on the table; empty where there is nothing to say."""
        return ""

    def _notes(self) -> list[str]:
        hidden = len(self) - _SHOWN
        return [f"… {hidden} more"] if hidden > 0 else []

    def _cells(self) -> list[list[str]]:
        """The rows that are shown, as display text."""
        lines = [list(map(short_name, row[:2])) for row in self.rows[:_SHOWN]]
        for row, line in zip(self.rows, lines, strict=False):
            line += ["" if x is None else format(x, form) for x, form in zip(row[2:], self._formats, strict=True)]
        return lines

    def __repr__(self) -> str:
        table = text_table([self._head, *self._cells()]) if len(self) or not self.summary() else ""
        return "\n".join(filter(None, [self.summary(), table, "; ".join(self._notes())]))

    def _html(self) -> Html:
        """The table as markup."""
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

        Where no pair was tested, a last line that begins with ``#`` says why.

        Parameters
        ----------
        path : path, optional
            The file to write.
        safe : bool, optional
            Write names that could do harm in a spreadsheet or on a terminal as :func:`mssl.graph.export.safe_cell`
            does; False writes all names as they are. By default they are made safe, with a warning.
        """
        make = safe_cells({name for row in self.rows for name in row[:2]}, safe) or (lambda name: name)
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self._head)
        writer.writerows((make(row[0]), make(row[1]), *row[2:]) for row in self.rows)
        return written(buffer.getvalue() + (f"# {self.untested}\n" if self.untested else ""), path)


@dataclass(frozen=True, repr=False)
class EdgeTable(PairTable[Edge]):
    """Pairs that a precision joins.

    Attributes
    ----------
    false_edges : float or None
        How many pairs of the graph are expected to be false at most, where stability selection says.
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
    """Pairs of tasks that can be told from chance, strongest evidence first.

    Attributes
    ----------
    level : {"relations", "edges"}
        Correlations, or partial correlations.
    fdr : float
        Expected share of false rows.
    n_pairs : int
        Pairs that were tested.
    method : {"bh", "by"}
        How the false discovery rate is held: for pairs as they are (Benjamini and Hochberg), or under any dependence
        (Benjamini and Yekutieli).
    overall : float or None
        p-value of the global test with 19 permutations, where it was made: summaries, pages and commands make it.
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
        """How many rows may be false: the false discovery rate times the number of rows."""
        return self.fdr * len(self)

    def summary(self) -> str:
        """One sentence: how many pairs, how many of them may be false, and whether the global test supports them."""
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
        """Whether there are pairs, and the global test, where it was made, does not speak against them."""
        return len(self) > 0 and (self.overall is None or self.overall <= FDR)
