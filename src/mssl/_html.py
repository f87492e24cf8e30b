"""Safe HTML and SVG markup: all texts are escaped before they become part of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape

JOINER = "\u200d"  # The zero-width joiner is not printable, but emoji need it.
_VOID = {"input", "img", "meta"}  # HTML elements that never have content
_SHAPES = {"path", "use", "image", "rect"}  # SVG elements that close themselves if they have no content
_NAME = re.compile(r"(?!on|srcdoc)[a-zA-Z][a-zA-Z0-9.-]*")  # names of elements and attributes that run no script
_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # illegal in XML 1.0 even as a number
_LINK = re.compile(r"#|https?://|data:image/png;base64,|[\w.-]+(?:/|$)")


class Html:
    """Markup, made of texts, which are escaped, and of other markup.

    Every `str` is a text, even if it looks like markup. Functions that take markup refuse texts, and markup refuses to
    be formatted in an f-string. So no text is escaped twice or left unescaped.

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
        """Join parts with this markup between them."""
        return _trusted(self._markup.join(map(_markup, parts)))

    def __bool__(self) -> bool:
        return bool(self._markup)

    def __str__(self) -> str:
        return self._markup

    def __format__(self, _: str) -> str:
        raise TypeError("Markup cannot be formatted in an f-string; give its parts to Html(…) or tag(…).")


def tag(name: str, /, *children: Html, **attributes: str | float | bool | None) -> Html:
    """Make an element.

    Parameters
    ----------
    name : str
        Name of the element.
    *children : Html
        Content of the element.
    **attributes : str, number, bool or None
        Attributes. A name that Python reserves ends in an underscore (``class_``), and underscores stand for hyphens
        (``data_key``). Values are escaped. True writes the name alone, and None and False write nothing.
    """
    if name in ("script", "style"):
        raise ValueError(f"{name} is not an element that holds markup; use verbatim().")
    return _element(name, "".join(map(_markup, children)), attributes)


def verbatim(name: str, content: str, /, **attributes: str) -> Html:
    """Make a script or a style sheet from this package's own text, unescaped; content that could end it raises."""
    small = content.lower()
    if name not in ("script", "style") or f"</{name}" in small or ("<!--" in small and "<script" in small):
        raise ValueError(f"{name} is not a script or style sheet, or its content could end it.")
    return _element(name, content, attributes)


def _element(name: str, inside: str, attributes: Mapping[str, str | float | bool | None]) -> Html:
    words = "".join(_attribute(key, value) for key, value in attributes.items())
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name of an element.")
    if name in _VOID or (name in _SHAPES and not inside):
        return _trusted(f"<{name}{words}>" if name in _VOID else f"<{name}{words}/>")
    return _trusted(f"<{name}{words}>{inside}</{name}>")


def _attribute(key: str, value: str | float | bool | None) -> str:
    name = key.removesuffix("_").replace("_", "-")
    if not _NAME.fullmatch(name) or (name in ("href", "src") and not _LINK.match(str(value))):
        raise ValueError(f"{name!r} is not an allowed attribute, or {value!r} is not an allowed link.")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{_escaped(str(value))}"'


def _markup(part: Html) -> str:
    if not isinstance(part, Html):
        raise TypeError(f"{str(part)[:60]!r} is not markup; make it a text with Html(…).")
    return part._markup


def _trusted(markup: str) -> Html:
    made = Html()
    made._markup = markup
    return made


def _escaped(text: str) -> str:
    """Escape a text for HTML and XML 1.0, which cannot hold control characters or lone surrogates.

    Other characters that are not printable are written as numbers.
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is not a text.")
    clean = escape(text)
    if clean.isprintable():
        return clean
    return numbered(_ILLEGAL.sub("\ufffd", clean), keep="\t\n")


def numbered(text: str, keep: str) -> str:
    """Write characters that are not printable as numbers, as XML and HTML allow."""
    return "".join(c if c.isprintable() or c == JOINER or c in keep else f"&#{ord(c)};" for c in text)
