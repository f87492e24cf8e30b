"""What the report page does in a browser: hovering, sliders, linked selection, search; and that it asks for nothing."""

import io
import json
import os
import shutil
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("selenium")

from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from test_report import HOSTILE, SECTIONS, fake, thousand_tasks

from mssl import MSSLRegressor, report
from mssl.datasets import make_clustered_tasks

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1200,900",
]  # fmt: skip
#: The script of axe-core (npm install axe-core), where it is there: it looks for barriers.
AXE = next(
    (
        path
        for path in (Path(os.environ.get("MSSL_AXE", "")), Path("node_modules/axe-core/axe.min.js"))
        if path.is_file()
    ),
    None,
)
#: Words of pictures that are cut, or that another covers.
CUT_WORDS = """const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    return [...document.querySelectorAll(".plot svg")].flatMap((svg) => {
      const whole = svg.getBoundingClientRect(), words = [...svg.querySelectorAll("text")].filter((t) => t.getBoundingClientRect().width > 0);
      const boxes = words.map((t) => t.getBoundingClientRect()), level = words.map((t) => !t.hasAttribute("transform"));
      return words.filter((t, k) => boxes[k].left < whole.left - 2 || boxes[k].right > whole.right + 2
        || boxes[k].top < whole.top - 2 || boxes[k].bottom > whole.bottom + 2
        || boxes.some((box, l) => l < k && level[k] && level[l] && over(box, boxes[k])))
        .map((t) => [svg.parentElement.id, t.textContent]);
    })"""


class Browser:
    """A page in headless Chromium, with what the tests ask of it."""

    def __init__(self, driver) -> None:
        self.driver = driver

    def open(self, path: Path) -> float:
        """Open a page and return the seconds from navigation until it is interactive."""
        self.driver.get("about:blank")
        for kind in ("browser", "performance"):
            self.driver.get_log(kind)
        self.driver.get(path.as_uri())
        end = time.monotonic() + 60
        while time.monotonic() < end:
            ready = self.run("return document.documentElement.dataset.ready")
            if ready is not None:
                return float(ready) / 1000
            time.sleep(0.05)
        raise AssertionError("the page did not become ready")

    @contextmanager
    def screen(self, width: int, scheme: str, media: str = "screen"):
        """A screen of that width whose owner likes it light or dark."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        liked = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", liked | {"media": media})
        yield
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [], "media": ""})

    def run(self, code: str, *arguments):
        return self.driver.execute_script(code, *arguments)

    def find(self, selector: str):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def complaints(self) -> list[str]:
        """Warnings and errors of the console."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def requests(self) -> list[str]:
        """Everything that the page asked for, but for itself and what it holds inside."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("data:", "blob:", "about:"))]

    def point(self, selector: str, x: float = 0.5, y: float = 0.5, click: bool = False) -> None:
        """Move the mouse to a place in an element, in shares of its box or, of a line, of its length; maybe click."""
        at = self.run(
            """const e = document.querySelector(arguments[0]), [x, y] = [arguments[1], arguments[2]];
            e.closest(".plot").scrollIntoView({block: "center"});
            if (e.closest(".edges") !== null) {
              const p = e.getPointAtLength(x * e.getTotalLength()).matrixTransform(e.getScreenCTM());
              return [p.x, p.y];
            }
            const box = e.getBoundingClientRect();
            return [box.left + x * box.width, box.top + y * box.height];
            """,
            *(selector, x, y),
        )
        kinds = ["mouseMoved", "mousePressed", "mouseReleased"] if click else ["mouseMoved"]
        for kind in kinds:
            press = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": at[0], "y": at[1], **press})

    def wait(self, code: str, *arguments):
        """Return what the code gives as soon as it is neither null nor false nor empty."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            found = self.run(code, *arguments)
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"still nothing after 10 s: {code}")

    def told(self, text: str) -> str:
        """Wait until that text stands beside the pointer, and return all that stands there."""
        code = "const tip = document.getElementById('tip'); return tip.checkVisibility() && tip.textContent"
        return self.wait(f"{code}.includes(arguments[0]) && tip.textContent", text)

    def chosen(self) -> list[int]:
        """Tasks that the table marks as selected."""
        rows = self.driver.find_elements(By.CSS_SELECTOR, "#task-table tr.chosen")
        return sorted(int(row.get_attribute("data-tasks")) for row in rows)

    def selected(self, part: str = "#plot-graph .tasks") -> list:
        """Marks of what a picture shows as selected."""
        found = self.run(f"return [...document.querySelectorAll('{part} .chosen')].map((e) => e.dataset.of)")
        return sorted(tuple(map(int, mark.split())) if " " in mark else int(mark) for mark in found)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    yield Browser(driver)
    driver.quit()


@pytest.fixture(scope="module")
def fitted():
    problem = make_clustered_tasks(random_state=0)
    model = MSSLRegressor(0.4).fit(problem.X, problem.y, tasks=problem.tasks)
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1.0, (13, 13))
    graph = model.graph_
    model.graph_ = type(graph)(
        graph.tasks, graph.adjacency, graph.weights, (confidence + confidence.T) / 2, rng.uniform(-40, 40, (13, 2))
    )
    return model, problem


@pytest.fixture(scope="module")
def path(fitted, tmp_path_factory):
    model, problem = fitted
    lambdas = np.geomspace(1, 0.1, 5)
    frequencies = np.abs(model.partial_correlation_)[None] ** lambdas[:, None, None]
    coast = np.array([[-30.0, -30.0], [30.0, -20.0], [30.0, 30.0]])
    with pytest.MonkeyPatch.context() as patch:
        # Unpacking the real coastlines takes seconds and a gigabyte; they have tests of their own.
        patch.setattr("mssl.plots.maps.coastlines", lambda *_: (coast,))
        return report.write(
            model,
            tmp_path_factory.mktemp("page") / "report.html",
            data=(problem.X_test, problem.y_test, problem.tasks_test),
            transfer={name: 3.0 - k for k, name in enumerate(model.tasks_.tolist())},
            stability=(lambdas, frequencies, 0.5),
        )


@pytest.fixture
def page(browser, path):
    browser.open(path)
    return browser


def test_everything_is_drawn_and_nothing_is_asked_for(browser, path):
    browser.open(path)
    assert browser.run("return [...document.querySelectorAll('section')].map((s) => s.id)") == [
        *SECTIONS[:9],
        "map",
        *SECTIONS[9:],
    ]
    pictures = browser.driver.find_elements(By.CSS_SELECTOR, ".plot")
    assert len(pictures) == 10
    for picture in filter(lambda each: each.is_displayed(), pictures):
        image = Image.open(io.BytesIO(picture.screenshot_as_png))
        assert len(image.getcolors(1 << 20)) > 20
    assert browser.complaints() == []
    assert browser.requests() == [path.as_uri()]


def rows_of(page, key="relations-0"):
    data = page.run("return JSON.parse(document.getElementById('report-data').textContent).pictures")
    return data[key]["rows"]


def test_hovering_names_tasks_edges_and_cells(page, fitted):
    model, _ = fitted
    page.point("#plot-graph .tasks [data-of='2']")
    assert f"{int(model.graph_.degree()[2])} neighbours" in page.told("task 03")
    i, j = (int(ends[0]) for ends in model.graph_.edge_indices())
    page.point(f"#plot-graph .edges [data-of='{min(i, j)} {max(i, j)}']", 0.45)
    words = page.told(" – ".join(model.tasks_[[min(i, j), max(i, j)]]))
    assert f"partial correlation {model.graph_.weights[i, j]:.3f}" in words
    rows = rows_of(page)
    page.point("#plot-relations-0 .cells", 1.5 / 13, 0.5 / 13)
    words = page.told(f"{model.tasks_[rows[0]]}{model.tasks_[rows[1]]}")
    value = float(words.split("partial correlation ")[1])
    assert value == pytest.approx(model.partial_correlation_[rows[0], rows[1]], abs=1e-3)
    page.point("#plot-coefficients-0 .cells", 4.5 / 30, 0.5 / 13)
    words = page.told(f"{model.tasks_[rows[0]]}x4coefficient ")
    assert float(words.split("coefficient ")[1]) == pytest.approx(model.coef_[rows[0], 4], rel=1e-2)
    page.point("#plot-coefficients-0 .cells", -0.05, 1.2)
    page.wait("return document.getElementById('tip').hidden")


def test_sliders_leave_the_edges_that_pass(page, fitted):
    graph = fitted[0].graph_
    weights, confidence = (np.abs(m[graph.edge_indices()]) for m in (graph.weights, graph.confidence))
    slide = """const s = document.getElementById(arguments[0]); s.value = arguments[1];
        s.dispatchEvent(new Event("input"));
        const shown = (plot) => [...document.querySelectorAll(`#plot-${plot} .edges [data-of]`)].filter((e) => e.checkVisibility());
        if (shown("graph").length !== shown("chords").length) throw Error("the views differ");
        return shown("graph").length"""
    least, often = float(np.median(weights)) + 1e-9, 0.6
    assert page.run(slide, "min-weight", 0) == graph.n_edges
    assert page.run(slide, "min-weight", least) == (weights >= least).sum()
    assert page.run(slide, "min-confidence", often) == ((weights >= least) & (confidence >= often)).sum()
    shown = graph.threshold(least, often).n_edges
    assert page.find("#edge-count").text.startswith(f"{shown} of {graph.n_edges} lines shown")
    slider = page.find("#min-weight")
    before = float(slider.get_property("value"))
    slider.send_keys(Keys.ARROW_RIGHT)
    assert before < float(slider.get_property("value")) < before + weights.max() / 20


def test_a_task_selected_in_one_view_is_selected_in_all(page, fitted):
    graph = fitted[0].graph_
    task = 2
    near = {(min(task, k), max(task, k)) for k in np.flatnonzero(graph.adjacency[task]).tolist()}
    page.point("#plot-graph .tasks [data-of='2']", click=True)
    page.wait("return document.querySelectorAll('#task-table tr.chosen').length === 1")
    assert page.chosen() == page.selected() == page.selected("#plot-chords .tasks") == [task]
    assert set(page.selected("#plot-graph .edges")) == set(page.selected("#plot-chords .edges")) == near
    assert near <= set(page.selected("#plot-stability"))
    assert page.run("return document.querySelectorAll('#plot-relations-0 .strip').length") == 2
    assert "task 03" in page.find("#chosen").text
    page.find("#chosen button").click()
    assert page.chosen() == page.selected() == []
    page.find("#task-table tr[data-tasks='5'] button").send_keys(Keys.ENTER)
    assert page.chosen() == page.selected() == [5]
    assert page.find("#task-table tr[data-tasks='5'] button").get_attribute("aria-pressed") == "true"
    page.find("body").send_keys(Keys.ESCAPE)
    assert page.selected() == []


@pytest.mark.parametrize("part", ["#plot-chords .tasks", "#plot-map .tasks", "#plot-gains .bar"])
def test_the_other_views_select_too(page, part):
    page.point(f"{part} [data-of='4']", click=True)
    page.wait("return document.querySelectorAll('#task-table tr.chosen').length > 0")
    assert page.chosen() == page.selected() == [4]


def test_a_cell_selects_its_two_tasks(page):
    rows = rows_of(page)
    page.point("#plot-relations-0 .cells", 0.5 / 13, 3.5 / 13, click=True)
    page.wait("return document.querySelectorAll('#task-table tr.chosen').length > 0")
    assert page.chosen() == page.selected() == sorted([rows[0], rows[3]])


def test_heat_maps_switch_what_they_show(page, fitted):
    seen = "return ['plot-relations-0', 'plot-relations-1'].map((id) => document.getElementById(id).checkVisibility())"
    assert page.run(seen) == [True, False]
    page.find("#relations-layer-1").click()
    assert page.run(seen) == [False, True]
    rows = rows_of(page, "relations-1")
    page.point("#plot-relations-1 .cells", 1.5 / 13, 0.5 / 13)
    words = page.told("precision ")
    assert float(words.split("precision ")[1]) == pytest.approx(fitted[0].precision_[rows[0], rows[1]], rel=5e-3)


def test_without_scripts_all_but_the_controls_is_there(browser, path):
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.driver.get(path.as_uri())
        for picture in browser.driver.find_elements(By.CSS_SELECTOR, ".plot"):
            assert picture.is_displayed() == (not picture.get_attribute("id").endswith("-1"))
        assert not browser.find("#min-weight").is_displayed()
        browser.find("#relations-layer-1").click()
        assert browser.find("#plot-relations-1").is_displayed()
        assert not browser.find("#plot-relations-0").is_displayed()
        assert "JavaScript" in browser.find("noscript").text
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_table_is_searched_and_sorted(page, fitted):
    visible = "return [...document.querySelectorAll('#task-table tbody tr')].filter((r) => !r.hidden).map((r) => Number(r.dataset.tasks))"
    assert page.run(visible) == list(range(13))
    search = page.find("#task-search")
    search.send_keys("TASK 1")
    assert sorted(page.run(visible)) == [9, 10, 11, 12]
    assert page.find("#task-count").text == "4 of 13 tasks"
    search.clear()
    search.send_keys(" ", Keys.BACKSPACE)
    button = page.find("#task-table thead button[data-column='2']")
    assert button.text.startswith("RMSE")
    button.send_keys(Keys.ENTER)
    falling = page.run(visible)
    errors = [
        float(page.find(f"#task-table tr[data-tasks='{k}'] td[data-value]:nth-of-type(2)").get_attribute("data-value"))
        for k in falling
    ]
    assert errors == sorted(errors, reverse=True)
    assert page.find("#task-table thead th[aria-sort]").get_attribute("aria-sort") == "descending"
    button.send_keys(Keys.SPACE)
    assert page.run(visible) == falling[::-1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1400])
def test_every_screen_gets_the_whole_page(browser, path, width, scheme):
    with browser.screen(width, scheme):
        browser.open(path)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        # Tables may be scrolled; nothing else is cut.
        cut = browser.run(
            """const beyond = (e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".table, .skip");
            const narrow = (p) => p.scrollWidth > p.clientWidth + 1;
            return [...document.querySelectorAll("main *, header *")].filter(beyond).map((e) => e.outerHTML.slice(0, 80))
              .concat([...document.querySelectorAll(".plot")].filter(narrow).map((p) => p.id))"""
        )
        assert cut == []
        ink, paper = browser.run(
            "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor].map((c) => parseInt(c.slice(4)))"
        )
        assert (ink < 60 < 200 < paper) if scheme == "light" else (paper < 60 < 200 < ink)
        names = browser.run(
            "return ['wide', 'narrow'].map((look) => document.querySelector(`#plot-graph .${look}`).getBoundingClientRect().width > 0)"
        )
        assert names == [width > 600, width <= 600]
        assert browser.run(CUT_WORDS) == []
        if AXE is not None:
            browser.run(AXE.read_text(encoding="utf-8"))
            found = browser.driver.execute_async_script(
                "axe.run().then((r) => arguments[0](r.violations.map((v) => [v.impact, v.id, v.nodes[0].html])))"
            )
            assert [each for each in found if each[0] in ("serious", "critical")] == []
        assert browser.complaints() == []
        assert browser.requests() == [path.as_uri()]


def test_the_keyboard_reaches_everything(page):
    """Tabs from the top: the link past the head, every link, slider, switch, search field and table, in that order."""
    wanted = page.run(
        """return [...document.querySelectorAll("a, input:not([type=radio]:not(:checked)), .table, .linked button")]
        .filter((e) => e.checkVisibility()).map((e, k) => e.dataset.stop = String(k))"""
    )
    page.run("document.body.tabIndex = -1; document.body.focus()")
    reached = []
    for _ in range(3 * len(wanted)):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        stop, ring = page.run(
            "const e = document.activeElement; return [e.dataset.stop, getComputedStyle(e).outlineStyle]"
        )
        if stop is None and reached and len(reached) == len(wanted):
            break
        if stop is not None and stop not in reached:
            reached.append(stop)
            assert ring != "none"
    assert reached == wanted


def test_a_pair_selects_its_two_tasks(page, fitted):
    button = page.find("#pair-table tbody button")
    ends = sorted(int(k) for k in page.find("#pair-table tbody tr").get_attribute("data-tasks").split())
    button.send_keys(Keys.ENTER)
    assert page.chosen() == page.selected() == ends
    assert button.get_attribute("aria-pressed") == "true"
    button.send_keys(Keys.SPACE)
    assert page.selected() == []


def test_paper_gets_pictures(browser, path):
    with browser.screen(680, "light", media="print"):
        browser.open(path)
        edges = browser.run(
            """return [...document.querySelectorAll(".plot")].filter((p) => p.checkVisibility())
            .map((p) => p.firstElementChild.getBoundingClientRect()).map((box) => [box.left, box.right, box.height])"""
        )
        assert len(edges) == 8
        assert all(left >= 0 and right <= 680 and height > 50 for left, right, height in edges)
        assert not browser.find(".controls").is_displayed()


def test_hostile_names_run_nothing(browser, tmp_path):
    names = [*HOSTILE, "plain"]
    subject = fake(len(names), 3, names)
    subject.features_ = np.array(HOSTILE[:3], dtype=object)
    browser.open(report.write(subject, tmp_path / "report.html", title=HOSTILE[1], transfer=np.ones(len(names))))
    browser.point("#plot-graph .tasks [data-of='0']", click=True)
    assert browser.told("<script>alert(1)</script>")
    browser.point("#plot-coefficients-0 .cells")
    browser.wait("return !document.getElementById('tip').hidden")
    browser.find("#task-search").send_keys("onerror")
    assert browser.find("#task-count").text == f"1 of {len(names)} tasks"
    assert browser.run("return document.querySelectorAll('img, iframe').length") == 0
    assert browser.complaints() == []
    assert len(browser.requests()) == 1


@pytest.mark.parametrize("K", [1, 2])
def test_a_page_with_nothing_to_draw_still_works(browser, tmp_path, K):
    browser.open(report.write(fake(K, 1, edges=False), tmp_path / "report.html"))
    browser.find("#task-table tr[data-tasks='0'] button").click()
    assert browser.chosen() == [0]
    assert browser.complaints() == []


@pytest.mark.parametrize("K", [1, 2, 8, 30])
def test_words_in_pictures_have_room(browser, tmp_path, K):
    browser.open(report.write(fake(K, 3), tmp_path / "report.html", transfer=np.linspace(-3, 3, K)))
    assert browser.run(CUT_WORDS) == []
    assert browser.complaints() == []


def test_a_thousand_tasks_are_interactive(browser, tmp_path):
    browser.open(thousand_tasks(tmp_path / "report.html"))
    assert browser.complaints() == []
    browser.find("#task-search").send_keys("number 777")
    assert browser.find("#task-count").text == "1 of 1000 tasks"
    browser.find("#task-table tr[data-tasks='777'] button").click()
    assert browser.selected() == [777]
    assert browser.run("return document.querySelectorAll('#plot-graph .edges [data-of]').length") == 1000
    assert "of 19500 lines shown" in browser.find("#edge-count").text
    browser.find("#community-search").send_keys("number 777")
    assert browser.find("#community-count").text == "1 of 25 communities"
    browser.find("#community-table tbody tr:not([hidden]) button").click()
    assert len(browser.selected()) == 40
    assert 777 in browser.selected()
