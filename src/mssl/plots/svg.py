"""Figures as SVG inside a page: names stay text, and what stands for a task or an edge says so."""

from __future__ import annotations

import re
from collections import Counter
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

# What parts have from the group that they stand in.
_INHERITED = ("fill", "stroke", "stroke-opacity", "stroke-width", "stroke-linejoin", "font-size", "text-anchor")


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
    drawing = ElementTree.Element("svg")
    drawing.extend(_Reader(key, frozenset(hidden)).inside(root))
    _shorten(drawing)
    box = root.get("viewBox", "")
    drawing.attrib |= {"viewBox": box, "width": str(round(PIXELS * float(box.split()[2]))), "role": "img"}
    drawing.set("aria-label", alt)
    return _markup(drawing)


class _Reader:
    """Reads matplotlib's elements and makes ours: fewer and shorter."""

    def __init__(self, key: str, hidden: frozenset[str]) -> None:
        self.key, self.hidden = key, hidden
        self.ids: dict[str, str] = {}

    def inside(self, node: ElementTree.Element, mark: str | None = None) -> list[ElementTree.Element]:
        return [part for child in node for part in self.element(child, mark)]

    def element(self, node: ElementTree.Element, mark: str | None) -> list[ElementTree.Element]:
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
        if (name == "g" and not attributes) or (name == "defs" and not parts):
            return parts
        made = ElementTree.Element(name, attributes)
        made.text = node.text if name in ("text", "tspan") else None
        made.extend(parts)
        return [made]

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
        digits = 1 if key == "d" and "z" not in value else 2  # of lines, which show less than shapes do
        value = re.sub(
            r"-?\d+\.\d+(?:e-?\d+)?", lambda match: f"{float(match[0]):.{digits}f}".rstrip("0").rstrip("."), value
        )
        return re.sub(r"\s*([A-Za-z])\s+", r"\1", value).strip() if key == "d" else value.removesuffix("px")

    def named(self, name: str) -> str:
        """A short id that no other figure of the page has."""
        return self.ids.setdefault(name, f"{self.key}-{len(self.ids)}")


def _shorten(group: ElementTree.Element) -> None:
    """Say once what the parts of a group have in common, and make one group of those side by side that say the same."""
    merged: list[ElementTree.Element] = []
    for part in group:
        if merged and part.tag == "g" == merged[-1].tag and part.attrib == merged[-1].attrib:
            merged[-1].extend(part)
        else:
            merged.append(part)
    for part in merged:
        _shorten(part)
    if group.tag == "g":
        _hoist(group, merged, ("clip-path",))
        # A mark that has a single part goes to that part.
        for k, part in enumerate(merged):
            if part.tag == "g" and len(part) == 1 and "data-of" in part.attrib and "clip-path" not in part.attrib:
                part[0].attrib |= part.attrib
                merged[k] = part[0]
        _hoist(group, merged, _INHERITED)
    group[:] = merged


def _hoist(group: ElementTree.Element, parts: list[ElementTree.Element], keys: Collection[str]) -> None:
    """Write on a group what most of its parts say, where all say something; those that say otherwise keep that."""
    drawn = [part for part in parts if part.tag != "defs"]
    for key in keys:
        said = Counter(part.get(key) for part in drawn)
        value, often = said.most_common(1)[0] if said else (None, 0)
        if value is None or None in said or often < 2 or key in group.attrib or (key == "clip-path" and len(said) > 1):
            continue
        group.set(key, value)
        for part in drawn:
            if part.get(key) == value:
                del part.attrib[key]


def _markup(part: ElementTree.Element) -> Html:
    own = {key: str(value) for key, value in part.items()}
    return tag(part.tag, Html(part.text or ""), *map(_markup, part), **own)


def _link(node: ElementTree.Element) -> str:
    return next(value for name, value in node.attrib.items() if name.endswith("href"))
