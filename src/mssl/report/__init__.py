"""One page to send to a colleague: a fitted model as a single HTML file that needs no network (extra ``report``).

Selecting a task in one view highlights it in all. Everything in the page is computed by Python beforehand; the page
itself only filters, sorts and highlights. See :func:`write`.
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
        Any estimator of mssl, also one read with :func:`mssl.load`, or a pipeline that ends in one. What the model does
        not have, such as a graph or a history, is not on the page.
    path : str or path-like
        The file. It is written whole or not at all.
    data : (X, y) or (X, y, tasks), optional
        Rows to measure the model on, task by task; better rows that it was not fitted on.
    held_out : bool, optional
        Whether the model was fitted without these rows. The page says which, since errors on rows that were fitted
        say little of new ones; by default it says that it does not know.
    transfer : TransferReport, optional
        What each task gains over its own single-task fit. Besides :func:`mssl.transfer.transfer_report`'s answer,
        gains in percent: a mapping of task to gain, K numbers in the order of ``model.tasks_``, or rows with ``task``,
        ``gain`` and maybe ``verdict`` (further numbers in a row become columns of the table).
    stability : StabilitySelection, optional
        Selection frequencies along a path. Besides a fitted :class:`mssl.StabilitySelection`, any object or mapping
        with ``lambdas`` (L,) and ``frequencies`` ((L, K, K) or (L, E)), and optionally ``threshold``; or a tuple of
        these.
    coordinates : (K, 2), optional
        Latitude and longitude of each task in degrees, for a map; by default those of the graph, if it has any.
    title : str, optional
        Title of the page.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    DataError
        When the model is not fitted, or `data`, `transfer`, `stability` or `coordinates` do not belong to it.
    DatasetError
        When the file cannot be written.
    MissingDependencyError
        Without the extra ``report``.

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
