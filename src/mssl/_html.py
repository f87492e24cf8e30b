"""Markup that holds no foreign elements: a text becomes part of it by being escaped, and in no other way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape

JOINER = "\u200d"  # zero-width joiner: not printable, but emoji need it
_VOID = {"input", "img", "meta"}  # elements of HTML that hold nothing
_SHAPES = {"path", "use", "image", "rect"}  # elements of SVG that end at once where they hold nothing
_NAME = re.compile(r"(?!on|srcdoc)[a-zA-Z][a-zA-Z0-9.-]*")  # of elements and attributes, none of which runs a script
_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0, even as a number
_LINK = re.compile(r"#|https?://|data:image/png;base64,|[\w.-]+(?:/|$)")


class Html:
    """Markup made of texts, which are escaped, and of other markup.

    A `str` is a text, whatever it looks like. What takes markup refuses texts, and markup refuses to go into an
    f-string, so that nothing is escaped twice or never.

    Parameters
    ----------
    *parts : str or Html

    Examples
    --------
    >>> print(Html("a < b ", tag("b", Html("& c"))))
    a &lt; b <b>&amp; c</b>
    """

    __slots__ = ("_markup",)

    def __init__(self, *parts: str | Html) -> None:
        self._markup: str = "".join(part._markup if isinstance(part, Html) else _escaped(part) for part in parts)

    def join(self, parts: Iterable[Html]) -> Html:
        """The parts with this between them."""
        return _trusted(self._markup.join(map(_markup, parts)))

    def __bool__(self) -> bool:
        return bool(self._markup)

    def __str__(self) -> str:
        return self._markup

    def __format__(self, _: str) -> str:
        raise TypeError("Markup goes into no f-string; give its parts to Html(…) or tag(…).")


def tag(name: str, /, *children: Html, **attributes: str | float | bool | None) -> Html:
    """An element.

    Parameters
    ----------
    name : str
    *children : Html
        What it holds.
    **attributes : str, number, bool or None
        Those that Python or its syntax forbids end in an underscore or have one for a hyphen: ``class_``,
        ``data_key``. Values are escaped; True gives the name alone, None and False nothing.
    """
    if name in ("script", "style"):
        raise ValueError(f"{name} is no element that holds markup; use verbatim().")
    return _element(name, "".join(map(_markup, children)), attributes)


def verbatim(name: str, content: str, /, **attributes: str) -> Html:
    """A script or a style sheet of ours, which HTML reads as it stands; content that could end it is refused."""
    small = content.lower()
    if name not in ("script", "style") or f"</{name}" in small or ("<!--" in small and "<script" in small):
        raise ValueError(f"{name} is no script or style sheet, or its content could end it.")
    return _element(name, content, attributes)


def _element(name: str, inside: str, attributes: Mapping[str, str | float | bool | None]) -> Html:
    words = "".join(_attribute(key, value) for key, value in attributes.items())
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of an element.")
    if name in _VOID or (name in _SHAPES and not inside):
        return _trusted(f"<{name}{words}>" if name in _VOID else f"<{name}{words}/>")
    return _trusted(f"<{name}{words}>{inside}</{name}>")


def _attribute(key: str, value: str | float | bool | None) -> str:
    name = key.removesuffix("_").replace("_", "-")
    if not _NAME.fullmatch(name) or (name in ("href", "src") and not _LINK.match(str(value))):
        raise ValueError(f"{name!r} is no attribute that a page of ours has, or {value!r} no link to go to.")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{_escaped(str(value))}"'


def _markup(part: Html) -> str:
    if not isinstance(part, Html):
        raise TypeError(f"{str(part)[:60]!r} is no markup; make it a text with Html(…).")
    return part._markup


def _trusted(markup: str) -> Html:
    made = Html()
    made._markup = markup
    return made


def _escaped(text: str) -> str:
    """The text for HTML and XML 1.0, which cannot hold control characters or lone surrogates at all.

    Characters that they can hold but a terminal should not be shown are written as numbers.
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text.")
    clean = escape(text)
    if clean.isprintable():
        return clean
    return numbered(_ILLEGAL.sub("\ufffd", clean), keep="\t\n")


def numbered(text: str, keep: str) -> str:
    """Write characters that cannot be shown as numbers, as XML and HTML allow."""
    return "".join(c if c.isprintable() or c == JOINER or c in keep else f"&#{ord(c)};" for c in text)
