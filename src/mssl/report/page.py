r"""Assemble the sections into one HTML file: everything is inline, and only the scripts of the page run.

Names of tasks and features, titles and other texts reach the page in three ways only: as :class:`~mssl._html.Html`,
which escapes them, as JSON in which ``<``, ``>`` and ``&`` are written as ``\u003c`` …, and as text that Bokeh or the
page's script sets as text. Beyond that, the page's content security policy names its scripts by their hashes, so that
no other script would run, and forbids every request and every frame.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from mssl._html import Html, tag, verbatim
from mssl.report.figures import Section, Shared, bokeh, count
from mssl.report.sections.effects import effect_section
from mssl.report.sections.graph import chord_section, graph_section
from mssl.report.sections.heat import coefficient_section, matrix_section
from mssl.report.sections.newcomers import new_task_section
from mssl.report.sections.pairs import pair_section
from mssl.report.sections.places import map_section
from mssl.report.sections.runs import convergence_section, stability_section
from mssl.report.sections.tasks import task_section
from mssl.report.sections.words import record_section, summary_section

if TYPE_CHECKING:
    from mssl.report.content import Content


def render(content: Content) -> str:
    """Return the page as text."""
    resources = bokeh("resources")
    shared = Shared(content)
    sections = all_sections(content, shared)
    library = "\n".join(resources.Resources(mode="inline", components=["bokeh"], log_level="warn").js_raw)
    scripts = [library.replace("</script", "<\\/script"), _asset("page.js")]
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", Html(content.title)),
        verbatim("style", _asset("page.css")),
    ]
    body = [
        *_body(content, sections),
        verbatim("script", _data(shared, sections), type="application/json", id="report-data"),
        *(verbatim("script", script) for script in scripts),
    ]
    lines = Html("\n")
    page = tag("html", lines.join([tag("head", lines.join(head)), tag("body", lines.join(body))]), lang="en")
    return f"<!DOCTYPE html>\n{page!s}\n"


def all_sections(content: Content, shared: Shared) -> list[Section]:
    """Every section that has something to show, in the order of reading."""
    found = [
        summary_section(content),
        graph_section(content, shared),
        matrix_section(content, shared),
        pair_section(content),
        chord_section(content, shared),
        coefficient_section(content, shared),
        effect_section(content),
        new_task_section(content),
        task_section(content, shared),
        map_section(content, shared),
        stability_section(content, shared),
        convergence_section(content),
        record_section(content),
    ]
    return [section for section in found if section is not None]


def _body(content: Content, sections: list[Section]) -> list[Html]:
    links = (tag("li", tag("a", Html(s.title), href=f"#{s.key}")) for s in sections)
    titles = [tag("h2", Html(s.title), id=f"{s.key}-title") for s in sections]
    parts = (
        tag("section", title, s.body, id=s.key, aria_labelledby=f"{s.key}-title")
        for s, title in zip(sections, titles, strict=True)
    )
    navigation = tag("nav", tag("ul", *links), aria_label="Sections")
    clear = tag("button", Html("Clear selection"), type="button")
    return [
        tag("a", Html("Skip to the table of tasks"), class_="skip", href="#tasks"),
        tag("header", tag("h1", tag("bdi", Html(content.title))), navigation),
        tag("noscript", tag("p", Html("The figures need JavaScript; the words and tables do not."))),
        tag("main", Html("\n").join(parts)),
        tag("div", tag("span"), clear, id="chosen", role="status", aria_live="polite", hidden=True),
        tag("div", id="tip", aria_hidden="true", hidden=True),
    ]


def _data(shared: Shared, sections: list[Section]) -> str:
    """The figures and what the page's script needs, as JSON that no HTML parser can mistake."""
    documents = bokeh("document")
    encoder = bokeh("core.json_encoder")
    document = documents.Document()
    roots: dict[str, str] = {}
    with document.models.freeze():  # else all models are gone through again for every figure
        for section in sections:
            for element, figure in section.figures.items():
                document.add_root(figure)
                roots[figure.id] = element
    heats = {key: value for section in sections for key, value in section.data.items()}
    data = {
        "docs": {"report": document.to_json(deferred=False)} if roots else {},
        "items": [{"docid": "report", "roots": roots, "root_ids": list(roots)}] if roots else [],
        "names": shared.tasks.data["name"],
        "heats": heats,
        "facts": _facts(shared.content),
    }
    text = str(encoder.serialize_json(data))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _facts(content: Content) -> list[list[str]]:
    """What is said of each task when the pointer is on it, beside its name."""
    graph, sizes = content.graph, np.bincount(content.communities, minlength=1)[content.communities]
    facts = [
        [
            f"community {label + 1}, {count(int(size), 'task')}" if size > 1 else "no community",
            count(int(degree), "neighbour"),
        ]
        for label, size, degree in zip(content.communities, sizes, graph.degree(), strict=True)
    ]
    for k, lines in enumerate(facts):
        if content.scores is not None and np.isfinite(content.scores.error[k]):
            lines.append(f"{content.scores.error_name} {content.scores.error[k]:.4g}")
        if content.gains is not None and np.isfinite(content.gains.gain[k]):
            lines.append(f"gain {content.gains.gain[k]:+.1f} %")
    return facts


def _asset(name: str) -> str:
    return files("mssl.report").joinpath(name).read_text(encoding="utf-8")


def _policy(scripts: list[str]) -> str:
    """Which scripts may run, and that nothing may be fetched."""
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "frame-src 'none'; base-uri 'none'; form-action 'none'"
    )
