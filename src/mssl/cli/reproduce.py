"""The command ``mssl reproduce``: the experiments of the paper."""

from __future__ import annotations

import click

from mssl.cli._options import json_option
from mssl.cli._output import print_json, print_table


@click.command()
@click.argument("name", required=False)
@click.option("--output", "-o", type=click.Path(), help="Folder to write to; by default the experiment's name.")
@click.option("--quick", is_flag=True, help="A small version that takes less than a minute.")
@click.option("--resume", is_flag=True, help="Continue with the records that the folder already holds.")
@click.option("--jobs", type=int, default=1, show_default=True, help="Worker processes; -1 takes all cores.")
@json_option
def reproduce(name: str | None, output: str | None, quick: bool, resume: bool, jobs: int, as_json: bool) -> None:
    r"""Run the experiment NAME of the paper end to end and write its tables, figures and page.

    Without NAME the experiments are listed.

    \b
    Examples:
      mssl reproduce
      mssl reproduce synthetic --quick
      mssl reproduce all --jobs -1 --resume -o results
    """
    from mssl_reproduction import available, run

    if name is None:
        experiments = available()
        if as_json:
            print_json([{"name": short, "title": title} for short, title in experiments])
        else:
            print_table(["name", "what"], experiments)
        return
    page = run(name, output or name, quick=quick, resume=resume, jobs=jobs)
    if as_json:
        print_json({"name": name, "page": str(page)})
    else:
        click.echo(f"Page written to {page}")
