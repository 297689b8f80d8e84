"""What tests of `xformer data fetch` share: a server on loopback, a folder, the command."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

from served import begun

XFORMER = sys.argv.pop(1)
CONTENT = bytes(range(256)) * 2000
TASK, ARCHIVE = "uea/Waves", "Waves.zip"  # its hash is not known beforehand


class FetchCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.server, self.release = begun(lambda request: request.answer(CONTENT)), threading.Event()
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def tearDown(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()
        shutil.rmtree(self.folder)

    def command(self, task=TASK, *more, address=None, stall=1):
        return [XFORMER, "data", "fetch", task, "--into", str(self.folder / "data"), "--mirror", address or self.address,
                "--stall", str(stall), *more]

    def fetch(self, task=TASK, *more, address=None, code=0):
        done = subprocess.run(self.command(task, *more, address=address), capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def names(self):
        folder = self.folder / "data"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def content(self, name=ARCHIVE):
        return (self.folder / "data" / name).read_bytes()
