"""The parts of the page, in the order in which they are read."""

from __future__ import annotations

from mssl.report.content import Content
from mssl.report.figures import Section, Shared
from mssl.report.sections.graph import chord_section, graph_section
from mssl.report.sections.heat import coefficient_section, matrix_section
from mssl.report.sections.places import map_section
from mssl.report.sections.runs import convergence_section, stability_section
from mssl.report.sections.tasks import task_section
from mssl.report.sections.words import record_section, summary_section

__all__ = ["all_sections"]


def all_sections(content: Content, shared: Shared) -> list[Section]:
    """Every section, with something to show or a sentence that says why there is nothing."""
    return [
        summary_section(content),
        graph_section(content, shared),
        matrix_section(content, shared),
        chord_section(content, shared),
        coefficient_section(content, shared),
        task_section(content, shared),
        map_section(content, shared),
        stability_section(content, shared),
        convergence_section(content),
        record_section(content),
    ]
