"""Data sets with many related tasks: real ones, and generators whose truth is known.

Each function returns a :class:`sklearn.utils.Bunch` with ``X``, ``y``, ``tasks``, names of tasks and features,
a description, the licence and the source, in the layouts that its rows allow. Files come from the folder that
the environment variable ``MSSL_DATA`` names, else from the cache (``MSSL_CACHE``, or the platform's), else they
are downloaded once and checked by hash (extra ``data``).

Licences and citations: see ``available()``, and ``DESCR`` and ``licence`` of every data set.
"""

from typing import TYPE_CHECKING, Any

from mssl import _moved
from mssl.datasets._fetch import available, fetch
from mssl.datasets._generators import make_climate_like, make_clustered_tasks, make_curved_tasks, make_residual_graph
from mssl.datasets._loaders import (
    export,
    load,
    load_climate,
    load_digit_pairs,
    load_el_nino,
    load_enb,
    load_irish_wind,
    load_landmine,
    load_letter,
    load_mnist_pairs,
    load_slump,
    load_spam,
)

__all__ = [
    "available",
    "export",
    "fetch",
    "load",
    "load_climate",
    "load_digit_pairs",
    "load_el_nino",
    "load_enb",
    "load_irish_wind",
    "load_landmine",
    "load_letter",
    "load_mnist_pairs",
    "load_slump",
    "load_spam",
    "make_climate_like",
    "make_clustered_tasks",
    "make_curved_tasks",
    "make_residual_graph",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return _moved.name_of(__name__, name)
