"""Where the program is, what it is started with, and options of Python as its words."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Union

_HERE = pathlib.Path(__file__).resolve().parent
_IN_WHEEL = _HERE / "program" / "xformer"

# A value of an option. True is a flag, None, False and what is empty leave the option out, a sequence is joined by
# commas, a mapping is key=value for each of its entries (set={"model.dim": 64}).
Value = Union[str, int, float, bool, None, "os.PathLike[str]", Sequence[Any], Mapping[str, Any]]


class Error(Exception):
    """The program refused or failed: its words, and its exit code (README.md) as `code`."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def program() -> str:
    """$XFORMER_PROGRAM, else the program of the wheel, else the checkout's. Error 4 where there is none."""
    given = os.environ.get("XFORMER_PROGRAM")
    if given:
        return os.path.abspath(given)
    for path in (_IN_WHEEL, _HERE.parents[2] / "xformer"):
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    raise Error(4, f"{_HERE} is neither of a wheel (it has no program/xformer) nor of a checkout (there is no "
                   f"{_HERE.parents[2] / 'xformer'}); set XFORMER_PROGRAM to the program")


def environment() -> dict[str, str]:
    """This process's; the program of the wheel is told where this Python's PyTorch has LibTorch."""
    result = dict(os.environ)
    if _IN_WHEEL.exists() and not result.get("XFORMER_LIBTORCH"):
        torch = importlib.util.find_spec("torch")  # looked up, not imported
        if torch is not None and torch.submodule_search_locations:
            result["XFORMER_LIBTORCH"] = torch.submodule_search_locations[0]
    return result


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(_text(entry) for entry in value)
    return str(value)


def words(options: Mapping[str, Value]) -> list[str]:
    """{"log_every": 5, "fast": True, "set": {"model.dim": 64}} -> --log-every 5 --fast --set model.dim=64."""
    result: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        if isinstance(value, (Mapping, Sequence)) and not isinstance(value, str) and not value:
            continue
        result.append("--" + name.replace("_", "-"))
        if isinstance(value, Mapping):
            result += [f"{key}={_text(entry)}" for key, entry in value.items()]
        elif value is not True:
            result.append(_text(value))
    return result


def message(code: int, words_of_program: str) -> str:
    """What an Error says: the program's words without its name, or how it ended where it had none."""
    text = words_of_program.strip().removeprefix("xformer: ")
    return text or (f"ended by signal {-code}" if code < 0 else f"ended with {code}")
