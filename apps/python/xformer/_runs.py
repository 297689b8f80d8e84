"""What runs leave on disk: records, logs and weights."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    import pandas

PathLike = Union[str, "os.PathLike[str]"]
Row = dict[str, Any]
Table = Union["pandas.DataFrame", list[Row]]


def _table(rows: list[Row]) -> Table:
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def _flat(entries: Row, prefix: str = "") -> Row:
    result: Row = {}
    for key, value in entries.items():
        if isinstance(value, dict):
            result |= _flat(value, f"{prefix}{key}.")
        else:
            result[prefix + key] = value
    return result


def _record(path: pathlib.Path) -> Row | None:
    """The row of a record; None of another file."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError):
        return None
    named = isinstance(record, dict) and record.get("schema_version") and all(
        isinstance(record.get(key), str) and record[key] for key in ("task", "model", "status"))
    if not named:
        return None
    record.pop("origins", None)
    return {"file": str(path), **_flat(record)}


def records(*places: PathLike) -> Table:
    """A row for every record (docs/record.md) in files, and in folders with everything below them.

    Columns are `file` and the record's keys, those inside another with a dot: `test.accuracy`, `speed.step_ms.median`,
    `hardware.device`, `plan.training.batch`. Lists (`dev`, `metrics`) stay lists; `origins` are left out; what a record
    does not know is NaN, or no key of its dict. A pandas data frame, or a list of dicts where there is no pandas.

    FileNotFoundError for a place that is not there, ValueError for a file that is no record, or a folder without one.
    """
    rows: list[Row] = []
    for place in map(pathlib.Path, places):
        if not place.exists():
            raise FileNotFoundError(f"{place}: no such file or folder")
        files = sorted(place.rglob("*.json")) if place.is_dir() else [place]
        found = [row for row in (_record(file) for file in files if file.is_file()) if row is not None]
        if not found:
            raise ValueError(f"{place}: " + ("no record of a run in it" if place.is_dir() else
                                             "expected the record of a run (record.json, or what --record-to wrote)"))
        rows += found
    return _table(rows)


def _log_file(run: PathLike) -> pathlib.Path:
    path = pathlib.Path(run)
    return path if path.suffix == ".jsonl" else path / "log.jsonl"


def _whole_lines(path: pathlib.Path) -> bytes:
    """The last line of a run at work may be half written."""
    data = path.read_bytes() if path.exists() else b""
    return data[:data.rfind(b"\n") + 1]


def log(run: PathLike) -> Table:
    """The lines of a run's log.jsonl (docs/record.md), one a row: `event`, `step`, `time`, `loss`, the metrics, ...

    `run` is a run's directory, or the file. A pandas data frame, or a list of dicts where there is no pandas.
    FileNotFoundError where there is no log.
    """
    path = _log_file(run)
    if not path.exists():
        raise FileNotFoundError(f"{run} is no run directory: it has no log.jsonl")
    return _table([json.loads(line) for line in _whole_lines(path).splitlines()])


def lines(path: pathlib.Path, running: Callable[[], bool], since: float = 0, interval: float = 0.2) -> Iterator[Row]:
    """The log's lines from its first, as they are written, until `running` says no.

    While `running`, a log that was not touched after `since` (in seconds since 1970) is an earlier run's, and waited
    on. A run that is gone on with cuts its log to its checkpoint: what it logs again comes again.
    """
    told = b""
    while True:
        live = running()  # asked first, so that the last lines are read after the last answer
        try:
            current = not live or path.stat().st_mtime >= since
            whole = _whole_lines(path) if current else told
        except (FileNotFoundError, NotADirectoryError):  # not begun yet, just begun anew, or never to begin
            whole = told
        if not whole.startswith(told):
            shared = len(os.path.commonprefix([told, whole]))
            told = told[:told.rfind(b"\n", 0, shared) + 1]
        for line in whole[len(told):].splitlines():
            yield json.loads(line)
        told = whole
        if not live:
            return
        time.sleep(interval)


def follow(run: PathLike) -> Iterator[Row]:
    """The lines of a run's log.jsonl from its first, and further ones as they are written by whoever runs it.

    Ends with the run: when its record is newer than its log. Waits for a run that has not begun, and for ever for one
    that was killed before it could write its record.
    """
    path = _log_file(run)
    record = path.with_name("record.json")

    def running() -> bool:
        try:
            return record.stat().st_mtime_ns < path.stat().st_mtime_ns
        except FileNotFoundError:
            return True

    return lines(path, running)


def _weights_file(run: pathlib.Path) -> pathlib.Path:
    if not run.is_dir():
        return run
    checkpoints = sorted((run / "checkpoints").glob("step-*.safetensors"))
    places = [run / "model.safetensors", *reversed(checkpoints)]
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(f"{run} holds no weights: it has neither model.safetensors nor a checkpoint")


def load_state(run: PathLike, framework: str | None = None) -> dict[str, Any]:
    """Weights by name (docs/weights.md) as tensors of PyTorch, or arrays of NumPy where there is no PyTorch.

    `run` is a run's directory (its selected weights; of one that has not finished, those of its newest checkpoint), a
    weights file or a checkpoint (its best weights, else its last). `framework`: "torch" or "numpy".
    Needs the package safetensors. FileNotFoundError where there are no weights.
    """
    from safetensors import safe_open

    if framework is None:
        framework = "torch" if importlib.util.find_spec("torch") else "numpy"
    if framework not in ("torch", "numpy"):
        raise ValueError(f"framework: expected torch or numpy, got {framework!r}")
    path = _weights_file(pathlib.Path(run))
    with safe_open(path, "pt" if framework == "torch" else "np") as file:
        names = list(file.keys())
        prefix = ""
        if "header_sha256" in (file.metadata() or {}):  # a checkpoint
            prefix = "best." if any(name.startswith("best.") for name in names) else "model."
        return {name[len(prefix):]: file.get_tensor(name) for name in names if name.startswith(prefix)}
