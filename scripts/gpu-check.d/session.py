"""What the items of scripts/gpu-check share: processes with a time limit, the program, PyTorch, and places for results."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

from paced import end

ROOT = pathlib.Path(__file__).resolve().parents[2]  # of the checkout or the package
PEERS = ROOT / "tests" / "peers"


class Ended(Exception):
    """An item ended otherwise than by passing; the message says why."""
    status = "fail"


class Skipped(Ended):
    status = "skip"


class Cut(Ended):
    """The time was over, and what had been done until then is worth something and right."""
    status = "cut"


class TimeOver(Ended):
    status = "time"


class NoDevice(Exception):
    pass


def over(_signal, _frame):
    raise TimeOver("the time limit came")


class Session:
    def __init__(self, given, out, work):
        self.given, self.out, self.work = given, out, work
        self.device, self.small, self.on_gpu = given.device, given.small, given.device != "cpu"
        self.program = pathlib.Path(os.environ.get("XFORMER_PROGRAM") or ROOT / "xformer")
        self.name, self.folder, self.until = "", out, 0
        self.children, self.stuck, self.reports, self._python = [], [], 0, None
        os.environ.setdefault("XFORMER_CACHE", str(work / "cache"))
        os.environ |= {"XFORMER_NO_STALE_WARNING": "1", "NO_COLOR": "1"}
        signal.signal(signal.SIGALRM, over)

    # --- items and their results

    @contextlib.contextmanager
    def item(self, name, seconds):
        """Within it everything is over after `seconds`, and every process started is gone at its end, or in `stuck`."""
        self.name, self.folder, self.until, self.stuck = name, self.out / name, time.monotonic() + seconds, []
        self.folder.mkdir(exist_ok=True)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.end_children()

    def seconds_left(self):
        return self.until - time.monotonic()

    def save(self, line):
        with open(self.out / "results.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def row(self, **values):
        """A part of an item's result, saved at once."""
        self.save({"item": self.name, "row": values})

    # --- processes

    def end_children(self):
        self.stuck += end(self.children)
        self.children.clear()

    def start(self, *words, log="log.txt", environment=None, preparation=None, folder=None):
        with open(self.folder / log, "ab") as file:
            child = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                     env={**os.environ, **(environment or {})}, start_new_session=True,
                                     preexec_fn=preparation, cwd=folder)
        self.children.append(child)
        return child

    def run(self, *words, log="log.txt", **more):
        """(exit code, what it wrote)"""
        path = self.folder / log
        before = path.stat().st_size if path.exists() else 0
        code = self.start(*words, log=log, **more).wait()
        return code, self.text(log, before)

    def text(self, log="log.txt", start=0):
        with open(self.folder / log, "rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")

    def xformer(self, verb, *words, **more):
        return self.run(self.program, verb, *words, "--device", self.device, **more)

    def bench(self, *words, allowed=("ok",), **more):
        """The rows of a bench, each of which must have ended in one of these ways."""
        self.reports += 1
        report = self.folder / f"bench-{self.reports}.json"
        code, said = self.xformer("bench", *words, "--no-baseline", "--json", report, **more)
        if code != 0:
            raise Ended(f"bench {ending(code, said)}")
        rows = json.loads(report.read_text())["rows"]
        for row in rows:
            if row["status"] not in allowed:
                raise Ended(f"{row['model']} at {row['length']}: {row['status']}: {row['message']}")
        return rows

    # --- what else the machine has

    def tool(self, name):
        """A program of the CUDA toolkit, or Skipped."""
        places = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", *sorted(map(str, pathlib.Path("/usr/local").glob("cuda-*")))]
        found = shutil.which(name) or next(
            (path for place in places if place for folder in ("bin", "compute-sanitizer")
             if (path := shutil.which(name, path=f"{place}/{folder}"))), None)
        if not found:
            raise Skipped(f"{name} is not on this machine")
        return found

    def python(self):
        """Environment of the python3 on PATH in which torch can be had, by the launcher's rule (and build/peers of a
        checkout), or Skipped. Found out once."""
        if self._python is None:
            self._python = self._find_python()
        if isinstance(self._python, str):
            raise Skipped(self._python)
        return self._python

    def _find_python(self):
        places = []
        named = os.environ.get("XFORMER_LIBTORCH")
        for folder in filter(None, (named, named and os.path.dirname(named.rstrip("/")), ROOT / ".libtorch")):
            folder = pathlib.Path(folder).resolve()
            if (folder / "__init__.py").is_file():
                places.append(str(folder.parent))
        if (ROOT / "build" / "peers" / "python" / ".stamp").is_file():
            places.append(str(ROOT / "build" / "peers" / "python"))
        test = "import torch; x = torch.ones(2, device='%s'); print(torch.__version__, float(x.sum()))" % self.device
        reason = "there is no python3"
        for place in [*places, ""]:
            path = os.pathsep.join(filter(None, (place, os.environ.get("PYTHONPATH"))))
            environment = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1",
                           "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(self.work / "inductor")}
            code, said = self.run("python3", "-c", test, environment=environment)
            if code == 0:
                return environment
            reason = f"python3 has no PyTorch for {self.device}: {last_line(said)}"
        return reason


def ending(code, said):
    """How a process ended that should not have ended so, and its last words."""
    how = f"ended with {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
    return f"{how}: {last_line(said)}"


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "it said nothing"
