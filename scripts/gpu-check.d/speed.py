"""Items of scripts/gpu-check that measure, beside PyTorch where that can be had."""

import collections
import contextlib
import csv
import itertools
import json
import os
import shlex
import statistics
import subprocess
import time

import compute
from paced import Failed, Paced
from pairs import GPU_SHAPES, MODELS, PRECISIONS, TABLE_MODELS, TABLE_SHAPES, WAYS
from session import PEERS, Cut, Ended, Skipped, TimeOver, ending

AT_ONCE = 4  # pairs made ready together, as many as the memory of an 80 GB device and 16 processors can take


def sizes(place, shape="listops"):
    return (64, 2) if place.small else GPU_SHAPES[shape][:2]


def chosen_pairs(place):
    """(shape, model, precision) of what is asked for, the most important first."""
    given, precisions = place.given, PRECISIONS["cuda"] if place.on_gpu else ["fp32"]
    chosen = itertools.product(given.precision or precisions, given.shape or TABLE_SHAPES, TABLE_MODELS)
    chosen = [(shape, model, precision) for precision, shape, model in chosen if not given.model or model in given.model]
    if not chosen:
        raise Skipped(f"measures {', '.join(TABLE_MODELS)} alone")
    return chosen[:1] if place.small else chosen


def threads(place):
    return 1 if place.small else len(os.sched_getaffinity(0))


def ceilings(place):
    code, said = place.run("python3", PEERS / "ceilings.py", threads(place), place.device, environment=place.python())
    if code != 0:
        raise Ended(ending(code, said))
    rates = json.loads(said.splitlines()[-1])
    place.row(**rates)
    return "; ".join(f"{name} {value:.3g}" for name, value in rates.items() if "copy" in name or "node" in name)


def worker(place, attention, shape, precision, more):
    length, batch = sizes(place, shape)
    return ["python3", PEERS / "worker.py", "--attention", attention, "--length", length, "--batch", batch, "--device",
            place.device, "--precision", precision, "--threads", threads(place), *(["--warmup", 6] if place.on_gpu else []), *more]


def compilations(place):
    """Commands that compile what `pairs` will ask for, in its order. reduce-overhead needs the same kernels as compile, so it
    comes when these are there."""
    chosen = chosen_pairs(place) if place.on_gpu else []  # on a CPU it takes minutes
    return [worker(place, MODELS[model], shape, precision, words) for precision in dict.fromkeys(one[2] for one in chosen)
            for words in WAYS.values() if words for shape, model, asked in chosen if asked == precision]


def learning(place):
    """PyTorch's compiler fills its cache, which `pairs` needs, while something is tested whose time does not matter."""
    commands, compiler, note = [], None, "nothing given to torch.compile"
    with contextlib.suppress(Skipped):
        environment = {**place.python(), "TORCHINDUCTOR_COMPILE_THREADS": "2"}
        commands = compilations(place)
    if commands:
        lines = [f"{shlex.join(map(str, command))} >{i}.txt 2>&1" for i, command in enumerate(commands)]
        (place.folder / "commands").write_text("\n".join(lines) + "\n")
        # So many at once, for the sake of the device's memory.
        compiler = place.start("xargs", "-a", "commands", "-d", "\\n", "-P", 12, "-n", 1, "sh", "-c", 'eval "$0"',
                               environment=environment, folder=place.folder)
    said = compute.selftest(place, "learning")
    if compiler:
        with contextlib.suppress(subprocess.TimeoutExpired):
            compiler.wait(max(0, place.seconds_left() - 2))
        ready = sum('"ready"' in file.read_text() for file in place.folder.glob("[0-9]*.txt"))
        note = f"torch.compile is ready with {ready} of {len(commands)}"
    return f"{said}; {note}"


class Pair:
    """Our process and one of every kind of PyTorch beside it, from when they are started to a row for every kind. They are
    children of `place`, which ends them."""

    def __init__(self, place, shape, model, precision):
        self.place, self.facts = place, {"shape": shape, "model": model, "precision": precision}
        self.length, self.batch = sizes(place, shape)
        self.name = f"{model} {precision} {shape}"
        kinds = {kind: words for kind, words in WAYS.items() if place.on_gpu or not words}
        commands = {kind: worker(place, MODELS[model], shape, precision, words) for kind, words in kinds.items()}
        if MODELS[model] == "softmax":
            commands["sdpa"] = worker(place, "sdpa", shape, precision, [])
        log = f"{shape}-{model}-{precision}"
        ours = [place.program, "bench", "--paced", "--models", model, "--lengths", self.length, "--batch", self.batch, "--device",
                place.device, "--precision", precision, "--steps", 1000000, "--threads", threads(place),
                "--json", place.folder / f"{log}.json"]
        self.mine = self.started(ours, {}, f"{log}.txt")
        self.others = {kind: self.started(command, place.python(), f"{log}-{kind}.txt") for kind, command in commands.items()}

    def started(self, command, environment, name):
        process = Paced(command, self.place.folder, environment, name)
        self.place.children.append(process.process)
        return process

    def answers(self, ask):
        """What each of PyTorch's processes that is alive answers; one that ends is told of once."""
        found = {}
        for kind, process in list(self.others.items()):
            try:
                found[kind] = ask(process)
            except Failed as reason:
                self.failed(kind, reason)
                del self.others[kind]
        return found

    def failed(self, kind, reason):
        self.place.row(**self.facts, kind=kind, status="failed", message=str(reason))

    def wait(self):
        """Until all are ready or have ended."""
        self.ready = self.answers(Paced.answer)
        self.ours = self.mine.answer()["row"]

    def measure(self, version):
        """{kind: PyTorch's time over ours, the median over rounds}"""
        rounds, most_seconds = (3, 60) if self.place.small else (15, 6)
        self.mine.step()  # not timed, nor PyTorch's: they slept while others were made ready or measured
        self.answers(Paced.step)
        own, steps, begin = [], {kind: [] for kind in self.others}, time.monotonic()
        while len(own) < rounds and time.monotonic() - begin < most_seconds:
            own.append(self.mine.step())
            for kind, step in self.answers(Paced.step).items():
                steps[kind].append(step)
        ratios, times = {}, [step["ms"] for step in own]
        for kind in self.others:
            ms, ready = [step["ms"] for step in steps[kind]], self.ready[kind]
            ratios[kind] = statistics.median(theirs / mine for mine, theirs in zip(times, ms))
            self.place.row(**self.facts, kind=kind, status="ok", length=self.length, batch=self.batch, rounds=len(times),
                           ours_ms=statistics.median(times), ms=statistics.median(ms), ratio=ratios[kind],
                           captured=self.ours["captured"], kernels_launched=self.ours["kernels_launched"],
                           **apart("", steps[kind]), **apart("ours_", own), peak_bytes=steps[kind][-1]["peak_bytes"],
                           ours_peak_bytes=self.ours["peak_bytes"], setup_seconds=ready["setup_seconds"], torch=ready["torch"],
                           gpu=ready["gpu"], xformer=version, all_ours_ms=times, all_ms=ms)
        return ratios


def apart(whose, steps):
    """Medians of what the host alone and the device alone take, where the steps tell."""
    return {whose + key: statistics.median(step[key] for step in steps) for key in ("host_ms", "device_ms") if key in steps[0]}


def pairs(place):
    """Some pairs are made ready together, then each is measured while the others sleep."""
    place.python()
    version = place.run(place.program, "--version")[1].strip()
    chosen, done, failed = chosen_pairs(place), {}, []

    def guarded(pair, action, *words):
        try:
            return action(pair, *words)
        except Failed as reason:
            pair.failed("ours", reason)
            failed.append(f"{pair.name}: {reason}")

    def detail():
        least = [f"{kind} at least {ratio:.2f} ({name})" for kind in WAYS
                 for ratio, name in sorted((ratios[kind], name) for name, ratios in done.items() if kind in ratios)[:1]]
        return "; ".join([*failed, f"{len(done)} of {len(chosen)} pairs", *least])

    try:
        for first in range(0, len(chosen), AT_ONCE):
            together = [Pair(place, *which) for which in chosen[first:first + AT_ONCE]]
            for pair in together:
                guarded(pair, Pair.wait)
            for pair in together:
                if hasattr(pair, "ours") and (ratios := guarded(pair, Pair.measure, version)) is not None:
                    done[pair.name] = ratios
            place.end_children()
    except TimeOver:
        if not failed:
            raise (Cut if done else TimeOver)(detail()) from None
    if failed:
        raise Ended(detail())
    return detail()


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
    """What `pairs` measures, ours alone, and long enough for the device's counter of energy."""
    groups = collections.defaultdict(list)
    for shape, model, precision in chosen_pairs(place):
        groups[shape, precision].append(model)
    benches = []
    for (shape, precision), models in groups.items():
        length, batch = sizes(place, shape)
        benches.append(["--models", ",".join(models), "--lengths", length, "--batch", batch, "--precision", precision, "--steps", 20])
    return measured_rows(place, benches)


def profiled(place, models):
    """(model, precision, name of the file) of those asked for, else of these models in fp32."""
    return [(model, precision, f"{model}-{precision}") for precision in place.given.precision or ["fp32"]
            for model in place.given.model or models]


def operators(place):
    """`xformer profile`: a report for each model, and its longest operators in the results."""
    length, batch = sizes(place)
    done = []
    for model, precision, name in profiled(place, ("softmax-fused", "linformer", "none")):
        report = place.folder / f"{name}.json"
        code, said = place.xformer("profile", "--model", model, "--length", length, "--batch", batch, "--precision", precision, "--json",
                                   "--out", report, log=f"{name}.txt")
        if code != 0:
            raise Ended(f"{model} in {precision}: profile {ending(code, said)}")
        told = json.loads(report.read_text())
        keys = ("operator", "kind", "calls", "ms", "share", "floor_ms")
        whole = {key: told[key] for key in ("step_ms", "host_ms", "profiled_ms", "events", "captured")}
        place.row(model=model, precision=precision, **whole,
                  operators=[{key: row[key] for key in keys} for row in told["operators"][:20]])
        done.append(f"{model} {precision} {told['profiled_ms']:.3g} ms")
    return "; ".join(done)


def profile(place):
    """Time and memory traffic of every kernel of about one plain step, by Nsight Compute."""
    if not place.on_gpu:
        raise Skipped("needs a GPU")
    ncu = place.tool("ncu")
    length, batch = sizes(place)
    done = []
    for model, precision, name in profiled(place, ("softmax-fused", "linformer", "performer", "none")):
        words = ["--models", model, "--lengths", length, "--batch", batch, "--precision", precision, "--steps", 1]
        launches = place.bench(*words)[0]["kernels_launched"]
        if not launches:
            raise Ended(f"{model} in {precision} was not captured, so nobody counted its kernels")
        # Steps repeat: as many launches as a step has, from anywhere behind the smaller batches that `bench` tries first.
        code, said = place.run(ncu, "--clock-control", "none", "--target-processes", "all", "--csv", "--launch-skip", 9 * launches,
                               "--launch-count", launches, "--metrics", "gpu__time_duration.sum,dram__bytes.sum", place.program,
                               "bench", *words, "--no-baseline", "--cuda-graph", "off", "--device", place.device,
                               log=f"{name}.csv")
        if "ERR_NVGPUCTRPERM" in said:
            raise Skipped("the driver keeps its counters from ncu here")
        table = kernel_table(said)
        if not table:
            raise Ended(f"{model} in {precision}: ncu {ending(code, said)}")
        place.row(model=model, precision=precision, launches=launches, ns=sum(row["ns"] for row in table), kernels=table[:40])
        done.append(f"{model} {precision}")
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
