#!/usr/bin/env python3
"""The Python package xformer (apps/python) against the program.

    xformer_test.py PROGRAM

Exit codes: 0 as expected, 1 not, 77 numpy or safetensors are missing (skipped; scripts/python-packages). What takes
pandas or PyTorch is tested where they are.
"""

import csv
import importlib.util
import inspect
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from unittest import mock

try:
    import numpy as np
    from safetensors.numpy import load_file
except ImportError as missing:
    print(f"skipped: {missing}; scripts/python-packages installs what is needed")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "apps" / "python"))

import xformer  # noqa: E402
from xformer import _program, _runs  # noqa: E402

SMALL = {"model.dim": 16, "model.head_dim": 8, "model.ff_dim": 16, "data.train_examples": 64, "data.dev_examples": 16,
         "data.test_examples": 16, "training.eval_epochs": 0}
RUN = {"model": "linear", "task": "temporal-order", "length": 16, "batch": 4, "threads": 1, "log_every": 1,
       "eval_every": 2, "set": SMALL}

failures = 0


def check(holds, claim):
    global failures
    if not holds:
        failures += 1
        print(f"FAILED: {claim}", file=sys.stderr)


def refused(call, kind=xformer.Error):
    """The exception that a call raises."""
    try:
        call()
    except kind as error:
        return error
    check(False, f"{kind.__name__} expected")
    return kind(0, "") if kind is xformer.Error else kind("")


def without(name):
    """As if a package were not installed."""
    return mock.patch.dict(sys.modules, {name: None})


def steps(lines, event="train"):
    return [line["step"] for line in lines if line["event"] == event]


def words_of_options():
    made = _program.words({"log_every": 5, "fast": True, "quiet": False, "task": None, "lr": 1e-3,
                           "freeze": ["tokens", "layer0.*"],
                           "set": {"model.dim": 64, "attention.scales": [1, 4], "eval.parity": True}})
    check(made == ["--log-every", "5", "--fast", "--lr", "0.001", "--freeze", "tokens,layer0.*", "--set",
                   "model.dim=64", "attention.scales=1,4", "eval.parity=true"], f"words: {made}")
    check(_program.words({"set": {}, "capture": [], "seed": 0}) == ["--seed", "0"], "what is empty is left out")


def the_whole_package_is_typed_and_described():
    check((ROOT / "apps/python/xformer/py.typed").exists(), "py.typed")
    for name in xformer.__all__:
        thing = getattr(xformer, name)
        check(bool(inspect.getdoc(thing)), f"{name} has no description")
        if inspect.isfunction(thing):
            open_ones = [one for one in inspect.signature(thing).parameters if one not in thing.__annotations__]
            check(not open_ones and "return" in thing.__annotations__, f"{name} has untyped parameters: {open_ones}")
        check(f"xformer.{name}" in (ROOT / "docs/python.md").read_text(), f"docs/python.md has no {name}")


def training(folder):
    run = folder / "run"
    lines = list(xformer.train(run, steps=4, **RUN))
    written = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    check(lines == written, "the lines are those of log.jsonl, in order")
    check([line["event"] for line in lines] ==
          ["start", "train", "train", "dev", "train", "train", "dev", "test", "finished"], f"events: {lines}")
    check(list(xformer.train(run, steps=4, **RUN)) == written, "a finished run is told again")
    check(list(xformer.follow(run)) == written, "and can be followed")
    again = list(xformer.train(run, steps=3, overwrite=True, **RUN))
    check(steps(again) == [1, 2, 3], f"a run that is begun anew tells nothing of the one before: {again}")

    error = refused(lambda: list(xformer.train(folder / "none", **{**RUN, "model": "linformr"})))
    check(error.code == 2 and "linformer" in str(error), f"a wrong name: {error.code}, {error}")
    check(not (folder / "none").exists(), "and leaves nothing")
    error = refused(lambda: list(xformer.train(run, steps=5, **RUN)))
    check(error.code == 2 and "another plan" in str(error), f"another plan's folder: {error}")
    with mock.patch.dict(os.environ, XFORMER_PROGRAM=str(folder / "no-such-program")):
        error = refused(lambda: xformer.train(run, **RUN))
        check(error.code == 4 and "no-such-program" in str(error), f"no program: {error}")
        error = refused(lambda: xformer.forward("softmax", *np.zeros((3, 1, 1, 2, 2))))
        check(error.code == 4 and "no-such-program" in str(error), f"no program for a core: {error}")


def leaving_and_going_on(folder):
    run = folder / "left"
    long = {**RUN, "eval_every": 10, "steps": 10000}
    for line in xformer.train(run, **long):
        if line["event"] == "dev":
            break
    record = json.loads((run / "record.json").read_text())
    check(record["status"] == "interrupted", f"who leaves the loop stops the run: {record['status']}")
    stood = record["steps"]["done"]
    seen = []
    for line in xformer.train(run, **long):
        seen.append(line)
        if line["event"] == "train" and line["step"] > stood:
            break
    check(steps(seen) == list(range(1, stood + 2)), f"gone on with from step {stood}, each once: {steps(seen)}")
    check([line["step"] for line in seen if line["event"] == "resumed"] == [stood], "and says from where")


def following_a_log_that_is_cut(folder):
    """A run that goes on cuts its log to its checkpoint, perhaps within what was told."""
    log = folder / "cut.jsonl"
    told = []
    running = True

    def follow():
        told.extend(line["step"] for line in _runs.lines(log, lambda: running, interval=0.01))

    def wait_for(expected):
        limit = time.monotonic() + 60
        while told != expected and time.monotonic() < limit:
            time.sleep(0.01)
        check(told == expected, f"told {told}, expected {expected}")

    def text(*numbers):
        return "".join(f'{{"step": {number}}}\n' for number in numbers)

    def write(content):  # at once, as the program cuts and appends
        (folder / "part").write_text(content)
        (folder / "part").replace(log)

    thread = threading.Thread(target=follow)
    thread.start()
    write(text(1, 2, 3) + '{"st')
    wait_for([1, 2, 3])
    write(text(1, 2, 3, 4))
    wait_for([1, 2, 3, 4])
    write(text(1, 2, 13, 14, 15))  # cut behind 2, and longer again than what was told
    wait_for([1, 2, 3, 4, 13, 14, 15])
    write(text(1))
    time.sleep(0.1)
    running = False
    thread.join()
    check(told == [1, 2, 3, 4, 13, 14, 15], f"a shorter log tells nothing new: {told}")
    check(list(_runs.lines(log, lambda: False, since=time.time() + 60)) == [{"step": 1}], "an old log, nobody at work")


def tables(folder):
    with without("pandas"):
        rows = xformer.log(folder / "run")
        check(isinstance(rows, list) and steps(rows) == [1, 2, 3], f"a log without pandas: {rows}")
        table = xformer.records(ROOT / "results/runs")
        check(isinstance(table, list), "records without pandas")
        one = xformer.records(folder / "run" / "record.json")[0]
    record = json.loads((folder / "run" / "record.json").read_text())
    check(one["test.accuracy"] == record["test"]["accuracy"] and one["plan.training.batch"] == 4 and
          one["steps.done"] == 3 and one["file"].endswith("record.json") and isinstance(one["dev"], list) and
          one["plan.data.length"] == 16, f"columns: {one}")
    check(not any(key.startswith("origins") for key in one), "origins are left out")

    # What the program reads of the same records.
    command = [_program.program(), "report", ROOT / "results/runs", "--format", "long", "--duplicates", "all"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    theirs = {(row["record"], row["metric"]): float(row["value"]) for row in csv.DictReader(io.StringIO(report))
              if row["split"] == "test" and row["value"]}
    files = {row["file"]: row for row in table}
    compared = 0
    for (file, metric), value in theirs.items():
        path = file if file in files else str(ROOT / file)
        ours = files.get(path, {}).get(f"test.{metric}")
        if ours is not None:
            compared += 1
            check(abs(ours - value) <= 1e-4 * max(1.0, abs(value)) or abs(100 * ours - value) <= 1e-2,
                  f"{file}: {metric} {ours}, the program says {value}")
    check(compared >= 20, f"only {compared} values could be compared")

    (folder / "other.json").write_text('{"schema_version": 2, "task": "listops"}')
    check("record of a run" in str(refused(lambda: xformer.records(folder / "other.json"), ValueError)), "no record")
    (folder / "empty").mkdir()
    check("no record" in str(refused(lambda: xformer.records(folder / "empty"), ValueError)), "a folder without one")
    check("nowhere" in str(refused(lambda: xformer.records(folder / "nowhere"), FileNotFoundError)), "no such place")
    check("log.jsonl" in str(refused(lambda: xformer.log(folder / "empty"), FileNotFoundError)), "no log")

    if importlib.util.find_spec("pandas") is None:
        return
    frame = xformer.log(folder / "run")
    check(list(frame[frame.event == "train"].step) == [1, 2, 3], "a log as a data frame")
    frame = xformer.records(ROOT / "results/runs")
    check(list(frame.file) == [row["file"] for row in table], "records as a data frame")
    check(frame.columns[0] == "file", "the file comes first")


def weights(folder):
    run = folder / "run"
    expected = load_file(run / "model.safetensors")
    ours = xformer.load_state(run, framework="numpy")
    check(ours.keys() == expected.keys() and all(np.array_equal(ours[name], expected[name]) for name in expected),
          "weights of a finished run")
    left = folder / "left"
    newest = max((left / "checkpoints").glob("step-*.safetensors"))
    checkpoint = load_file(newest)
    best = {name[5:]: array for name, array in checkpoint.items() if name.startswith("best.")}
    check(len(best) > 9, "a checkpoint behind an evaluation has the best weights")
    for place in (left, newest):
        ours = xformer.load_state(place, framework="numpy")
        check(ours.keys() == best.keys() and all(np.array_equal(ours[name], best[name]) for name in best),
              f"the best weights of a checkpoint: {place}")
    check("no weights" in str(refused(lambda: xformer.load_state(folder / "empty"), FileNotFoundError)), "no weights")
    check("torch or numpy" in str(refused(lambda: xformer.load_state(run, framework="jax"), ValueError)), "framework")
    if importlib.util.find_spec("torch") is None:
        return
    import torch
    ours = xformer.load_state(run)
    check(all(isinstance(one, torch.Tensor) and np.array_equal(one.numpy(), expected[name])
              for name, one in ours.items()), "weights as tensors of PyTorch")


def attention():
    numbers = np.random.default_rng(1)
    q, k, v = (numbers.standard_normal((2, 3, 7, 4)) for _ in range(3))
    mask = np.arange(7) < np.array([[7], [4]])
    scores = np.where(mask[:, None, None, :], q @ k.swapaxes(-1, -2) / 2, -np.inf)
    by_hand = np.exp(scores - scores.max(-1, keepdims=True))
    by_hand /= by_hand.sum(-1, keepdims=True)
    made = xformer.forward("softmax", q, k, v, mask, capture=["weights"], grad=True)
    valid = mask[:, None, :, None]
    check(np.abs((made["weights"] - by_hand) * valid).max() < 1e-12, "weights of softmax")
    check(np.abs((made["output"] - by_hand @ v) * valid).max() < 1e-12, "output of softmax")
    check({"grad.q", "grad.k", "grad.v"} <= made.keys(), f"gradients: {sorted(made)}")
    # Transposed memory, and one array given twice.
    turned = np.ascontiguousarray(q.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0)
    again = xformer.forward("softmax", turned, k, v, mask)["output"]
    check(np.array_equal(again * valid, made["output"] * valid), "memory in another order")
    causal = xformer.forward("softmax", q, q, v, causal=True)["output"]
    check(np.abs(causal[:, :, 0] - v[:, :, 0]).max() < 1e-12, "the first row of causal attention sees itself alone")
    e = numbers.standard_normal((3, 5, 7))
    drawn = xformer.forward("linformer", q, k, v, seed=3, set={"attention.projected_len": 5})
    given = xformer.forward("linformer", q, k, v, tensors={"shared.linformer_e": drawn["shared.linformer_e"]},
                            set={"attention.projected_len": 5})
    check(np.array_equal(drawn["output"], given["output"]), "parameters that were drawn can be given")
    error = refused(lambda: xformer.forward("linformer", q, k, v, tensors={"shared.linformer": e},
                                            set={"attention.projected_len": 5}))
    check(error.code in (2, 3) and "linformer_e" in str(error), f"a misspelt parameter: {error}")
    if importlib.util.find_spec("torch") is None:
        return
    import torch
    both = torch.from_numpy(np.stack([q, k, v]))
    made = xformer.forward("softmax", both[0], both[1], both[2], torch.from_numpy(mask))["output"]
    check(isinstance(made, torch.Tensor) and np.abs((made.numpy() - by_hand @ v) * valid).max() < 1e-12, "by PyTorch")


def the_program_by_its_module():
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "apps/python")}
    done = subprocess.run([sys.executable, "-m", "xformer", "list", "tasks"], capture_output=True, env=environment)
    straight = subprocess.run([_program.program(), "list", "tasks"], capture_output=True)
    check(done.stdout == straight.stdout and done.returncode == 0, "python -m xformer is the program")
    wrong = [sys.executable, "-m", "xformer", "describe", "linformr"]
    done = subprocess.run(wrong, capture_output=True, env=environment)
    check(done.returncode == 2, "with its exit code")
    through = f"'{sys.executable}' -m xformer list attentions 2>&1 >&3 | cat"
    shell = ["bash", "-c", f"exec 3> >(true); sleep 0.5; {through}"]
    done = subprocess.run(shell, capture_output=True, env=environment)
    check(done.stdout == b"", f"a reader that has gone ends the program without a word: {done.stdout}")
    environment["XFORMER_PROGRAM"] = "/nowhere/xformer"
    done = subprocess.run([sys.executable, "-m", "xformer"], capture_output=True, env=environment, text=True)
    check(done.returncode == 4 and "/nowhere/xformer cannot be started" in done.stderr, f"no program: {done.stderr}")


def an_attention_of_ones_own(folder):
    file = folder / "my_attention.py"
    program = _program.program()

    def run(*words, code=0):
        done = subprocess.run([*map(str, words)], capture_output=True, text=True, cwd=folder)
        check(done.returncode == code, f"{words} ended with {done.returncode}, not {code}: {done.stdout}{done.stderr}")
        return done

    run(program, "export-template", file.name)
    compile(file.read_text(), file.name, "exec")
    check("@" not in file.read_text(), "every mark of the template is filled in")
    check("there already" in run(program, "export-template", file.name, code=2).stderr, "nothing is overwritten")
    run(program, "export-template", "my_attention.txt", code=2)
    if importlib.util.find_spec("torch") is None:
        return
    run(sys.executable, file.name)
    made = run(program, "check", "my_attention.pt", "--length", 64, "--threads", 1).stdout
    check(made.count("ok  ") == 8 and "fit: " in made, f"the template is fit: {made}")
    described = run(program, "describe", "script:my_attention.pt").stdout
    check("attention.epsilon" in described and "attention.sha256" in described, f"its options: {described}")
    for name in ("script", "mrs-script"):
        out = folder / name
        list(xformer.train(out, **{**RUN, "model": f"{name}:{folder / 'my_attention.pt'}", "steps": 4,
                                   "set": {**SMALL, "model.heads": 2, "attention.epsilon": 1e-3}}))
        trained = xformer.load_state(out, framework="numpy")
        check(any(key.endswith("core.temperature") or key.endswith("scale2.temperature") for key in trained),
              f"its parameters are saved: {sorted(trained)}")
        run(program, "eval", out, "--threads", 1)


# Stand-ins that write down what they are called with.
WANDB = """
import json, os
def _say(name, *words):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps([name, *words]) + "\\n")
def init(**words): _say("init", words)
def log(numbers, step): _say("log", numbers, step)
def finish(): _say("finish")
"""
MLFLOW = WANDB + """
import contextlib
@contextlib.contextmanager
def start_run(run_name):
    _say("init", {"name": run_name})
    yield
    _say("finish")
def set_experiment(name): _say("experiment", name)
def log_params(words): _say("params", words)
log_metrics = log
"""


def followers(folder):
    for name, module in (("wandb", WANDB), ("mlflow", MLFLOW)):
        place = folder / name
        place.mkdir()
        (place / f"{name}.py").write_text(module)
        run, calls = place / "run", place / "calls.jsonl"
        paths = [str(place), str(ROOT / "apps/python"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "CALLS": str(calls), "PYTHONPATH": os.pathsep.join(paths)}
        follower = subprocess.Popen([sys.executable, ROOT / "docs" / f"follow_{name}.py", run], env=environment)
        try:
            written = list(xformer.train(run, steps=4, **RUN))
            check(follower.wait(timeout=120) == 0, f"follow_{name}.py begins before the run and ends with it")
        finally:
            follower.kill()
        said = [json.loads(line) for line in calls.read_text().splitlines()]
        plan = json.loads((run / "plan.json").read_text())
        begun = [one for words in said[:3] for one in words[1:] if isinstance(one, dict)]
        check(any(plan == one or plan in one.values() for one in begun),
              f"{name} is told the plan: {said[:3]}")
        expected = []
        for line in written:
            numbers = {f"{line['event']}/{key}": value for key, value in line.items()
                       if key not in ("event", "step", "time", "best", "plan", "seed", "metrics", "data_sha256")}
            if line["event"] != "start" and numbers:
                expected.append(["log", numbers, line["step"]])
        check([words for words in said if words[0] == "log"] == expected, f"{name} is told the log: {said}")
        check(said[-1] == ["finish"], f"{name} is told the end")


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    os.environ["XFORMER_PROGRAM"] = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["XFORMER_CACHE"] = str(folder / "cache")
        os.environ.pop("XFORMER_DATA", None)
        words_of_options()
        the_whole_package_is_typed_and_described()
        training(folder)
        leaving_and_going_on(folder)
        following_a_log_that_is_cut(folder)
        tables(folder)
        weights(folder)
        attention()
        the_program_by_its_module()
        followers(folder)
        an_attention_of_ones_own(folder)
    print("failed" if failures else "the package says what the program does")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
