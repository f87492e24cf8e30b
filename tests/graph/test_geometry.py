"""Properties of the views: what a reader relies on when two drawings are compared."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mssl.exceptions import DataError, ParameterError
from mssl.graph.geometry import (
    NEUTRAL,
    PALETTE,
    arc_geometry,
    chord_geometry,
    coastlines,
    community_colors,
    graph_layout,
    graph_svg,
    label_offsets,
    task_order,
    thin_edges,
)
from mssl.graph.task_graph import TaskGraph

FEW = settings(deadline=None, max_examples=30)


@st.composite
def graphs(draw, least=0, most=25):
    K = draw(st.integers(least, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = draw(st.sampled_from([0.0, 0.05, 0.15, 0.5, 1.0]))
    weights = np.triu(rng.uniform(-1, 1, (K, K)) * (rng.random((K, K)) < share), 1)
    return TaskGraph(range(K), (weights + weights.T) != 0, weights + weights.T)


def boxes(graph):
    places, labels = graph_layout(graph), graph.component_labels()
    return [(places[labels == c].min(axis=0), places[labels == c].max(axis=0)) for c in range(labels.max() + 1)]


def gaps(places):
    return np.array([np.hypot(*(places[i] - places[j])) for i, j in combinations(range(len(places)), 2)])


# Layout


@FEW
@given(graphs())
def test_layout_is_finite_bounded_distinct_and_the_same_each_time(graph):
    places = graph_layout(graph)
    assert places.shape == (len(graph), 2)
    assert np.isfinite(places).all()
    assert np.abs(places).max(initial=0) <= 1 + 1e-9
    np.testing.assert_array_equal(graph_layout(graph), places)
    if len(graph) > 1:
        assert gaps(places).min() > 0.3 / len(graph)


@FEW
@given(graphs(least=2))
def test_boxes_around_components_are_disjoint(graph):
    for (low, high), (other_low, other_high) in combinations(boxes(graph), 2):
        assert ((high < other_low - 1e-9) | (other_high < low - 1e-9)).any()


@pytest.mark.parametrize("K", [2, 3, 8, 40])
def test_layout_of_a_path_keeps_its_order(K):
    places = graph_layout(TaskGraph.from_edges([(k, k + 1) for k in range(K - 1)]))
    steps = np.sign(np.diff(places[:, 0]))
    assert abs(steps.sum()) == K - 1


def test_neighbours_lie_nearer_than_others():
    side = 7
    edges = [((r, c), (r + 1, c)) for r in range(side - 1) for c in range(side)]
    edges += [((r, c), (r, c + 1)) for r in range(side) for c in range(side - 1)]
    grid = TaskGraph.from_edges(edges)
    places = graph_layout(grid)
    distance = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    upper = np.triu(np.ones_like(distance, dtype=bool), 1)
    assert np.median(distance[grid.adjacency]) < 0.4 * np.median(distance[upper & ~grid.adjacency])


def test_strong_edges_are_drawn_shorter_than_weak_ones():
    ring = [(k, (k + 1) % 8, 0.9 if k % 2 else 0.1) for k in range(8)]
    graph = TaskGraph.from_edges(ring)
    places = graph_layout(graph)
    length = {(i, j): np.hypot(*(places[i] - places[j])) for i, j, *_ in graph.support()}
    strong = [value for ends, value in length.items() if graph.weights[ends] > 0.5]
    weak = [value for ends, value in length.items() if graph.weights[ends] < 0.5]
    assert max(strong) < min(weak)


def test_communities_of_a_large_graph_stand_apart():
    rng = np.random.default_rng(1)
    block = np.repeat(np.arange(6), 40)
    share = np.where(np.equal.outer(block, block), 0.12, 0.004)
    weights = np.triu(rng.uniform(0.1, 0.5, (240, 240)) * (rng.random((240, 240)) < share), 1)
    graph = TaskGraph(range(240), (weights + weights.T) != 0, weights + weights.T)
    places, labels = graph_layout(graph), graph.community_labels()
    big = [k for k in range(labels.max() + 1) if (labels == k).sum() > 5]
    centres = np.array([places[labels == k].mean(axis=0) for k in big])
    spread = np.mean([np.hypot(*(places[labels == k] - c).T).mean() for k, c in zip(big, centres, strict=True)])
    assert gaps(centres).min() > 2 * spread


def test_stars_and_cliques_do_not_put_twins_on_one_spot():
    star = TaskGraph.from_edges([(0, k) for k in range(1, 30)])
    clique = TaskGraph.from_edges(list(combinations(range(30), 2)))
    for graph in (star, clique):
        assert gaps(graph_layout(graph)).min() > 0.02


def test_layout_of_a_thousand_tasks_has_room_for_each():
    rng = np.random.default_rng(0)
    weights = np.triu(rng.uniform(-0.5, 0.5, (1000, 1000)) * (rng.random((1000, 1000)) < 0.004), 1)
    graph = TaskGraph(range(1000), (weights + weights.T) != 0, weights + weights.T)
    places = graph_layout(graph)
    from scipy.spatial import cKDTree

    nearest = cKDTree(places).query(places, k=2)[0][:, 1]
    assert nearest.min() > 0.3 * np.median(nearest)


# Order, thinning, colours


@FEW
@given(graphs())
def test_order_is_a_permutation_by_community_then_strength(graph):
    order = task_order(graph)
    assert sorted(order.tolist()) == list(range(len(graph)))
    labels, strength = graph.community_labels()[order], np.abs(graph.weights).sum(axis=1)[order]
    assert (np.diff(labels) >= 0).all()
    assert all(np.diff(strength)[np.diff(labels) == 0] <= 1e-12)


@FEW
@given(graphs(), st.integers(0, 40))
def test_thinning_keeps_the_strongest_and_says_so(graph, limit):
    thinned, note = thin_edges(graph, limit)
    assert thinned.n_edges == min(limit, graph.n_edges)
    assert bool(note) == (thinned.n_edges < graph.n_edges)
    assert list(thinned.support()) == list(graph.support(top=limit))
    if note:
        assert str(limit) in note
        assert str(graph.n_edges) in note


def test_thinning_refuses_a_negative_limit():
    with pytest.raises(ParameterError, match="max_edges is -1"):
        thin_edges(TaskGraph.from_edges([("a", "b")]), -1)


def test_colours_go_to_the_largest_communities_and_never_twice():
    labels = np.concatenate([np.repeat(np.arange(12), 3), [12, 13]])
    colors = np.array(community_colors(labels))
    used = [set(colors[labels == k]) for k in range(14)]
    assert all(len(found) == 1 for found in used)
    own = [next(iter(found)) for found in used[: len(PALETTE)]]
    assert sorted(own) == sorted(PALETTE)
    assert all(found == {NEUTRAL} for found in used[len(PALETTE) :])


# Chords


@FEW
@given(graphs(least=1))
def test_chords_join_the_places_of_their_tasks_inside_the_circle(graph):
    chords = chord_geometry(graph)
    assert len(set(chords.angles.tolist())) == len(graph)
    assert chords.curves.shape[:1] == chords.ends.shape[:1] == (graph.n_edges,)
    spot = np.column_stack([np.cos(chords.angles), np.sin(chords.angles)])
    np.testing.assert_allclose(chords.curves[:, 0], spot[chords.ends[:, 0]], atol=1e-12)
    np.testing.assert_allclose(chords.curves[:, -1], spot[chords.ends[:, 1]], atol=1e-12)
    assert (np.hypot(chords.curves[..., 0], chords.curves[..., 1]) <= 1 + 1e-9).all()
    assert (np.diff(np.abs(graph.weights[tuple(chords.ends.T)])) >= 0).all()


@FEW
@given(graphs(least=1))
def test_arcs_of_tasks_go_once_round_without_overlap(graph):
    chords = chord_geometry(graph)
    order = np.argsort(-chords.angles)
    spans = chords.spans[order]
    assert (spans[:, 1] < spans[:, 0]).all()
    assert (spans[1:, 0] <= spans[:-1, 1] + 1e-12).all()
    assert spans[0, 0] - spans[-1, 1] <= 2 * np.pi + 1e-12
    np.testing.assert_allclose(spans.mean(axis=1), chords.angles[order])


def test_given_groups_stand_together_largest_first():
    graph = TaskGraph.from_edges([("a", "b"), ("c", "d"), ("d", "e")])
    chords = chord_geometry(graph, groups=["x", "y", "x", "y", "x"])
    assert set(np.argsort(-chords.angles)[:3].tolist()) == {0, 2, 4}
    with pytest.raises(DataError, match="2 labels"):
        chord_geometry(graph, groups=["x", "y"])


# Great circles

PLACES = st.tuples(st.floats(-90, 90), st.floats(-180, 360))


def sphere(lonlat):
    lon, lat = np.radians(lonlat).T
    return np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])


@settings(deadline=None, max_examples=150)
@given(PLACES, PLACES)
def test_arcs_have_the_right_ends_speed_and_length(start, end):
    (pieces,) = arc_geometry([start, end], [[0, 1]])
    ends = sphere(np.array([start[::-1], end[::-1]]))
    track = sphere(np.vstack(pieces))
    np.testing.assert_allclose(track[[0, -1]], ends, atol=1e-6)
    for piece in pieces:
        assert (np.abs(piece) <= (180 + 1e-9, 90 + 1e-9)).all()
        assert (np.abs(np.diff(piece[:, 0])) <= 180 + 1e-6).all()
    for left, right in pairwise(pieces):
        assert left[-1, 0] == -right[0, 0]
        assert abs(left[-1, 0]) == 180
        assert left[-1, 1] == right[0, 1]
    # Points of the uncut arc: all but the two put in at each cut.
    cut = np.cumsum([len(piece) for piece in pieces[:-1]]).astype(int)
    original = np.delete(track, np.concatenate([cut - 1, cut]), axis=0)
    assert len(original) == 49
    steps = np.linalg.norm(np.diff(original, axis=0), axis=1)
    np.testing.assert_allclose(steps, steps.mean(), atol=1e-6)
    shortest = np.arctan2(np.linalg.norm(np.cross(*ends)), ends[0] @ ends[1])
    assert 48 * 2 * np.arcsin(steps.mean() / 2) == pytest.approx(shortest, abs=1e-5)


def test_the_equator_and_a_meridian_are_great_circles():
    equator, meridian = arc_geometry([[0, 10], [0, 100], [60, 100]], [[0, 1], [1, 2]])
    np.testing.assert_allclose(equator[0], np.column_stack([np.linspace(10, 100, 49), np.zeros(49)]), atol=1e-9)
    np.testing.assert_allclose(meridian[0], np.column_stack([np.full(49, 100), np.linspace(0, 60, 49)]), atol=1e-9)


def test_antipodes_and_poles_are_joined_by_a_half_circle():
    for ends in ([[0, 0], [0, 180]], [[90, 0], [-90, 0]], [[30, 20], [-30, 200]]):
        (pieces,) = arc_geometry(ends, [[0, 1]])
        track = sphere(np.vstack(pieces))
        steps = np.linalg.norm(np.diff(track, axis=0), axis=1)
        assert steps.sum() == pytest.approx(np.pi, rel=1e-3)


# Coastlines


def test_coastlines_part_land_from_sea():
    globe = pytest.importorskip("global_land_mask.globe")
    region = (-15.0, 15.0, 0.0, 40.0)
    lines = coastlines(region, 0.5)
    assert coastlines(region, 0.5) is lines
    points = np.vstack(lines)
    assert ((points >= (0, -15)) & (points <= (40, 15))).all()
    land = globe.is_land(points[:, 1], points[:, 0])
    assert 0.2 < land.mean() < 0.8
    # Land and sea both lie within one step of nearly every point of the coast.
    around = np.array([[0.5, 0], [-0.5, 0], [0, 0.5], [0, -0.5]])
    near = points[:, None] + around
    inside = globe.is_land(np.clip(near[..., 1], -90, 90), near[..., 0])
    assert (inside.any(axis=1) & ~inside.all(axis=1)).mean() > 0.95


@pytest.mark.parametrize("region", [(0, 0, 0, 10), (-100, 0, 0, 10), (0, 10, 0, 300), (10, 0, 0, 10)])
def test_a_region_off_the_earth_is_refused(region):
    with pytest.raises(ParameterError, match="south, north, west, east"):
        coastlines(region)
    with pytest.raises(ParameterError, match="resolution is 0"):
        coastlines(None, 0)


# SVG


def test_svg_shows_each_task_and_names_what_is_hidden():
    import xml.etree.ElementTree as ET

    graph = TaskGraph.from_edges([("<b>", k, 0.1 + 0.01 * k) for k in range(30)])
    root = ET.fromstring(str(graph_svg(graph, max_edges=10)))
    space = "{http://www.w3.org/2000/svg}"
    circles = list(root.iter(f"{space}circle"))
    assert {circle.find(f"{space}title").text for circle in circles} == {"<b>", *map(str, range(30))}
    assert len(list(root.iter(f"{space}line"))) == 10
    assert [text.text for text in root.iter(f"{space}text")] == ["strongest 10 of 30 edges shown"]
    width, height = float(root.get("width")), float(root.get("height"))
    for circle in circles:
        assert 0 < float(circle.get("cx")) < width
        assert 0 < float(circle.get("cy")) < height


# Labels


@settings(max_examples=40, deadline=None)
@given(arrays(float, st.tuples(st.integers(1, 25), st.just(2)), elements=st.floats(0, 300)))
def test_labels_cover_neither_points_nor_each_other(points):
    half_sizes = {k: (10.0 + k, 6.0) for k in range(len(points))}
    offsets = label_offsets(points, half_sizes, (300, 280), radius=4)
    assert set(offsets) <= set(half_sizes)
    boxes = [(points[k] + offset - half_sizes[k], points[k] + offset + half_sizes[k]) for k, offset in offsets.items()]
    for k, (low, high) in enumerate(boxes):
        assert (low >= 0).all()
        assert (high <= [300, 280]).all()
        assert not ((points - 4 < high) & (points + 4 > low)).all(axis=1).any()
        for other_low, other_high in boxes[:k]:
            assert (low >= other_high).any() or (high <= other_low).any()


def test_a_label_alone_in_the_middle_lies_to_the_right_of_its_marker():
    (offset,) = label_offsets(np.array([[50.0, 50.0]]), {0: (10.0, 5.0)}, (100, 100), radius=3).values()
    assert offset[0] >= 10 + 3
    assert offset[1] == 0
