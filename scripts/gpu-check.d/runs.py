"""Items of scripts/gpu-check that train: restarts, memory that does not suffice, a curve."""

import json
import resource
import shutil
import signal
import time

from session import ROOT, Ended, ending

CPU_RUNS = ROOT / "results" / "runs" / "mrsformer" / "table-9-listops" / "listops"  # by the protocol of `train`

VARYING = ("time", "examples_per_s", "memory_peak_bytes", "page_faults_per_step")  # in logs of the same bits


def small_run(model, *words):
    """ListOps short enough for tests."""
    return ["--task", "listops", "--model", model, "--seed", 3, "--set", "data.min_length=50", "data.max_length=200",
            "data.train_examples=512", "data.dev_examples=64", "data.test_examples=64", *words]


def log_of(run):
    """The metric log, without what differs between two runs of the same bits."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in VARYING} for line in lines
            if line.get("event") != "resumed"]


def resumptions(run):
    log = run / "log.jsonl"
    return log.read_text().count('"event":"resumed"') if log.exists() else 0


def newest_checkpoint(run):
    steps = [int(digits) for file in (run / "checkpoints").glob("step-*")
             if (digits := "".join(c for c in file.name[5:].split(".")[0] if c.isdigit()))]
    return max(steps, default=0)


def resume(place):
    steps, every, models = (400, 20, ["mrs-linformer", "performer", "softmax-fused"]) if not place.small else (80, 8, ["linear"])
    for model in models:
        whole, parts = place.work / f"{model}-whole", place.work / f"{model}-parts"
        words = small_run(model, "--batch", 16, "--steps", steps, "--eval-every", steps // 2, "--checkpoint-every", every)

        def train(*more, model=model):
            code, said = place.xformer("train", *more)
            if code != 0:
                raise Ended(f"{model}: train {ending(code, said)}")

        train(*words, "--out", whole)
        train(*words, "--out", parts, "--stop-after", steps // 4)
        # Killed once it has written a checkpoint of its own.
        child = place.start(place.program, "train", "--config", parts / "plan.json", "--device", place.device,
                            "--checkpoint-every", every, "--out", parts)
        while child.poll() is None and not (resumptions(parts) and newest_checkpoint(parts) > steps // 4):
            time.sleep(0.005)
        child.kill()
        if child.wait() != -signal.SIGKILL:
            raise Ended(f"{model}: the run ended with {child.returncode} before it could be killed")
        train(*words, "--out", parts)
        shutil.copy(parts / "record.json", place.folder / f"{model}-record.json")
        different = [name for name in ("model.safetensors", "predictions.csv")
                     if (whole / name).read_bytes() != (parts / name).read_bytes()]
        different += ["log.jsonl"] if log_of(whole) != log_of(parts) else []
        place.row(model=model, resumed=resumptions(parts), same_bits=not different)
        if different:
            raise Ended(f"{model}: other bits in {', '.join(different)} after going on")
    return f"{len(models)} models, stopped, killed and resumed: the same bits"


def memory(place):
    """A single tensor of attention weights is larger than the memory of any device. On a CPU the limit is artificial."""
    large, fits, batch = 8192, 64, 8192
    words = ["--steps", 2, "--set", "data.min_length=1000", "data.max_length=2000", "eval.batch=64"]
    limit = None
    if not place.on_gpu:
        large, fits, batch = 512, 2, 4  # all of the large one would take minutes, in parts that fit
        words = ["--steps", 1, "--threads", 2, "--set", "data.min_length=500", "data.max_length=1000", "data.dev_examples=4",
                 "data.test_examples=4", "eval.batch=2"]

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (8_000_000 << 10,) * 2)

    run = place.work / "large"
    code, said = place.xformer("train", *small_run("softmax", "--batch", large, *words, f"data.train_examples={large}", "--out", run),
                               preparation=limit)
    if code != 4 or "out of memory" not in said:
        raise Ended(f"a batch of {large}, where 4 and 'out of memory' were expected, {ending(code, said)}")
    status = json.loads((run / "record.json").read_text())["status"]
    if status != "out-of-memory":
        raise Ended(f"its record says {status}")
    code, said = place.xformer("train", *small_run("softmax", "--batch", batch, "--micro-batch", fits, *words,
                                                   f"data.train_examples={batch}", "--out", place.work / "fits"))
    if code != 0:
        raise Ended(f"--micro-batch {fits} {ending(code, said)}")
    return f"a batch of {large} says so, --micro-batch {fits} goes on"


def beside_cpu(record, stored=CPU_RUNS):
    """How far dev accuracy is from a stored run of a CPU under the same plan (its precision aside), at equal steps; or that
    there is none."""
    def differs(theirs):  # an older record has not every option
        return any(value != theirs[key] for key, value in record["plan"].items()
                   if key in theirs and key not in ("protocol", "training.precision"))

    ours = {line["step"]: line["accuracy"] for line in record["dev"]}
    for file in sorted(stored.glob(f"{record['model']}/*/*/record.json")):
        theirs = json.loads(file.read_text())
        if theirs["hardware"]["device"] != "cpu" or differs(theirs["plan"]):
            continue
        apart = [(abs(ours[line["step"]] - line["accuracy"]), line["step"]) for line in theirs["dev"] if line["step"] in ours]
        if apart:
            return {"difference": max(apart)[0], "at_step": max(apart)[1], "evaluations": len(apart), "last_difference": apart[-1][0]}
    return {"missing": f"no stored CPU run of {record['model']} under this plan"}


def beside(curve):
    """What `beside_cpu` found, in words."""
    return curve.get("missing") or f"at most {curve['difference']:.3f} (step {curve['at_step']}) from a CPU's dev accuracy"


def train(place):
    """The first 1,500 steps of the protocol mlpen. Logs and records come back, and are laid beside the CPU's curves."""
    models = place.given.model or ["softmax-fused", "mrs-linformer"]
    sizes = ["--stop-after", 1500, "--set"]
    if place.small:
        models = place.given.model or ["linear"]
        sizes = ["--stop-after", 10, "--set", "data.max_length=100", "data.min_length=10", "data.train_examples=64",
                 "data.dev_examples=32", "data.test_examples=32", "training.eval_every=5"]
    done = []
    for precision in ("fp32", "bf16"):
        for model in models:
            run = place.work / f"train-{model}-{precision}"
            begin = time.monotonic()
            code, said = place.xformer("train", "--task", "listops", "--protocol", "mlpen", "--model", model, "--seed", 0,
                                       "--out", run, *sizes, f"training.precision={precision}")
            for name in ("record.json", "log.jsonl"):
                if (run / name).exists():
                    shutil.copy(run / name, place.folder / f"{model}-{precision}-{name}")
            if code != 0:
                raise Ended(f"{model} in {precision} {ending(code, said)}")
            record = json.loads((run / "record.json").read_text())
            curve = beside_cpu(record)
            place.row(model=model, precision=precision, status=record["status"], seconds=round(time.monotonic() - begin, 1),
                      beside_cpu=curve)
            if record["status"] != "stopped":
                raise Ended(f"{model} in {precision}: the record says {record['status']}")
            done.append(f"{model} {precision}, {beside(curve)}")
    return f"trained: {'; '.join(done)}"
