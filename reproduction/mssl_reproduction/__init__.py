"""Every table and figure of the paper, reproduced with one call each.

References
----------
Gonçalves, Das, Chatterjee, Sivakumar, Von Zuben & Banerjee (2014), Multi-task Sparse Structure Learning, CIKM,
doi:10.1145/2661829.2662091.

Examples
--------
>>> from mssl_reproduction import available
>>> [name for name, title in available()][:2]
['synthetic', 'sensitivity']
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from mssl._validation import check_choice, refused

__all__ = ["available", "run"]

_MODULES = {
    "synthetic": "synthetic",
    "sensitivity": "sensitivity",
    "climate": "climate",
    "classification": "classification",
    "sample-size": "sample_size",
    "landmine-graph": "landmine_graph",
    "scaling": "scaling",
    "regimes": "regimes",
}


def available() -> list[tuple[str, str]]:
    """Names and titles of the experiments, and ``all``.

    Examples
    --------
    >>> dict(available())["all"]
    'Everything, with one index page'
    """
    return [(name, load(name).title) for name in _MODULES] + [("all", "Everything, with one index page")]


def load(name: str) -> Any:
    """The experiment of a name, from the module that describes it."""
    check_choice("name", name, tuple(_MODULES), also="'all'")
    return import_module(f"mssl_reproduction.{_MODULES[name]}").EXPERIMENT


def run(
    name: str,
    output: str | os.PathLike[str],
    *,
    quick: bool = False,
    resume: bool = False,
    jobs: int = 1,
    **changes: Any,
) -> Path:
    """Run an experiment end to end and write its folder.

    The folder gets the tables (CSV, Markdown, LaTeX), the figures (PNG, SVG), the raw records (``records.jsonl``), the
    settings with versions and seeds (``settings.json``) and the page (``page.html``, ``page.md``) that sets published
    figures beside measured ones.

    Parameters
    ----------
    name : str
        One of :func:`available`; "all" writes one folder for each experiment, an index page, and ``reproduction.md``
        with all tables.
    output : path
        Folder to write to.
    quick : bool, default=False
        A small version that takes less than a minute; the default is the paper's full protocol.
    resume : bool, default=False
        Continue with the records that the folder already holds.
    jobs : int, default=1
        Worker processes; −1 takes all cores.
    **changes
        Entries of the experiment's protocol to change, such as ``seeds=3``; not for "all".

    Returns
    -------
    Path
        The page.

    Examples
    --------
    >>> from mssl_reproduction import run
    >>> run("synthetic", "results", quick=True)  # doctest: +SKIP
    """
    if name == "all":
        from mssl_reproduction.everything import run_all

        if changes:
            raise refused("name", name, f"one experiment is needed to change {', '.join(changes)}")
        return run_all({each: load(each) for each in _MODULES}, output, quick=quick, resume=resume, jobs=jobs)
    from mssl_reproduction.runner import run_experiment

    run_experiment(load(name), output, quick=quick, resume=resume, jobs=jobs, **changes)
    return Path(output) / "page.html"
