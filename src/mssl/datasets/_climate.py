"""Ensembles of climate models beside observed temperatures.

References
----------
- CMIP5: Taylor, Stouffer, Meehl (2012), https://doi.org/10.1175/BAMS-D-11-00094.1. Terms of use of the
  modelling centres.
- AR6 regions: Iturbide et al. (2020), https://doi.org/10.5194/essd-12-2959-2020. CC BY 4.0.
"""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from mssl._validation import check_choice
from mssl.datasets._fetch import fetch
from mssl.datasets._layout import Part, bunch, names
from mssl.datasets._real import read_cells
from mssl.datasets._registry import info
from mssl.exceptions import DatasetError

CLIMATE_SETS = ("fiveloc", "atlas", "south_america", "north_america")
_FIVE_REGIONS = ("Australia", "South America", "North America", "Russia", "Sahara")


def calendar_from(first: str, count: int) -> np.ndarray:
    """Months in a row as datetime64[M]."""
    return np.datetime64(first, "M") + np.arange(count)


def by_month(X: np.ndarray, y: np.ndarray, months: np.ndarray) -> Part:
    """Aligned arrays as a design and a target per task, with the month of every row."""
    beside = {"months": months, "calendar": months.astype(int) % 12 + 1}
    return list(X.swapaxes(0, 1)), list(y.T), beside


def read_regions(path: Path) -> dict[str, dict[str, Any]]:
    """Name, continent and polygons (lists of (v, 2) longitude, latitude) of the AR6 regions by acronym.

    Regions across the date line come in two parts, the second marked by a star; the parts are joined with
    longitudes that run on beyond 180.
    """
    regions: dict[str, dict[str, Any]] = {}
    with path.open(newline="", encoding="utf-8") as lines:
        for continent, _, name, acronym, *vertices in list(csv.reader(lines))[1:]:
            corners = [vertex.split("|") for vertex in vertices if vertex.strip()]
            polygon = np.array([[float(longitude), float(latitude)] for longitude, latitude in corners])
            if acronym.endswith("*"):
                regions[acronym[:-1]]["polygons"].append(polygon + np.array([360.0, 0.0]))
            else:
                regions[acronym] = {"name": name, "continent": continent, "polygons": [polygon]}
    return regions


def centroid(polygons: list[np.ndarray]) -> tuple[float, float]:
    """Latitude and longitude of the centre of area in the longitude–latitude plane (shoelace formula)."""
    total, moment = 0.0, np.zeros(2)
    for polygon in polygons:
        following = np.roll(polygon, -1, axis=0)
        cross = polygon[:, 0] * following[:, 1] - following[:, 0] * polygon[:, 1]
        area = cross.sum() / 2
        centre = ((polygon + following) * cross[:, None]).sum(axis=0) / (6 * area)
        total += abs(area)
        moment += abs(area) * centre
    longitude, latitude = moment / total
    return float(latitude), float((longitude + 180) % 360 - 180)


def _load_cells(name: str) -> dict[str, Any]:
    path = fetch(f"climate-{name}")[0]
    designs, targets, _ = read_cells(path)
    if len({design.shape for design in designs}) != 1:
        raise DatasetError(f"The cells of {path} differ in shape, so their months do not align; fetch the file again.")
    X, y = np.stack(designs, axis=1).astype(np.float64), np.stack(targets, axis=1).astype(np.float64)
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise DatasetError(f"{path} holds values that are not finite; fetch the file again.")
    if name == "fiveloc":
        regions = np.repeat(_FIVE_REGIONS, 5)
        locations = np.array([f"{region} {number}" for region in _FIVE_REGIONS for number in range(1, 6)])
    else:
        regions = np.repeat(name.replace("_", " ").title(), y.shape[1])
        locations = names("cell", y.shape[1])
    return {
        "train": by_month(X, y, calendar_from("1901-01", len(y))),
        "task_names": locations,
        "feature_names": names("member", X.shape[2]),
        "known": {"regions": regions, "coordinates": None},
        "text": "The file names neither its models nor the cells' coordinates; observation: CRU. "
        + ("Region names were inferred from the annual cycle." if name == "fiveloc" else ""),
    }


def fill_months(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace missing model output by the mean of the same member and month a year before and after.

    Parameters
    ----------
    X : array of shape (n, K, M)
        Months in a row, NaN where missing.

    Returns
    -------
    filled : array of shape (n, K, M)
    missing : array of bool of shape (n, K, M)
    """
    missing = np.isnan(X)
    filled = X.copy()
    for row in np.flatnonzero(missing.any(axis=(1, 2))):
        years = [other for other in (row - 12, row + 12) if 0 <= other < len(X)]
        filled[row] = np.where(missing[row], X[years].mean(axis=0), X[row])
    if np.isnan(filled).any():
        raise DatasetError("Model output is missing in neighbouring years too, so it cannot be filled.")
    return filled, missing


def _load_atlas() -> dict[str, Any]:
    archive_path, regions_path = fetch("climate-atlas")
    with np.load(archive_path, allow_pickle=False) as archive:
        content = {key: archive[key] for key in archive.files}
    regions = read_regions(regions_path)
    acronyms = content["regions"]
    X, filled = fill_months(content["X"].astype(np.float64))
    return {
        "train": by_month(X, content["Y"].astype(np.float64), content["months"].astype("datetime64[M]")),
        "task_names": acronyms,
        "feature_names": content["models"],
        "known": {
            "regions": np.array([regions[acronym]["continent"] for acronym in acronyms]),
            "coordinates": np.array([centroid(regions[acronym]["polygons"]) for acronym in acronyms]),
            "region_names": np.array([regions[acronym]["name"] for acronym in acronyms]),
            "polygons": {str(acronym): regions[acronym]["polygons"] for acronym in acronyms},
            "filled": filled,
        },
        "text": "Monthly land means of tas over the AR6 regions, historical and rcp85; observation: W5E5. "
        "HadGEM2-ES has no 2005-12: its values are the means of its 2004-12 and 2006-12, marked in `filled`.",
    }


def load_climate(name: str = "fiveloc", *, layout: str = "aligned", as_frame: bool = False) -> Bunch:
    """Monthly temperature of ten CMIP5 models and of the observation, one task per location, in °C.

    A plain month-of-year climatology beats per-cell least squares on both sets at hand; compare with it.

    Parameters
    ----------
    name : {"fiveloc", "atlas", "south_america", "north_america"}
        25 grid cells in 5 regions; the 46 land regions of the IPCC's sixth report; the paper's 250 cells;
        490 cells.
    layout : {"aligned", "long"}
        Every location has its own model output, so there is no shared layout.
    as_frame : bool
        pandas tables (long layout only).

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` (n, K, 10) and ``y`` (n, K), or their long forms with ``tasks``; ``months`` (datetime64[M], one per
        row of X), ``calendar`` (month of the year, 1 … 12, one per row), ``task_names`` (locations),
        ``regions`` (K,), ``coordinates`` (K, 2) of latitude and longitude where known (else None),
        ``feature_names`` and ``member_names``, ``DESCR``, ``licence``, ``source``; for "atlas" also
        ``region_names``, ``polygons`` (longitude, latitude) and ``filled`` (n, K, 10), true for the one month
        that HadGEM2-ES lacks (2005-12), which is the mean of the Decembers before and after.

    References
    ----------
    Taylor, Stouffer, Meehl (2012), An overview of CMIP5 and the experiment design, Bulletin of the American
    Meteorological Society 93, 485–498. https://doi.org/10.1175/BAMS-D-11-00094.1

    Examples
    --------
    >>> from mssl.datasets import load_climate
    >>> cells = load_climate("fiveloc")  # doctest: +SKIP
    """
    check_choice("name", name, CLIMATE_SETS)
    content = _load_atlas() if name == "atlas" else _load_cells(name)
    content["known"]["member_names"] = content["feature_names"]
    return bunch(info(f"climate-{name}"), layout=layout, as_frame=as_frame, **content)
