"""Items of scripts/gpu-check that ask whether the device computes the right thing."""

import json
import os
import pathlib
import re
import shutil
import time

from session import Cut, Ended, NoDevice, Skipped, TimeOver, ending, last_line

GRAPH = ("--cuda-graph", "on")
CAUSAL = "bytes/enwik8"  # a language model; a bench makes its tokens


def causal(task, words):
    """These words of a check of causal models, none of another."""
    return words if task == CAUSAL else ""


def one_step(place):
    """Ends everything where there is no device."""
    code, said = place.xformer("bench", "--models", "linear", "--lengths", 16, "--batch", 1, "--steps", 1, "--cuda-graph", "off",
                               "--no-baseline", "--json", place.folder / "bench.json")
    if code == 4 and place.on_gpu:
        raise NoDevice(said.strip())
    if code != 0:
        raise Ended(f"one small step {ending(code, said)}")


def device(place):
    """Says what is there."""
    code, version = place.run(place.program, "--version")
    if code != 0:
        raise Ended(f"the program does not start: {last_line(version)}")
    root = pathlib.Path(place.program).resolve().parent
    files = [root / name for name in ("bin/xformer-engine", "lib/libxformer_cuda.so", "build/xformer-engine", "build/libxformer_cuda.so")]
    for command in (["nvidia-smi"], ["nvidia-smi", "-q", "-d", "CLOCK,POWER"], ["nvcc", "--version"], ["lscpu"],
                    *(["ldd", file] for file in files if file.exists())):
        if shutil.which(command[0]):
            place.run(*command, log="machine.txt")
    one_step(place)
    try:
        place.python()
        torch = "with PyTorch"
    except Skipped as reason:
        torch = str(reason)
    return f"{version.strip()}; {torch}"


def graphs(place):
    for more in ([], ["--interleave"]):
        rows = place.bench("--models", "linear,linformer,softmax-fused", "--lengths", 64, "--batch", 2, "--steps", 3, *more,
                           *(GRAPH if place.on_gpu else ()))
        plain = [row["model"] for row in rows if not row["captured"]]
        if place.on_gpu and plain:
            raise Ended(f"not captured: {', '.join(plain)}")
    return "two benches of three models in one process each"


AT_ONCE = 4  # most of a check is the host's work


def side_by_side(waiting, start, judge):
    """Runs start(*each) of `waiting`, some at a time, then judge(*each, exit code, seconds); TimeOver when that came before the
    end, else None."""
    waiting, running = list(waiting), {}
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                now = waiting.pop(0)
                running[now] = start(*now), time.monotonic()
            for now, (child, begin) in list(running.items()):
                if child.poll() is not None:
                    del running[now]
                    judge(*now, child.returncode, time.monotonic() - begin)
            time.sleep(0.02)
    except TimeOver as reason:
        return reason
    return None


def kernels(place):
    """Operators of ours against their references: dropout in every bit, the others within 1e-4 of the largest element (more in
    16 bits). Rows taken one at a time begin in the middle of a block of eight where they are short, and behind 2^31 elements
    where they are long."""
    checks = []  # models, lengths, batch, precision, task

    def check(models, lengths, batch, *precisions, task="listops"):
        checks.extend((models, lengths, batch, precision, task) for precision in precisions)

    half = ("bf16", "fp16") if place.on_gpu else ("bf16",)
    check("none,softmax", "5,50", 3, "fp32", *half)
    if not place.small:  # feature attention, projection, inverse, convolution, pooling, links and embedding
        check("linear,linformer,nystromformer,mrs-linear,paramixer-chord", 130, 3, "fp32")
    check("linear,softmax-fused", 70, 2, "fp32", task=CAUSAL)
    if place.on_gpu and not place.small:
        check("softmax-fused,linear,linformer,longformer,reformer", 130, 3, "tf32")
        check("performer,longformer,logsparse,adaptively-sparse,additive", 70, 2, "fp32", task=CAUSAL)
        check("linear,softmax-fused", 70, 2, *half, task=CAUSAL)
        check("linear,performer,mrs-linear", 130, 3, *half)  # heads in 16 bits
        check("softmax-fused,linformer", 600, 2, "fp32", *half)  # keys shared out among blocks, tiles sent ahead
        check("softmax", 4096, 66, "fp32")
        check("linformer,nystromformer,paramixer-chord,reformer", 130, 3, *half)
        check("longformer,bigbird-itc,logsparse", "5,50", 3, "fp32")
        check("improved-clustered,adaptively-sparse,sparsemax", "5,50", 3, "fp32")
        check("additive,combiner-fixed,combiner-axial-vertical", "5,50", 3, "fp32")
        check("reformer", "50,130", 3, "fp32")
    count, wrong = 0, []

    def files(models, lengths, precision, task):
        name = f"{models.split(',')[0]}-{str(lengths).split(',')[0]}-{precision}{causal(task, '-causal')}"
        return place.folder / f"{name}.json", f"{name}.txt"

    def start(models, lengths, batch, precision, task):
        report, log = files(models, lengths, precision, task)
        report.unlink(missing_ok=True)  # an earlier call's
        return place.start(place.program, "bench", "--task", task, "--models", models, "--lengths", lengths, "--batch", batch,
                           "--precision", precision, "--kernels", "check", "--steps", 1, "--warmup", 2,
                           "--set", "training.micro_batch=1", "--no-baseline",
                           "--threads", max(1, len(os.sched_getaffinity(0)) // AT_ONCE), "--device", place.device,
                           "--json", report, log=log)

    def judge(models, lengths, _batch, precision, task, code, seconds):
        nonlocal count
        report, log = files(models, lengths, precision, task)
        rows = json.loads(report.read_text())["rows"] if report.exists() else []
        if code != 0 or not rows:
            rows.append({"model": models, "length": lengths, "status": "failed", "message": ending(code, place.text(log))})
        for row in rows:
            told = {key: row[key] for key in ("model", "length", "status", "message") if key in row}
            place.row(task=task, precision=precision, **told, seconds=round(seconds, 1))
            count += row["status"] == "ok"
            if row["status"] != "ok":
                wrong.append(f"{row['model']} at {row['length']} of {task} in {precision}: {row['status']}: {row['message']}")

    over = side_by_side(checks, start, judge)
    if wrong:
        raise Ended("; ".join([*wrong, f"{count} rows agree"]))
    if over:
        raise (Cut if count else TimeOver)(f"{count} rows agree with the reference, then the time was over")
    return f"{count} rows agree with the reference"


MEMCHECK = ("none", "softmax-fused", "linformer", "performer", "longformer", "bigbird-itc", "logsparse", "reformer",
            "adaptively-sparse", "nystromformer", "mrs-linear", "paramixer-chord", "additive", "combiner-mixture")
MASKED = ("linear", "softmax-fused")  # causal
RACECHECK = ("softmax-fused", "linformer", "longformer", "reformer", "additive", "performer", "adaptively-sparse", "nystromformer",
             "mrs-linear")


def sanitizer(place):
    """Plain steps of a model each, under NVIDIA's compute-sanitizer: accesses to memory, then races in shared memory."""
    if not place.on_gpu:
        raise Skipped("needs a GPU")
    tool = place.tool("compute-sanitizer")
    groups = ("memcheck", "listops", MEMCHECK), ("memcheck", CAUSAL, MASKED), ("racecheck", "listops", RACECHECK)
    checks = [(check, model, precision, task) for check, task, models in groups
              for model in models if model in (place.given.model or models) for precision in place.given.precision or ["fp32"]]
    if not checks:
        raise Skipped(f"checks {', '.join(MEMCHECK)} alone")
    ended, wrong = set(), []

    def named(check, model, precision, task):
        return f"{check}-{model}-{precision}{causal(task, '-causal')}"

    def words(check, model, precision, task):
        return f"{check} of {model} in {precision}{causal(task, ', causal')}"

    def start(check, model, precision, task):
        name = named(check, model, precision, task)
        report = place.folder / f"{name}.json"
        report.unlink(missing_ok=True)  # an earlier call's
        size = ["--lengths", 50, "--batch", 2]
        if model in ("softmax-fused", "linformer"):  # tiles that are sent while others are read
            size = ["--lengths", 150, "--batch", 2]
        if model == "none":  # rows that begin in the middle of a block of eight
            size = ["--lengths", 5, "--batch", 3, "--set", "training.micro_batch=1"]
        return place.start(tool, "--tool", check, "--target-processes", "all", "--error-exitcode", 9, place.program, "bench",
                           "--task", task, "--models", model, *size, "--precision", precision, "--steps", 1, "--warmup", 2,
                           "--cuda-graph", "off", "--no-baseline", "--device", place.device, "--json", report, log=f"{name}.txt")

    def judge(check, model, precision, task, code, seconds):
        name = named(check, model, precision, task)
        said, report = place.text(f"{name}.txt"), place.folder / f"{name}.json"
        right, message = code == 0, last_line(said) if code == 0 else ending(code, said)
        if right:  # nothing was seen of a step that did not run
            row = json.loads(report.read_text())["rows"][0] if report.exists() else {"status": "no row", "message": message}
            right = row["status"] == "ok"
            message = message if right else f"checked nothing: {row['status']}: {row['message']}"
        place.row(check=check, model=model, status="ok" if right else "failed", precision=precision, seconds=round(seconds, 1),
                  message=message, task=task)
        ended.add((check, model, precision, task))
        if not right:
            wrong.append(f"{words(check, model, precision, task)} {message}")

    over = side_by_side(checks, start, judge)
    detail = f"{len(ended) - len(wrong)} checks found nothing"
    if over:
        left = [words(*check) for check in checks if check not in ended]
        detail += f"; not run: {', '.join(left)}"
    if wrong:
        raise Ended("; ".join([*wrong, detail]))
    if over:
        raise (Cut if ended else TimeOver)(detail)
    return detail


def claims(place, said):
    """How many of a self-test's hold; Ended where one does not."""
    wrong = [line for line in said.splitlines() if line.startswith("FAIL")]
    for line in wrong:
        place.row(failed=line)
    if wrong:
        raise Ended(f"{len(wrong)} claims do not hold, the first: {wrong[0][4:].strip()}")
    return len(re.findall(r"^ok  ", said, re.MULTILINE))


def selftest(place, part):
    log = f"{part}.txt"
    (place.folder / log).unlink(missing_ok=True)  # an earlier call's
    try:
        code, said = place.xformer("selftest", "--part", part, log=log)
    except TimeOver:
        count = claims(place, place.text(log))
        if place.small and count:  # some names are enough
            raise Cut(f"{count} claims hold, then the time was over") from None
        raise
    count = claims(place, said)
    if code != 0 or not count:
        raise Ended(ending(code, said))
    return f"{count} claims hold"


def captured(place):
    """All names in each precision, a process each. Where the time is over, fp32 is enough."""
    ended, wrong = set(), []

    def log(precision):
        return place.folder / f"{precision}.txt"

    def start(precision):
        log(precision).unlink(missing_ok=True)  # an earlier call's
        return place.start(place.program, "selftest", "--part", "captured", "--precision", precision, "--device", place.device,
                           log=log(precision).name)

    def judge(precision, code, _seconds):
        ended.add(precision)
        said = place.text(log(precision).name)
        if code != 0 or "ok  " not in said:
            wrong.append(f"{precision}: {ending(code, said)}")

    over = side_by_side([("fp32",), ("bf16",), ("fp16",)], start, judge)
    count = claims(place, "".join(file.read_text() for file in place.folder.glob("*.txt")))
    if wrong:
        raise Ended("; ".join(wrong))
    if over:
        enough = "fp32" in ended or place.small and count
        raise (Cut if enough else TimeOver)(f"{count} claims hold, then the time was over")
    return f"{count} claims hold"


def contract(place):
    return selftest(place, "contract")
