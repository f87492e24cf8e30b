"""The command ``mssl climate``: NetCDF files in, one NetCDF file out."""

from __future__ import annotations

from glob import glob
from typing import Annotated, Literal, TypeAlias

import click
import numpy as np

from mssl._typing import Json
from mssl._validation import refused
from mssl.cli import _options as cli
from mssl.metrics import NEGLIGIBLE_GAIN

Region: TypeAlias = tuple[float, float, float, float]


def _years(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, int]:
    first, _, last = value.partition(":")
    try:
        return int(first), int(last or first)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not a range of years; give the first and the last, such as 1901:1950."
        ) from None


def _region(ctx: click.Context, param: click.Parameter, value: str | None) -> Region | None:
    if value is None:
        return None
    try:
        west, east, south, north = (float(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a region; give west,east,south,north in degrees.") from None
    return west, east, south, north


_YEARS: Json = {"type": str, "metavar": "FIRST:LAST", "callback": _years}
_LEFT_OUT = {
    "locations_at_sea": "at sea (--all-cells keeps them)",
    "locations_not_observed": "observed too seldom in the training years",
    "locations_not_modelled": "with gaps in a member, or outside its grid",
}
_RIVALS = (
    ("climatology", "climatology", ""),
    ("average", "average", ", members bias-corrected"),
    ("best_member", "best member", " ({}, chosen on the training years, bias-corrected)"),
)


@cli.command
def climate(
    *,
    members: Annotated[tuple[str, ...], "Files of the models; a pattern such as 'cmip/*.nc'.", {"multiple": True}],
    observations: Annotated[str, "File of the observation.", cli.PATH],
    variable: Annotated[str | None, "Variable to combine, such as tas; needed if files have several."] = None,
    observed_variable: Annotated[str | None, "Name of the variable in the observation's file if it differs."] = None,
    region: Annotated[Region | None, "west,east,south,north in degrees.", {"type": str, "callback": _region}] = None,
    train: Annotated[tuple[int, int], "Years to learn from.", _YEARS],
    test: Annotated[tuple[int, int], "Years to predict.", _YEARS],
    method: Annotated[str, "p-mssl, r-mssl, bayesian, or any name of mssl.presets."] = "r-mssl",
    raw: Annotated[bool, "Combine values as they are, not anomalies (the paper's way)."] = False,
    regrid: Annotated[
        Literal["bilinear", "nearest"], "Interpolation of the members to the observation's grid."
    ] = "bilinear",
    all_cells: Annotated[bool, "Keep cells at sea."] = False,
    fixed: cli.Settings,
    output: Annotated[str | None, "NetCDF file to write.", cli.OUTPUT] = None,
    picture: Annotated[str | None, "Maps of gains and leading members to write (.png, .pdf or .svg).", cli.PATH] = None,
    save: Annotated[
        str | None, "File of the fitted model to write (.npz), for mssl graph and report.", cli.PATH
    ] = None,
    run: cli.Telling,
) -> None:
    r"""Combine climate models with observations, one task per grid cell, and report the error.

    Calendars and grids are converted to those of the observation, and K and °C to each other. The NetCDF file holds the
    weights of each member, the predictions, the errors and the graph between locations, with the names and coordinates
    of the observation and on its grid if it has one.

    The error is compared with that of the climatology, the average of the members, and the best member. The average and
    the best member are bias-corrected: the observation's monthly means replace those of each member. All means are
    those of the training years, and the best member is the best one in these years.

    The observation may have gaps and missing months. The fit and the comparison use the observed values; all months are
    predicted.

    The command also prints the members' mean change from the training years to the test years, and the share of it
    that the combination keeps. A regression on months learns weather, and may damp or inflate the change.

    \b
    Example:
      mssl climate --members 'cmip/*.nc' --observations cru.nc --variable tas --region -82,-34,-56,13 \
        --train 1901:1950 --test 1951:1960 --method r-mssl -o combined.nc
    """
    import mssl
    from mssl.climate import combine, open_field, open_members, plot_combination, write_dataset
    from mssl.climate.combination import map_places
    from mssl.climate.grids import reject_observation
    from mssl.estimators.baselines import Climatology
    from mssl.methods import make_estimator

    # Path.glob takes no absolute patterns.
    paths = sorted({path for pattern in members for path in glob(pattern, recursive=True)})  # noqa: PTH207
    for target in (output, save):
        cli.check_target(target, observations, *paths)
    cli.check_picture(picture, observations, *paths)
    if observed_variable in (None, variable):  # With different variables one file may hold both.
        reject_observation(paths, observations)
    model = make_estimator(method, "gaussian", fixed, verbose=run.verbose)
    if save is not None and isinstance(model, Climatology):
        raise refused("save", save, "the climatology cannot be saved as a model", "Leave --save out.")
    observed = open_field(observations, observed_variable or variable)
    if picture is not None:
        map_places(observed)
    how: Json = {"region": region, "train": train, "test": test, "raw": raw, "regrid": regrid}
    answer, fitted = combine(
        open_members(paths, variable), observed, estimator=model, land_only=not all_cells, return_model=True, **how
    )
    answer.attrs["method"] = method
    if picture is not None:
        plot_combination(answer)[0].figure.savefig(picture, dpi=200)
    if save is not None:  # The error is NaN without observations in the test years.
        notes = {name: cli.plain(answer.attrs[name]) for name in ("combined", "train_years", "rmse")}
        mssl.save(fitted, save, notes=notes)
    if output is not None:
        write_dataset(answer, output)
    of_file = ("Conventions", "title", "source", "comment")
    facts = {
        "method": method,
        "members": len(answer["member"]) if "member" in answer.coords else None,
        "locations": answer.attrs["locations"],
        "months": len(answer["time"]),
        **{name: value for name, value in answer.attrs.items() if name not in of_file},
        "warning": cli.in_options(answer.attrs["comment"]) if "comment" in answer.attrs else None,
        "file": output,
        "picture": picture,
        "model": save,
    }
    units = answer["prediction"].attrs["units"]
    run.tell(facts, lambda found: _show(found, units), quiet=run.quiet)


def _show(facts: Json, units: str) -> None:
    lines = [(name, facts[name]) for name in ("method", "members", "locations", "months", "combined")]
    if facts["locations_left_out"]:
        reasons = ", ".join(f"{facts[name]} {reason}" for name, reason in _LEFT_OUT.items() if facts[name])
        lines.append(("left out", f"{facts['locations_left_out']} locations: {reasons}"))
    if facts["missing_train"] or facts["missing_test"]:
        parts = f"{facts['missing_train']} values in the training years, {facts['missing_test']} in those of testing"
        lines.append(("missing", f"{parts}; learned from and compared with the others, all months predicted"))
    known = not np.isnan(facts["rmse"])
    lines += _errors(facts, units) if known else [("RMSE", "unknown: nothing was observed in the years of testing")]
    if not np.isnan(facts["weights_sum"]):
        lines.append(("weights", f"of the members, sum to {facts['weights_sum']:.3g} (mean over locations)"))
    change, error = f"{facts['members_change']:+.3g} {units}", f"standard error {facts['members_change_se']:.2g}"
    kept = f"the combination keeps {round(facts['change_kept'], 2) + 0.0:.0%} of it"
    lines.append(("change", f"{change} from training to testing in the members' mean, {error}; {kept}"))
    cli.print_facts([*lines, *(("written", facts[name] or None) for name in ("file", "picture", "model"))])


def _errors(facts: Json, units: str) -> list[tuple[str, str]]:
    """Return the lines with the combination's error, the errors of its rivals, and its gains over them."""
    lines = [("RMSE", f"{facts['rmse']:.4g} {units}")]
    for name, words, remark in _RIVALS:
        gain, error = facts[f"gain_over_{name}"], facts[f"gain_over_{name}_se"]
        spread = f" ± {error:.1%}" if np.isfinite(error) else ""
        ahead = f"{abs(gain):.1%}{spread} {'ahead of' if gain > 0 else 'behind'} it"
        verdict = ahead if abs(gain) >= NEGLIGIBLE_GAIN else "as good"
        what = remark.format(facts["best_member"])
        lines.append((words, f"{facts[f'rmse_{name}']:.4g} {units}{what}; the combination is {verdict}"))
    lines.append(("raw average", f"{facts['rmse_raw_average']:.4g} {units}, the members' biases left in"))
    first, last = map(int, facts["test_years"].split(":"))
    years = f"one standard error, paired, from leaving out each of the {last - first + 1} years of testing in turn"
    lines.append(("±", years if last > first else "none: testing on two years or more would tell the error of gains"))
    return lines
