"""The command ``mssl demo``: the paper's synthetic problem, in words and pictures."""

from __future__ import annotations

from pathlib import Path

import click

from mssl.cli._options import jobs_option
from mssl.cli._output import print_table


@click.command(
    epilog="""\b
Examples:
  mssl demo
  mssl demo --seeds 20 --output pictures
"""
)
@click.option("--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="Data sets to draw.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("mssl-demo"), show_default=True,
    help="Folder for the pictures.",
)  # fmt: skip
@jobs_option
def demo(seeds: int, output: Path, jobs: int | None) -> None:
    """See what mssl does: the paper's synthetic problem, 13 tasks in two clusters and three outliers.

    Prints the test error of separate least squares, separate ridge regressions and p-MSSL, and how many edges of the
    true task graph were found; writes box plots, precision matrices and graphs as PNG files.
    """
    from mssl._progress import Progress
    from mssl.experiments import demo as experiment

    click.echo(f"13 tasks, 60 training and 40 test rows each, 30 features, unit noise; {seeds} data sets.", err=True)
    with Progress(1, "demonstration", 1) as bars:
        bars.stage("data sets", seeds)
        result = experiment.run(output, seeds=seeds, jobs=jobs, progress=bars.advance)
    print_table(
        ["tasks", *experiment.METHODS],
        [
            [name, *(f"{cells[m][0]:.3f} ± {cells[m][1]:.3f}" for m in experiment.METHODS)]
            for name, cells in result.table()
        ],
        title="Test RMSE (mean ± sd over data sets; the noise alone gives 1)",
    )
    found, missed, false = (sum(counts) / seeds for counts in zip(*result.edges, strict=True))
    click.echo(f"\nEdges of the task graph, on average: {found:.1f} found, {missed:.1f} missed, {false:.1f} false.")
    click.echo("Pictures: " + ", ".join(str(path) for path in result.pictures))
