"""What the figures say: labels, counts, colours and limits, read from the artists rather than from pixels."""

import subprocess
import sys
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mssl import MSSLRegressor, StabilitySelection, plots
from mssl.datasets import make_clustered_tasks
from mssl.exceptions import DataError, ParameterError
from mssl.graph.geometry import NEGATIVE, POSITIVE, task_order
from mssl.graph.task_graph import TaskGraph
from mssl.model_selection import regularization_path
from mssl.plots.maps import draw_fields

HOSTILE = ["<script>alert(1)</script>", "$x_1$ and $", "a" * 10_000, "مرحبا", "👩‍🔬", "two\nlines", "\\frac{1}{2}", " "]
LAMBDAS = np.geomspace(1, 0.01, 12)


def block_graph(K=12, weight=0.4, **more):
    """Two groups of tasks, each fully joined, the second with negative edges."""
    half = K // 2
    names = [f"task {k}" for k in range(K)]
    edges = [(names[i], names[j], weight if i < half else -weight / 2) for i, j in combinations(range(K), 2)]
    inside = [e for e in edges if (int(e[0][5:]) < half) == (int(e[1][5:]) < half)]
    return TaskGraph.from_edges(inside, names, **more)


def model(K=12, d=5):
    rng = np.random.default_rng(0)
    graph = block_graph(K, weight=2 / K - 1e-3)  # as strong as a positive definite precision allows
    precision = np.eye(K) * 2 - graph.weights * 2
    records = [
        SimpleNamespace(objective=10 + 2.0**-k, gap_weights=10.0**-k, gap_structure=None, seconds=k) for k in range(6)
    ]
    return SimpleNamespace(
        coef_=rng.normal(size=(K, d)),
        precision_=precision,
        partial_correlation_=graph.weights + np.eye(K),
        graph_=graph,
        tasks_=graph.tasks,
        history_=records,
        feature_names_in_=[f"feature {k}" for k in range(d)],
        fit=None,
    )


def drawn_texts(ax):
    return [text.get_text() for text in ax.texts]


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def lines_of(ax):
    return next(c for c in ax.collections if isinstance(c, LineCollection))


def render(ax):
    """Draw for real, so that a warning about a missing glyph or bad mathematics becomes an error."""
    ax.figure.canvas.draw()


def overlaps(ax):
    """Count pairs of names that cover each other once drawn."""
    render(ax)
    spots = [text.get_window_extent() for text in ax.texts]
    return sum(first.overlaps(second) for first, second in combinations(spots, 2))


CALLS = {
    "graph": lambda ax: plots.plot_graph(block_graph(), ax),
    "precision": lambda ax: plots.plot_precision(block_graph(), ax),
    "chord": lambda ax: plots.plot_chord(block_graph(), ax),
    "map": lambda ax: plots.plot_map(block_graph(coordinates=np.tile([1.0, 2.0], (12, 1))), ax, coast=False),
    "coefficients": lambda ax: plots.plot_coefficients(np.eye(3), ax),
    "path": lambda ax: plots.plot_path(LAMBDAS, np.outer(1 - LAMBDAS, np.arange(9)), ax),
    "stability": lambda ax: plots.plot_stability(LAMBDAS, np.outer(1 - LAMBDAS, [0.1, 1.0]), ax),
    "convergence": lambda ax: plots.plot_convergence(model(), ax),
    "transfer": lambda ax: plots.plot_transfer([3.0, -1.0], ax),
    "box": lambda ax: plots.plot_box({"OLS": np.arange(12.0).reshape(4, 3)}, ax),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_figure_draws_on_the_axes_given_and_makes_its_own_otherwise(name):
    given = Figure().subplots()
    assert CALLS[name](given) is given
    own = CALLS[name](None)
    assert own is not given
    render(given)
    render(own)


def test_no_figure_is_left_to_pyplot():
    code = (
        "import sys, numpy as np, mssl.plots as p; from mssl.graph.task_graph import TaskGraph;"
        "assert 'matplotlib' not in sys.modules;"
        "p.plot_graph(TaskGraph.from_edges([('a', 'b')])).figure.canvas.draw();"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Graph and chord


def test_graph_shows_every_task_and_edge_with_its_sign():
    ax = plots.plot_graph(block_graph())
    assert set(drawn_texts(ax)) == {f"task {k}" for k in range(12)}
    assert legend(ax) == ["positive", "negative"]
    lines = lines_of(ax)
    colors = [to_hex(color) for color in lines.get_edgecolors()]
    assert (colors.count(POSITIVE.lower()), colors.count(NEGATIVE.lower())) == (15, 15)
    assert lines.get_linewidths()[-1] == max(lines.get_linewidths())
    points = next(c for c in ax.collections if isinstance(c, PathCollection))
    assert len(points.get_offsets()) == 12
    assert len({to_hex(color) for color in points.get_facecolors()}) == 2
    assert ax.get_xlabel() == ""


@pytest.mark.parametrize("K", [13, 46, 120])
def test_names_in_the_graph_never_overlap_and_missing_ones_are_counted(K):
    ring = TaskGraph.from_edges([(f"location {k}", f"location {(k + 1) % K}", 0.5) for k in range(K)])
    ax = plots.plot_graph(ring)
    assert overlaps(ax) == 0
    shown = len(ax.texts)
    assert shown == K or f"{shown} of {K} tasks named" in ax.get_xlabel()
    box = ax.get_window_extent()
    assert all(box.x0 - 3 <= t.get_window_extent().x0 and t.get_window_extent().x1 <= box.x1 + 3 for t in ax.texts)


def test_a_dense_graph_is_thinned_with_a_note():
    full = TaskGraph.from_edges([(i, j, 0.001 * (i + j + 1)) for i, j in combinations(range(30), 2)])
    for plot in (plots.plot_graph, plots.plot_chord):
        ax = plot(full, max_edges=50)
        assert len(lines_of(ax).get_paths()) == 50
        assert "strongest 50 of 435 edges shown" in ax.get_xlabel()


def test_chord_names_tasks_around_the_circle_without_clipping_them():
    ax = plots.plot_chord(block_graph())
    assert len(drawn_texts(ax)) == 12
    assert overlaps(ax) == 0
    figure = ax.figure.bbox
    assert all(figure.x0 <= t.get_window_extent().x0 and t.get_window_extent().x1 <= figure.x1 for t in ax.texts)
    rim = [c for c in ax.collections if isinstance(c, LineCollection)][1]
    assert len(rim.get_segments()) == 12
    many = plots.plot_chord(TaskGraph.from_edges([(k, k + 1, 0.1) for k in range(400)]))
    assert not many.texts
    assert "too many to name" in many.get_xlabel()


@pytest.mark.parametrize("plot", [plots.plot_graph, plots.plot_chord, plots.plot_precision])
def test_hostile_names_are_drawn_as_text(plot):
    ax = plot(TaskGraph.from_edges([(HOSTILE[k], HOSTILE[k + 1], 0.3) for k in range(len(HOSTILE) - 1)]))
    render(ax)
    texts = drawn_texts(ax) + ticks(ax.yaxis)
    assert texts
    assert max(map(len, texts)) <= 24
    assert any(r"\$x" in text for text in texts)
    assert not any("\n" in text for text in texts)


@pytest.mark.parametrize("plot", [plots.plot_graph, plots.plot_chord, plots.plot_precision])
@pytest.mark.parametrize("K", [1, 2, 5])
def test_graphs_without_edges_are_drawn(plot, K):
    ax = plot(TaskGraph(range(K), np.zeros((K, K)), np.zeros((K, K))))
    render(ax)
    assert len(drawn_texts(ax)) == K or ticks(ax.yaxis) == [str(k) for k in range(K)]
    assert ax.get_legend() is None


@pytest.mark.parametrize("plot", [plots.plot_graph, plots.plot_chord])
def test_what_is_said_below_a_graph_is_not_cut(plot):
    data = make_clustered_tasks(random_state=0)
    ax = plot(MSSLRegressor(0.4).fit(data.X, data.y, tasks=data.tasks))
    assert "22 relations among 78 pairs" in ax.get_xlabel().replace("\n", " ")
    render(ax)
    words, figure = ax.xaxis.label.get_window_extent(), ax.figure.bbox
    assert figure.x0 <= words.x0
    assert words.x1 <= figure.x1


# Heat maps


def test_precision_is_centred_at_zero_ordered_and_labelled():
    fitted = model()
    ax = plots.plot_precision(fitted)
    image, bar = ax.images[0], ax.images[0].colorbar
    assert image.get_clim()[0] == -image.get_clim()[1] == -np.abs(fitted.graph_.weights).max()
    assert bar.ax.get_ylabel() == "partial correlation"
    order = task_order(fitted.graph_)
    assert ticks(ax.yaxis) == ticks(ax.xaxis) == [fitted.tasks_[k] for k in order]
    values = np.ma.filled(image.get_array(), np.nan)
    expected = fitted.graph_.weights[np.ix_(order, order)].copy()
    np.fill_diagonal(expected, np.nan)
    np.testing.assert_array_equal(values, expected)
    raw = plots.plot_precision(fitted, kind="precision", ordered=False)
    assert raw.images[0].colorbar.ax.get_ylabel() == "precision"
    off = ~np.eye(12, dtype=bool)
    np.testing.assert_array_equal(np.asarray(raw.images[0].get_array())[off], fitted.precision_[off])
    plain = plots.plot_precision(fitted.precision_, tasks=fitted.tasks_)
    assert ticks(plain.yaxis) == ticks(ax.yaxis)


def test_of_a_large_precision_every_cell_has_a_colour_where_it_stands():
    K = 700
    ring = TaskGraph.from_edges([(k, (k + 1) % K, 0.2) for k in range(K)])
    ax = plots.plot_precision(ring)
    image, order = ax.images[0], task_order(ring)
    left, right, bottom, top = image.get_extent()
    cells = np.ma.filled(image.get_array(), 0.0)
    assert max(cells.shape) <= 300
    at = np.column_stack([np.argsort(order)[list(ends)] for ends in ring.edge_indices()])
    tall, wide = (bottom - top) / cells.shape[0], (right - left) / cells.shape[1]
    rows, columns = ((at[:, 0] - top) // tall).astype(int), ((at[:, 1] - left) // wide).astype(int)
    assert (cells[rows, columns] == cells.max()).all()
    assert ax.get_ylabel() == "700 tasks, by community"
    assert ticks(ax.yaxis) == []


def test_a_graph_of_more_tasks_than_a_dense_matrix_holds_is_drawn():
    K = 2001
    ring = TaskGraph.from_edges([(k, (k + 1) % K, 0.2) for k in range(K)])
    assert not isinstance(ring.weights, np.ndarray)
    ax = plots.plot_precision(ring, ordered=False)
    assert np.nanmax(np.ma.filled(ax.images[0].get_array(), np.nan)) == 0.2


def test_coefficients_are_labelled_by_task_and_feature():
    fitted = model()
    ax = plots.plot_coefficients(fitted, label="coefficient (°C)")
    assert sorted(ticks(ax.yaxis)) == sorted(fitted.tasks_)
    assert ticks(ax.xaxis) == fitted.feature_names_in_
    assert ax.images[0].colorbar.ax.get_ylabel() == "coefficient (°C)"
    order = [fitted.tasks_.index(name) for name in ticks(ax.yaxis)]
    np.testing.assert_array_equal(np.asarray(ax.images[0].get_array()), fitted.coef_[order])


# Map


def test_map_joins_tasks_by_arcs_and_names_its_axes():
    places = np.column_stack([np.linspace(-30, 30, 12), np.linspace(280, 320, 12)])
    ax = plots.plot_map(block_graph(), coordinates=places, values=np.arange(12.0), label="RMSE (°C)", coast=False)
    points = next(c for c in ax.collections if isinstance(c, PathCollection))
    np.testing.assert_allclose(points.get_offsets(), np.column_stack([places[:, 1] - 360, places[:, 0]]))
    assert len(lines_of(ax).get_segments()) == 30
    assert points.colorbar.ax.get_ylabel() == "RMSE (°C)"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("longitude (°E)", "latitude (°N)")
    assert legend(ax) == ["positive", "negative"]
    west, east = ax.get_xlim()
    assert west < -80 < -40 < east


def test_map_draws_coastlines():
    pytest.importorskip("global_land_mask")
    graph = TaskGraph.from_edges([("Quito", "Lima"), ("Lima", "Recife")], coordinates=[[0, -78], [-12, -77], [-8, -35]])
    with_coast, without = plots.plot_map(graph), plots.plot_map(graph, coast=False)
    assert len(with_coast.collections) == len(without.collections) + 1
    assert len(with_coast.collections[0].get_segments()) > 0


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([f"pr_Amon_MODEL-{letter}_historical_r1i1p1f1_gn.nc" for letter in "ABC"], ["MODEL-A", "MODEL-B", "MODEL-C"]),
        (
            ["MODEL_with_a_long_name_r1", "MODEL_with_a_long_name_r2", "other"],
            ["MODEL_with_a_long_name_r1", "MODEL_with_a_long_name_r2", "other"],
        ),
        (["a", "a_b", "a_b_c"], ["a", "a_b", "a_b_c"]),
        (["one"], ["one"]),
    ],
)
def test_members_of_one_file_pattern_are_told_apart(names, shown):
    leading = np.arange(6.0) % len(names)
    figure = draw_fields(
        {"mean": np.arange(6.0)}, (np.arange(6.0), np.arange(6.0)), "°C",
        most=9.0, rising="blue", leaders=(leading, names), coast=False,
    )[0].figure  # fmt: skip
    told = [text.get_text() for ax in figure.axes if ax.get_legend() for text in ax.get_legend().get_texts()]
    assert [text.rpartition(" (")[0] for text in told] == shown


# Curves and bars


def test_path_names_the_largest_and_greys_the_rest():
    values = np.outer(1 - LAMBDAS, np.arange(1, 21)).reshape(12, 4, 5)
    ax = plots.plot_path(LAMBDAS, values, names=[f"w{k}" for k in range(20)], label="edge weight", chosen=0.1)
    assert legend(ax) == [*(f"w{k}" for k in range(19, 12, -1)), "chosen"]
    curves = [line for line in ax.lines if len(line.get_xdata()) == 12]
    assert len(curves) == 20
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale()) == ("penalty strength λ", "edge weight", "log")
    assert ax.get_xlim()[0] > ax.get_xlim()[1]


def test_stability_counts_what_reaches_the_threshold():
    table = np.zeros((12, 4, 4))
    table[:, 0, 1] = np.linspace(0, 0.95, 12)
    table[:, 0, 2] = np.linspace(0, 0.5, 12)
    ax = plots.plot_stability(LAMBDAS, table, threshold=0.9)
    assert legend(ax) == ["below (5)", "stable (1)", "threshold 0.9"]
    flat = plots.plot_stability(LAMBDAS, table[:, *np.triu_indices(4, 1)], threshold=0.3)
    assert legend(flat) == ["below (4)", "stable (2)", "threshold 0.3"]
    assert any(set(line.get_ydata()) == {0.3} for line in flat.lines)


def test_convergence_reads_records_mappings_and_columns_alike():
    fitted = model()
    columns = {
        "objective": [row.objective for row in fitted.history_],
        "gap_w": [row.gap_weights for row in fitted.history_],
    }
    sources = [fitted, fitted.history_, columns, SimpleNamespace(**columns), [vars(row) for row in fitted.history_]]
    drawings = [[line.get_ydata() for line in plots.plot_convergence(source).lines] for source in sources]
    for drawing in drawings:
        np.testing.assert_array_equal(drawing, drawings[0])
    ax = plots.plot_convergence(fitted)
    assert legend(ax) == ["objective − lowest", "gap of coefficients"]
    assert ax.get_yscale() == "log"
    np.testing.assert_allclose(drawings[0][1], 10.0 ** -np.arange(6))
    assert np.isnan(drawings[0][0][-1])


def test_transfer_sorts_tasks_and_marks_those_that_lose():
    gains = {"a": 1.0, "b": -2.0, "c": 5.0}
    ax = plots.plot_transfer(gains)
    assert ticks(ax.yaxis) == ["c", "a", "b"]
    assert legend(ax) == ["gain (2)", "loss (1)"]
    assert [bar.get_width() for bar in ax.patches] == [5.0, 1.0, -2.0]
    assert [bool(bar.get_hatch()) for bar in ax.patches] == [False, False, True]
    rows = [SimpleNamespace(task=name, gain=value) for name, value in gains.items()]
    assert ticks(plots.plot_transfer(rows).yaxis) == ticks(ax.yaxis)
    assert ticks(plots.plot_transfer(np.array([1.0, -2.0, 5.0]), tasks="abc").yaxis) == ticks(ax.yaxis)
    assert plots.plot_transfer(np.linspace(-1, 5, 500)).get_ylabel() == "500 tasks, best first"


def test_boxes_show_medians_per_task_and_method():
    rng = np.random.default_rng(0)
    errors = {"OLS": rng.random((30, 4)), "p-MSSL": rng.random((30, 4))}
    ax = plots.plot_box(errors, label="RMSE (°C)")
    assert legend(ax) == ["OLS", "p-MSSL"]
    assert ticks(ax.xaxis) == ["0", "1", "2", "3"]
    assert ax.get_ylabel() == "RMSE (°C)"
    medians = {round(float(line.get_ydata()[0]), 9) for line in ax.lines if len(set(line.get_ydata())) == 1}
    assert {round(float(m), 9) for table in errors.values() for m in np.median(table, axis=0)} <= medians
    one = plots.plot_box({name: table[:, 0] for name, table in errors.items()})
    assert ticks(one.xaxis) == ["OLS", "p-MSSL"]
    assert len(one.patches) == 2


# Bad input


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plots.plot_graph(SimpleNamespace(fit=None)), DataError, "fit it first"),
        (lambda: plots.plot_graph(np.ones((2, 3))), DataError, "shape"),
        (lambda: plots.plot_precision(np.eye(2), kind="covariance"), ParameterError, "kind is 'covariance'"),
        (lambda: plots.plot_precision(block_graph(), kind="precision"), ParameterError, "holds no precision"),
        (lambda: plots.plot_map(block_graph()), DataError, "no coordinates"),
        (lambda: plots.plot_map(block_graph(), coordinates=np.zeros((12, 2)), values=[1.0]), DataError, "1 values"),
        (lambda: plots.plot_coefficients(np.ones(3)), DataError, "shape"),
        (lambda: plots.plot_coefficients([[1.0, np.nan]]), DataError, "NaN"),
        (lambda: plots.plot_coefficients(np.eye(3), tasks=["a"]), DataError, "1 names for 3 tasks"),
        (lambda: plots.plot_path([1.0], np.ones((2, 3))), DataError, "1 penalty strengths for 2 rows"),
        (lambda: plots.plot_stability([1.0], [[2.0]]), DataError, "from 0 to 1"),
        (lambda: plots.plot_stability([1.0], np.ones((1, 2, 3))), DataError, r"\(L, K, K\)"),
        (lambda: plots.plot_convergence({}), DataError, "neither objective"),
        (lambda: plots.plot_transfer([]), DataError, "non-empty"),
        (lambda: plots.plot_transfer(["a"]), DataError, "numbers"),
        (lambda: plots.plot_box({}), DataError, "0 methods"),
        (lambda: plots.plot_box({"a": np.ones((3, 2)), "b": np.ones((3, 4))}), DataError, "different tasks"),
    ],
)
def test_bad_input_is_a_stated_error(call, error, message):
    with pytest.raises(error, match=message):
        call()


def _lines(ax):
    return [np.asarray(line.get_xydata(), dtype=float) for line in ax.get_lines()]


def test_paths_and_selections_are_drawn_as_their_numbers():
    data = make_clustered_tasks(n_features=6, n_samples=15, random_state=0)
    path = regularization_path(data.X, data.y, data.tasks, n_points=4)
    by_numbers = plots.plot_path(path.values("graph_penalty"), path.coefs)
    for one, other in zip(_lines(plots.plot_path(path)), _lines(by_numbers), strict=True):
        np.testing.assert_array_equal(one, other)
    chosen = StabilitySelection(n_subsamples=4, threshold=0.8, random_state=0).fit(data.X, data.y, tasks=data.tasks)
    by_numbers = plots.plot_stability(chosen.lambdas_, chosen.frequencies_, threshold=0.8)
    own = plots.plot_stability(chosen)
    assert sum(len(lines.get_segments()) for lines in own.collections) == 78
    for one, other in zip(own.collections, by_numbers.collections, strict=True):
        np.testing.assert_array_equal(one.get_segments(), other.get_segments())


def test_a_path_is_drawn_along_either_strength():
    data = make_clustered_tasks(n_features=3, n_samples=15, random_state=0)
    grid = {"graph_penalties": [0.3, 0.1], "coef_penalties": [0.5, 0.2, 0.1]}
    path = regularization_path(data.X, data.y, data.tasks, **grid)
    for along, symbol, strengths in (("coef_penalty", "γ", [0.5, 0.2, 0.1]), ("graph_penalty", "λ", [0.3, 0.1])):
        ax = plots.plot_path(path, along=along)
        assert ax.get_xlabel() == f"penalty strength {symbol}"
        assert sorted(_lines(ax)[0][:, 0].tolist(), reverse=True) == strengths
        held = [params for point, params in enumerate(path.params) if point in path.along(along)]
        assert len({str({**params, along: None}) for params in held}) == 1
    assert plots.plot_path(path).get_xlabel() == "penalty strength γ"  # has more values
    names = [text.get_text() for text in plots.plot_path(path).get_legend().get_texts()]
    assert set(names) <= {f"x{j} · {task}" for j in range(3) for task in path.tasks}
    single = regularization_path(data.X, data.y, data.tasks, graph_penalties=[0.3])
    with pytest.raises(DataError, match="several values"):
        plots.plot_path(single, along="coef_penalty")


def test_signs_have_the_same_colours_as_cells_and_as_edges():
    image = plots.plot_coefficients(np.array([[-1.0, 0.0, 1.0]])).images[0]
    negative, zero, positive = (np.array(image.cmap(image.norm(value))) for value in (-0.7, 0.0, 0.7))
    assert negative[0] > negative[2]  # orange, as negative edges
    assert positive[2] > positive[0]  # blue, as positive edges
    assert zero[:3].min() > 0.9


def test_a_forest_shows_estimates_and_intervals():
    pandas = pytest.importorskip("pandas")
    data = make_clustered_tasks(n_features=3, n_samples=20, random_state=0)
    frame = pandas.DataFrame(data.X, columns=["a", "b", "c"]).assign(site=data.tasks)
    model = MSSLRegressor(task_column="site").fit(frame, data.y)
    ax = plots.plot_coefficients(model, kind="forest", level=0.8)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert len(names) == model.coef_.size
    assert names[0] == f"a · {model.tasks_[0]}"
    drawn = {tuple(point) for line in ax.get_lines()[:-1] for point in np.round(line.get_xydata(), 9).tolist()}
    assert {x for x, _ in drawn} >= set(np.round(model.coef_.ravel(), 9).tolist())
    ends = [segment for bars in ax.collections for segment in bars.get_segments()]
    widths = sorted(segment[1, 0] - segment[0, 0] for segment in ends)
    np.testing.assert_allclose(widths, np.sort(2 * 1.2815515655 * model.coef_std_.ravel()), rtol=1e-8)
    with pytest.raises(ParameterError, match="kind"):
        plots.plot_coefficients(model, kind="tree")


def test_where_pyplot_is_in_use_it_has_the_figure():
    code = (
        "import matplotlib; matplotlib.use('agg')\n"
        "import matplotlib.pyplot as plt, numpy as np\n"
        "from mssl import plots\n"
        "ax = plots.plot_precision(np.eye(3))\n"
        "assert plt.gcf() is ax.figure"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kind", ["heat", "forest"])
def test_coefficients_a_spread_do_not_depend_on_the_units(kind):
    data = make_clustered_tasks(n_features=3, n_samples=20, random_state=0)
    units = np.array([1.0, 1e3, 1e-2])
    fits = [MSSLRegressor(tol=1e-8).fit(data.X * scale, data.y, tasks=data.tasks) for scale in (np.ones(3), units)]
    drawings = [plots.plot_coefficients(fit, kind=kind, per="spread") for fit in fits]
    if kind == "heat":
        first, second = (ax.images[0].get_array() for ax in drawings)
        plain = plots.plot_coefficients(fits[0]).images[0].get_array()
        np.testing.assert_allclose(first / plain, np.broadcast_to(data.X.std(axis=0), first.shape), rtol=0.15)
    else:
        first, second = (np.concatenate([line[:, 0] for line in _lines(ax)]) for ax in drawings)
    np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-6)
    with pytest.raises(DataError, match="spread of the columns is not known"):
        plots.plot_coefficients(np.eye(3), per="spread")
