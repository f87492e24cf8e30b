"""Data sets as files, for the command line and for other programs."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

from mssl.datasets._climate import CLIMATE_SETS, load_climate
from mssl.datasets._real import (
    load_digit_pairs,
    load_landmine,
    load_letter,
    load_mnist_pairs,
    load_spam,
)
from mssl.datasets._registry import info
from mssl.datasets._regression import load_el_nino, load_enb, load_irish_wind, load_slump
from mssl.files.formats import check_ending, write_table

_CHUNK = 1024  # rows of a sparse X that are unpacked at a time: trades memory for calls


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


def _lines(bunch: Bunch) -> Iterator[list[object]]:
    """Rows of the file; sparse X is unpacked a chunk at a time. Whole numbers lose their ``.0``."""
    for start in range(0, len(bunch.y), _CHUNK):
        rows = slice(start, start + _CHUNK)
        block = bunch.X[rows].toarray() if sparse.issparse(bunch.X) else np.asarray(bunch.X[rows])
        values = block.astype(np.int64) if np.equal(block, np.round(block)).all() else block
        months = [bunch.months[rows].astype(str).tolist()] if "months" in bunch else []
        labels = zip(bunch.tasks[rows].tolist(), *months, strict=True)
        for label, features, target in zip(labels, values.tolist(), bunch.y[rows].tolist(), strict=True):
            yield [*label, *features, target]


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
        Its ending says what is written: ``.csv`` or ``.tsv`` (also with ``.gz``), ``.parquet`` or ``.feather``.
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
    write_table(path, header, _lines(bunch))
    return Path(path)
