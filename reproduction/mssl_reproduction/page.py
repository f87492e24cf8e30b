"""The page of an experiment: what was published beside what was measured, with a sentence on every difference."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from mssl.files.atomic import prepare_folder, write_bytes, write_text
from mssl_reproduction.tables import Cell, Table

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem; display: block; overflow-x: auto; }
caption { text-align: left; font-weight: 600; padding-bottom: 0.4rem; }
th, td { border-bottom: 1px solid #ddd; padding: 0.25rem 0.7rem; text-align: left; vertical-align: top; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
figure { margin: 1.5rem 0; } figure img { max-width: 100%; } figcaption { font-size: 0.9rem; color: #444; }
pre { background: #f4f4f4; padding: 0.7rem; overflow-x: auto; }
"""


@lru_cache(maxsize=1)
def published() -> dict[str, Any]:
    """The figures and claims of the paper, from the one file that holds them.

    Examples
    --------
    >>> published()["climate"]["South America"]["OLS"]["mean"]
    0.866
    """
    content: dict[str, Any] = json.loads(files("mssl_reproduction").joinpath("published.json").read_text("utf-8"))
    return content


@dataclass(frozen=True)
class Comparison:
    """A published figure beside ours, and why they differ."""

    what: str
    published: Cell
    measured: Cell
    why: str

    def sentence(self) -> str:
        """What the difference is, and why."""
        gap = self.measured.value - self.published.value
        digits = self.measured.digits
        if round(abs(gap), digits) == 0:
            return f"Equal to {digits} decimals. {self.why}"
        word = "above" if gap > 0 else "below"
        share = abs(gap) / abs(self.published.value) if self.published.value else float("inf")
        return f"Ours is {abs(gap):.{digits}f} ({share:.0%}) {word}. {self.why}"


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, or one that we expected, and what the records say of it."""

    text: str
    holds: bool | None
    evidence: str

    def verdict(self) -> str:
        """Yes, no, or not decided."""
        return {True: "holds", False: "does not hold", None: "not decided"}[self.holds]


@dataclass(frozen=True)
class Drawing:
    """A matplotlib figure with its name and caption."""

    name: str
    figure: Any
    caption: str


@dataclass
class Page:
    """Headings, texts, tables and figures in order; written as Markdown and as HTML.

    Examples
    --------
    >>> page = Page("demo", "A page").heading("Numbers").text("Some *text*.")
    >>> print(page.markdown())
    # A page
    <BLANKLINE>
    ## Numbers
    <BLANKLINE>
    Some *text*.
    <BLANKLINE>
    """

    name: str
    title: str
    blocks: list[tuple[str, Any]] = field(default_factory=list)

    def heading(self, text: str) -> Page:
        """Begin a section."""
        self.blocks.append(("heading", text))
        return self

    def text(self, *paragraphs: str) -> Page:
        """Add paragraphs; ``*``, `` ` `` and ``**`` mark as in Markdown."""
        self.blocks.extend(("text", " ".join(paragraph.split())) for paragraph in paragraphs if paragraph)
        return self

    def code(self, text: str) -> Page:
        """Add a command line."""
        self.blocks.append(("code", text))
        return self

    def table(self, table: Table) -> Page:
        """Add a table."""
        self.blocks.append(("table", table))
        return self

    def figure(self, name: str, figure: Any, caption: str) -> Page:
        """Add a matplotlib figure."""
        self.blocks.append(("figure", Drawing(name, figure, caption)))
        return self

    def compare(self, name: str, caption: str, comparisons: Sequence[Comparison]) -> Page:
        """Set published figures beside ours, each with its sentence."""
        rows = [[c.what, c.published, c.measured, c.sentence()] for c in comparisons]
        return self.table(Table(name, caption, ["what", "published", "measured", "difference"], rows))

    def claims(self, claims: Sequence[Claim], name: str = "claims") -> Page:
        """Say of every claim whether the records support it."""
        rows = [[c.text, c.verdict(), c.evidence] for c in claims]
        return self.table(Table(name, "Claims, and what was measured", ["claim", "verdict", "evidence"], rows))

    def close(
        self, records: Sequence[Any], protocol: dict[str, Any], quick: bool, command: str, seconds: float
    ) -> None:
        """Say how it was run, and what the solvers complained about."""
        warned = sum(bool(record["warnings"]) for record in records)
        self.heading("How it was run")
        self.code(command)
        self.text(
            f"{len(records)} records, {seconds:.0f} s of computing, summed over records"
            + (" (quick protocol: far fewer runs and smaller grids than the paper's)." if quick else ".")
            + (f" {warned} of them came with a warning of a solver; see `warnings` in the records." if warned else ""),
            "Protocol: " + "; ".join(f"`{name}` = {_brief(value)}" for name, value in protocol.items()) + ".",
        )

    def markdown(self, *, level: int = 1, prefix: str = "") -> str:
        """The page as Markdown, headings from a given level on, figures in files whose names begin with a prefix."""
        parts = [f"{'#' * level} {self.title}"]
        for kind, item in self.blocks:
            if kind == "heading":
                parts.append(f"{'#' * (level + 1)} {item}")
            elif kind == "table":
                parts += [f"**{item.caption}**", item.markdown(), *([item.note] if item.note else [])]
            elif kind == "figure":
                parts += [f"![{item.caption}]({prefix}{item.name}.png)", f"*{item.caption}*"]
            else:
                parts.append(f"```\n{item}\n```" if kind == "code" else item)
        return "\n\n".join(parts) + "\n"

    def html(self) -> str:
        """The page as one HTML document; figures are files beside it."""
        parts = [f"<h1>{html.escape(self.title)}</h1>"]
        for kind, item in self.blocks:
            if kind == "heading":
                parts.append(f"<h2>{html.escape(item)}</h2>")
            elif kind == "table":
                parts += [item.html(), *([f"<p>{_inline(item.note)}</p>"] if item.note else [])]
            elif kind == "figure":
                caption = html.escape(item.caption, quote=True)
                parts.append(
                    f'<figure><img src="{item.name}.svg" alt="{caption}"><figcaption>{caption}</figcaption></figure>'
                )
            elif kind == "code":
                parts.append(f"<pre>{html.escape(item)}</pre>")
            else:
                parts.append(f"<p>{_inline(item)}</p>")
        return document(self.title, "\n".join(parts))

    def write(self, folder: Path) -> None:
        """Write tables, figures and both forms of the page."""
        prepare_folder(folder)
        for kind, item in self.blocks:
            if kind == "table":
                item.write(folder)
            elif kind == "figure":
                save_figure(item.figure, folder / item.name)
        write_text(folder / "page.md", self.markdown())
        write_text(folder / "page.html", self.html())


def document(title: str, body: str) -> str:
    """An HTML document that needs nothing from elsewhere but the figures beside it."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def save_figure(figure: Any, stem: Path, *, dpi: int = 200, vectors: bool = True) -> None:
    """Write a figure as PNG, and as SVG where vectors are wanted; equal bytes for equal figures."""
    import io

    import matplotlib as mpl

    kinds: list[tuple[str, dict[str, Any]]] = [("png", {"dpi": dpi})]
    if vectors:
        kinds.append(("svg", {"metadata": {"Date": None}}))
    with mpl.rc_context({"svg.hashsalt": "mssl", "svg.fonttype": "path"}):
        for ending, extra in kinds:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending, **extra)
            write_bytes(stem.with_name(f"{stem.name}.{ending}"), buffer.getvalue())


def _inline(text: str) -> str:
    """Markdown's code, bold, emphasis and links inside a paragraph as HTML."""
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    escaped = re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", r'<a href="\2">\1</a>', escaped)
    escaped = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", escaped)
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", escaped)


def _brief(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(_brief(item) for item in value) if value else "none"
    if isinstance(value, dict):
        return "{" + "; ".join(f"{key}: {_brief(item)}" for key, item in value.items()) + "}"
    return str(value)
