"""scripts/gpu-check --table: xformer beside PyTorch on a GPU, from what the items pairs, shapes and bench saved."""

import json

import table
from pairs import GPU_SHAPES, PRECISIONS, TABLE_MODELS, TABLE_SHAPES

KINDS = list(table.GPU_KINDS)
HEAD = ["model", "shape", "ours, ms", *[f"{kind} / ours" for kind in KINDS], "kernels", "ours, MB",
        *[f"{kind}, MB" for kind in KINDS], "ours, J"]
TEXT = """A training step of the model of `tests/peers/models.py` and of ours, each in the precision that the row says, fp32 where it
says none: medians. A ratio is PyTorch's time over ours, steps of both in turn, the median over rounds: above 1 ours is faster.
`kernels`, `J`: launched and taken by a step of ours. Memory is the most that was allocated on the GPU. `sdpa` is PyTorch's
fused softmax attention. `-`: not measured, or not had."""


def saved(file):
    """The lines of a results.jsonl."""
    lines = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        try:
            line = json.loads(line)
            lines.append({"item": line["item"], "row": line.get("row", {})})
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"line {number} is none of gpu-check's") from None
    return lines


def found(lines, item):
    """What an item measured of what, in time's order."""
    for line in lines:
        row = line["row"]
        if line["item"] == item and row.get("status") == "ok":
            yield (row["model"], row["precision"], row["length"], row["batch"]), row


def cells(model, precision, shape, beside, alone):
    """`beside`: the row of every kind of PyTorch; `alone`: that of our bench."""
    any_pair = next(iter(beside.values()), {})
    peaks = [any_pair.get("ours_peak_bytes", alone.get("peak_bytes")), *[beside.get(kind, {}).get("peak_bytes") for kind in KINDS]]
    length, batch, _ = GPU_SHAPES[shape]
    return [table.model({"model": model, "precision": precision}), table.place({"shape": shape, "length": length, "batch": batch}),
            table.number(any_pair.get("ours_ms", (alone.get("step_ms") or {}).get("median")), "{:.3f}"),
            *[table.number(beside.get(kind, {}).get("ratio")) for kind in KINDS],
            table.number(any_pair.get("kernels_launched") or alone.get("kernels_launched"), "{:.0f}"),
            *map(table.megabytes, peaks), table.number(alone.get("joules_per_step"), "{:.3g}")]


def markdown(lines):
    beside, alone = {}, {}
    for key, row in found(lines, "pairs"):
        beside.setdefault(key, {})[row["kind"]] = row
    for item in ("bench", "shapes"):  # the second's steps are enough for joules
        alone |= dict(found(lines, item))
    rows = []
    for precision in PRECISIONS["cuda"]:
        keys = {(model, shape): (model, precision, *GPU_SHAPES[shape][:2]) for shape in TABLE_SHAPES for model in TABLE_MODELS}
        if any(key in beside for key in keys.values()):
            rows += [cells(model, precision, shape, beside.get(key, {}), alone.get(key, {})) for (model, shape), key in keys.items()
                     if key in beside or key in alone]
    if not rows:
        raise ValueError("nothing of the item pairs is in it")
    facts = {f"{row['gpu']}, {row['xformer']}, PyTorch {row['torch']}" for kinds in beside.values() for row in kinds.values()}
    return "\n".join([*table.lines_of(HEAD, rows), TEXT, "", f"{'; '.join(sorted(facts))}."]) + "\n"
