"""A picture of a combination: where it gained, and which member it leans on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mssl.climate.grids import around, given_names
from mssl.exceptions import DataError
from mssl.graph.geometry import NEUTRAL, PALETTE
from mssl.plots.support import (
    NORMAL,
    NOTHING,
    SMALL,
    drawn,
    map_frame,
    matplotlib_module,
    new_figure,
    signed_colours,
)

Array = NDArray[np.float64]


def plot_combination(answer: Any, *, coast: bool = True) -> Any:
    """Draw maps of what :func:`mssl.climate.combine` returns: gains at each location, and the member of most weight.

    A gain is the share of a rival's error that is gone, in blue, or added, in orange; both maps have one scale. Where
    nothing was observed in the years of testing there are no gains: drawn are the changes from the training years, of
    the combination and of the members' mean, a rise in orange. Cells of a grid are drawn as cells, other locations as
    points.

    Parameters
    ----------
    answer : xarray.Dataset
        Of :func:`mssl.climate.combine`, with latitudes and longitudes.
    coast : bool
        Draw coastlines (needs global-land-mask).

    Returns
    -------
    ndarray of matplotlib Axes
        Save the figure with ``axes[0].figure.savefig(…)``.

    Examples
    --------
    >>> from mssl import MSSLRegressor
    >>> from mssl.climate import combine, plot_combination, to_dataset
    >>> from mssl.datasets import make_climate_like
    >>> cells = to_dataset(make_climate_like(n_samples=120, n_lat=3, n_lon=3, random_state=0))
    >>> years = {"train": (1901, 1907), "test": (1908, 1910)}
    >>> answer = combine(cells["ensemble"], cells["observed"], estimator=MSSLRegressor(0.3), **years)
    >>> [ax.get_title() for ax in plot_combination(answer, coast=False)]
    ['gain over climatology', 'gain over corrected average', 'largest weight']
    """
    places = map_places(answer)
    if bool(answer["rmse"].notnull().any()):
        rivals = {"climatology": "rmse_climatology", "corrected average": "rmse_average"}
        with np.errstate(divide="ignore", invalid="ignore"):
            maps = {f"gain over {name}": 100 * (1 - answer["rmse"] / answer[rival]) for name, rival in rivals.items()}
        label, most = "share of the error that is gone (%)", 100.0
    else:
        maps = {"projected change": answer["change"], "change of the members": answer["members_change"]}
        label, most = f"change from the training years ({answer['change'].attrs['units']})", np.inf
    reach = max(np.abs(field.values[np.isfinite(field.values)]).max(initial=0.0) for field in maps.values())
    look = signed_colours(min(reach, most) or 1.0)
    if most == np.inf:
        look["cmap"] = look["cmap"].reversed()
    names = [str(name) for name in answer["member"].values] if "weights" in answer else []
    page = new_figure((7.0, 3.6))
    grid = page.add_gridspec(2, 2 + bool(names), height_ratios=(4, 1))
    made = np.array([page.add_subplot(grid[0, k]) for k in range(2 + bool(names))])
    for ax, (title, field) in zip(made, maps.items(), strict=False):
        drawing = _draw(ax, field, places, look, coast)
        ax.set_title(title, fontsize=NORMAL)
    room = page.add_subplot(grid[1, :2]).inset_axes((0.1, 0.6, 0.8, 0.2))
    extend = "min" if reach > most else "neither"
    bar = page.colorbar(drawing, cax=room, orientation="horizontal", extend=extend)
    bar.set_label(label, fontsize=NORMAL)
    bar.ax.tick_params(labelsize=SMALL)
    if names:
        _draw_members(made[-1], page.add_subplot(grid[1, 2]), answer["weights"], names, places, coast)
    for ax in page.axes[len(made) :]:
        ax.set_axis_off()
    for ax in made:
        ax.tick_params(labelsize=SMALL, labelleft=ax is made[0])
        ax.set_ylabel(ax.get_ylabel() if ax is made[0] else "")
    across, up = (float(np.ptp(limits)) for limits in (made[0].get_xlim(), made[0].get_ylim()))
    width = np.clip(2.4 * across / (up * made[0].get_aspect()), 2.0, 3.4)
    page.set_size_inches(0.5 + width * len(made), 3.6)
    return made


def map_places(data: Any) -> dict[str, str]:
    """The names of the axes of a map."""
    places = given_names(data)
    if not {"lat", "lon"} <= set(places):
        raise DataError("There are no latitudes and longitudes, so there is no map; give them to the observation.")
    return places


def _draw(ax: Any, field: Any, places: dict[str, str], look: dict[str, Any], coast: bool) -> Any:
    """One value a location as colours: cells where there is a grid, else points."""
    field = field.assign_coords({places["lon"]: around(field[places["lon"]])})
    lat, lon = (np.asarray(field[places[axis]].values, dtype=float) for axis in ("lat", "lon"))
    if field.ndim == 2:
        field = field.transpose(places["lat"], places["lon"]).sortby([places["lat"], places["lon"]])
        lat, lon = _edges(lat), _edges(lon)
        drawing = ax.pcolormesh(lon, lat, field.values, **look)
        ax.set_facecolor(NOTHING)
    else:
        size = float(np.clip(2000 / max(len(lat), 1), 9, 40))
        drawing = ax.scatter(lon, lat, c=field.values, s=size, edgecolors="#555555", linewidths=0.3, zorder=3, **look)
    map_frame(ax, lat, lon, coast=coast)
    return drawing


def _edges(centres: Array) -> Array:
    """Where the cells around some centres, in any order, begin and end."""
    rising = np.sort(centres)
    middles = (rising[1:] + rising[:-1]) / 2
    first, last = (middles[0], middles[-1]) if len(middles) else (rising[0] - 0.5, rising[0] + 0.5)
    return np.concatenate([[2 * rising[0] - first], middles, [2 * rising[-1] - last]])


def _draw_members(ax: Any, below: Any, weights: Any, names: list[str], places: dict[str, str], coast: bool) -> None:
    """Which member has the largest weight, of either sign; those that lead most often have a colour, named below."""
    known = np.isfinite(weights).all("member")
    leading = np.abs(weights).fillna(0.0).argmax("member")
    counts = np.bincount(leading.values[known.values], minlength=len(names))
    ranked = np.argsort(-counts, kind="stable")
    shown = [k for k in ranked[: len(PALETTE)].tolist() if counts[k]]
    rank = np.full(len(names), len(shown))
    rank[shown] = np.arange(len(shown))
    colours = [*PALETTE[: len(shown)], NEUTRAL]
    look = {"cmap": matplotlib_module("colors").ListedColormap(colours), "vmin": -0.5, "vmax": len(shown) + 0.5}
    _draw(ax, leading.copy(data=rank[leading.values].astype(float)).where(known), places, look, coast)
    ax.set_title("largest weight", fontsize=NORMAL)
    words = [f"{drawn(names[k], 16)} ({counts[k]})" for k in shown]
    others = int(counts.sum() - counts[shown].sum())
    words += [f"others ({others})"] if others else []
    patches = matplotlib_module("patches")
    handles = [patches.Patch(facecolor=colour, label=word) for colour, word in zip(colours, words, strict=False)]
    below.legend(handles=handles, fontsize=SMALL, frameon=False, loc="upper center", ncols=2, columnspacing=1.0)
