"""Markup is made by escaping alone: whatever text goes in comes out as that text, in HTML and in XML."""

from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mssl._html import Html, tag, verbatim

TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff") | st.sampled_from("<>&\"'`=/")
)


class Reader(HTMLParser):
    def __init__(self, markup):
        super().__init__()
        self.tags, self.words = [], ""
        self.feed(str(markup))
        self.close()

    def handle_starttag(self, name, attributes):
        self.tags.append((name, dict(attributes)))

    def handle_data(self, data):
        self.words += data


@given(TEXTS, TEXTS)
def test_a_text_stays_the_text_it_was(text, value):
    markup = tag("p", Html(text, " and ", tag("b", Html(text))), title=value, data_x=0)
    read = Reader(markup)
    assert read.tags == [("p", {"title": value, "data-x": "0"}), ("b", {})]
    assert read.words == f"{text} and {text}"
    root = ElementTree.fromstring(str(markup))
    assert (root.text, root[0].text or "", root.get("title")) == (f"{text} and ", text, value)


@given(st.text())
def test_what_no_document_can_hold_is_replaced(text):
    ElementTree.fromstring(str(tag("p", Html(text), title=text)).encode())


@pytest.mark.parametrize("text", ["<b>x</b>", "x", ""])
def test_a_raw_text_is_no_markup(text):
    for use in (lambda: tag("p", text), lambda: Html().join([text]), lambda: f"<p>{Html(text)}</p>"):
        with pytest.raises(TypeError):
            use()
    with pytest.raises(TypeError):
        Html(text) + text
    with pytest.raises(TypeError):
        Html(3)
    assert str(Html(Html(text))) == str(Html(text))  # escaped once


@pytest.mark.parametrize(
    "make",
    [
        lambda: tag("p onclick=x"),
        lambda: tag("p", onclick="x"),
        lambda: tag("p", **{"a b": "x"}),
        lambda: tag("iframe", srcdoc="x"),
        lambda: tag("a", href="javascript:x"),
        lambda: tag("a", href="//elsewhere"),
        lambda: tag("img", src="data:x"),
        lambda: tag("script", Html("x")),
        lambda: verbatim("p", "x"),
        lambda: verbatim("script", "'</SCRIPT>'"),
        lambda: verbatim("style", "</style>"),
        lambda: verbatim("script", "'<!--', '<Script>'"),
    ],
)
def test_what_could_act_is_refused(make):
    with pytest.raises(ValueError, match="is no"):
        make()


def test_links_scripts_and_bare_names_are_written():
    assert (
        str(tag("a", href="#tasks", hidden=True, title=None, class_="skip"))
        == '<a href="#tasks" hidden class="skip"></a>'
    )
    assert str(tag("img", src="figure.svg")) == '<img src="figure.svg">'
    assert str(verbatim("script", "a < b && c", id="x")) == '<script id="x">a < b && c</script>'
