"""Reports: a fitted model as a single HTML file that needs no network (extra ``report``).

Selecting a task in one view highlights it in all views. Python computes the whole content of the page; the page itself
only filters, sorts and highlights. See :func:`write`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mssl.files.atomic import write_text
from mssl.kernels.threads import single_threaded

__all__ = ["write"]


@single_threaded
def write(
    model: Any,
    path: str | os.PathLike[str],
    *,
    data: Any = None,
    held_out: bool | None = None,
    transfer: Any = None,
    stability: Any = None,
    coordinates: Any = None,
    title: str | None = None,
) -> Path:
    """Write a fitted model as one self-contained, interactive HTML page.

    Parameters
    ----------
    model : fitted estimator
        Any estimator of mssl, including one read with :func:`mssl.load`, or a pipeline that ends in one. The page has
        no sections for parts that the model lacks, such as a graph or a history.
    path : str or path-like
        Path of the file, which is written completely or not at all.
    data : (X, y) or (X, y, tasks), optional
        Rows on which the errors of each task are measured, preferably rows that are not in the training data.
    held_out : bool, optional
        Whether the model was fitted without these rows. The page states it, because errors on training rows say little
        about new rows. By default the page states that it is not known.
    transfer : TransferReport, optional
        The gain of each task over its single-task fit: a result of :func:`mssl.transfer.transfer_report`, or gains in
        percent as a mapping of task to gain, as K numbers in the order of ``model.tasks_``, or as rows with ``task``,
        ``gain`` and optionally ``verdict``. Further numbers in the rows become columns of the table.
    stability : StabilitySelection, optional
        Selection frequencies along a path: a fitted :class:`mssl.StabilitySelection`, any object or mapping with
        ``lambdas`` (L,) and ``frequencies`` ((L, K, K) or (L, E)) and optionally ``threshold``, or a tuple of these.
    coordinates : (K, 2), optional
        Latitude and longitude of each task in degrees, for a map; by default the coordinates of the graph.
    title : str, optional
        Title of the page.

    Returns
    -------
    pathlib.Path
        Path of the file.

    Raises
    ------
    DataError
        When the model is not fitted, or when `data`, `transfer`, `stability` or `coordinates` do not belong to it.
    DatasetError
        When the file cannot be written.
    MissingDependencyError
        When the extra ``report`` is not installed.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from mssl import MSSLRegressor, report
    >>> from mssl.datasets import make_clustered_tasks
    >>> problem = make_clustered_tasks(random_state=0)
    >>> model = MSSLRegressor(0.5).fit(problem.X, problem.y, tasks=problem.tasks)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = report.write(model, pathlib.Path(folder, "report.html"))
    ...     page.read_text(encoding="utf-8").count("<section")
    11
    """
    from mssl.report.content import Content
    from mssl.report.page import render
    from mssl.report.sections import all_sections

    measured = {"data": data, "held_out": held_out, "transfer": transfer, "stability": stability}
    content = Content(model, **measured, coordinates=coordinates, title=title)
    return write_text(path, render(content, all_sections(content)))
