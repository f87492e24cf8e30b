"""Figures as SVG inside a page, in which names stay text and each part refers to its task or edge."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from io import StringIO
from typing import Any
from xml.etree import ElementTree

from mssl._html import Html, tag
from mssl.plots.support import MARKS, OURS, matplotlib_module

PIXELS = 1.75  # Pixels per point of a figure on a wide screen: larger figures are easier to read and need more room.
_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_LINK = "{http://www.w3.org/1999/xlink}href"
# Attributes that are read apart, that the page's style sheet sets, or that change nothing.
_NEEDLESS = {"", "id", "style", _LINK, "font-family", "image-rendering", "stroke-dashoffset"}

# Attributes that parts inherit from their group.
_INHERITED = ("fill", "stroke", "stroke-opacity", "stroke-width", "stroke-linejoin", "font-size", "text-anchor")


def svg(figure: Any, key: str, alt: str, hidden: Collection[str] = ()) -> Html:
    """Return a figure as markup.

    Parameters
    ----------
    figure : matplotlib Figure
        The figure. The function changes it: its parts get links that name their tasks or edges.
    key : str
        Prefix of the ids, so that a page can hold several figures.
    alt : str
        Description of the figure in words.
    hidden : collection of str
        Marks of parts that are hidden at first.
    """
    figure.patch.set_visible(False)
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")
    for artist in figure.findobj():
        artist.set_path_effects([])  # Path effects would draw names as curves.
        if hasattr(artist, "set_interpolation"):
            artist.set_interpolation("none")  # Images keep their own pixels.
        marks = getattr(artist, MARKS, None)
        if marks and hasattr(artist, "set_urls"):
            artist.set_urls(marks)
        elif marks:
            artist.set_url(*marks)
    file = StringIO()
    with matplotlib_module().rc_context({"svg.fonttype": "none", "svg.hashsalt": key, "image.composite_image": False}):
        figure.savefig(file, format="svg", bbox_inches="tight", pad_inches=0.03)
    root = ElementTree.fromstring(file.getvalue())  # noqa: S314 - matplotlib wrote it
    drawing = _Reader(key, hidden).element(root)[0]
    box = root.get("viewBox", "")
    width = str(round(PIXELS * float(box.split()[2])))
    drawing.attrib = {"viewBox": box, "width": width, "role": "img", "aria-label": alt}
    return _markup(drawing)


class _Reader:
    """Converter of matplotlib's elements into fewer and shorter ones."""

    def __init__(self, key: str, hidden: Collection[str]) -> None:
        self.key, self.hidden = key, hidden
        self.ids: dict[str, str] = {}

    def element(self, node: ElementTree.Element, mark: str | None = None) -> list[ElementTree.Element]:
        """The element, or only its parts if it adds nothing itself; `mark` is the link around it."""
        name = node.tag.rpartition("}")[2]
        if name in ("metadata", "style"):  # matplotlib's name and date, and a style for everything
            return []
        if name == "a":
            return [part for child in node for part in self.element(child, node.get(_LINK))]
        made = ElementTree.Element(name)
        made.extend(part for child in node for part in self.element(child))
        made.attrib = self.attributes(node, name)
        if mark is not None:
            made.attrib |= {"data-of": mark} | ({"class": "off"} if mark in self.hidden else {})
        if (name == "g" and not made.attrib) or (name == "defs" and not len(made)):
            return list(made)
        if name == "g" and len(made) == 1 and mark is not None:
            made[0].attrib |= made.attrib
            return list(made)
        if name == "g":
            _hoist(made)
        made.text = node.text if name in ("text", "tspan") else None
        return [made]

    def attributes(self, node: ElementTree.Element, name: str) -> dict[str, str]:
        """Visible attributes and styles, as attributes."""
        style = (part.partition(":") for part in node.get("style", "").split(";"))
        given = dict(node.attrib) | {key.strip(): value.strip() for key, _, value in style}
        found = {key: self.value(key, value) for key, value in given.items() if key not in _NEEDLESS}
        target, own = node.get(_LINK, ""), node.get("id", "")
        if target:
            found["href"] = f"#{self.named(target[1:])}" if target.startswith("#") else target
        if own.startswith(OURS):
            found["class"] = own.removeprefix(OURS)
        elif name != "g" and own:
            found["id"] = self.named(own)
        return {key: value for key, value in found.items() if value}

    def value(self, key: str, value: str) -> str:
        """The value of an attribute in few characters; empty if it has no effect."""
        if value.startswith("rotate(-0 "):
            return ""
        if key == "transform" and not value.startswith("rotate"):
            return value  # Images need all digits.
        if key == "d" and "L" in value and re.fullmatch(r"[ML\s\d.e-]+", value):
            return "".join(map(_by_steps, value.split("M")[1:]))
        value = re.sub(r"url\(#(\w+)\)", lambda match: f"url(#{self.named(match[1])})", value)
        digits = 1 if key == "d" and "z" not in value else 2  # Lines need fewer digits than shapes.
        value = _NUMBER.sub(lambda match: f"{float(match[0]):.{digits}f}".rstrip("0").rstrip("."), value)
        return re.sub(r"\s*([A-Za-z])\s+", r"\1", value).strip() if key == "d" else value.removesuffix("px")

    def named(self, name: str) -> str:
        """A short id that is unique in the page."""
        return self.ids.setdefault(name, f"{self.key}-{len(self.ids)}")


def _by_steps(line: str) -> str:
    """A line from point to point in tenths, each point relative to the one before."""
    tenths = [round(10 * float(number)) for number in re.findall(r"[-\d.]+(?:e-?\d+)?", line)]
    steps = [end - start for start, end in zip(tenths, tenths[2:], strict=False)]
    first, others = (" ".join(f"{tenth / 10:g}" for tenth in part) for part in (tenths[:2], steps))
    return re.sub(r"\b0\.", ".", f"M{first}l{others}").replace(" -", "-")


def _hoist(group: ElementTree.Element) -> None:
    """Move the most common value of each attribute from the parts to their group, if every part has a value."""
    drawn = [part for part in group if part.tag != "defs"]
    for key in ("clip-path", *_INHERITED):
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
