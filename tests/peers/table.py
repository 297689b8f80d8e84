"""The results of scripts/compare-pytorch as Markdown tables; nothing in them is written by hand."""

# "caching": under a caching allocator, as are both in bf16.
KINDS = {"eager": "eager", "caching": "eager under a caching allocator", "compile": "torch.compile",
         "compile-caching": "torch.compile under a caching allocator", "bf16": "bf16 autocast under a caching allocator",
         "bf16-compile": "bf16 autocast, torch.compile, under a caching allocator",
         "sdpa": "scaled_dot_product_attention, no attention dropout", "products": "its matrix products alone"}
SAME = ["eager", "caching", "compile", "compile-caching", "bf16", "bf16-compile"]  # the same function as ours
# On a GPU, all in the precision of ours.
GPU_KINDS = {"eager": "eager", "compile": "torch.compile", "reduce-overhead": "torch.compile, in CUDA graphs (reduce-overhead)",
             "sdpa": KINDS["sdpa"]}
GPU_SAME = ["eager", "compile", "reduce-overhead"]
# There by the device's clock, and how long the host takes to queue a step.
APART = {"device_ms": "PyTorch, device", "host_ms": "PyTorch, host", "ours_device_ms": "ours, device", "ours_host_ms": "ours, host"}


def summary(times):
    """Median, 10th and 90th percentile, linear between the sorted values, and all of them."""
    ordered = sorted(times)

    def at(p):
        place = p * (len(ordered) - 1)
        low = int(place)
        return ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])

    return {"median": at(0.5), "p10": at(0.1), "p90": at(0.9), "all": times}


def floor(row):
    """(GFLOP/s of its products alone, seconds of a step at that rate, ours over it in the same rounds), or None."""
    products = row["kinds"]["products"]
    counted = row["ours"]["flops"]["step_counted"]
    if products["status"] != "ok" or not counted:
        return None
    flops = min(products["step_flops"], counted)
    rate = products["product_flops"] / products["ms"]["median"] / 1e6
    least = flops / 1e9 / rate
    return rate, least, products["ours_ms"]["median"] / 1e3 / least


def measured(row, kind):
    entry = row["kinds"].get(kind)
    return entry if entry and entry["status"] == "ok" else None


def best(row, same=SAME):
    """The ratio of PyTorch's fastest way to take the same step, or None."""
    found = [ratio(entry) for kind in same if (entry := measured(row, kind))]
    return min(found, default=None)


def model(row):
    return f"`{row['model']}`" + ("" if row.get("precision", "fp32") == "fp32" else f", {row['precision']}")


def libraries(products):
    shares = products.get("libraries") or {"PyTorch": 1}  # before there was a choice
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005)


def number(value, form="{:.2f}"):
    return "-" if value is None else form.format(value)


def seconds(summary, digits):
    return " ".join([f"{summary['median'] / 1e3:.{digits}f}",
                     f"({summary['p10'] / 1e3:.{digits}f} to {summary['p90'] / 1e3:.{digits}f})"])


def megabytes(value):
    return "-" if value is None else f"{value / 1e6:,.0f}"


def lines_of(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join("---" if i < 2 else "---:" for i in range(len(head))) + " |"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def ratio(entry):
    """The median over rounds, whose spread stands beside it."""
    return entry["ratio_of_rounds"]["median"] if entry else None


def ratios(row, same, with_floor):
    ours, kinds = row["ours"], [*same, "sdpa"]
    cells = [model(row), place(row), program(row), number(ours["step_ms"]["median"] / 1e3, "{:.3f}" if with_floor else "{:.6f}")]
    cells += [number(ratio(measured(row, kind))) for kind in kinds] + [number(best(row, same))]
    if with_floor:
        eager, least = measured(row, "eager"), floor(row)
        cells.append(number(least[2] if least else None))
        cells.append(number(least[2] * ratio(eager) if least and eager else None))
    cells.append(megabytes(ours["peak_process_bytes" if with_floor else "peak_bytes"]))
    cells += [megabytes((measured(row, kind) or {}).get("peak_bytes")) for kind in kinds]
    return cells


def place(row):
    return f"{row['shape']}, {row['length']:,} x {row['batch']}"


def program(row):
    """Which program of ours was measured, and when: rows of one table may be of several."""
    return f"{row['software']['commit'][:7]}{', modified' if row['software']['dirty'] else ''}, {row['date'][:10]}"


def details(row, kinds, digits, on_gpu):
    for kind, words in kinds.items():
        entry = row["kinds"].get(kind)
        if entry is None:
            continue
        begin = [model(row), place(row), words]
        if entry["status"] != "ok":
            yield begin + [entry["message"].replace("|", "/"), *["-"] * (8 if on_gpu else 4)]
            continue
        spread = entry["ratio_of_rounds"]
        yield begin + [seconds(entry["ms"], digits), seconds(entry["ours_ms"], digits),
                       f"{ratio(entry):.2f} ({spread['p10']:.2f} to {spread['p90']:.2f})",
                       *[f"{entry[key]['median'] / 1e3:.{digits}f}" for key in (APART if on_gpu else [])], str(entry["rounds"]),
                       f"{entry['setup_seconds']:.0f}"]


def floors(row):
    least, products = floor(row), row["kinds"]["products"]
    counted = row["ours"]["flops"]["step_counted"]
    theirs = products.get("parameters")
    parameters = str(row["ours"]["parameters"])
    return [model(row), place(row), number(counted / 1e9 if counted else None, "{:.3g}"),
            number(products["step_flops"] / 1e9 if products["status"] == "ok" else None, "{:.3g}"),
            number(least and least[0], "{:.1f}"), libraries(products) if least else "-",
            number(least and least[1], "{:.3f}"),
            parameters if theirs in (None, row["ours"]["parameters"]) else f"{parameters} / {theirs}"]


def facts(results):
    for i, run in enumerate(results["runs"]):
        rows = [row for row in results["rows"] if row["run"] == i]
        if not rows:
            continue
        software = sorted({f"xformer {row['software']['xformer']} ({row['software']['commit'][:12]}"
                           f"{', modified' if row['software']['dirty'] else ''})" for row in rows})
        device = f"{run['gpu']}; " if run.get("gpu") else ""
        pause = f", {run['pause_ms']:.0f} ms before each step" if run.get("pause_ms") else ""
        packages = f"PyTorch {run['torch']}, " + (f"transformers {run['transformers']}, " if run["transformers"] else "")
        yield (f"`{run['command']}`, {run['date']}: {', '.join(sorted({row['shape'] for row in rows}))}. {device}{run['processor']}, "
               f"{run['processors']} processors, {run['memory_bytes'] / 1e9:.0f} GB, {run['threads']} threads. "
               f"{'; '.join(software)}; {packages}Python {run['python']}, "
               f"{run['compiler']}. At most {run['rounds']} rounds of a pair, fewer where they took {run['seconds']:.0f} s{pause}.")
        yield ""
        yield "What the machine does at best in that run, by single operators:"
        yield ""
        yield from lines_of(["operator", "unit", "rate"], [
            [*name.rsplit(", ", 1), number(rate, "{:.3g}")] for name, rate in run["ceilings"].items()])


def tables(results, same, kinds, with_floor):
    rows, digits = results["rows"], 3 if with_floor else 6
    ratio_kinds = [*same, "sdpa"]
    yield from lines_of(["model", "shape", "ours is of", "ours, s"] + [f"{kind} / ours" for kind in ratio_kinds] + ["best / ours"] +
                        (["ours / floor", "eager / floor"] if with_floor else []) + ["ours, MB"] +
                        [f"{kind}, MB" for kind in ratio_kinds], [ratios(row, same, with_floor) for row in rows])
    if with_floor:
        yield from ["## The arithmetic floor", "",
                    "Floor: the smaller count of a step's FLOPs over the rate of the model's own matrix products alone, in the "
                    "row's precision, each by the library that is fastest at it on this machine with operands as it likes them, in "
                    "turns with ours (Nystromformer's pseudo-inverse in fp32 in every precision, as ours makes it); "
                    "eager over it by its ratio to ours.", ""]
        yield from lines_of(["model", "shape", "GFLOP, ours", "GFLOP, PyTorch", "products, GFLOP/s", "by", "floor, s", "parameters"],
                            [floors(row) for row in rows])
    alone = "" if with_floor else " `device`: by its own clock, `host`: until it had queued a step, medians both."
    yield from ["## Every pair", "", f"Medians with their 10th and 90th percentiles, in seconds.{alone}", ""]
    yield from lines_of(["model", "shape", "PyTorch", "PyTorch, s", "ours, s", "ratio", *([] if with_floor else APART.values()), "rounds",
                         "set-up, s"], [cells for row in rows for cells in details(row, kinds, digits, not with_floor)])
    yield from ["## Conditions", ""]
    yield from facts(results)


MODEL = ("Forward, backward, AdamW and schedule of the encoder of protocol `mlpen` (two layers of width 64, two heads), dropout 0.1, "
         "{precision}, on random numbers below ListOps' vocabulary; `listops-lengths`: as many of them valid as in the first "
         "ListOps examples; `bytes-2k`: a causal decoder of four layers of width 256, four heads (protocol `character-lm`), that "
         "scores every place of random bytes. Ours and one process of PyTorch take a step each in turn{pause}. "
         "A ratio is the median over rounds of PyTorch's time over ours: above 1 ours is faster; `best` is PyTorch's fastest but for `sdpa`. {memory} "
         "`sdpa` and ours beside it have no dropout of attention weights; the models are `tests/peers/models.py`.")


def markdown(results):
    if results.get("device") == "cuda":
        lines = ["# xformer beside PyTorch: one training step on a GPU", "",
                 MODEL.format(precision="both in the precision that the row says, fp32 where it says none", pause="",
                              memory="A turn is as many steps as take 50 ms. Memory is the most that was allocated on the GPU."), "",
                 *tables(results, GPU_SAME, GPU_KINDS, with_floor=False)]
    else:
        lines = ["# xformer beside PyTorch: one training step on a CPU", "",
                 MODEL.format(precision="ours in fp32 or, where the row says so, in bf16 (PyTorch's by its autocast)",
                              pause=", behind the pause that the conditions name, in which threads of the other stop spinning",
                              memory="Memory is the most that the process had, Python and libraries included. "
                                     "`caching` and both in bf16 run under a caching allocator."), "",
                 *tables(results, SAME, KINDS, with_floor=True)]
    return "\n".join(lines).rstrip("\n") + "\n"
