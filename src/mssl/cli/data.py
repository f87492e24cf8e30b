"""The command ``mssl datasets``: list, fetch, export."""

from __future__ import annotations

import click

from mssl._typing import Json
from mssl.cli._options import json_option
from mssl.cli._output import check_target, print_json, print_table


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def datasets(ctx: click.Context, as_json: bool) -> None:
    r"""List, fetch and export data sets to try things on.

    \b
    Examples:
      mssl datasets
      mssl datasets export digit-pairs pairs.csv
      mssl datasets fetch landmine
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(listed, as_json=as_json)


@datasets.command("list")
@json_option
def listed(as_json: bool) -> None:
    r"""List the data sets: what they hold, and whether they are here.

    \b
    Example:
      mssl datasets list
    """
    from mssl.datasets import available

    entries = available()
    if as_json:
        print_json(entries)
    else:
        rows = [[entry["name"], "yes" if entry["present"] else "no", entry["what"]] for entry in entries]
        print_table(["name", "present", "what"], rows)


@datasets.command()
@click.argument("name")
@json_option
def fetch(name: str, as_json: bool) -> None:
    r"""Download the files of the data set NAME once, and check them.

    \b
    Example:
      mssl datasets fetch landmine
    """
    from mssl.datasets import fetch as get

    files = [str(path) for path in get(name)]
    if as_json:
        print_json({"name": name, "files": files})
        return
    click.echo("\n".join(files) if files else f"{name} needs no files.")


@datasets.command()
@click.argument("name")
@click.argument("path", type=click.Path())
@click.option("--subsample", type=click.IntRange(min=1), help="Rows per task, where the data set allows it.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which rows --subsample takes.")
@json_option
def export(name: str, path: str, subsample: int | None, seed: int, as_json: bool) -> None:
    r"""Write the data set NAME as a table to PATH.

    The format is that of its ending (CSV, TSV, Parquet, Feather; .gz).

    \b
    Example:
      mssl datasets export digit-pairs pairs.csv --subsample 40
    """
    from mssl.datasets import export as write
    from mssl.datasets._fetch import info
    from mssl.exceptions import ParameterError

    options: Json = {} if subsample is None else {"subsample": subsample, "random_state": seed}
    check_target(path)
    try:
        written = write(name, path, **options)
    except TypeError as error:
        raise ParameterError(
            f"--subsample is given for the data set {name!r}, which cannot be subsampled; export it whole."
        ) from error
    entry = info(name)
    if as_json:
        print_json({"file": str(written), "task": entry.task_column, "target": entry.target_column})
        return
    click.echo(f"{written}\nNext: mssl fit {written} --task {entry.task_column} --target {entry.target_column}")
