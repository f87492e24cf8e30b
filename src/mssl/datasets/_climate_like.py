"""A climate ensemble whose combination, biases and graph are known."""

import numpy as np
from sklearn.utils import Bunch

from mssl._typing import Seed
from mssl._validation import check_number, check_whole_number, refused
from mssl.datasets._climate import by_month, calendar_from
from mssl.datasets._layout import Part, bunch, made, names
from mssl.structures.laplacian import great_circle


def grid_adjacency(n_lat: int, n_lon: int) -> np.ndarray:
    """Four-neighbour graph of a latitude × longitude grid, cells numbered row by row."""
    cells = np.arange(n_lat * n_lon).reshape(n_lat, n_lon)
    left = np.concatenate([cells[:-1].ravel(), cells[:, :-1].ravel()])
    right = np.concatenate([cells[1:].ravel(), cells[:, 1:].ravel()])
    adjacency = np.zeros((cells.size, cells.size), dtype=bool)
    adjacency[left, right] = adjacency[right, left] = True
    return adjacency


def laplacian_precision(weights: np.ndarray) -> np.ndarray:
    """Precision I + L of a weighted graph, rescaled so that every variance is one.

    With L the graph Laplacian, I + L is positive definite and has the graph's zero pattern, which the
    rescaling by the square roots of the variances keeps.
    """
    precision = np.eye(len(weights)) + np.diag(weights.sum(axis=1)) - weights
    deviation = np.sqrt(np.diag(np.linalg.inv(precision)))
    return precision * np.outer(deviation, deviation)


def _grid(n_lat: int, n_lon: int, box: tuple[float, float, float, float]) -> np.ndarray:
    south, north, west, east = box
    if not (-90 <= south <= north <= 90 and west <= east <= west + 360):
        allowed = "give (south, north, west, east) in degrees, −90 ≤ south ≤ north ≤ 90 and west ≤ east ≤ west + 360"
        raise refused("box", box, allowed)
    latitudes, longitudes = np.meshgrid(np.linspace(south, north, n_lat), np.linspace(west, east, n_lon), indexing="ij")
    return np.column_stack([latitudes.ravel(), longitudes.ravel()])


def _long_range(rng: np.random.Generator, coordinates: np.ndarray, neighbours: np.ndarray, n_links: int) -> np.ndarray:
    """(n_links, 2) pairs of cells drawn from the more distant half of all pairs that are no neighbours."""
    left, right = np.nonzero(np.triu(~neighbours, k=1))
    distance = great_circle(coordinates)[left, right]
    far = np.flatnonzero(distance >= np.median(distance)) if distance.size else np.zeros(0, dtype=int)
    check_whole_number("n_links", n_links, low=0, high=far.size, remedy="The grid has so many distant pairs.")
    chosen = np.sort(rng.permutation(far)[:n_links])
    return np.column_stack([left[chosen], right[chosen]])


def _world(
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    box: tuple[float, float, float, float],
    *,
    n_links: int,
    coupling: float,
    noise: float,
    bias: float,
) -> dict[str, np.ndarray]:
    """Everything that does not change with the months: graph, climate, biases and the true combination."""
    n_lat, n_lon, n_members = shape
    coordinates, neighbours = _grid(n_lat, n_lon, box), grid_adjacency(n_lat, n_lon)
    links = _long_range(rng, coordinates, neighbours, n_links)
    adjacency = neighbours.copy()
    adjacency[links[:, 0], links[:, 1]] = adjacency[links[:, 1], links[:, 0]] = True
    precision = laplacian_precision(coupling * adjacency) / noise**2
    covariance = np.linalg.inv(precision)
    latitude, n_cells = coordinates[:, 0], len(coordinates)
    mean = 28 - 0.45 * np.abs(latitude)
    gain = 1 + 0.05 * rng.standard_normal(n_members)
    biases = bias * (rng.standard_normal(n_members) + 0.5 * rng.standard_normal((n_cells, n_members)))
    # Weights that vary smoothly over the grid: the residuals' graph relates the coefficients too.
    smooth = np.linalg.cholesky(covariance) @ rng.standard_normal((n_cells, n_members)) / noise
    coef = (1 + 0.5 * smooth) / n_members
    return {
        "coordinates": coordinates,
        "links": links,
        "adjacency": adjacency & (coupling > 0),
        "precision": precision,
        "covariance": covariance,
        "mean": mean,
        "amplitude": np.sign(latitude) * (1 + 0.2 * np.abs(latitude)),
        "gain": gain,
        "bias": biases,
        "coef": coef,
        # The observation has the cell's mean, so the members' biases have to be corrected.
        "intercept": mean - (coef * (mean[:, None] * gain + biases)).sum(axis=1),
    }


def _observe(
    rng: np.random.Generator,
    world: dict[str, np.ndarray],
    months: np.ndarray,
    warming: np.ndarray,
    variability: float,
) -> tuple[np.ndarray, np.ndarray]:
    """(n, K, M) members and (n, K) observations of some months."""
    season = -np.cos(2 * np.pi * (months.astype(int) % 12) / 12)[:, None] * world["amplitude"]
    forced = (world["mean"] + season)[:, :, None] * world["gain"] + warming[:, None, None] + world["bias"]
    X = forced + variability * rng.standard_normal(forced.shape)
    root = np.linalg.cholesky(world["covariance"])
    residuals = rng.standard_normal((len(months), len(root))) @ root.T
    return X, np.einsum("nkm,km->nk", X, world["coef"]) + world["intercept"] + residuals


def make_climate_like(
    *,
    n_lat: int = 5,
    n_lon: int = 5,
    n_members: int = 10,
    n_samples: int = 600,
    n_test: int = 120,
    box: tuple[float, float, float, float] = (-50.0, 10.0, -80.0, -35.0),
    n_links: int = 4,
    coupling: float = 1.0,
    noise: float = 0.5,
    bias: float = 1.5,
    variability: float = 1.0,
    trend: float = 0.2,
    first_month: str = "1901-01",
    layout: str = "aligned",
    as_frame: bool = False,
    random_state: Seed = None,
) -> Bunch:
    r"""Ensemble of climate models on a grid, with a known combination and a known graph of residuals.

    Member m in cell k and month t has the cell's mean and seasonal cycle (colder and wider towards the
    poles, reversed in the south) times a gain near one, a trend, a bias of member and cell, and weather of
    its own.
    The observation combines the members, with weights around 1/M that are alike in neighbouring cells:

    .. math:: y_{tk} = x_{tk}^\top w_k + b_k + e_{tk}, \qquad e_{t\cdot} \sim N(0, \text{noise}^2 \Omega^{-1})

    where Ω is I + coupling · L rescaled to unit variances and L is the Laplacian of the four-neighbour grid
    with ``n_links`` links between distant cells. The test months follow the training months.

    Parameters
    ----------
    n_lat, n_lon, n_members : int
        Grid and number of models; K = n_lat · n_lon tasks.
    n_samples, n_test : int
        Months for training and testing.
    box : (south, north, west, east)
        In degrees.
    n_links : int
        Links between distant cells.
    coupling : float
        Weight of an edge, at least 0; stronger means more correlated residuals.
    noise, bias, variability : float
        Standard deviations in °C of residuals, member biases and members' own weather.
    trend : float
        Warming in °C per ten years.
    first_month : str
        "YYYY-MM".
    layout : {"aligned", "long"}
    as_frame : bool
        pandas tables (long layout only).
    random_state : None, int or numpy.random.Generator

    Returns
    -------
    sklearn.utils.Bunch
        As :func:`load_climate`, with the test part ``X_test, y_test, tasks_test, months_test, calendar_test``,
        and the truth: ``coef`` (K, M), ``intercept`` (K,), ``precision``, ``covariance`` and ``adjacency``
        of the residuals, ``links`` (n_links, 2).

    Examples
    --------
    >>> from mssl.datasets import make_climate_like
    >>> world = make_climate_like(random_state=0)
    >>> world.X.shape, world.y.shape, world.coordinates.shape, world.links.shape
    ((600, 25, 10), (600, 25), (25, 2), (4, 2))
    """
    sizes = {"n_lat": n_lat, "n_lon": n_lon, "n_members": n_members, "n_samples": n_samples, "n_test": n_test}
    for name, value in sizes.items():
        check_whole_number(name, value, low=1)
    check_number("noise", noise, above=0)
    for name, deviation in {"coupling": coupling, "bias": bias, "variability": variability}.items():
        check_number(name, deviation, low=0)
    truth, training, testing = np.random.default_rng(random_state).spawn(3)
    world = _world(truth, (n_lat, n_lon, n_members), box, n_links=n_links, coupling=coupling, noise=noise, bias=bias)
    months = calendar_from(first_month, n_samples + n_test)
    warming = trend * np.arange(len(months)) / 120
    members = names("member", n_members)

    def part(rng: np.random.Generator, rows: slice) -> Part:
        return by_month(*_observe(rng, world, months[rows], warming[rows], variability), months[rows])

    known = ("coef", "intercept", "covariance", "precision", "adjacency", "links", "coordinates")
    return bunch(
        made("make_climate_like", "observed"),
        part(training, slice(n_samples)),
        part(testing, slice(n_samples, None)),
        text=f"{n_lat} × {n_lon} grid cells, {n_members} members, {n_links} long-range links, °C.",
        layout=layout,
        as_frame=as_frame,
        task_names=names("cell", n_lat * n_lon),
        feature_names=members,
        known={"member_names": members, **{key: world[key] for key in known}},
    )
