"""One attention core on tensors of Python, computed by `xformer forward`."""

from __future__ import annotations

import importlib
import pathlib
import subprocess
import tempfile
import warnings
from collections.abc import Mapping
from typing import Any

from xformer._program import Error, Value, environment, message, program, words


def forward(name: str, q: Any, k: Any, v: Any, mask: Any = None, tensors: Mapping[str, Any] | None = None,
            **options: Value) -> dict[str, Any]:
    """Runs `xformer forward --core NAME` (docs/forward.md) and returns what it computed, by name.

    q, k, v are [b,h,n,d] (k and v [b,h,k,d] where the attention allows it), float32 or float64; mask is [b,n] bool,
    true where a token is valid, absent: everywhere. `tensors` are the core's parameters, as `xformer forward --core
    NAME --template` names them, and `grad_output`; seed=N draws those that are absent, and returns them too. `options`
    are those of `xformer forward --help`, with `_` for `-`:

        forward("linformer", q, k, v, mask, {"shared.linformer_e": e}, set={"attention.projected_len": 6})["output"]
        forward("softmax", q, k, v, capture=["weights"], grad=True)["grad.q"]

    Tensors of PyTorch give tensors of PyTorch, on q's device; arrays of NumPy arrays. Gradients do not flow through
    this function: grad=True asks for them. Needs the package safetensors.
    Raises Error, with the program's words, when it refuses; its notes are Python's warnings.
    """
    given: dict[str, Any] = {"q": q, "k": k, "v": v, **({} if mask is None else {"mask": mask}), **(tensors or {})}
    on_torch = type(q).__module__.partition(".")[0] == "torch"
    files = importlib.import_module("safetensors.torch" if on_torch else "safetensors.numpy")
    if on_torch:  # copied, because the format's package refuses views of one memory, such as q and k of one projection
        given = {key: one.detach().cpu().contiguous().clone() for key, one in given.items()}
    else:
        given = {key: one.copy(order="C") for key, one in given.items()}
    with tempfile.TemporaryDirectory() as folder:
        source, made = pathlib.Path(folder) / "in.safetensors", pathlib.Path(folder) / "out.safetensors"
        files.save_file(given, source)
        command = [program(), "forward", *words({"core": name, **options, "input": source, "output": made})]
        try:
            done = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
                                  encoding="utf-8", errors="replace")
        except OSError as error:
            raise Error(4, f"{command[0]} cannot be started: {error.strerror}") from error
        if done.returncode != 0:
            raise Error(done.returncode, message(done.returncode, done.stderr))
        for line in done.stderr.splitlines():
            if line.startswith("note: "):
                warnings.warn(line.removeprefix("note: "), stacklevel=2)
        result: dict[str, Any] = files.load_file(made)
    return {key: one.to(q.device) for key, one in result.items()} if on_torch else result
