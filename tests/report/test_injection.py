"""Forty hostile names in every place that a user's names reach: they are shown, and do nothing, in a real browser."""

import functools
import http.server
import re
import threading
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("selenium")

from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from test_browser import browser  # noqa: F401 - a fixture
from test_report import fake

from mssl import MSSLRegressor, TaskGraph, report
from mssl.estimators.fitted import FittedAttributes
from mssl.estimators.summary import Summary
from mssl.graph.geometry import graph_svg
from mssl.graph.tables import Relation, RelationTable
from mssl.graph.task_graph import short_name
from mssl.report import page

#: Names that ask the page's own server for /h, or set ``window.hit``, where they are taken for markup or code: most of
#: them in 24 letters, to which names are cut in the narrowest places.
NASTY = [
    "<iframe srcdoc=<b>hi>", '<iframe srcdoc="<script>top.hit=1</script>"></iframe>', "<iframe src=/h>",
    "<meta http-equiv=refresh content=0;url=/h>", "<script>hit=1</script>", "<script src=/h></script>",
    "</script><script>hit=1</script>", "<img src=/h>", "<img src onerror=hit=1>", "<svg/onload=hit=1>",
    "<svg><script>hit=1</script>", "<svg><image href=/h />", "</title><img src=/h>", "</style><img src=/h>",
    "</table></section></main></body><script>hit=1</script>", '" autofocus onfocus="hit=1', "' autofocus onfocus='hit=1",
    '"><img src=/h>', "'><img src=/h>", "` onmouseover=hit=1 `", "javascript:hit=1", "<a href=javascript:hit=1>",
    "<base href=/h/>", "<link rel=stylesheet href=/h>", "<style>@import '/h';</style>", "}*{display:none;background:url(/h)}",
    "<template><img src=/h>", "<form action=/h><input autofocus onfocus=hit=1>", "<object data=/h><embed src=/h>",
    "<details open ontoggle=hit=1>", "<video src=/h onerror=hit=1>", "<!-- hides the rest", "--><![CDATA[ ]]> <?xml?> <!DOCTYPE x>",
    "<plaintext>", "&lt;b&gt; &#60;b&#62; &amp;lt; &e;", "\x00\x01\x1b[31m\x7f\x85 <b>control</b>",
    "\u202eevil\u2066 <b>bidi</b> \ud800\udfff", "\u2028hit=1\u2029//", "${hit=1} {{7*7}} @name $$\\frac12$$ \\(x\\)",
    "<b>" + "long" * 3000,
]  # fmt: skip


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder on the loopback and keeps what it was asked for."""

    def __init__(self, folder) -> None:
        self.asked = []
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
        self.home = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {".html": "text/html", ".svg": "image/svg+xml", ".graphml": "application/xml"}  # noqa: RUF012

    def log_message(self, *_) -> None: ...

    def send_head(self):
        self.server.asked.append(self.path)
        return super().send_head()


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def graph_of(names):
    return TaskGraph.from_edges([(a, b, 0.5) for a, b in pairwise(names)], tasks=names)


def report_page(names, folder):
    """A report with every name as task, column, level, group of settings, heading and title."""
    K, at = len(names), np.arange(len(names), dtype=float)
    levels = np.array(names, dtype=object)

    def effect(feature, task=None):
        x = levels if feature == names[0] else at
        return SimpleNamespace(feature=feature, x=x, effect=at, lower=at - 1, upper=at + 1)

    learned = fake(K, K, names).fitted_
    table = SimpleNamespace(task=names[0], target=names[1], missing=names[2])
    encoder = SimpleNamespace(has_categories=True)
    given = {"features": levels, "encoder": encoder, "column_quantiles": np.zeros((2, K)), "table": table}
    given = replace(learned.input, layout=names[3], **given)
    result = SimpleNamespace(relative_gap=1e-9, status=names[4], history=[], objective=0.0)
    methods = {
        "get_params": lambda self, deep: {name: name for name in names},
        "column_relevance": lambda self: dict(zip(names, K - at, strict=True)),
        "partial_effect": lambda self, *asked: effect(*asked),
        "predict": lambda self, X, tasks: np.zeros(len(X)),
    }
    model = type(names[3], (FittedAttributes,), methods)()
    model.fitted_ = replace(learned, input=given, result=result)
    others = [{"task": name, "gain": k - 9.0, **dict.fromkeys(names, 1.0)} for k, name in enumerate(names)]
    strangers = [f"{name}!" for name in names]
    rows = (np.zeros((K + 5, K)), np.ones(K + 5), np.array([*names, *strangers[:5]], dtype=object))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mssl.report.content.most_relevant", lambda model: list(model.column_relevance()))
        # Every column has its frame and caption; drawings, which take time, only the first two.
        drawn, draw = {}, page.svg

        def once(figure, key, *words):
            key = "effect" if key.startswith("effect-") and key != "effect-0" else key
            return drawn.setdefault(key, None) or drawn.update({key: draw(figure, key, *words)}) or drawn[key]

        patch.setattr(page, "svg", once)
        more = {"data": rows, "held_out": True, "coordinates": np.column_stack([at, at]), "title": "".join(names[:3])}
        patch.setattr("mssl.plots.maps.coastlines", lambda *_: ())
        stability = ([1.0, 0.5], np.full((2, K, K), 0.5), 0.4)
        return report.write(model, folder / "page.html", transfer=others, stability=stability, **more)


def notebook(names, folder):
    """What a notebook shows of tables, graphs, summaries, fitted models and pipelines, one below the other."""
    rng = np.random.default_rng(0)
    X, y, tasks = rng.normal(size=(120, 2)), rng.normal(size=120), np.repeat(np.array(names, dtype=object), 3)
    model = MSSLRegressor(graph_penalty=0.01).fit(X, y, tasks=tasks)
    steps = [(name, FunctionTransformer(kw_args={"name": name})) for name in names]
    graph = graph_of(names)
    relations = RelationTable(
        [Relation(a, b, 0.5, 0.4, 0.6, 0.01, 0.02, 0.99) for a, b in pairwise(names)],
        *("task", 0.1, 780, names[0]),
    )
    shown = [graph, relations, model, MSSLRegressor(task_column=names[0]), Pipeline([*steps, ("model", model)])]
    some = Summary(
        names[0], [(n, n) for n in names], np.array(names, dtype=object), np.array([names[5]], dtype=object),
        np.zeros((len(names), 1)), None, None, None, 0.9, relations, names,
    )  # fmt: skip
    tables = [edges._repr_html_() for edges in (graph.support()[k : k + 13] for k in (0, 13, 26))]
    text = "\n".join(["<!DOCTYPE html><meta charset=utf-8><title>x</title>", *tables, some._repr_html_()])
    text += "\n".join([*(each._repr_html_() for each in shown), "<p id=last>end</p>"])
    path = folder / "page.html"
    path.write_bytes(text.encode(errors="backslashreplace"))
    return path


def graphml(names, folder):
    graph_of(names).to_graphml(folder / "page.graphml")
    return folder / "page.graphml"


def svg(names, folder):
    (folder / "page.svg").write_bytes(str(graph_svg(graph_of(names))).encode(errors="backslashreplace"))
    return folder / "page.svg"


SKELETON = """return [...document.querySelectorAll("*")]
    .map((e) => [e.tagName, ...[...e.attributes].map((a) => a.name)].join(" "))"""
TEXTS = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"


@pytest.mark.parametrize("write", [report_page, notebook, graphml, svg], ids=lambda write: write.__name__)
def test_hostile_names_are_shown_and_do_nothing(browser, server, tmp_path, write):  # noqa: F811
    hostile = NASTY
    assert len(set(hostile)) == 40
    skeletons = []
    # Names of the same length, since names that are drawn need room.
    harmless = [re.sub(r"[^a-z0-9]", "x", f"{k:02}{short_name(name, 200)[2:]}") for k, name in enumerate(hostile)]
    for names in (harmless, hostile):
        path = write(names, tmp_path)
        server.asked.clear()
        url = f"{server.home}/{path.name}?{len(skeletons)}"
        if write is report_page:
            browser.open(SimpleNamespace(as_uri=lambda url=url: url))
        else:
            browser.driver.get("about:blank")
            browser.driver.get_log("browser")
            browser.driver.get(url)
        skeletons.append(browser.run(SKELETON))
        # Nothing but the page was asked for, nothing of a name ran, and the page is whole.
        assert [asked for asked in server.asked if asked != "/favicon.ico"] == [url.removeprefix(server.home)]
        entries = browser.run("return performance.getEntriesByType('resource').map((e) => e.name)")
        assert [entry for entry in entries if not entry.endswith("/favicon.ico")] == []
        assert browser.run("return [window.hit, window.frames.length, location.pathname]") == [
            *(None, 0, f"/{path.name}")
        ]
        assert [each for each in browser.complaints() if "favicon" not in each] == []
    assert skeletons[0] == skeletons[1]  # the same elements with the same attributes as for harmless names
    if write is report_page:
        assert browser.run(TEXTS, "#task-table tbody button") != []
        shown = {short_name(name, 60) for name in hostile}
        assert set(browser.run(TEXTS, "#task-table tbody button")) == shown
        captions = browser.run(TEXTS, "#effects figcaption")
        assert [c.rsplit(":", 1)[0] for c in captions] == [short_name(name, 60) for name in hostile]
        assert browser.run("return document.title") == short_name("".join(hostile[:3]), 200).strip()
        assert browser.run("return document.querySelector('main').lastElementChild.id") == "record"
    if write is notebook:
        assert browser.run(TEXTS, "#last") == ["end"]
        assert {short_name(name) for name in hostile} <= set(browser.run(TEXTS, "td"))
    if write is graphml:
        texts = browser.run("return [...document.querySelectorAll('node > data')].map((e) => e.textContent)")
        assert [text.replace("\ufffd", "") for text in texts] == [
            "".join(c for c in name if c >= " " and not "\ud800" <= c <= "\udfff") for name in hostile
        ]
    if write is svg:
        assert browser.run(TEXTS, "circle > title") == [short_name(name, 60) for name in hostile]
