"""Export of task graphs to JSON, GraphML and DOT, and safe task names for every output format."""

import json
import os
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from mssl._html import JOINER, Html, numbered, tag
from mssl._typing import TaskMatrix
from mssl._validation import is_number, warn
from mssl.exceptions import DataError, ModelFileError
from mssl.files.atomic import write_text
from mssl.model.task_matrix import entries_at, pair_matrix, upper_pairs

if TYPE_CHECKING:
    from mssl.graph.task_graph import TaskGraph

_FORMAT, _VERSION = "mssl-task-graph", 1
_FORMULA = ("=", "+", "-", "\u2212", "@")  # First characters by which spreadsheets recognise a formula.


def visible(text: str, keep: str = "") -> str:
    r"""Return the text with control characters, bidirectional marks and similar characters written as escapes.

    Examples
    --------
    >>> print(visible("\x1b[31mred"))
    \x1b[31mred
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == JOINER or c in keep else repr(c)[1:-1] for c in text)


def safe_cell(value: object) -> object:
    r"""Return a cell of a CSV file that a spreadsheet reads as text and that a terminal can display.

    A text that starts like a formula (with =, +, - or @) and is not a number gets a leading apostrophe. Control
    characters other than line ends and tabs are written as escapes. Values other than text are returned unchanged.

    Examples
    --------
    >>> safe_cell("=1+1"), safe_cell("-5"), safe_cell("Oslo"), safe_cell(2.5)
    ("'=1+1", '-5', 'Oslo', 2.5)
    """
    if not isinstance(value, str):
        return value
    text = visible(value, keep="\n\t")
    return f"'{text}" if text.lstrip().startswith(_FORMULA) and not is_number(text) else text


def safe_cells(names: Iterable[object], safe: bool | None = None) -> Callable[[object], object] | None:
    """Return the function that makes the cells of a CSV file safe, or None if the cells are written unchanged.

    Parameters
    ----------
    names : iterable
        All names in the file, including the column headings.
    safe : bool, optional
        Whether cells are made safe (see :func:`safe_cell`). By default they are made safe if a name needs it, with a
        warning.
    """
    changed = [name for name in names if safe_cell(name) != name] if safe is None else []
    if changed:
        warn(
            f"{len(changed)} names (such as {short_name(changed[0])!r}) could act as formulas in a spreadsheet or as "
            "commands on a terminal; they are written with a leading apostrophe or with escapes. Give safe=True to "
            "silence this warning, or safe=False to write the names unchanged."
        )
    return safe_cell if safe or changed else None


def short_name(name: object, width: int = 24) -> str:
    r"""Return a task or feature name for display: one line of at most `width` characters, no control characters.

    The result is plain text. Callers still have to escape it for HTML, and ``$`` for matplotlib.

    Examples
    --------
    >>> short_name("a very long name of a task\nin two lines", width=12)
    'a very long…'
    """
    text = str(name)[: width + 1]
    clean = "".join(c if c.isprintable() or c == JOINER else " " for c in text)
    if not clean.strip():
        return "(blank)"
    return clean if len(clean) <= width else clean[: width - 1] + "…"


def written(text: str, path: str | os.PathLike[str] | None) -> str:
    """Return `text` after writing it atomically to `path`; with None nothing is written."""
    if path is not None:
        write_text(path, text)
    return text


def _data(**values: object) -> list[Html]:
    return [tag("data", Html(str(value)), key=key) for key, value in values.items() if value is not None]


def graphml(graph: "TaskGraph") -> str:
    """Return a graph as GraphML; the nodes are n0, n1, … and hold the task's name as data."""
    keys = [("name", "node", "string"), ("latitude", "node", "double"), ("longitude", "node", "double")]
    keys += [("weight", "edge", "double"), ("confidence", "edge", "double")]
    head = [tag("key", id=k, for_=on, **{"attr.name": k, "attr.type": kind}) for k, on, kind in keys]
    lines = [tag("desc", Html(graph.untested))] if graph.untested else []
    places = [(None, None)] * len(graph) if graph.coordinates is None else graph.coordinates.tolist()
    for k, (latitude, longitude) in enumerate(places):
        lines.append(tag("node", *_data(name=str(graph.tasks[k]), latitude=latitude, longitude=longitude), id=f"n{k}"))
    for i, j, edge in zip(*graph.edge_indices(), graph.support(), strict=True):
        data = _data(weight=edge.weight, confidence=edge.confidence)
        lines.append(tag("edge", *data, source=f"n{i}", target=f"n{j}"))
    body = tag("graph", Html("\n", *(Html(line, "\n") for line in lines)), edgedefault="undirected")
    root = tag("graphml", Html("\n").join([*head, body]), xmlns="http://graphml.graphdrawing.org/xmlns")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{root!s}\n'


def _dot_text(text: str) -> str:
    """Quote text for Graphviz, which reads backslash sequences and HTML entities inside quotes."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    clean = "".join(c if c >= " " or c in "\t\n" else "\ufffd" for c in lines)
    quoted = clean.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return f'"{numbered(quoted, keep=chr(10) + chr(9))}"'.replace("\n", "\\n")


def dot(graph: "TaskGraph") -> str:
    """Return a graph in Graphviz's DOT language; the nodes are n0, n1, … and have the task's name as label."""
    nodes = (f"  n{k} [label={_dot_text(str(name))}];" for k, name in enumerate(graph.tasks))
    note = [f"  label={_dot_text(graph.untested)};"] if graph.untested else []
    lines = ["graph tasks {", *note, *nodes]
    for i, j, edge in zip(*graph.edge_indices(), graph.support(), strict=True):
        style = "dashed" if edge.weight < 0 else "solid"
        lines.append(f'  n{i} -- n{j} [weight={abs(edge.weight):.6f}, label="{edge.weight:.2f}", style={style}];')
    return "\n".join([*lines, "}", ""])


def _encode_name(name: object) -> object:
    """Return a task name as a JSON value; a tuple becomes ``{"tuple": […]}``."""
    if isinstance(name, tuple):
        return {"tuple": [_encode_name(part) for part in name]}
    plain = name.item() if isinstance(name, np.generic) else name
    if plain is None or isinstance(plain, str | int | float):
        return plain
    raise DataError(
        f"The task name {name!r} of type {type(name).__name__} has no JSON form; "
        "allowed are text, numbers, None and tuples of these."
    )


def _decode_name(value: Any) -> Hashable:
    """Return the task name that `_encode_name` encoded."""
    return tuple(_decode_name(part) for part in value["tuple"]) if isinstance(value, dict) else value


def json_text(graph: "TaskGraph") -> str:
    """Return a graph as JSON with the names, and the upper triangles of its matrices as (i, j, value)."""
    document: dict[str, object] = {
        "format": _FORMAT,
        "version": _VERSION,
        "tasks": [_encode_name(name) for name in graph.tasks],
        "edges": _triples(graph.adjacency, graph.weights),
        "confidence": None if graph.confidence is None else _triples(graph.confidence, graph.confidence),
        "coordinates": None if graph.coordinates is None else graph.coordinates.tolist(),
    }
    if graph.untested:
        document["untested"] = graph.untested
    return json.dumps(document, allow_nan=False)


def parse_json(text: str) -> dict[str, Any]:
    """Return the arguments of `TaskGraph` that `json_text` wrote."""
    try:
        document = json.loads(text)
        if (document["format"], document["version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"format {document['format']!r}, version {document['version']!r}")
        tasks = tuple(_decode_name(name) for name in document["tasks"])
        adjacency, weights = _fill(document["edges"], len(tasks))
        confidence = None if document["confidence"] is None else _fill(document["confidence"], len(tasks))[1]
        coordinates = document["coordinates"]
    except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(
            f"The text is not a task graph in JSON of version {_VERSION} ({type(error).__name__}: {error}); "
            "write one with TaskGraph.to_json."
        ) from error
    matrices = {"adjacency": adjacency, "weights": weights, "confidence": confidence}
    return {"tasks": tasks, **matrices, "coordinates": coordinates}


def _triples(adjacency: TaskMatrix, values: TaskMatrix) -> list[tuple[int, int, float]]:
    i, j = upper_pairs(adjacency)
    return list(zip(i.tolist(), j.tolist(), entries_at(values, i, j).tolist(), strict=True))


def _fill(rows: list[list[Any]], K: int) -> tuple[TaskMatrix, TaskMatrix]:
    """Return the mask of the pairs in `rows` of (i, j, value), and the symmetric matrix of the values."""
    named: dict[tuple[int, int], float] = {}
    for i, j, value in rows:
        if not (type(i) is type(j) is int and 0 <= i < j < K):
            raise ValueError(f"({i}, {j}) is no pair of task numbers in rising order")
        named[i, j] = float(value)
    pairs = np.array(list(named), dtype=np.intp).reshape(-1, 2)
    return pair_matrix(pairs, [True] * len(named), K), pair_matrix(pairs, list(named.values()), K)
