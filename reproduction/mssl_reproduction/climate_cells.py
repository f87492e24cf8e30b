"""The cells of the climate experiment, and the graph that S²M²R is given for them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mssl.datasets import load_climate, make_climate_like

_NEIGHBOURS = 4  # of a location in the graph that S²M²R is given: as many as a cell has on a grid


@lru_cache(maxsize=2)
def load_cells(name: str) -> Any:
    """A climate set by name; "simulated" is made by a fixed seed."""
    if name != "simulated":
        return load_climate(name)
    cells = make_climate_like(random_state=0)
    latitude = cells.coordinates[:, 0]
    cells.regions = np.where(latitude > np.median(latitude), "north", "south")
    return cells


def given_graph(name: str, strength: float = 1.0) -> Any:
    """The graph that S²M²R is given: neighbours on the map, or members of a region where there is no map."""
    from mssl.structures import GraphLaplacian

    data = load_cells(name)
    if data.coordinates is not None:
        return GraphLaplacian(strength, coordinates=data.coordinates, nearest=_NEIGHBOURS)
    regions = np.asarray(data.regions)
    joined = regions[:, None] == regions[None, :]
    if joined.all():
        likeness = np.corrcoef(np.asarray(data.y).T) - 2 * np.eye(len(regions))
        joined = likeness >= np.sort(likeness, axis=1)[:, [-_NEIGHBOURS]]
        joined |= joined.T
    return GraphLaplacian(strength, adjacency=joined.astype(float))
