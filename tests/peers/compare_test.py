#!/usr/bin/env python3
"""scripts/compare-pytorch --device cuda without a GPU: a program and a Python that only answer, and write down how they
were started; and PyTorch's processes over a PyTorch that only notes which device is the current one."""

import contextlib
import importlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import paced

PEERS = pathlib.Path(__file__).resolve().parent
COMPARE = PEERS.parent.parent / "scripts" / "compare-pytorch"

# Both as they answer: a line when ready, one for every step; ours takes 2 ms, PyTorch's 6, compiled 4. Of that
# the device is at work but for 0.25 ms, and the host queues until 0.5 ms before the end.
ANSWERS = '''#!%s
import json, pathlib, sys, time
words = sys.argv[1:]
with open(%r, "a") as log:
    log.write(" ".join(words) + "\\n")
if words[0] == "bench":
    row = {"valid_lengths": None, "step_ms": {"median": 2.0}, "flops": {"step_counted": 1}, "parameters": 5,
           "peak_bytes": 300e6, "peak_process_bytes": None}
    ready, ms = {"row": row}, 2.0
    pathlib.Path(words[words.index("--json") + 1]).write_text(json.dumps(
        {"rows": [row], "date": "D", "software": {"xformer": "0.1.0", "commit": "0123456789ab", "dirty": False}}))
elif words[0] == "-c":
    compile(words[1], "facts", "exec")
    print(json.dumps({"python": "3.1", "torch": "2.11", "transformers": None, "gpu": "a GPU"}))
    sys.exit()
elif words[0].endswith("ceilings.py"):
    print(json.dumps({"copy, GB/s": 3000.0}))
    sys.exit()
else:
    ready = {"setup_seconds": 1.0, "parameters": 5, "step_flops": 1, "product_flops": 1, "libraries": {"L": 1.0}}
    ms = 4.0 if "--compile" in words else 6.0
print(json.dumps(ready), flush=True)
for _ in sys.stdin:
    with open(%r, "a") as log:
        log.write(f"step {time.monotonic()}\\n")
    print(json.dumps({"ms": ms, "host_ms": ms - 0.5, "device_ms": ms - 0.25, "peak_bytes": 900e6}), flush=True)
'''


class Compare(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        self.log, self.fake = self.folder / "log", self.folder / "fake"
        self.fake.write_text(ANSWERS % (sys.executable, str(self.log), str(self.log)))
        self.fake.chmod(0o755)

    def tearDown(self):
        self.scratch.cleanup()

    def run_it(self, *words):
        return subprocess.run([COMPARE, "--out", self.folder / "out", "--rounds", "3", "--threads", "1", *words],
                              capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})

    def test_on_a_gpu_all_run_there_and_in_the_machines_python(self):
        done = self.run_it("--device", "cuda:1", "--program", self.fake, "--python", self.fake, "--models", "softmax-fused",
                           "--shapes", "64x2", "--precisions", "tf32")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = self.log.read_text().splitlines()
        ours = [line for line in lines if line.startswith("bench")]
        theirs = [line.split("worker.py ")[1] for line in lines if "worker.py" in line]
        self.assertTrue(all("--device cuda:1" in line and "training.precision=tf32" in line for line in ours))
        self.assertIn("model.attention_dropout=0", ours[1])
        begin = "--attention softmax --length 64 --batch 2 --threads 1 --device cuda:1 --precision tf32 --warmup 6"
        self.assertEqual(theirs[:3], [begin, begin + " --compile", begin + " --compile reduce-overhead"])
        self.assertEqual(theirs[3], "--attention sdpa --length 64 --batch 2 --threads 1 --device cuda:1 "
                                    "--attention-dropout 0 --precision tf32")
        self.assertTrue(any(line.endswith("ceilings.py 1 cuda:1") for line in lines))
        table = (self.folder / "out.md").read_text().splitlines()
        self.assertIn("| `softmax-fused`, tf32 | 64x2, 64 x 2 | 0123456, D | 0.002000 | 3.00 | 2.00 | 2.00 | 3.00 | 2.00 | 300 | 900 | 900 | "
                      "900 | 900 |", table)
        self.assertIn("| `softmax-fused`, tf32 | 64x2, 64 x 2 | eager | 0.006000 (0.006000 to 0.006000) | "
                      "0.002000 (0.002000 to 0.002000) | 3.00 (3.00 to 3.00) | 0.005750 | 0.005500 | 0.001750 | 0.001500 | 3 | 1 |", table)
        self.assertTrue(any("a GPU; " in line and "PyTorch 2.11, Python 3.1" in line and "<python>" in line for line in table))
        # What is there is not measured again, and a CPU's results do not go between.
        self.log.unlink()
        self.assertEqual(self.run_it("--device", "cuda:1", "--program", self.fake, "--python", self.fake, "--models",
                                     "softmax-fused", "--shapes", "64x2", "--precisions", "tf32").returncode, 0)
        self.assertFalse(self.log.exists())
        done = self.run_it("--program", self.fake, "--python", self.fake, "--models", "linear", "--shapes", "64x2")
        self.assertEqual((done.returncode, "was measured with --device cuda" in done.stderr), (2, True))

    def test_on_a_cpu_each_step_waits_until_the_others_threads_sleep(self):
        done = self.run_it("--program", self.fake, "--python", self.fake, "--models", "linear", "--shapes", "64x2",
                           "--precisions", "bf16")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("30 ms before each step", (self.folder / "out.md").read_text())
        times = [float(line.removeprefix("step ")) for line in self.log.read_text().splitlines() if line.startswith("step ")]
        # One before the rounds of each of three kinds, then three rounds of two steps, each behind its pause.
        self.assertEqual(len(times), 3 * 7)
        self.assertTrue(all(times[i + 1] - times[i] > 0.029 for i in range(20) if i % 7 != 6))

    def test_what_is_wrong_is_said_before_anything_runs(self):
        for words, said in ((["--device", "gpu"], "expected cpu, cuda or cuda:N, got 'gpu'"),
                            (["--device", "cuda", "--precisions", "fp8"], "expected of fp32, bf16, tf32, fp16 with --device cuda, got 'fp8'"),
                            (["--precisions", "tf32"], "expected of fp32, bf16 with --device cpu, got 'tf32'"),
                            (["--precisions", "fp32,fp16"], "expected of fp32, bf16 with --device cpu, got 'fp16'")):
            done = self.run_it(*words)
            self.assertEqual((done.returncode, said in done.stderr), (2, True), done.stderr)

    def test_fp16_is_measured_on_a_gpu(self):
        done = self.run_it("--device", "cuda", "--program", self.fake, "--python", self.fake, "--models", "linear",
                           "--shapes", "64x2", "--precisions", "fp16")
        self.assertEqual(done.returncode, 0, done.stderr)
        started = [line for line in self.log.read_text().splitlines() if line.startswith("bench") or "worker.py" in line]
        self.assertEqual([("training.precision=fp16" in line, "--precision fp16" in line) for line in started],
                         [(True, False), *[(False, True)] * 3])
        self.assertIn("| `linear`, fp16 | 64x2, 64 x 2 |", (self.folder / "out.md").read_text())

    def test_a_python_without_pytorch_is_named(self):
        for python, said in (("/bin/false", "PyTorch does not run on cuda in /bin/false"), ("/nowhere", "--python: ")):
            done = self.run_it("--device", "cuda", "--program", self.fake, "--python", python, "--models", "linear")
            self.assertEqual((done.returncode, said in done.stderr), (4, True), done.stderr)


# Starts another, says so, and waits for lines.
FORKS = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True); input()"


class Processes(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def paced(self):
        return paced.Paced([sys.executable, "-c", FORKS], pathlib.Path(self.scratch.name), {})

    def test_what_a_process_started_ends_with_it(self):
        with self.paced() as process:
            started = pathlib.Path(f"/proc/{process.answer()}/stat")
            self.assertTrue(started.exists())
        until = time.monotonic() + 10
        while started.exists() and " Z " not in started.read_text() and time.monotonic() < until:
            time.sleep(0.01)
        self.assertTrue(not started.exists() or " Z " in started.read_text())

    def test_a_process_that_cannot_be_killed_is_named_and_not_waited_for(self):
        def wait(timeout=None):
            self.assertIsNotNone(timeout)
            raise subprocess.TimeoutExpired("worker", timeout)

        process = self.paced()
        process.answer()
        with mock.patch.object(process.process, "wait", wait), contextlib.redirect_stderr(io.StringIO()) as said:
            process.__exit__()
        process.process.communicate()
        name = f"process {process.process.pid} ({pathlib.Path(sys.executable).name})"
        self.assertEqual(said.getvalue(), f"{name} was killed and did not end\n")


class Device:
    """A torch.device."""

    def __init__(self, name):
        self.type, _, number = name.partition(":")
        self.index = int(number) if number else None


class NotedTorch:
    """A PyTorch with GPUs, whose `current` is the current one, and `asked` those that numbers were asked of."""

    def __init__(self):
        self.current, self.asked, torch = 0, [], mock.MagicMock()
        torch.device, torch.__version__ = Device, "2.11"
        torch.cuda.get_device_name.return_value = "a GPU"
        torch.cuda.set_device = lambda index: setattr(self, "current", index)
        event = types.SimpleNamespace(record=lambda: self.note(None), elapsed_time=lambda _: 60.0)
        torch.cuda.Event = lambda enable_timing: self.note(event)
        torch.cuda.synchronize = lambda: self.note(None)
        torch.cuda.max_memory_allocated = lambda: self.note(5)
        self.torch, dispatch = torch, types.SimpleNamespace(TorchDispatchMode=object)
        models = types.SimpleNamespace(ATTENTIONS={"linear": None}, LAYERS={})
        self.modules = {"torch": torch, "torch.utils": torch.utils, "torch.utils._python_dispatch": dispatch,
                        "torch.utils.flop_counter": torch.utils.flop_counter, "models": models, "products": mock.MagicMock()}

    def note(self, answer):
        self.asked.append(self.current)
        return answer

    def imported(self, name):
        """The script of that name, over this PyTorch."""
        with mock.patch.dict(sys.modules, self.modules), mock.patch.object(sys, "path", [str(PEERS), *sys.path]):
            sys.modules.pop(name, None)
            return importlib.import_module(name)


class CurrentDevice(unittest.TestCase):
    def worker(self, device, *more, scales=()):
        """(where the model was made, where numbers were asked for)"""
        noted, made = NotedTorch(), []
        worker = noted.imported("worker")
        words = ["worker.py", "--attention", "linear", "--length", "8", "--batch", "2", "--threads", "1", "--device", device, *more]
        subject = types.SimpleNamespace(step=lambda: None, parameters=5, scaler=mock.Mock())
        subject.scaler.get_scale.side_effect = scales
        with mock.patch.object(worker, "Trainer", lambda _: made.append(noted.current) or subject), \
                mock.patch.object(sys, "argv", words), mock.patch.object(sys, "stdin", io.StringIO("\n")), \
                contextlib.redirect_stdout(io.StringIO()) as said:
            worker.main()
        self.assertEqual([json.loads(line)["event"] for line in said.getvalue().splitlines()], ["ready", "step"])
        return made, noted.asked

    def test_a_worker_measures_the_device_that_it_was_given(self):
        for device, index in ("cuda:2", 2), ("cuda", 0):
            made, asked = self.worker(device)
            self.assertEqual((made, set(asked)), ([index], {index}), device)
        self.assertEqual(self.worker("cpu"), ([0], []))

    def test_a_worker_takes_fp16_on_a_gpu_alone(self):
        self.assertEqual(self.worker("cuda", "--precision", "fp16", scales=(512, 512))[0], [0])
        with self.assertRaisesRegex(SystemExit, "steps are left out"):
            self.worker("cuda", "--precision", "fp16", scales=(512, 256))
        with self.assertRaisesRegex(SystemExit, "expected fp32, tf32 or bf16 on cpu, got fp16"):
            self.worker("cpu", "--precision", "fp16")

    def test_ceilings_are_those_of_the_device_that_was_given(self):
        for device, index in ("cuda:2", 2), ("cuda", 0):
            noted = NotedTorch()
            noted.imported("ceilings").Rates(device).seconds(lambda: None)
            self.assertEqual(set(noted.asked), {index}, device)


if __name__ == "__main__":
    unittest.main()
