"""Processes that take a step of work for every line they are sent, so that several can take turns."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time


class Failed(Exception):
    """A process did not do what it was started for; the message says why."""


def end(processes, seconds=5):
    """Kills them, each with all of its session, and names those that are there all the same after so long: what is stuck in a
    driver cannot be killed, and waiting for it would last for ever."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    until, left = time.monotonic() + seconds, []
    for process in processes:
        try:
            process.wait(max(0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            left.append(f"process {process.pid} ({os.path.basename(process.args[0])})")
    return left


class Paced:
    """A process that says when it is ready and then takes a step for every line; killed at the end of the scope, with what it
    started (torch.compile forks)."""

    def __init__(self, command, folder, environment, name="stderr"):
        self.errors = open(folder / name, "w+")
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, env={**os.environ, **environment},
                                        start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in end([self.process]):
            print(f"{name} was killed and did not end", file=sys.stderr)
        self.errors.close()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.errors.seek(0)
            said = [text for text in self.errors.read().splitlines() if text.strip()]
            raise Failed(f"ended with {code}: {said[-1] if said else 'it said nothing'}")
        return json.loads(line)

    def step(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # answer() says why
        return self.answer()

    def finish(self):
        self.process.communicate()
        if self.process.returncode:
            raise Failed(f"ended with {self.process.returncode}")
