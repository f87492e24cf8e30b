"""A table on disk as tasks to fit: what the columns mean, arrays sorted by task."""

from __future__ import annotations

from inspect import signature
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from mssl._validation import warn
from mssl.data.encoding import Features
from mssl.data.folds import TaskGroupKFold, TaskKFold, read_splits
from mssl.data.hints import hint_at_row_ids
from mssl.data.inputs import listing, number_tasks
from mssl.exceptions import DataError, NotAlignedError, ParameterError
from mssl.methods import lacks_graph
from mssl.metrics import task_means


class Training(NamedTuple):
    """A table ready to be fitted: what the columns mean, the family of the target, and arrays sorted by task.

    With a time column X is (n, K, d), y is (n, K), and ``tasks`` names the K tasks; else X is (N, d).
    """

    X: NDArray[np.float64]
    y: NDArray[Any]
    tasks: Any
    schema: Any
    family: str
    rows_per_task: tuple[int, int]
    edges: list[tuple[int, int, float]] | None = None
    groups: NDArray[Any] | None = None
    order: NDArray[Any] | None = None
    dropped: int = 0
    weights: NDArray[np.float64] | None = None
    offset: NDArray[np.float64] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows, of all tasks."""
        return int(self.y.size)

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(number_tasks(self.tasks)[0])

    def can_be_halved(self, method: str) -> bool:
        """Whether stability selection has enough rows of weights (or of residuals) to halve."""
        rows = self.X.shape[0] if method.replace("_", "-") == "r-mssl" else self.X.shape[-1]
        return rows >= 4 and self.n_tasks > 1

    @property
    def aligned(self) -> bool:
        """Whether the rows of all tasks belong together."""
        return self.X.ndim == 3

    def splits(self, folds: int, seed: int) -> list[tuple[Any, Any]]:
        """Training and test rows: within every task, or for rows that belong together in stretches of time."""
        from sklearn.model_selection import KFold

        cv = KFold(folds) if self.aligned else self.drawn_folds(folds, seed) or folds
        return read_splits(cv, self.X, self.y, self.tasks, self.groups, None if self.aligned else self.order)

    def drawn_folds(self, folds: int, seed: int) -> TaskKFold | TaskGroupKFold | None:
        """Folds of rows, or of groups, drawn at random; None where time says what they are."""
        if self.aligned or self.order is not None:
            return None
        return (TaskKFold if self.groups is None else TaskGroupKFold)(folds, random_state=seed)

    def rows(self, rows: Any) -> Training:
        """Some of the rows."""
        tasks = self.tasks if self.aligned else self.tasks[rows]
        beside = {name: getattr(self, name) for name in ("groups", "order", "weights", "offset")}
        parts: dict[str, Any] = {name: None if values is None else values[rows] for name, values in beside.items()}
        return self._replace(X=self.X[rows], y=self.y[rows], tasks=tasks, **parts)

    def numeric_target(self) -> NDArray[np.float64]:
        """The target as numbers; of two labels the second is 1."""
        if self.family == "binary":
            return (self.y == np.unique(self.y)[1]).astype(float)
        return self.y.astype(float)

    def by_task(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean of a value over each task's rows, by their weights."""
        weights = np.ones(self.y.shape) if self.weights is None else self.weights
        if self.aligned:
            return np.asarray(np.average(values, axis=0, weights=weights))
        _, place = number_tasks(self.tasks)
        return np.bincount(place, weights * values) / np.bincount(place, weights)

    def parts_by_task(self, values: NDArray[np.float64], splits: list[tuple[Any, Any]]) -> NDArray[np.float64]:
        """Mean of a value over each task's rows in each test part, (parts, K); NaN where it has none."""
        weights = np.ones(self.y.shape) if self.weights is None else self.weights
        if self.aligned:
            return np.array([np.average(values[test], axis=0, weights=weights[test]) for _, test in splits])
        tasks, place = number_tasks(self.tasks)
        means = np.full((len(splits), len(tasks)), np.nan)
        for part, (_, test) in zip(means, splits, strict=True):
            total, sums = (np.bincount(place[test], w, len(tasks)) for w in (weights[test], (weights * values)[test]))
            np.divide(sums, total, out=part, where=total > 0)
        return means

    def task_means(self, train: Any) -> NDArray[np.float64]:
        """For every row the mean of its task in some rows, drawn towards that of all; see :mod:`mssl.metrics`."""
        y = self.numeric_target()
        task = np.broadcast_to(np.arange(y.shape[-1]), y.shape) if self.aligned else number_tasks(self.tasks)[1]
        weights = np.ones(y.shape) if self.weights is None else self.weights
        means = task_means(y[train].ravel(), task[train].ravel(), weights[train].ravel(), int(task.max()) + 1)
        return np.asarray(means[task])

    @property
    def varies(self) -> bool:
        """Whether the target takes two values in some task."""
        if self.aligned:
            return bool(np.any(self.y != self.y[0]))
        _, place = number_tasks(self.tasks)
        return bool(np.any((self.y[1:] != self.y[:-1]) & (place[1:] == place[:-1])))

    def prepare(self, model: Any, method: str) -> Any:
        """The model with the graph that was given, if it needs one; what else it lacks raises before any work."""
        if method.replace("_", "-") in ("r-mssl", "r-mssl-copula") and not self.aligned:
            raise NotAlignedError(
                f"{method} relates the errors that tasks make at the same time, so it needs to know which rows belong "
                "together; name the column of times with --time (every task needs one row at each of the same times), "
                "or use p-mssl, which needs none."
            )
        place = lacks_graph(model)
        if place is None:
            return model
        if self.edges is None:
            raise ParameterError(
                f"{method} smooths over a graph of tasks that is known; give its edges with --edges edges.csv, a table "
                "with two columns of task names and, if edges differ, a column named weight."
            )
        return model.set_params(**{f"{place}__edges": self.edges})

    def fit_rows(self, model: Any) -> Any:
        """Fit a model, which gets to know groups and times where it makes folds of its own."""
        given = {"groups": self.groups, "order": self.order, "sample_weight": self.weights, "offset": self.offset}
        known = signature(model.fit).parameters
        if self.offset is not None and ("offset" not in known or self.family == "binary"):
            raise ParameterError("This method takes no offset for such targets; leave out --offset.")
        named = {name: values for name, values in given.items() if values is not None and name in known}
        X = Features(self.X, feature_names=np.asarray(self.schema.feature_names, dtype=object))
        return model.fit(X, self.y, tasks=self.tasks, **named)

    def fit(self, model: Any) -> Any:
        """Fit a model, and let it know what the table's columns mean."""
        self.fit_rows(model)
        self.schema.attach(model)
        return model


def read_training(
    data: str,
    task: str,
    target: str,
    features: str | None,
    drop: str,
    time: str | None,
    family: str,
    missing: str,
    edges: str | None = None,
    group: str | None = None,
    order: str | None = None,
    weight: str | None = None,
    offset: str | None = None,
    missing_target: str | None = None,
    categorical: str | None = None,
) -> Training:
    """Read a table and turn it into tasks; see :func:`mssl.files.tables.learn_schema` for what is refused."""
    from mssl.files.tables import detect_family, learn_schema, read_table, release_memory, text_target

    chosen, left_out, codes = names_in(features), names_in(drop) or [], names_in(categorical) or []
    if chosen == []:
        raise click.UsageError(
            f"--features {features!r} names no column; give names separated by commas, such as --features wind,sun, "
            "or leave the option out to use all columns."
        )
    if time is not None and (group is not None or order not in (None, time)):
        raise click.UsageError(
            "--time says already which rows belong together; leave out --group, and give --order the same column."
        )
    aligned = list(dict.fromkeys(name for name in (time, group, order) if name is not None))
    numbers = [name for name in (weight, offset) if name is not None]
    beside = [*aligned, *numbers]
    if len({task, target, *beside}) < 2 + len(beside):
        raise click.UsageError("One column has two roles; give --task, --target, --weight and --offset different ones.")
    needed = None if chosen is None else [task, target, *chosen, *beside]
    unread = set(left_out) - {task, target, *(chosen or ()), *beside}
    table = read_table(data, columns=needed, drop=list(unread), text=[task, *aligned, *codes])
    left_out += beside
    schema = learn_schema(
        table, task, target, features=chosen, drop=left_out, missing=missing, offset=offset, categorical=codes
    )
    truth = _is_boolean(table[target])
    labels = {name: column_labels(table, name) for name in aligned}
    for name in aligned:
        table.take(name)
    encoded = schema.encode(
        table, with_target=True, by_task=True, training=True, missing_target=missing_target, weight=weight
    )
    release_memory()
    tasks, of_row = number_tasks(encoded.tasks)
    counts = np.bincount(of_row)
    _point_out_blanks(tasks.tolist(), task)
    if chosen is None:
        hint_at_row_ids(encoded.X, schema.columns)
    y = encoded.target
    family = detect_family(y, target) if family == "auto" else family
    if len(y) < 2:
        raise DataError(f"{data!r} has one row that can be used; give at least two, of which a task can learn.")
    if family != "binary" and y.dtype.kind == "U":
        raise text_target(y, target)
    if family == "binary" and y.dtype.kind == "f" and np.array_equal(y, np.round(y)):
        y = y.astype(bool if truth else np.int64)
    groups, times = (None if name is None else labels[name][encoded.rows] for name in (group, order))
    training = Training(
        encoded.X,
        y,
        encoded.tasks,
        schema,
        family,
        (int(counts.min()), int(counts.max())),
        None if edges is None else _read_edges(edges, tasks.tolist()),
        groups,
        None if times is None else _sortable(times),
        encoded.dropped,
        encoded.weight,
        encoded.offset,
    )
    return training if time is None else _aligned(training, tasks, counts, labels[time][encoded.rows])


def column_labels(table: Any, name: str) -> NDArray[Any]:
    """The text of a column in each row; an empty cell raises."""
    codes, texts = table[name].text()
    if np.any(codes < 0):
        row = int(np.argmax(codes < 0)) + 1
        raise DataError(f"Column {name!r} is empty in row {row} of the data; give every row an entry, or drop it.")
    return np.asarray(texts)[codes]


def _sortable(times: NDArray[Any]) -> NDArray[Any]:
    """Times as numbers where they are some, since "10" comes before "9"; dates are in the order of their text."""
    try:
        return times.astype(float)
    except ValueError:
        return times


def _read_edges(path: str, tasks: list[str]) -> list[tuple[int, int, float]]:
    """Pairs of places among the tasks, and weights, from a table of task names."""
    from mssl.files.tables import check_tasks, read_table, read_task_column

    names = read_table(path).names
    if len(names) < 2:
        raise DataError(f"{path!r} has one column; give two columns of task names, and one of weights if edges differ.")
    weighted = ["weight"] if "weight" in names[2:] else []
    table = read_table(path, columns=[*names[:2], *weighted], text=names[:2])
    ends = [read_task_column(table[name], name).tolist() for name in names[:2]]
    check_tasks([*ends[0], *ends[1]], tasks)
    weights = table["weight"].numbers() if weighted else np.ones(len(ends[0]))
    place = {task: k for k, task in enumerate(tasks)}
    edges = [(place[a], place[b], float(weight)) for a, b, weight in zip(*ends, weights, strict=True)]
    wrong = next((edge for edge in edges if edge[0] == edge[1] or not 0 <= edge[2] < np.inf), None)
    if wrong is not None:
        raise DataError(
            f"{path!r} has the edge {tasks[wrong[0]]!r}, {tasks[wrong[1]]!r} of weight {wrong[2]:g}; an edge joins two "
            "different tasks, and weights are numbers ≥ 0."
        )
    return edges


def _is_boolean(column: Any) -> bool:
    """Whether pyarrow has read true and false, which count as numbers from here on; labels shall stay what they are."""
    return str(getattr(column._data, "type", "")) == "bool"


def _point_out_blanks(tasks: list[str], column: str) -> None:
    from mssl.files.tables import blank_twins

    for group in blank_twins(tasks):
        warn(
            f"the tasks {listing(group)} differ only in blanks; they are fitted as different tasks. "
            f"If they are one, correct the column {column!r}."
        )


def _aligned(training: Training, tasks: Any, counts: Any, moments: Any) -> Training:
    """Rows sorted by task as (n, K, d) and (n, K): the same moments in every task, each once."""
    K, n = len(tasks), int(counts[0])
    ends = np.cumsum(counts)
    orders = [np.argsort(moments[end - count : end], kind="stable") for count, end in zip(counts, ends, strict=True)]
    for name, order, end, count in zip(tasks, orders, ends, counts, strict=True):
        times = moments[end - count : end][order]
        if count != n or np.any(times != moments[:n][orders[0]]) or np.any(times[1:] == times[:-1]):
            raise DataError(
                f"Task {str(name)!r} has other times than task {str(tasks[0])!r}, or one twice; with --time every task "
                "needs one row at each of the same times."
            )
    places = np.concatenate([place + end - n for place, end in zip(orders, ends, strict=True)]).reshape(K, n).T
    given = {name: getattr(training, name) for name in ("weights", "offset")}
    beside: dict[str, Any] = {name: None if values is None else values[places] for name, values in given.items()}
    return training._replace(
        X=training.X[places],
        y=training.y[places],
        tasks=tasks,
        order=None if training.order is None else np.arange(n),  # rows are sorted by time
        **beside,
    )


def names_in(text: str | None) -> list[str] | None:
    """Column names out of a comma-separated option."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
