"""Loaders of the real data sets, and these as files for the command line and for other programs.

References
----------
- Landmine: Xue, Liao, Carin, Krishnapuram (2007), Multi-task learning for classification with Dirichlet
  process priors, Journal of Machine Learning Research 8, 35–63. Licence not stated by the publisher.
- Spam: ECML-PKDD Discovery Challenge 2006. Licence not stated by the publisher.
- Letter: Taskar, Guestrin, Koller (2003), Max-margin Markov networks, NIPS 16. Licence not stated.
- MNIST: LeCun, Bottou, Bengio, Haffner (1998), https://doi.org/10.1109/5.726791.
- Digits: Alpaydin, Kaynak (1998), https://doi.org/10.24432/C50P49. CC BY 4.0.
- El Niño: NOAA, Climate Prediction Center, region Niño 1+2. Public domain; shipped (el_nino.csv).
- Irish wind: Haslett, Raftery (1989), https://doi.org/10.2307/2347679.
- Energy efficiency: Tsanas, Xifara (2012), https://doi.org/10.1016/j.enbuild.2012.03.003. CC BY 4.0.
- Concrete slump: Yeh (2007), https://doi.org/10.1016/j.cemconcomp.2007.02.001. CC BY 4.0.
- CMIP5: Taylor, Stouffer, Meehl (2012), https://doi.org/10.1175/BAMS-D-11-00094.1. Terms of use of the
  modelling centres.
- AR6 regions: Iturbide et al. (2020), https://doi.org/10.5194/essd-12-2959-2020. CC BY 4.0.
"""

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse
from scipy.io import loadmat
from sklearn.utils import Bunch

from mssl._typing import Array, Labels, Matrix, Seed
from mssl._validation import check_choice, check_whole_number, refused
from mssl.data.inputs import CHUNK
from mssl.datasets._fetch import fetch, info, unpack
from mssl.datasets._layout import Rows, bunch, by_month, calendar_from, names
from mssl.exceptions import DatasetError
from mssl.files.formats import check_ending, write_table


def read_cells(path: Path) -> tuple[list[np.ndarray], list[np.ndarray], dict[str, Any]]:
    """Cells ``x`` and ``y`` of a MAT file, one design and one flat target per task."""
    try:
        content = loadmat(path)
        designs = [np.asarray(cell) for cell in content["x"].ravel()]
        targets = [np.asarray(cell).ravel() for cell in content["y"].ravel()]
    # NotImplementedError is what loadmat raises for MAT files of version 7.3.
    except (KeyError, ValueError, TypeError, OSError, NotImplementedError) as error:
        raise DatasetError(
            f"{path} cannot be read as a MAT file with the cells x and y ({error}); fetch the file again."
        ) from error
    if len(designs) != len(targets) or any(len(x) != len(y) for x, y in zip(designs, targets, strict=True)):
        raise DatasetError(f"The cells x and y of {path} do not belong together; fetch the file again.")
    return designs, targets, content


def _classes(
    name: str,
    designs: list[Rows],
    targets: list[np.ndarray],
    task_names: Labels,
    feature: str,
    *,
    known: dict[str, Labels] | None = None,
    **how: Any,
) -> Bunch:
    """A binary problem, one design and one target per task: tasks have rows of their own."""
    part = designs, [target.astype(np.int64) for target in targets]
    known = {"target_names": np.array([0, 1])} | (known or {})
    features = names(feature, designs[0].shape[1])
    return bunch(info(name), part, occasions=False, task_names=task_names, feature_names=features, known=known, **how)


def load_landmine(*, layout: str = "long", as_frame: bool = False) -> Bunch:
    """Land mine or clutter in 19 fields, from radar images (9 674 rows, 9 features, 6 % mines).

    Fields 1–10 are overgrown (foliage), 11–19 are bare (desert). Always answering "clutter" errs on 6.1 %
    only: report the area under the ROC curve beside the error.

    Parameters
    ----------
    layout : {"long"}
        The fields have rows of their own, so the other layouts are refused.
    as_frame : bool
        pandas tables; X gets a column ``task``.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` (9674, 9), ``y`` in {0, 1} (1: mine), ``tasks``, ``task_names``, ``feature_names``,
        ``groups`` (ground of every field), ``target_names``, ``DESCR``, ``licence``, ``source``.

    References
    ----------
    Xue, Liao, Carin, Krishnapuram (2007), Journal of Machine Learning Research 8, 35–63.

    Examples
    --------
    >>> from mssl.datasets import load_landmine
    >>> mines = load_landmine()  # doctest: +SKIP
    """
    designs, targets, _ = read_cells(fetch("landmine")[0])
    text = (
        "Labels: 1 mine, 0 clutter. Always answering 0 errs on 6.1 %, so report the AUC beside the error. "
        "Fields 1–10 are overgrown, 11–19 bare ground."
    )
    known = {"groups": np.array(["foliage"] * 10 + ["desert"] * 9)}
    fields = names("field", len(designs))
    return _classes("landmine", designs, targets, fields, "x", known=known, text=text, layout=layout, as_frame=as_frame)


def load_spam(users: int = 3, *, layout: str = "long", as_frame: bool = False) -> Bunch:
    """Spam in the mail boxes of 3 or 15 users (2000 word counts, half spam).

    Exact duplicate rows exist (766 of 7500 for 3 users, 377 of 6000 for 15), so random splits leak a little.

    Parameters
    ----------
    users : {3, 15}
        3 users with 2500 mails each (problem A), or 15 with 400 (problem B).
    layout : {"long"}
    as_frame : bool
        pandas tables with sparse columns; X gets a column ``task``.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` CSR (N, 2000) of counts, ``y`` in {0, 1} (1: spam), ``tasks``, names, ``DESCR``, ``licence``,
        ``source``.

    References
    ----------
    ECML-PKDD Discovery Challenge 2006.

    Examples
    --------
    >>> from mssl.datasets import load_spam
    >>> mails = load_spam(users=15)  # doctest: +SKIP
    """
    users = check_choice("users", check_whole_number("users", users), (3, 15))
    name = f"spam-{users}"
    designs, targets, _ = read_cells(fetch(name)[0])
    text = (
        "Labels: 1 spam, 0 wanted mail. Features: word counts. Exact duplicate rows exist "
        f"({766 if users == 3 else 377} of {sum(map(len, targets))}), so random splits leak."
    )
    counts = [sparse.csr_array(design.astype(np.float64)) for design in designs]
    return _classes(name, counts, targets, names("user", users), "word", text=text, layout=layout, as_frame=as_frame)


def load_letter(*, layout: str = "long", as_frame: bool = False) -> Bunch:
    """Eight pairs of handwritten letters that look alike (128 binary pixels).

    Parameters
    ----------
    layout : {"long"}
    as_frame : bool
        pandas tables; X gets a column ``task``.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` (45869, 128), ``y`` in {0, 1}, ``tasks`` such as "a-g", names, ``DESCR``, ``licence``, ``source``.

    References
    ----------
    Taskar, Guestrin, Koller (2003), Max-margin Markov networks, NIPS 16.

    Examples
    --------
    >>> from mssl.datasets import load_letter
    >>> letters = load_letter()  # doctest: +SKIP
    """
    designs, targets, content = read_cells(fetch("letter")[0])
    pairs = np.array([str(cell.ravel()[0]) for cell in content["tasknames"].ravel()])
    text = "Labels as in the file: 0 and 1 for the two letters. Pixels of a 16 × 8 image, 0 or 1."
    pixels = [design.astype(np.float64) for design in designs]
    return _classes("letter", pixels, targets, pairs, "pixel", text=text, layout=layout, as_frame=as_frame)


def _read_idx(path: Path) -> np.ndarray:
    content = unpack(path.read_bytes())
    axes = content[3]
    shape = np.frombuffer(content, dtype=">u4", count=axes, offset=4).astype(int)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


def _check_subsample(subsample: object) -> float | None:
    """Rows per pair as int, a share as float, or None for all."""
    if subsample is None:
        return None
    if isinstance(subsample, int | np.integer) and type(subsample) is not bool and subsample > 0:
        return int(subsample)
    if isinstance(subsample, float | np.floating) and 0 < subsample <= 1:
        return float(subsample)
    allowed = "give None (all rows), a whole number ≥ 1 (rows per pair) or a share in (0, 1]"
    raise refused("subsample", subsample, allowed)


def _pairs(name: str, pixels: Matrix, digits: np.ndarray, share: float | None, random_state: Seed, **how: Any) -> Bunch:
    """All pairs of digits, optionally a random part of each; the label is 1 for the second digit."""
    rng, rows, second, pairs = np.random.default_rng(random_state), [], [], list(combinations(range(10), 2))
    for pair in pairs:
        chosen = np.flatnonzero(np.isin(digits, pair))
        if share is not None:
            wanted = share if isinstance(share, int) else round(share * chosen.size)
            chosen = np.sort(rng.permutation(chosen)[: max(1, wanted)])
        rows.append(chosen)
        second.append(digits[chosen] == pair[1])
    pair_names = np.array([f"{a} vs {b}" for a, b in pairs])
    designs = [pixels[chosen] for chosen in rows]
    return _classes(name, designs, second, pair_names, "pixel", known={"images": np.concatenate(rows)}, **how)


def load_mnist_pairs(
    subsample: float | None = None,
    *,
    dtype: DTypeLike = "float64",
    layout: str = "long",
    as_frame: bool = False,
    random_state: Seed = None,
) -> Bunch:
    """All 45 pairs of the digits of MNIST as binary tasks (70 000 images, 28 × 28 pixels).

    At full size X has 630 000 rows and some 94 million non-zero pixels: about 1.1 GiB as float64, 0.7 GiB as
    float32. Every image is in nine pairs; ``images`` tells which, so that splits need not leak.

    Parameters
    ----------
    subsample : None, int or float
        All rows; so many rows of each pair; or that share of each pair. Drawn at random without replacement.
    dtype : {"float64", "float32"} or the NumPy type
        Of the pixels, which are scaled to [0, 1].
    layout : {"long"}
    as_frame : bool
        pandas tables with sparse columns.
    random_state : None, int or numpy.random.Generator
        For ``subsample``.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` CSR (N, 784), ``y`` in {0, 1} (1: the second digit of the pair), ``tasks`` such as "3 vs 8",
        ``images`` (number of the image, 60 000 and above from the original test set), names, ``DESCR``,
        ``licence``, ``source``.

    References
    ----------
    LeCun, Bottou, Bengio, Haffner (1998), Gradient-based learning applied to document recognition,
    Proceedings of the IEEE 86, 2278–2324. https://doi.org/10.1109/5.726791

    Examples
    --------
    >>> from mssl.datasets import load_mnist_pairs
    >>> pairs = load_mnist_pairs(subsample=200, random_state=0)  # doctest: +SKIP
    """
    check_choice("dtype", np.dtype(dtype).name, ("float64", "float32"))
    share = _check_subsample(subsample)
    train_images, train_labels, test_images, test_labels = (_read_idx(path) for path in fetch("mnist-pairs"))
    blocks = [sparse.csr_array(images.reshape(len(images), -1)).astype(dtype) for images in (train_images, test_images)]
    pixels = sparse.vstack(blocks, format="csr")
    pixels.data /= np.asarray(255, dtype=dtype)
    digits = np.concatenate([train_labels, test_labels])
    text = "Labels: 1 for the second digit of the pair, 0 for the first. Pixels in [0, 1]; each image is in 9 pairs."
    return _pairs("mnist-pairs", pixels, digits, share, random_state, text=text, layout=layout, as_frame=as_frame)


def load_digit_pairs(
    subsample: float | None = None, *, layout: str = "long", as_frame: bool = False, random_state: Seed = None
) -> Bunch:
    """All 45 pairs of scikit-learn's bundled digits as binary tasks: real data without a download.

    Parameters
    ----------
    subsample : None, int or float
        All rows; so many rows of each pair; or that share of each pair.
    layout : {"long"}
    as_frame : bool
        pandas tables; X gets a column ``task``.
    random_state : None, int or numpy.random.Generator
        For ``subsample``.

    Returns
    -------
    sklearn.utils.Bunch
        ``X`` (16173, 64) of pixels 0 … 16, ``y`` in {0, 1} (1: the second digit of the pair), ``tasks`` such as
        "3 vs 8", ``images`` (number of the image, each is in nine pairs), names, ``DESCR``, ``licence``, ``source``.

    References
    ----------
    Alpaydin, Kaynak (1998), Optical Recognition of Handwritten Digits. https://doi.org/10.24432/C50P49

    Examples
    --------
    >>> from mssl.datasets import load_digit_pairs
    >>> digits = load_digit_pairs()
    >>> digits.X.shape, len(digits.task_names), str(digits.tasks[-1])
    ((16173, 64), 45, '8 vs 9')
    """
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    text = "Labels: 1 for the second digit of the pair, 0 for the first. Pixels 0 … 16; each image is in 9 pairs."
    share = _check_subsample(subsample)
    return _pairs("digit-pairs", pixels, digits, share, random_state, text=text, layout=layout, as_frame=as_frame)


def _read(path: Path | Traversable) -> tuple[list[str], np.ndarray]:
    """Column names and numbers of a table in a file."""
    try:
        with path.open(encoding="utf-8") as stream:
            header, *lines = csv.reader(stream)
        return header, np.asarray(lines, dtype=np.float64)
    except ValueError as error:
        raise DatasetError(f"{path} cannot be read as a table of numbers ({error}); fetch the file again.") from error


def _shared(name: str, table: Array, features: Sequence[str], tasks: Sequence[str], **rest: Any) -> Bunch:
    """One X for all targets, in any layout: columns of a table, the targets last."""
    part = [table[:, : len(features)]] * len(tasks), list(table[:, len(features) :].T)
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
    header, table = _read(package_files("mssl.datasets").joinpath("el_nino.csv"))
    years, series = table[2:, 0].astype(np.int64), table[:, 1:].ravel()
    lags = range(3, 15)
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
    header, table = _read(fetch("irish-wind")[0])
    year, month, day = table[:, :3].astype(np.int64).T
    days = np.asarray(
        [f"{1900 + y}-{m:02d}-{d:02d}" for y, m, d in zip(year, month, day, strict=True)], "datetime64[D]"
    )
    angle = 2 * np.pi * (days - days.astype("datetime64[Y]")).astype(np.int64) / 365.25
    speed = np.sqrt(table[:, 3:])
    table = np.column_stack([speed[:-1], np.sin(angle)[:-1], np.cos(angle)[:-1], speed[1:]])
    text = (
        "Square roots of daily mean speeds in knots: tomorrow's at each station from today's at all, and the season. "
        "Stations share their days, so that errors of one day are correlated."
    )
    names = [*header[3:], "season sin", "season cos"]
    how = {"text": text, "layout": layout, "as_frame": as_frame, "known": {"days": days[:-1]}}
    return _shared("irish-wind", table, names, header[3:], **how)


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
    features = [
        *("relative compactness", "surface area", "wall area", "roof area", "overall height", "orientation"),
        *("glazing area", "glazing area distribution"),
    ]
    text = "Loads in kWh/m². Most columns have few levels, and the first five are functions of one shape."
    tasks = ["heating load", "cooling load"]
    return _shared("enb", _read(fetch("enb")[0])[1], features, tasks, text=text, layout=layout, as_frame=as_frame)


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
    features = ["cement", "slag", "fly ash", "water", "superplasticizer", "coarse aggregate", "fine aggregate"]
    text = "Ingredients in kg/m³; slump and flow in cm, strength after 28 days in MPa."
    tasks = ["slump", "flow", "strength"]
    return _shared("slump", _read(fetch("slump")[0])[1], features, tasks, text=text, layout=layout, as_frame=as_frame)


CLIMATE_SETS = ("fiveloc", "atlas", "south_america", "north_america")
_FIVE_REGIONS = ("Australia", "South America", "North America", "Russia", "Sahara")


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
    area, moment = 0.0, np.zeros(2)
    for polygon in polygons:
        following = np.roll(polygon, -1, axis=0)
        cross = polygon[:, 0] * following[:, 1] - following[:, 0] * polygon[:, 1]
        sign = np.sign(cross.sum())  # Corners may be in either order.
        area += sign * cross.sum() / 2
        moment += sign * ((polygon + following) * cross[:, None]).sum(axis=0) / 6
    longitude, latitude = moment / area
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


_LOADERS: dict[str, Callable[..., Bunch]] = {
    "digit-pairs": load_digit_pairs,
    "el-nino": load_el_nino,
    "landmine": load_landmine,
    "spam-3": partial(load_spam, 3),
    "spam-15": partial(load_spam, 15),
    "letter": load_letter,
    "mnist-pairs": load_mnist_pairs,
    "irish-wind": partial(load_irish_wind, layout="long"),
    "enb": partial(load_enb, layout="long"),
    "slump": partial(load_slump, layout="long"),
    **{f"climate-{name.replace('_', '-')}": partial(load_climate, name, layout="long") for name in CLIMATE_SETS},
}


def load(name: str, **options: Any) -> Bunch:
    """Load a data set by the name that :func:`available` gives it, in the long layout.

    Parameters
    ----------
    name : str
    **options
        Passed to its loader, e.g. ``subsample=200, random_state=0`` for the digit pairs.

    Returns
    -------
    sklearn.utils.Bunch

    Examples
    --------
    >>> from mssl.datasets import load
    >>> load("digit-pairs", subsample=10, random_state=0).X.shape
    (450, 64)
    """
    return _LOADERS[info(name).name](**options)


def _parts(bunch: Bunch) -> Iterator[tuple[slice, Array]]:
    """Yield runs of rows and their features; sparse X is unpacked run by run."""
    step = max(1, CHUNK // bunch.X.shape[1])
    for start in range(0, len(bunch.y), step):
        part = bunch.X[start : start + step]
        yield slice(start, start + step), part.toarray() if sparse.issparse(part) else np.asarray(part)


def _blocks(bunch: Bunch) -> Iterator[list[list[object]]]:
    """Columns of blocks of rows of the file. Columns that hold whole numbers alone lose their ``.0``."""
    whole = np.all([np.equal(part, np.round(part)).all(axis=0) for _, part in _parts(bunch)], axis=0)
    for rows, part in _parts(bunch):
        features = [(x.astype(np.int64) if plain else x).tolist() for x, plain in zip(part.T, whole, strict=True)]
        months = [bunch.months[rows].astype(str).tolist()] if "months" in bunch else []
        yield [bunch.tasks[rows].tolist(), *months, *features, bunch.y[rows].tolist()]


def export(name: str, path: str | os.PathLike[str], **options: Any) -> Path:
    """Write a data set as a table: task, features, target, one row per sample.

    The first column names the task ("pair", "field", "user" or "location"), the last one is the target
    ("label", or "observed" for climate sets, which also get a column "month" after the location). The file
    appears whole or not at all.

    Parameters
    ----------
    name : str
        One of the names of :func:`available`.
    path : str or path-like
        Its ending sets the format: ``.csv`` or ``.tsv`` (also with ``.gz``), ``.parquet`` or ``.feather``.
    **options
        Passed to the loader, e.g. ``subsample=200, random_state=0`` for the digit pairs.

    Returns
    -------
    pathlib.Path
        The file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from mssl.datasets import export
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = export("digit-pairs", pathlib.Path(folder, "digits.csv"), subsample=10, random_state=0)
    ...     header = file.read_text().splitlines()[0].split(",")
    >>> header[0], header[1], header[-1], len(header)
    ('pair', 'pixel 01', 'label', 66)
    """
    entry = info(name)
    check_ending(path)
    bunch = load(name, **options)
    month = ["month"] if "months" in bunch else []
    header = [entry.task_column, *month, *bunch.feature_names.tolist(), entry.target_column]
    write_table(path, header, _blocks(bunch))
    return Path(path)
