"""Loaders of the regression sets: the Pacific off Peru, wind at twelve stations, loads of buildings, slump of concrete.

References
----------
- El Niño: NOAA, Climate Prediction Center, region Niño 1+2. Public domain; shipped (el_nino.csv).
- Irish wind: Haslett, Raftery (1989), https://doi.org/10.2307/2347679.
- Energy efficiency: Tsanas, Xifara (2012), https://doi.org/10.1016/j.enbuild.2012.03.003. CC BY 4.0.
- Concrete slump: Yeh (2007), https://doi.org/10.1016/j.cemconcomp.2007.02.001. CC BY 4.0.
"""

import csv
from collections.abc import Sequence
from importlib.resources import files as package_files
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from mssl._typing import Array
from mssl.datasets._fetch import fetch
from mssl.datasets._layout import bunch
from mssl.datasets._registry import info
from mssl.exceptions import DatasetError


def _read(name: str) -> tuple[list[str], np.ndarray]:
    """Column names and numbers of a set's one file."""
    path = fetch(name)[0]
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            header, *lines = csv.reader(stream)
        return header, np.asarray(lines, dtype=np.float64)
    except ValueError as error:
        raise DatasetError(f"{path} cannot be read as a table of numbers ({error}); fetch the file again.") from error


def _shared(name: str, X: Array, Y: Array, features: Sequence[str], tasks: Sequence[str], **rest: Any) -> Bunch:
    """One X for all targets, in any layout."""
    part = [X] * len(tasks), list(Y.T)
    return bunch(info(name), part, task_names=np.asarray(tasks), feature_names=np.asarray(features), **rest)


def load_el_nino(*, layout: str = "long", as_frame: bool = False) -> Bunch:
    """Temperature of the sea off Peru a season ahead, month by month, 1952–2010 (708 rows, 12 features).

    The target is the monthly mean in °C of the region Niño 1+2 (0–10° S, 80–90° W), where El Niño is seen first;
    features are the twelve months that end three months before. The calendar months are the tasks, with 59 years each.
    The file is part of the package. Rows are in time: split by years where the years to come are what counts.

    Parameters
    ----------
    layout : {"long", "aligned"}
        Rows of "aligned" are years.
    as_frame : bool
        pandas tables; X gets a column ``task``.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` (708, 12), ``y`` (708,), ``tasks`` (names of months), ``years`` (year of each row), names, ``DESCR``,
        ``licence``, ``source``.

    References
    ----------
    NOAA, Climate Prediction Center, https://www.cpc.ncep.noaa.gov/data/indices/ (ERSST.v3b).

    Examples
    --------
    >>> from mssl.datasets import load_el_nino
    >>> sea = load_el_nino()
    >>> sea.X.shape, str(sea.tasks[0]), float(sea.y[0])
    ((708, 12), 'January', 24.52)
    """
    with package_files("mssl.datasets").joinpath("el_nino.csv").open(encoding="utf-8") as stream:
        header, *lines = csv.reader(stream)
    table, lags = np.asarray(lines, dtype=np.float64), range(3, 15)
    years, series = table[2:, 0].astype(np.int64), table[:, 1:].ravel()
    X = np.stack([series[24 - lag : -lag].reshape(-1, 12) for lag in lags], axis=-1)
    return bunch(
        info("el-nino"),
        (list(X.swapaxes(0, 1)), list(series[24:].reshape(-1, 12).T), {"years": years}),
        text="Monthly means in °C; rows are in time, those of neighbouring months share temperatures.",
        layout=layout,
        as_frame=as_frame,
        task_names=np.asarray(header[1:]),
        feature_names=np.array([f"{lag} months before" for lag in lags]),
    )


def load_irish_wind(*, layout: str = "shared", as_frame: bool = False) -> Bunch:
    """Tomorrow's wind at 12 Irish stations, 1961–1978 (6 573 days, 14 features).

    The target is the square root of tomorrow's daily mean speed in knots, at each station; features are the square
    roots of today's at all stations, and sine and cosine of the day of the year. All stations share their days, so
    that their errors are correlated: split by days, not by rows of single stations.

    Parameters
    ----------
    layout : {"shared", "aligned", "long"}
    as_frame : bool
        pandas tables.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` (6573, 14) and ``y`` (6573, 12) in the shared layout, ``days`` (dates of today), ``tasks``, names,
        ``DESCR``, ``licence``, ``source``.

    References
    ----------
    Haslett, Raftery (1989), Space-time modelling with long-memory dependence: assessing Ireland's wind power resource,
    Applied Statistics 38, 1–50. https://doi.org/10.2307/2347679

    Examples
    --------
    >>> from mssl.datasets import load_irish_wind
    >>> wind = load_irish_wind()  # doctest: +SKIP
    """
    header, table = _read("irish-wind")
    year, month, day = table[:, :3].astype(np.int64).T
    days = np.asarray(
        [f"{1900 + y}-{m:02d}-{d:02d}" for y, m, d in zip(year, month, day, strict=True)], "datetime64[D]"
    )
    angle = 2 * np.pi * (days - days.astype("datetime64[Y]")).astype(np.int64) / 365.25
    speed = np.sqrt(table[:, 3:])
    X = np.column_stack([speed, np.sin(angle), np.cos(angle)])[:-1]
    text = (
        "Square roots of daily mean speeds in knots: tomorrow's at each station from today's at all, and the season. "
        "Stations share their days, so that errors of one day are correlated."
    )
    names = [*header[3:], "season sin", "season cos"]
    how = {"text": text, "layout": layout, "as_frame": as_frame}
    return _shared("irish-wind", X, speed[1:], names, header[3:], known={"days": days[:-1]}, **how)


def load_enb(*, layout: str = "shared", as_frame: bool = False) -> Bunch:
    """Heating and cooling load of 768 simulated buildings (8 features, 2 targets); strongly non-linear.

    Parameters
    ----------
    layout : {"shared", "aligned", "long"}
    as_frame : bool
        pandas tables.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` (768, 8) and ``y`` (768, 2) in the shared layout, ``tasks``, names, ``DESCR``, ``licence``, ``source``.

    References
    ----------
    Tsanas, Xifara (2012), Accurate quantitative estimation of energy performance of residential buildings using
    statistical machine learning tools, Energy and Buildings 49, 560–567.
    https://doi.org/10.1016/j.enbuild.2012.03.003

    Examples
    --------
    >>> from mssl.datasets import load_enb
    >>> buildings = load_enb()  # doctest: +SKIP
    """
    _, table = _read("enb")
    features = [
        *("relative compactness", "surface area", "wall area", "roof area", "overall height", "orientation"),
        *("glazing area", "glazing area distribution"),
    ]
    text = "Loads in kWh/m². Most columns have few levels, and the first five are functions of one shape."
    tasks = ["heating load", "cooling load"]
    return _shared("enb", table[:, :8], table[:, 8:], features, tasks, text=text, layout=layout, as_frame=as_frame)


def load_slump(*, layout: str = "shared", as_frame: bool = False) -> Bunch:
    """Slump, flow and strength of 103 concretes (7 ingredients, 3 targets).

    Parameters
    ----------
    layout : {"shared", "aligned", "long"}
    as_frame : bool
        pandas tables.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` (103, 7) and ``y`` (103, 3) in the shared layout, ``tasks``, names, ``DESCR``, ``licence``, ``source``.

    References
    ----------
    Yeh (2007), Modeling slump flow of concrete using second-order regressions and artificial neural networks, Cement
    and Concrete Composites 29, 474–480. https://doi.org/10.1016/j.cemconcomp.2007.02.001

    Examples
    --------
    >>> from mssl.datasets import load_slump
    >>> concrete = load_slump()  # doctest: +SKIP
    """
    _, table = _read("slump")
    features = ["cement", "slag", "fly ash", "water", "superplasticizer", "coarse aggregate", "fine aggregate"]
    text = "Ingredients in kg/m³; slump and flow in cm, strength after 28 days in MPa."
    tasks = ["slump", "flow", "strength"]
    return _shared("slump", table[:, :7], table[:, 7:], features, tasks, text=text, layout=layout, as_frame=as_frame)
