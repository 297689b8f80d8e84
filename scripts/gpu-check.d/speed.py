"""Items of scripts/gpu-check that measure, beside PyTorch where that can be had."""

import collections
import contextlib
import csv
import json
import os
import shlex
import statistics
import subprocess
import time

import compute
from paced import Failed, Paced
from session import PEERS, Cut, Ended, Skipped, TimeOver, ending

# ours, and the attention of tests/peers/models.py that is the same function
MODELS = {"softmax-fused": "softmax", "linformer": "linformer", "performer": "performer", "nystromformer": "nystromformer",
          "linear": "linear", "none": "none"}
KINDS = {"eager": [], "compile": ["--compile"], "reduce-overhead": ["--compile", "reduce-overhead"]}
PRECISIONS = ("fp32", "bf16", "tf32")


def sizes(place, length=2048, batch=32):
    return (64, 2) if place.small else (length, batch)


def chosen_models(place):
    return {name: theirs for name, theirs in MODELS.items() if not place.given.model or name in place.given.model}


def threads(place):
    return 1 if place.small else len(os.sched_getaffinity(0))


def ceilings(place):
    code, said = place.run("python3", PEERS / "ceilings.py", threads(place), place.device, environment=place.python())
    if code != 0:
        raise Ended(ending(code, said))
    rates = json.loads(said.splitlines()[-1])
    place.row(**rates)
    return "; ".join(f"{name} {value:.3g}" for name, value in rates.items() if "copy" in name or "node" in name)


def worker(place, attention, precision, more):
    length, batch = sizes(place)
    return ["python3", PEERS / "worker.py", "--attention", attention, "--length", length, "--batch", batch, "--device",
            place.device, "--precision", precision, "--threads", threads(place), *(["--warmup", 6] if place.on_gpu else []), *more]


def learning(place):
    """PyTorch's compiler fills its cache, which `pairs` needs, while something is tested whose time does not matter."""
    commands, compiler, note = [], None, "nothing given to torch.compile"
    with contextlib.suppress(Skipped):
        environment = {**place.python(), "TORCHINDUCTOR_COMPILE_THREADS": "2"}
        if place.on_gpu:  # on a CPU it takes minutes
            commands = [worker(place, theirs, precision, more) for precision in PRECISIONS[:2]
                        for theirs in chosen_models(place).values() for more in KINDS.values() if more]
    if commands:
        lines = [f"{shlex.join(map(str, command))} >{i}.txt 2>&1" for i, command in enumerate(commands)]
        (place.folder / "commands").write_text("\n".join(lines) + "\n")
        # So many at once, for the sake of the device's memory.
        compiler = place.start("xargs", "-a", "commands", "-d", "\\n", "-P", 12, "-n", 1, "sh", "-c", 'eval "$0"',
                               environment=environment, folder=place.folder)
    said = compute.selftest(place, "learning", "^ok  " if place.small else "$^")
    if compiler:
        with contextlib.suppress(subprocess.TimeoutExpired):
            compiler.wait(max(0, place.seconds_left() - 2))
        ready = sum('"ready"' in file.read_text() for file in place.folder.glob("[0-9]*.txt"))
        note = f"torch.compile is ready with {ready} of {len(commands)}"
    return f"{said}; {note}"


def together(place, model, theirs, precision):
    """Our process and one of every kind beside it, a turn of each after the other; a row for every kind."""
    length, batch = sizes(place)
    kinds = {"eager": KINDS["eager"]} if not place.on_gpu else dict(KINDS)
    commands = {kind: worker(place, theirs, precision, more) for kind, more in kinds.items()}
    if theirs == "softmax":
        commands["sdpa"] = worker(place, "sdpa", precision, [])
    ours = [place.program, "bench", "--paced", "--models", model, "--lengths", length, "--batch", batch, "--device", place.device,
            "--precision", precision, "--steps", 1000000, "--threads", threads(place), "--json", place.folder / "ours.json"]
    rounds, most_seconds = (3, 60) if place.small else (15, 6)
    with contextlib.ExitStack() as stack:
        mine = stack.enter_context(Paced(ours, place.folder, {}, f"{model}-{precision}.txt"))
        processes = {kind: stack.enter_context(Paced(command, place.folder, place.python(), f"{model}-{precision}-{kind}.txt"))
                     for kind, command in commands.items()}
        facts = mine.answer()["row"]
        alive = {}
        for kind, process in processes.items():
            try:
                alive[kind] = (process, process.answer(), [])
            except Failed as reason:
                place.row(model=model, precision=precision, kind=kind, status="failed", message=str(reason))
        mine.step()  # not timed: it slept while the others were made ready
        own, begin = [], time.monotonic()
        while len(own) < rounds and time.monotonic() - begin < most_seconds:
            own.append(mine.step())
            for kind, (process, _, steps) in alive.items():
                steps.append(process.step())
        ratios, times = {}, [step["ms"] for step in own]
        for kind, (_, ready, steps) in alive.items():
            ms = [step["ms"] for step in steps]
            ratios[kind] = statistics.median(ms) / statistics.median(times)
            place.row(model=model, precision=precision, kind=kind, status="ok", length=length, batch=batch, rounds=len(times),
                      ours_ms=statistics.median(times), ms=statistics.median(ms), ratio=ratios[kind], captured=facts["captured"],
                      **apart("", steps), **apart("ours_", own), peak_bytes=steps[-1]["peak_bytes"],
                      ours_peak_bytes=facts["peak_bytes"], setup_seconds=ready["setup_seconds"], torch=ready["torch"],
                      all_ours_ms=times, all_ms=ms)
        return f"{model} {precision}: " + ", ".join(f"{kind} {ratio:.2f}" for kind, ratio in ratios.items())


def apart(whose, steps):
    """Medians of what the host alone and the device alone take, where the steps tell."""
    return {whose + key: statistics.median(step[key] for step in steps) for key in ("host_ms", "device_ms") if key in steps[0]}


def pairs(place):
    place.python()
    done, failed = [], []
    try:
        for precision in PRECISIONS if place.on_gpu else PRECISIONS[:1]:
            for model, theirs in list(chosen_models(place).items())[:1 if place.small else None]:
                try:
                    done.append(together(place, model, theirs, precision))
                except Failed as reason:
                    place.row(model=model, precision=precision, kind="ours", status="failed", message=str(reason))
                    failed.append(f"{model} {precision}: {reason}")
    except TimeOver:
        if not done or failed:
            raise
        raise Cut("; ".join(done)) from None
    if failed:
        raise Ended("; ".join(failed))
    return "; ".join(done)


def all_names(place):
    code, said = place.run(place.program, "list", "attentions", "--json", log="names.txt")
    if code != 0:
        raise Ended(f"list {ending(code, said)}")
    names = [entry["name"] for entry in json.loads(said[said.index("["):])]
    return names[:2] if place.small else names


def measured_rows(place, groups):
    """Benches one after the other, their rows saved as each ends."""
    count, bad = 0, []
    try:
        for words in groups:
            try:
                rows = place.bench(*words, allowed=("ok", "too-large", "out-of-memory"))
            except TimeOver:
                raise
            except Ended as reason:
                bad.append(f"{words[1]}: {reason}")
                continue
            for row in rows:
                place.row(**row)
                count += 1
                if place.on_gpu and row["status"] == "ok" and not row["captured"]:
                    bad.append(f"{row['model']} was not captured")
    except TimeOver:
        if bad or not count:
            raise
        raise Cut(f"{count} rows, then the time was over") from None
    if bad:
        raise Ended("; ".join(bad))
    return f"{count} rows"


def ranking(place):
    length, batch = sizes(place)
    names = all_names(place)
    words = ["--lengths", length, "--batch", batch, "--steps", 3]
    return measured_rows(place, [["--models", ",".join(names[i:i + 6]), *words] for i in range(0, len(names), 6)])


def shapes(place):
    groups = []
    for task, length, batch in (("text", 4096, 16), ("image", 1024, 32)):
        length, batch = sizes(place, length, batch)
        groups += [["--models", model, "--task", task, "--lengths", length, "--batch", batch, "--steps", 3] for model in MODELS]
    return measured_rows(place, groups[::6] if place.small else groups)


def operators(place):
    """`xformer profile`: a report for each model, and its longest operators in the results."""
    length, batch = sizes(place)
    done = []
    for model in ("softmax-fused", "linformer", "none"):
        report = place.folder / f"{model}.json"
        code, said = place.xformer("profile", "--model", model, "--length", length, "--batch", batch, "--json", "--out", report,
                                   log=f"{model}.txt")
        if code != 0:
            raise Ended(f"{model}: profile {ending(code, said)}")
        told = json.loads(report.read_text())
        keys = ("operator", "kind", "calls", "ms", "share", "floor_ms")
        place.row(model=model, **{key: told[key] for key in ("step_ms", "host_ms", "profiled_ms", "events", "captured")},
                  operators=[{key: row[key] for key in keys} for row in told["operators"][:20]])
        done.append(f"{model} {told['profiled_ms']:.3g} ms")
    return "; ".join(done)


def profile(place):
    """Time and memory traffic of every kernel of about one plain step, by Nsight Compute."""
    if not place.on_gpu:
        raise Skipped("needs a GPU")
    ncu = place.tool("ncu")
    length, batch = sizes(place)
    done = []
    for model in ("softmax-fused", "linformer", "performer", "none"):
        words = ["--models", model, "--lengths", length, "--batch", batch, "--steps", 1]
        launches = place.bench(*words)[0]["kernels_launched"]
        if not launches:
            raise Ended(f"{model} was not captured, so nobody counted its kernels")
        # Steps repeat: as many launches as a step has, from anywhere behind the smaller batches that `bench` tries first.
        code, said = place.run(ncu, "--clock-control", "none", "--target-processes", "all", "--csv", "--launch-skip", 9 * launches,
                               "--launch-count", launches, "--metrics", "gpu__time_duration.sum,dram__bytes.sum", place.program,
                               "bench", *words, "--no-baseline", "--cuda-graph", "off", "--device", place.device,
                               log=f"{model}.csv")
        if "ERR_NVGPUCTRPERM" in said:
            raise Skipped("the driver keeps its counters from ncu here")
        table = kernel_table(said)
        if not table:
            raise Ended(f"{model}: ncu {ending(code, said)}")
        place.row(model=model, launches=launches, ns=sum(row["ns"] for row in table), kernels=table[:40])
        done.append(model)
    return f"kernels of {', '.join(done)}"


def kernel_table(text):
    """What ncu printed, by kernel, the longest first."""
    units = {"ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    kernels = collections.defaultdict(lambda: {"count": 0, "ns": 0.0, "bytes": 0.0})
    for line in csv.DictReader(line for line in lines[start:] if line.startswith('"')):
        value = float(line["Metric Value"].replace(",", "")) * units.get(line["Metric Unit"], 1)
        entry = kernels[line["Kernel Name"][:120]]
        if line["Metric Name"].startswith("gpu__time"):
            entry["count"] += 1
            entry["ns"] += value
        else:
            entry["bytes"] += value
    return sorted(({"kernel": name, **entry} for name, entry in kernels.items()), key=lambda entry: -entry["ns"])
