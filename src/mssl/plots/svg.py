"""Figures as SVG inside a page: names stay text, and what stands for a task or an edge says so."""

from __future__ import annotations

import re
from collections.abc import Collection
from io import StringIO
from typing import Any
from xml.etree import ElementTree

from mssl._html import Html, tag
from mssl.plots.support import MARKS, OURS, matplotlib_module

PIXELS = 1.75  # on a screen with room, per point of a figure
_DROPPED = ("metadata", "style")  # matplotlib's name and date, and a style for everything
_TAKEN = {
    *("d", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "transform", "patternUnits", "clip-path"),
    *("fill", "fill-opacity", "fill-rule", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray"),
    *("stroke-dashoffset", "stroke-linecap", "stroke-linejoin", "opacity", "font-size", "font-weight", "text-anchor"),
}


def svg(figure: Any, key: str, alt: str, hidden: Collection[str] = ()) -> Html:
    """Return a figure as markup.

    Parameters
    ----------
    figure : matplotlib Figure
        It is changed: what parts stand for is written as links, which a figure that is saved otherwise has not.
    key : str
        Begins the ids, so that a page can hold several figures.
    alt : str
        What the figure shows, in words.
    hidden : collection of str
        Marks of parts that are there but not shown.
    """
    figure.patch.set_visible(False)
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")
    for artist in figure.findobj():
        artist.set_path_effects([])  # they would draw names as curves
        if hasattr(artist, "set_interpolation"):
            artist.set_interpolation("none")  # an image keeps its own pixels
        marks = getattr(artist, MARKS, None)
        if marks and hasattr(artist, "set_urls"):
            artist.set_urls(marks)
        elif marks:
            artist.set_url(*marks)
    file = StringIO()
    options = {"svg.fonttype": "none", "svg.hashsalt": key, "image.composite_image": False}
    with matplotlib_module().rc_context(options):
        figure.savefig(file, format="svg", bbox_inches="tight", pad_inches=0.03)
    root = ElementTree.fromstring(file.getvalue())  # noqa: S314 - matplotlib's, not a stranger's
    parts = _Reader(key, frozenset(hidden)).inside(root)
    box = root.get("viewBox", "")
    return tag("svg", *parts, viewBox=box, width=round(PIXELS * float(box.split()[2])), role="img", aria_label=alt)


class _Reader:
    """Reads matplotlib's elements and writes ours: fewer, shorter, escaped."""

    def __init__(self, key: str, hidden: frozenset[str]) -> None:
        self.key, self.hidden = key, hidden
        self.ids: dict[str, str] = {}

    def inside(self, node: ElementTree.Element, mark: str | None = None) -> list[Html]:
        return [part for child in node for part in self.element(child, mark)]

    def element(self, node: ElementTree.Element, mark: str | None) -> list[Html]:
        name = node.tag.rpartition("}")[2]
        if name in _DROPPED:
            return []
        if name == "a":
            return self.inside(node, _link(node))
        attributes = self.attributes(node, name)
        if mark is not None:
            attributes |= {"data-of": mark} | ({"class": "off"} if mark in self.hidden else {})
        # A group that says nothing vanishes, and its parts stand for themselves.
        parts = self.inside(node)
        if name == "g" and not attributes:
            return parts
        text = [Html(node.text)] if name in ("text", "tspan") and node.text else []
        return [tag(name, *text, *parts, **attributes)]

    def attributes(self, node: ElementTree.Element, name: str) -> dict[str, str]:
        style = (part.partition(":") for part in node.get("style", "").split(";"))
        given = dict(node.attrib) | {key.strip(): value.strip() for key, _, value in style}
        written = {key: self.value(key, value) for key, value in given.items() if key in _TAKEN}
        found = {key: value for key, value in written.items() if value}
        if name in ("use", "image"):
            target = _link(node)
            found["href"] = f"#{self.named(target[1:])}" if target.startswith("#") else target
        own = node.get("id", "")
        if own.startswith(OURS):
            found["class"] = own.removeprefix(OURS)
        elif name != "g" and own:
            found["id"] = self.named(own)
        return found

    def value(self, key: str, value: str) -> str:
        if value.startswith("rotate(-0 ") or (key == "stroke-dashoffset" and value == "0"):
            return ""
        if key == "transform" and not value.startswith("rotate"):
            return value  # of an image: every digit counts
        value = re.sub(r"url\(#(\w+)\)", lambda match: f"url(#{self.named(match[1])})", value)
        value = re.sub(r"-?\d+\.\d+(?:e-?\d+)?", lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), value)
        return re.sub(r"\s*([A-Za-z])\s+", r"\1", value).strip() if key == "d" else value.removesuffix("px")

    def named(self, name: str) -> str:
        """A short id that no other figure of the page has."""
        return self.ids.setdefault(name, f"{self.key}-{len(self.ids)}")


def _link(node: ElementTree.Element) -> str:
    return next(value for name, value in node.attrib.items() if name.endswith("href"))
