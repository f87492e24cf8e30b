"""Run an experiment piece by piece, in parallel; records are kept on the disk, and a killed run can be resumed.

An experiment is cut into pieces, each named by a key such as ``{"method": …, "split": …, "seed": …}``. A finished piece
is one line of ``records.jsonl``, on the disk before the next one counts; a run that was killed continues with the
pieces that are missing. Tables, figures and the page are made from the records alone.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mssl import __version__
from mssl._validation import check_choice, refused
from mssl.exceptions import DatasetError, package_versions
from mssl.files.atomic import append_line, keep_lines, prepare_folder, whole_lines, write_text

if TYPE_CHECKING:
    from mssl_reproduction.page import Page

Key = dict[str, Any]
Record = dict[str, Any]

RECORDS, SETTINGS = "records.jsonl", "settings.json"
_PACKAGES = ("numpy", "scipy", "scikit-learn", "joblib", "matplotlib")


@dataclass(frozen=True)
class Experiment:
    """One table or figure of the paper.

    Attributes
    ----------
    name, title : str
        What it is called on the command line, and in words.
    protocol : callable
        ``protocol(quick)``: everything that decides the results, as plain JSON values.
    pieces : callable
        ``pieces(protocol)``: the keys of all pieces.
    run_piece : callable
        ``run_piece(key, protocol)``: what was measured, as plain JSON values. A function of its arguments alone.
    present : callable
        ``present(results)``: tables, figures and text.
    """

    name: str
    title: str
    protocol: Callable[[bool], dict[str, Any]]
    pieces: Callable[[dict[str, Any]], list[Key]]
    run_piece: Callable[[Key, dict[str, Any]], Record]
    present: Callable[[Results], Page]


@dataclass(frozen=True)
class Results:
    """What a run left behind: its protocol, its records in the order of the pieces, and where it was written."""

    protocol: dict[str, Any]
    records: list[Record]
    folder: Path
    quick: bool = False
    command: str = ""
    seconds: float = field(default=0.0)

    def where(self, **values: Any) -> list[Record]:
        """Records whose key has these values.

        Examples
        --------
        >>> Results({}, [{"method": "a", "seed": 0}, {"method": "b", "seed": 0}], Path()).where(method="b")
        [{'method': 'b', 'seed': 0}]
        """
        return [record for record in self.records if all(record[name] == value for name, value in values.items())]

    def column(self, name: str, **values: Any) -> list[Any]:
        """One measurement of the records whose key has these values."""
        return [record[name] for record in self.where(**values)]


def crossed(**values: Iterable[Any]) -> list[Key]:
    """The key of every combination of some values, the last name innermost; underscores in names become blanks.

    Examples
    --------
    >>> crossed(method=["a", "b"], seed=range(2))[1]
    {'method': 'a', 'seed': 1}
    """
    names = [name.replace("_", " ") for name in values]
    return [dict(zip(names, combination, strict=True)) for combination in product(*values.values())]


def can_be_had(load: Callable[[str], Any], name: str) -> bool:
    """Whether the files of a data set are here or can be fetched."""
    try:
        load(name)
    except (DatasetError, ImportError):
        return False
    return True


def identity(key: Key) -> str:
    """A text that is equal for equal keys."""
    return json.dumps(key, sort_keys=True)


def read_records(path: Path, names: Iterable[str] = ()) -> list[Record]:
    """The whole lines of a file of records; a last line that a kill has cut is taken off the file.

    Parameters
    ----------
    path : Path
        The file.
    names : iterable of str
        What every record has to hold besides its seconds and its warnings.
    """
    if not path.exists():
        return []
    lines = whole_lines(path.read_bytes())
    keep_lines(path, lines)
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DatasetError(
                f"Line {number} of {path} is no record ({error}); delete the line and resume."
            ) from error
        if not isinstance(record, dict) or not {"seconds", "warnings", *names} <= record.keys():
            raise DatasetError(f"Line {number} of {path} is no record of this experiment; delete the line and resume.")
        records.append(record)
    return records


def run_experiment(
    experiment: Experiment,
    output: str | os.PathLike[str],
    *,
    quick: bool = False,
    resume: bool = False,
    jobs: int = 1,
    **changes: Any,
) -> Page:
    """Run what is missing, then write tables, figures and the page.

    Parameters
    ----------
    experiment : Experiment
        What to run.
    output : path
        Folder to write to.
    quick : bool
        A small version of the protocol.
    resume : bool
        Continue with the records in the folder.
    jobs : int
        Worker processes; −1 takes all cores.
    **changes
        Entries of the protocol to change, such as ``seeds=3``.

    Returns
    -------
    Page
        What was written.
    """
    folder = prepare_folder(output)
    protocol = json.loads(json.dumps(_changed(experiment, quick, changes)))
    _settle(folder, experiment, protocol, quick, resume)
    pieces = experiment.pieces(protocol)
    earlier = read_records(folder / RECORDS, pieces[0])
    known = {identity({name: record[name] for name in pieces[0]}): record for record in earlier}
    missing = [key for key in pieces if identity(key) not in known]
    for record in _progress(_compute(experiment, missing, protocol, jobs), experiment.name, len(missing)):
        append_line(folder / RECORDS, json.dumps(record, ensure_ascii=False, allow_nan=False).encode())
        known[identity({name: record[name] for name in pieces[0]})] = record
    records = [known[identity(key)] for key in pieces]
    command = _command(experiment.name, quick, changes)
    seconds = float(sum(record["seconds"] for record in records))
    page = experiment.present(Results(protocol, records, folder, quick, command, seconds))
    page.close(records, protocol, quick, command, seconds)
    page.write(folder)
    return page


def _changed(experiment: Experiment, quick: bool, changes: dict[str, Any]) -> dict[str, Any]:
    protocol = experiment.protocol(quick)
    for name in changes:
        check_choice(f"the changed setting of {experiment.name!r}", name, sorted(protocol))
    return protocol | changes


def _command(name: str, quick: bool, changes: dict[str, Any]) -> str:
    if changes:
        words = ", ".join(f"{key}={value!r}" for key, value in changes.items())
        return f'mssl_reproduction.run("{name}", "{name}", {"quick=True, " if quick else ""}{words})'
    return f"mssl reproduce {name}{' --quick' if quick else ''}"


def _settle(folder: Path, experiment: Experiment, protocol: dict[str, Any], quick: bool, resume: bool) -> None:
    """Write the settings, or compare them with those of the records that are to be continued."""
    path = folder / SETTINGS
    if (folder / RECORDS).exists():
        if not resume:
            allowed = "give a folder without records, or resume"
            raise refused("output", str(folder), allowed, "It holds records of an experiment already.")
        earlier = _earlier_settings(path)
        if earlier.get("experiment") != experiment.name or earlier.get("protocol") != protocol:
            remedy = f"Its records belong to another experiment or protocol ({earlier.get('experiment', 'unknown')})."
            raise refused("output", str(folder), "give another folder, or the same settings", remedy)
        return
    settings = {
        "experiment": experiment.name,
        "quick": quick,
        "protocol": protocol,
        "versions": versions(),
        "platform": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    write_text(path, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")


def _earlier_settings(path: Path) -> dict[str, Any]:
    try:
        earlier = json.loads(path.read_text("utf-8")) if path.exists() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise DatasetError(
            f"{path} cannot be read ({error}), so that it is not known what the records beside it belong to; give "
            "another folder, or put the file back."
        ) from error
    if not isinstance(earlier, dict):
        raise DatasetError(f"{path} holds no settings; give another folder, or put the file back.")
    return earlier


def versions() -> dict[str, str]:
    """Versions of the packages that results depend on."""
    return {"mssl": __version__, **package_versions(*_PACKAGES)}


def _compute(experiment: Experiment, keys: list[Key], protocol: dict[str, Any], jobs: int) -> Iterable[Record]:
    """Records of the pieces, as they are finished."""
    from joblib import Parallel, delayed

    if not keys:
        return []
    return Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(
        delayed(_piece)(experiment.run_piece, key, protocol) for key in keys
    )


def _piece(run_piece: Callable[[Key, dict[str, Any]], Record], key: Key, protocol: dict[str, Any]) -> Record:
    from threadpoolctl import threadpool_limits

    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
        warnings.simplefilter("always")
        measured = run_piece(key, protocol)
    messages = sorted({f"{warning.category.__name__}: {str(warning.message)[:160]}" for warning in caught})
    return {**key, **measured, "warnings": messages, "seconds": round(time.perf_counter() - start, 3)}


def _progress(records: Iterable[Record], name: str, total: int) -> Iterable[Record]:
    """The same records, with a bar on a terminal."""
    if not total or not sys.stderr.isatty():
        yield from records
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(records, description=name, total=total, console=Console(stderr=True), transient=True)
