r"""Assemble the sections into one HTML file: everything is inline, and only the scripts of the page run.

Names of tasks and features, titles and other texts reach the page in three ways only: as :class:`~mssl._html.Html`,
which escapes them (also in pictures), as JSON in which ``<``, ``>`` and ``&`` are written as ``\u003c`` …, and as text
that the page's script sets as text. Beyond that, the page's content security policy names its script by its hash, so
that no other would run, and forbids every request and every frame.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from mssl._html import Html, tag, verbatim
from mssl.exceptions import require
from mssl.graph.task_graph import short_name
from mssl.report import sections as make
from mssl.report.parts import Section, count

if TYPE_CHECKING:
    from mssl.report.content import Content

_MOST_NAMES = 50_000  # names of features in the page: more make the file large


def render(content: Content) -> str:
    """Return the page as text."""
    require("matplotlib", "report", "The report")
    sections = all_sections(content)
    template, look, script = (
        files("mssl.report").joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js")
    )
    parts = (
        tag(
            "section", tag("h2", Html(s.title), id=f"{s.key}-title"), s.body, id=s.key, aria_labelledby=f"{s.key}-title"
        )
        for s in sections
    )
    return Template(template).substitute(
        hash=b64encode(sha256(script.encode()).digest()).decode(),
        title=Html(content.title),
        style=verbatim("style", look),
        links=Html(*(tag("li", tag("a", Html(s.title), href=f"#{s.key}")) for s in sections)),
        sections=Html("\n").join(parts),
        data=verbatim("script", _data(content, sections), type="application/json", id="report-data"),
        script=verbatim("script", script),
    )


def all_sections(content: Content) -> list[Section]:
    """Every section that has something to show, in the order of reading."""
    drawn = content.missing_graph is None
    found = [
        make.summary_section(content),
        make.graph_section(content) if drawn else None,
        make.matrix_section(content) if drawn else None,
        make.pair_section(content),
        make.chord_section(content) if drawn else None,
        make.coefficient_section(content),
        make.effect_section(content),
        make.new_task_section(content),
        make.task_section(content),
        make.map_section(content),
        make.stability_section(content),
        make.convergence_section(content),
        make.record_section(content),
    ]
    return [section for section in found if section is not None]


def _data(content: Content, sections: list[Section]) -> str:
    """What the page's script needs, as JSON that no HTML parser can mistake."""
    data = {
        "names": content.names,
        "facts": _facts(content),
        "features": [short_name(name, 40) for name in content.features[:_MOST_NAMES]],
        "edges": content.edges,
        "pictures": {key: value for section in sections for key, value in section.data.items()},
    }
    text = json.dumps(data, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _facts(content: Content) -> list[list[str]]:
    """What is said of each task when the pointer is on it, beside its name."""
    facts = [["no community", count(int(degree), "neighbour")] for degree in content.graph.degree()]
    for number, members in enumerate(content.groups, 1):
        for k in members:
            facts[k][0] = f"community {number}, {count(len(members), 'task')}"
    for k, lines in enumerate(facts):
        if content.scores is not None and np.isfinite(content.scores.error[k]):
            lines.append(f"{content.scores.error_name} {content.scores.error[k]:.4g}")
        if content.gains is not None and np.isfinite(content.gains.gain[k]):
            lines.append(f"gain {content.gains.gain[k]:+.1f} %")
    return facts
