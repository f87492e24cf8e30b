"""Geometry for drawings of a task graph: layout, order, chords, arcs, coastlines, colours.

Static figures and the interactive report use the same functions, so that they show the same picture. All functions are
deterministic.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from mssl._html import Html, tag
from mssl._typing import Array, TaskMatrix
from mssl._validation import check_number, check_whole_number, refused
from mssl.exceptions import DataError, MSSLError, require
from mssl.graph.communities import by_size, members
from mssl.graph.export import short_name
from mssl.graph.tables import FDR, SHOWN, RelationTable
from mssl.graph.tests import GraphEvidence
from mssl.kernels.threads import single_threaded
from mssl.model.task_matrix import Places, largest_entry, pair_matrix, submatrix

if TYPE_CHECKING:
    from mssl.graph.task_graph import TaskGraph

#: Colours of communities that colour-blind readers can distinguish (Okabe & Ito, 2008), without black and pale yellow.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#B8A800")
#: Colour of tasks whose community has no colour.
NEUTRAL = "#8C8C8C"
#: Colours of positive and negative partial correlations.
POSITIVE, NEGATIVE = "#0072B2", "#D55E00"
#: Colour scale with the same colours, from negative over white (zero, always in the middle) to positive.
DIVERGING = ("#6B2A00", NEGATIVE, "#F6C7A3", "#FAFAFA", "#A9D0EA", POSITIVE, "#003350")

_MOST_NAMED = SHOWN // 2  # Largest number of edges that a summary lists beside its other lines, to stay readable.
_LABEL_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (0.75, 0.8), (-0.75, 0.8), (0.75, -0.8), (-0.75, -0.8))


class Display(NamedTuple):
    """A graph with everything that a drawing of it shows.

    Attributes
    ----------
    graph : TaskGraph
        The significant edges and the fitted support.
    certain : ndarray or csr_array of bool of shape (K, K), or None
        Mask of the significant conditional edges. The remaining pairs are support. Drawings show them as candidates:
        thin, grey and without a sign. None for a graph without evidence.
    groups : ndarray of int of shape (K,)
        Group of each task; 0 is the largest. Groups follow from relations (:meth:`GraphEvidence.groups_at`) or, without
        evidence, are communities.
    notes : list of str
        Sentences for the reader: number of significant pairs, expected number of false ones, and reference point.
    relations, edges : RelationTable or None
        The significant pairs; None for a graph without evidence.
    """

    graph: TaskGraph
    certain: TaskMatrix | None
    groups: Places
    notes: list[str]
    relations: RelationTable | None = None
    edges: RelationTable | None = None

    @property
    def strongest(self) -> RelationTable | None:
        """The first ten edges; empty without groups, or if the global test does not support the relations."""
        if self.edges is None or self.relations is None:
            return None
        return self.edges[: _MOST_NAMED if self.relations.supported and self.groups.max() < len(self.graph) - 1 else 0]


def display(graph: TaskGraph, fdr: float = FDR, method: str = "bh") -> Display:
    """Return the parts of a graph that drawings show, with their error rates.

    Parameters
    ----------
    graph : TaskGraph
        The graph.
    fdr : float
        False discovery rate of relations and edges, and family-wise error of groups.
    method : {"bh", "by"}
        Procedure that controls the rate, as for :meth:`TaskGraph.relations`.

    Examples
    --------
    >>> import numpy as np
    >>> from mssl import TaskGraph
    >>> from mssl.graph.tests import GraphEvidence
    >>> r = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, -0.1], [0.1, -0.1, 1.0]])
    >>> evidence = GraphEvidence(r, np.full((3, 3), 30.0), np.ones(3))
    >>> shown = display(TaskGraph.from_precision(np.eye(3), tasks=["a", "b", "c"], evidence=evidence))
    >>> shown.groups.tolist(), shown.notes[0]
    ([0, 0, 1], '1 relation among 3 pairs at a false discovery rate of 10%: at most 0.1 of them are expected to be
    false')
    """
    try:
        graph.test_overall()
        relations, edges = graph.relations(fdr, method), graph.edges(fdr=fdr, method=method)
    except MSSLError:
        return Display(graph, None, graph.community_labels(), [])
    certain = graph.selected(fdr, "edges", method)
    candidates = graph.weights - graph.weights * certain.adjacency
    shown = replace(graph, adjacency=graph.adjacency + certain.adjacency, weights=candidates + certain.weights)
    notes = [relations.summary()]
    if len(relations):
        notes.append(edges.summary())
        notes.append(
            f"groups are tasks joined by relations; the chance that any of these is false is at most {fdr:.0%}"
        )
    assert graph.evidence is not None
    evidence, groups = graph.evidence.resolve(), np.arange(len(graph))
    if isinstance(evidence, GraphEvidence):
        groups = by_size(evidence.groups_at(fdr))
        if evidence.relative_to != "zero":
            notes.append("relations are those beyond a mean that all tasks share")
    return Display(shown, certain.adjacency, groups, notes, relations, edges)


class ChordGeometry(NamedTuple):
    """Tasks on a circle and their edges as curves inside it.

    ``angles`` (K,) are the positions of the tasks in radians, ``spans`` (K, 2) their arcs, ``groups`` (K,) their group
    numbers, ``ends`` (E, 2) the two tasks of each curve, and ``curves`` (E, 3, 2) start, control point and end of a
    quadratic Bézier curve inside the unit circle. The weakest curve comes first, so that the strongest is drawn on top.
    """

    angles: Array
    spans: Array
    groups: Places
    ends: Places
    curves: Array


def thin_edges(graph: TaskGraph, max_edges: int | None = None) -> tuple[TaskGraph, str]:
    """Return the graph with its strongest edges only, which keeps a drawing readable, and a note on the hidden ones.

    Parameters
    ----------
    graph : TaskGraph
    max_edges : int, optional
        Maximum number of edges. By default it is twice the number of tasks, but at least 60 and at most 1000.

    Examples
    --------
    >>> from mssl import TaskGraph
    >>> triangle = TaskGraph.from_edges([("a", "b", 0.5), ("b", "c", 0.4), ("a", "c", 0.1)])
    >>> thin_edges(triangle, 2)[1]
    'strongest 2 of 3 edges shown'
    """
    if max_edges is None:
        limit = min(1000, max(60, 2 * len(graph)))
    else:
        limit = check_whole_number("max_edges", max_edges, low=0, also="None")
    if graph.n_edges <= limit:
        return graph, ""
    i, j = (ends[:limit] for ends in graph.edge_indices())
    keep = pair_matrix(np.column_stack([i, j]), np.ones(len(i), dtype=bool), len(graph))
    return replace(graph, adjacency=keep), f"strongest {limit} of {graph.n_edges} edges shown"


def task_order(graph: TaskGraph, groups: Places | None = None) -> Places:
    """Return the tasks by group (community), largest first, and within a group by falling strength (sum of |weights|).

    Examples
    --------
    >>> from mssl import TaskGraph
    >>> task_order(TaskGraph.from_edges([("a", "c", 0.5), ("b", "d", 0.9)])).tolist()
    [0, 1, 2, 3]
    """
    strength = np.abs(graph.weights).sum(axis=1)
    labels = graph.community_labels() if groups is None else groups
    return np.lexsort((np.arange(len(graph)), -strength, labels))


def community_colors(labels: ArrayLike) -> list[str]:
    """Return a colour for each task: one per large community (0, 1, …), and grey for all other tasks.

    Examples
    --------
    >>> community_colors([0, 0, 1])
    ['#0072B2', '#0072B2', '#8C8C8C']
    """
    groups = np.asarray(labels)
    coloured = (np.bincount(groups) > 1)[groups] & (groups < len(PALETTE))
    return [PALETTE[g] if own else NEUTRAL for g, own in zip(groups.tolist(), coloured, strict=True)]


@single_threaded
def graph_layout(graph: TaskGraph) -> Array:
    r"""Place the tasks in the plane so that strongly related tasks are close to each other.

    Each component minimises the stress :math:`\sum_{i<j} d_{ij}^{-2} (\|x_i - x_j\| - d_{ij})^2` of its
    shortest-path distances. Strong edges are short, and edges between communities are long. The components are packed
    without overlap; isolated tasks form rows below them.

    Returns
    -------
    (K, 2) array, centred at 0, within [-1, 1].

    References
    ----------
    Gansner, Koren & North, Graph drawing by stress majorization, 2004, doi:10.1007/978-3-540-31843-9_25.

    Examples
    --------
    >>> from mssl import TaskGraph
    >>> abs(graph_layout(TaskGraph.from_edges([("a", "b")]))).round(3).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    components, communities = graph.component_labels(), graph.community_labels()
    groups = members(components, 2)
    blocks = [_component_layout(graph, nodes, communities[nodes]) for nodes in groups]
    places = np.zeros((len(graph), 2))
    corners, width, depth = _pack([np.ptp(block, axis=0) for block in blocks])
    for nodes, block, corner in zip(groups, blocks, corners, strict=True):
        places[nodes] = block - block.min(axis=0) + corner
    alone = np.flatnonzero(components >= len(groups))  # Components are numbered by falling size.
    per_row = max(1, int(max(width, np.ceil(np.sqrt(2.5 * len(alone))))))
    rows, columns = np.divmod(np.arange(len(alone)), per_row)
    shift = max(0.0, (width - min(per_row, len(alone)) + 1) / 2)
    places[alone] = np.column_stack([columns + shift, -depth - 1.5 * rows])
    if not len(graph):
        return places
    low, high = places.min(axis=0), places.max(axis=0)
    return (places - (low + high) / 2) / (max(*(high - low)) / 2 or 1.0) + 0.0


def _component_layout(graph: TaskGraph, nodes: Places, communities: Places) -> Array:
    """Lay out one component with a distance of about 1 between neighbours and its longer side horizontal."""
    weights, linked = submatrix(graph.weights, nodes), submatrix(graph.adjacency, nodes) != 0
    across = communities[:, None] != communities
    # The strongest edge has length 1 and the weakest at most 4; edges between communities are longer.
    strength = np.abs(weights)
    strongest = strength.max() or 1.0
    lengths = np.sqrt(strongest / np.maximum(strength, strongest / 16)) * np.where(across, 1.6, 1.0)
    distances = shortest_path(_backbone(np.where(linked, lengths, 0.0)), directed=False)
    # In larger graphs white space separates the communities, for which readers look first.
    distances = distances * np.where(across, 1 + min(2.0, len(nodes) / 200), 1.0)
    places = _majorize(distances, _classical_scaling(distances))
    nearest = (cdist(places, places) + np.diag(np.full(len(nodes), np.inf))).min(axis=1)
    places = _push_apart(places / np.median(nearest))
    centred = places - places.mean(axis=0)
    axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1]
    return _fix_signs(centred @ axes)


def _backbone(lengths: Array, per_node: int = 8) -> csr_array:
    """Keep the shortest edges of each node and a spanning tree, which determine the layout at a moderate cost."""
    n = len(lengths)
    tree = minimum_spanning_tree(csr_array(lengths)).toarray() > 0
    ranked = np.argsort(np.where(lengths > 0, lengths, np.inf), axis=1, kind="stable")[:, : min(per_node, n - 1)]
    near = np.zeros((n, n), dtype=bool)
    near[np.arange(n)[:, None], ranked] = True
    return csr_array(np.where(tree | tree.T | near | near.T, lengths, 0.0))


def _classical_scaling(distances: Array) -> Array:
    """Return the two leading principal coordinates plus a small spiral that separates equal points."""
    n = len(distances)
    centring = np.eye(n) - 1 / n
    gram = -centring @ distances**2 @ centring / 2
    values, vectors = eigh(gram, subset_by_index=[n - 2, n - 1])
    places = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1]
    turn = np.pi * (3 - np.sqrt(5)) * np.arange(n)
    spiral = np.column_stack([np.cos(turn), np.sin(turn)]) * np.sqrt(np.arange(n) / n)[:, None]
    return _fix_signs(places) + 0.05 * distances.max() * spiral


def _fix_signs(places: Array) -> Array:
    """Mirror each axis so that its farthest point (the first one among equals) is on the negative side."""
    reach = np.abs(places)
    largest = np.argmax(reach >= reach.max(axis=0) * (1 - 1e-6), axis=0)
    signs = np.where(places[largest, [0, 1]] > 0, -1.0, 1.0)
    return places * signs


def _majorize(distances: Array, places: Array, steps: int = 120) -> Array:
    """Minimise the stress by solving one Laplacian system per step; all steps share its factorisation."""
    n = len(distances)
    pull = 1 / (distances + np.eye(n)) ** 2
    np.fill_diagonal(pull, 0.0)
    factor = cho_factor(np.diag(pull.sum(axis=1)) - pull + 1 / n)
    pull = pull * distances
    for _ in range(steps):
        ratio = pull / np.sqrt(cdist(places, places, "sqeuclidean") + 1e-18)
        target = ratio.sum(axis=1)[:, None] * places - ratio @ places
        moved = cho_solve(factor, target)
        shift = np.abs(moved - places).max()
        places = moved
        if shift < 1e-3 * distances.max() / np.sqrt(n):
            break
    return places


def _push_apart(places: Array, closest: float = 0.75, steps: int = 60) -> Array:
    """Move points closer than `closest` away from each other, so that markers do not overlap."""
    for _ in range(steps):
        pairs = cKDTree(places).query_pairs(closest * 0.999, output_type="ndarray")
        if not len(pairs):
            break
        i, j = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))].T
        gap = places[i] - places[j]
        length = np.hypot(*gap.T)
        turn = 2.4 * i
        away = np.where(length[:, None] > 1e-9, gap, np.column_stack([np.cos(turn), np.sin(turn)]))
        push = away / np.hypot(*away.T)[:, None] * ((closest - length) / 2)[:, None]
        step = np.zeros_like(places)
        np.add.at(step, i, push)
        np.add.at(step, j, -push)
        places = places + step
    return places


def _pack(boxes: list[Array], margin: float = 1.3) -> tuple[Array, float, float]:
    """Pack boxes on shelves in the given order; return their lower left corners, the width and the depth."""
    sizes = np.reshape(boxes, (-1, 2))
    width = float(max(1.25 * np.sqrt(np.prod(sizes + margin, axis=1).sum()), sizes[:, 0].max(initial=0.0)))
    shelf, used = np.zeros(len(sizes), dtype=int), -margin
    for k, room in enumerate(sizes[:, 0] + margin):
        fits = used + room <= width
        shelf[k:] += not fits
        used = used + room if fits else room - margin
    corners, depth = np.zeros(sizes.shape), 0.0
    for number in np.unique(shelf):
        box = sizes[shelf == number]
        ends, height = np.cumsum(box[:, 0] + margin), box[:, 1].max()
        left = (width - ends[-1] + margin) / 2 + ends - margin - box[:, 0]
        corners[shelf == number] = np.column_stack([left, -depth - (height + box[:, 1]) / 2])
        depth += height + margin
    return corners, width, depth


def chord_geometry(graph: TaskGraph, groups: Sequence[Hashable] | None = None) -> ChordGeometry:
    """Place the tasks on a circle, group by group, and return each edge as a curve that bends to the centre.

    Parameters
    ----------
    graph : TaskGraph
    groups : sequence of K labels, optional
        Group of each task; by default its community. The largest group comes first, single tasks last. Gaps between
        groups (not between single tasks) take 3 % of the circle each, and at most a quarter in total.

    Examples
    --------
    >>> from mssl import TaskGraph
    >>> chord_geometry(TaskGraph.from_edges([("a", "b"), ("b", "c")])).curves.shape
    (2, 3, 2)
    """
    K = len(graph)
    if groups is None:
        labels = graph.community_labels()
    elif len(groups) != K:
        raise DataError(f"groups has {len(groups)} labels; give one for each of the {K} tasks.")
    else:
        seen = {label: k for k, label in enumerate(dict.fromkeys(groups))}
        labels = by_size(np.array([seen[label] for label in groups], dtype=np.intp))
    order = task_order(graph, labels)
    n_groups = int((np.bincount(labels, minlength=1) > 1).sum())
    blocks = np.minimum(labels, n_groups)[order]
    breaks = np.concatenate([[0], np.cumsum(np.diff(blocks) != 0)]) if K else np.zeros(0)
    n_gaps = float(breaks[-1]) + 1 if K > 1 else 0.0
    free = min(0.03 * n_gaps, 0.25) / n_gaps if n_gaps > 1 else 0.0
    step = (1 - free * n_gaps) / max(K, 1)
    start = np.empty(K)
    start[order] = np.arange(K) * step + breaks * free
    # Clockwise from the top.
    spans = np.pi / 2 - 2 * np.pi * np.column_stack([start, start + step])
    angles = spans.mean(axis=1)
    i, j = (ends[::-1] for ends in graph.edge_indices())
    return ChordGeometry(angles, spans, labels, np.column_stack([i, j]), _chords(angles[i], angles[j]))


def _chords(first: Array, second: Array) -> Array:
    """Return quadratic Bézier curves between angles; closer ends give shallower curves."""
    ends = np.stack([np.column_stack([np.cos(a), np.sin(a)]) for a in (first, second)])
    separation = np.abs(np.angle(np.exp(1j * (first - second)))) / np.pi
    middle = ends.sum(axis=0)
    middle /= np.maximum(np.hypot(*middle.T), 1e-9)[:, None]
    return np.stack([ends[0], middle * (1 - np.sqrt(separation))[:, None], ends[1]], axis=1)


def arc_geometry(coordinates: ArrayLike, edges: ArrayLike, points: int = 49) -> list[list[Array]]:
    """Return the great circle of each edge as (longitude, latitude) polylines, cut at the date line.

    Parameters
    ----------
    coordinates : (K, 2)
        Latitude and longitude in degrees.
    edges : (E, 2) of int
    points : int
        Number of equally spaced points per arc before the cut.

    Returns
    -------
    list of E lists of (P, 2) arrays, longitudes in [-180, 180].

    Examples
    --------
    >>> [piece[[0, -1]].round(6).tolist() for piece in arc_geometry([[0, 170], [0, -170]], [[0, 1]])[0]]
    [[[170.0, 0.0], [180.0, 0.0]], [[-180.0, 0.0], [-170.0, 0.0]]]
    """
    latitude, longitude = np.radians(np.asarray(coordinates, dtype=float).reshape(-1, 2)).T
    on_sphere = np.column_stack(
        [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)]
    )
    ends = np.asarray(edges, dtype=np.intp).reshape(-1, 2)
    return [_great_circle(on_sphere[i], on_sphere[j], points) for i, j in ends]


def _great_circle(start: Array, end: Array, points: int) -> list[Array]:
    """Return points from start to end at constant distances; between antipodes the arc passes the north pole."""
    angle = np.arctan2(np.linalg.norm(np.cross(start, end)), start @ end)
    aim = end if np.pi - angle > 1e-9 else np.array([0.0, 0.0, 1.0])
    side = aim - (aim @ start) * start
    if np.linalg.norm(side) < 1e-12:
        side = np.array([1.0, 0.0, 0.0])  # The ends are one point or the poles, so that any meridian is valid.
    side /= np.linalg.norm(side)
    t = np.linspace(0, angle, points)[:, None]
    x, y, z = (np.cos(t) * start + np.sin(t) * side).T
    line = np.degrees(np.column_stack([np.arctan2(y, x), np.arctan2(z, np.hypot(x, y))]))
    return _cut_at_date_line(line)


def _cut_at_date_line(line: Array) -> list[Array]:
    jumps = np.flatnonzero(np.abs(np.diff(line[:, 0])) > 180)
    (start, latitude), (end, after) = line[jumps].T, line[jumps + 1].T
    ahead, west = 180 - np.abs(start), 180 * np.sign(start)
    latitude = latitude + ahead / np.maximum(ahead + 180 - np.abs(end), 1e-12) * (after - latitude)
    ends = np.stack([west, latitude, -west, latitude], axis=1).reshape(-1, 2)
    whole = np.insert(line, np.repeat(jumps + 1, 2), ends, axis=0)
    return np.split(whole, jumps + 2 * np.arange(1, len(jumps) + 1))


def map_region(latitude: Array, longitude: Array) -> tuple[float, float, float, float]:
    """Return a box around the tasks with a margin, rounded to whole degrees."""
    margin = max(3.0, 0.08 * float(max(np.ptp(latitude), np.ptp(longitude))))
    south, west = np.floor([latitude.min() - margin, longitude.min() - margin])
    north, east = np.ceil([latitude.max() + margin, longitude.max() + margin])
    return max(float(south), -90.0), min(float(north), 90.0), max(float(west), -180.0), min(float(east), 180.0)


@lru_cache(maxsize=16)
def coastlines(region: tuple[float, float, float, float] | None = None, resolution: float = 1.0) -> tuple[Array, ...]:
    """Return coastlines as (longitude, latitude) polylines from the package global-land-mask, without a download.

    Parameters
    ----------
    region : (south, north, west, east), optional
        In degrees; the whole earth by default.
    resolution : float
        Grid step of the contour in degrees. The first call takes some seconds and 1 GB to unpack the mask.
    """
    south, north, west, east = region or (-90.0, 90.0, -180.0, 180.0)
    if not (-90 <= south < north <= 90 and -180 <= west < east <= 180):
        allowed = "give (south, north, west, east) with latitudes in [-90, 90] and longitudes in [-180, 180]"
        raise refused("region", region, allowed)
    check_number("resolution", resolution, low=0.02, high=10, remedy="It is a step in degrees.")
    globe: Any = require("global_land_mask.globe", "plot", "A map with coastlines")
    contourpy: Any = require("contourpy", "plot", "A map with coastlines")
    rows, columns = max(2, round((north - south) / resolution)), max(2, round((east - west) / resolution))
    latitude, longitude = _centres(south, north, 4 * rows), _centres(west, east, 4 * columns)
    land = globe.is_land(*np.meshgrid(latitude, longitude, indexing="ij"))
    share = land.reshape(rows, 4, columns, 4).mean(axis=(1, 3))
    lines = contourpy.contour_generator(_centres(west, east, columns), _centres(south, north, rows), share)
    found = tuple(line for line in lines.lines(0.5) if len(line) > 4)
    for line in found:
        line.setflags(write=False)
    return found


def label_offsets(
    points: Array, half_sizes: Mapping[int, tuple[float, float]], size: tuple[float, float], radius: float
) -> dict[int, Array]:
    """Choose a side of its point for each label, so that no label covers a point or another label.

    Parameters
    ----------
    points : ndarray of shape (K, 2)
        Points in the units of the drawing, inside the box from (0, 0) to `size`.
    half_sizes : mapping of point number to (half width, half height)
        Sizes of the labels, the most important one first.
    size : (float, float)
        Width and height of the drawing.
    radius : float
        Radius of the markers at the points.

    Returns
    -------
    dict of point number to ndarray of shape (2,)
        Offset of the label's centre from its point. Labels that do not fit are absent.

    Examples
    --------
    >>> offsets = label_offsets(np.array([[5.0, 5.0], [9.0, 5.0]]), {0: (2.0, 1.0), 1: (2.0, 1.0)}, (20, 10), radius=1)
    >>> {point: offset.tolist() for point, offset in offsets.items()}
    {0: [0.0, 4.0], 1: [5.0, 0.0]}
    """
    taken_low, taken_high = points - radius, points + radius
    offsets: dict[int, Array] = {}
    for k, half in half_sizes.items():
        sides = np.array(_LABEL_SIDES) * (np.array(half) + radius + 2)
        low, high = points[k] + sides - half, points[k] + sides + half
        covers = ((taken_low < high[:, None]) & (taken_high > low[:, None])).all(axis=2).any(axis=1)
        free = np.flatnonzero(((low >= 0) & (high <= size)).all(axis=1) & ~covers)[:1]
        if len(free):
            offsets[k] = sides[free[0]]
            taken_low, taken_high = np.vstack([taken_low, low[free]]), np.vstack([taken_high, high[free]])
    return offsets


def _centres(low: float, high: float, n: int) -> Array:
    return low + (np.arange(n) + 0.5) * (high - low) / n


def graph_svg(graph: TaskGraph, width: int = 420, max_edges: int = 200) -> Html:
    """Return the graph as inline SVG for notebooks, which shows names on hover."""
    thinned, note = thin_edges(graph, max_edges)
    places = graph_layout(graph)
    height = round(width * max(0.25, min(1.0, float(np.ptp(places[:, 1])) / 2 if len(graph) else 0.25))) + 40
    x, y = width / 2 + places[:, 0] * (width / 2 - 20), height / 2 - places[:, 1] * (width / 2 - 20)
    radius = float(np.clip(60 / np.sqrt(max(len(graph), 1)), 2, 8))
    strongest = largest_entry(thinned.weights) or 1.0
    parts = []
    for i, j in zip(*thinned.edge_indices(), strict=True):
        ends = {"x1": f"{x[i]:.1f}", "y1": f"{y[i]:.1f}", "x2": f"{x[j]:.1f}", "y2": f"{y[j]:.1f}"}
        color = POSITIVE if thinned.weights[i, j] >= 0 else NEGATIVE
        thick = f"{0.5 + 2.5 * abs(thinned.weights[i, j]) / strongest:.2f}"
        parts.append(tag("line", **ends, stroke=color, stroke_width=thick, stroke_opacity="0.6"))
    for k, color in enumerate(community_colors(graph.community_labels())):
        place = {"cx": f"{x[k]:.1f}", "cy": f"{y[k]:.1f}", "r": f"{radius:.1f}"}
        name = tag("title", Html(short_name(graph.tasks[k], 60)))
        parts.append(tag("circle", name, **place, fill=color, stroke="white"))
    if note:
        parts.append(tag("text", Html(note), x="8", y=height - 6, font_size="11", fill="#666"))
    look: dict[str, str | float] = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}", "role": "img"}
    label = f"Task graph with {len(graph)} tasks and {graph.n_edges} edges"
    return tag("svg", *parts, xmlns="http://www.w3.org/2000/svg", **look, aria_label=label)
