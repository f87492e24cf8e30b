"""All experiments, one after the other, with one index page and one document of all tables."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mssl.exceptions import DatasetError
from mssl.files.atomic import prepare_folder, write_text
from mssl_reproduction.page import Page, document, published, save_figure
from mssl_reproduction.runner import RECORDS, run_experiment

_SCREEN = 80  # dots an inch of the figures in reproduction.md: small files


def run_all(
    experiments: Mapping[str, Any],
    output: str | os.PathLike[str],
    *,
    quick: bool = False,
    resume: bool = False,
    jobs: int = 1,
) -> Path:
    """Run the experiments into folders of their own, and write the index and ``reproduction.md``.

    An experiment whose data cannot be had is left out, and the index says why.

    Parameters
    ----------
    experiments : mapping of name → experiment
        What is run.
    output : path
        Folder that gets one folder for each.
    quick, resume, jobs
        As for :func:`mssl_reproduction.run`; folders without records are begun also when resuming.

    Returns
    -------
    Path
        The index page.
    """
    folder = prepare_folder(output)
    pages: dict[str, Page] = {}
    missing: dict[str, str] = {}
    for name, experiment in experiments.items():
        try:
            pages[name] = run_experiment(experiment, folder / name, quick=quick, resume=resume, jobs=jobs)
        except DatasetError as error:
            if (folder / name / RECORDS).exists():
                raise
            missing[name] = str(error)
    write_text(folder / "index.html", _index(pages, missing))
    write_text(folder / "reproduction.md", reproduction(pages, missing, quick))
    for name, page in pages.items():
        for kind, item in page.blocks:
            if kind == "figure":
                save_figure(item.figure, folder / f"{_prefix(name)}{item.name}", dpi=_SCREEN, vectors=False)
    return folder / "index.html"


def _prefix(name: str) -> str:
    """How the files of an experiment's figures beside ``reproduction.md`` begin."""
    return f"reproduction-{name}-"


def _index(pages: dict[str, Page], missing: dict[str, str]) -> str:
    lines = [
        f'<li><a href="{name}/page.html">{html.escape(page.title)}</a> '
        f'(<a href="{name}/records.jsonl">records</a>, <a href="{name}/settings.json">settings</a>)</li>'
        for name, page in pages.items()
    ]
    lines += [f"<li>{html.escape(name)}: not run. {html.escape(why)}</li>" for name, why in missing.items()]
    source = published()["source"]
    body = (
        "<h1>The paper's experiments</h1>\n"
        f"<p>{html.escape(source['citation'])}, doi:{source['doi']}. Published figures beside measured ones.</p>\n"
        "<ul>\n" + "\n".join(lines) + "\n</ul>"
    )
    return document("The paper's experiments", body)


def reproduction(pages: dict[str, Page], missing: dict[str, str], quick: bool) -> str:
    """All tables and texts as one Markdown document."""
    source: dict[str, Any] = published()["source"]
    command = f"mssl reproduce all{' --quick' if quick else ''} --output results --resume"
    head = (
        f"# The paper's experiments, reproduced\n\nThis document was written by `{command}`, or section "
        "by section by the calls that each of them names, which may be of fewer runs; records, settings "
        f"and larger figures lie in the folders it writes. Published figures are those of {source['citation']}, "
        f"doi:{source['doi']}; they come from one file (`reproduction/mssl_reproduction/published.json`) and "
        "were used neither for tuning nor as a target.\n"
    )
    if quick:
        head += "\n**Quick protocol: far fewer runs and smaller grids than the paper's.**\n"
    parts = [head, *(page.markdown(level=2, prefix=_prefix(name)) for name, page in pages.items())]
    parts += [f"## {name}\n\nNot run: {why}\n" for name, why in missing.items()]
    return "\n".join(parts)
