#!/usr/bin/env python3
"""fetch_test.py XFORMER: `xformer data fetch` against servers on loopback that do what servers do."""

import hashlib
import json
import shutil
import signal
import ssl
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
from fetch_case import ARCHIVE, CONTENT, TASK, XFORMER, FetchCase  # noqa: E402
from served import begun  # noqa: E402


class Fetch(FetchCase):
    def test_a_file_comes_whole_and_its_hash_is_fixed(self):
        out = self.fetch()
        self.assertEqual(self.content(), CONTENT)
        self.assertEqual(self.names(), [ARCHIVE, "fetched.json"])
        digest = hashlib.sha256(CONTENT).hexdigest()
        self.assertIn(digest, out)
        self.assertEqual(json.loads((self.folder / "data" / "fetched.json").read_text()), {ARCHIVE: digest})
        self.assertIn("was there already", self.fetch())
        self.assertEqual(len(self.server.seen), 1)
        # Another content under the same name is not what was fetched first.
        (self.folder / "data" / ARCHIVE).unlink()
        self.server.act = lambda request: request.answer(CONTENT[::-1])
        message = self.fetch(code=3)
        self.assertIn(digest, message)
        self.assertEqual(self.names(), ["fetched.json"])
        (self.folder / "data" / ARCHIVE).write_bytes(b"changed")
        self.assertIn("remove it", self.fetch(code=3))

    def test_a_wrong_size_or_hash_is_refused_and_leaves_nothing(self):
        for task, size in (("image", 170052171), ("image-folder", 98948031), ("text", 84125825)):
            self.assertIn(f"has {len(CONTENT)} bytes, expected {size}", self.fetch(task, code=3))
            self.assertFalse((self.folder / "data").exists())  # nor a folder that holds nothing
        adult = b"x" * 3974305
        self.server.act = lambda request: request.answer(adult)
        message = self.fetch("tabular/adult", code=3)
        self.assertIn("5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", message)
        self.assertIn(hashlib.sha256(adult).hexdigest(), message)
        self.assertFalse((self.folder / "data").exists())

    def test_a_cut_connection_is_gone_on_with(self):
        self.server.act = lambda request: request.ranged(CONTENT, '"one"', cut=len(CONTENT) // 3)
        self.fetch()
        self.assertEqual(self.content(), CONTENT)
        self.assertEqual([seen[1] for seen in self.server.seen], [None, f"bytes={len(CONTENT) // 3}-"])
        self.assertEqual(self.server.seen[1][2], '"one"')

    def test_a_later_call_goes_on_and_another_version_begins_anew(self):
        for tag, second in (('"one"', CONTENT), ('"two"', CONTENT[::-1])):
            with self.subTest(tag):
                self.server.seen.clear()

                def cut_once(request, tag=tag, second=second):
                    if len(self.server.seen) == 1:
                        request.answer(CONTENT, 200, [("ETag", '"one"')], stop_after=1000)
                    elif len(self.server.seen) <= 5:
                        request.answer(b"", 503)
                    else:
                        request.ranged(second, tag)
                self.server.act = cut_once
                self.assertIn("503", self.fetch(code=4))
                self.assertIn(ARCHIVE + ".part", self.names())
                self.fetch()
                self.assertEqual(self.content(), second)
                self.assertEqual(self.server.seen[-1][1:], ("bytes=1000-", '"one"'))
                shutil.rmtree(self.folder / "data")

    def test_a_server_without_ranges_sends_all_again(self):
        def act(request):
            request.answer(CONTENT, 200, [("ETag", '"one"')], stop_after=5000 if len(self.server.seen) == 1 else None)
        self.server.act = act
        self.fetch()
        self.assertEqual(self.content(), CONTENT)

    def test_what_cannot_be_written_beside_the_file_is_one_error_and_leaves_no_lock(self):
        tag = self.folder / "data" / (ARCHIVE + ".part.tag")
        tag.mkdir(parents=True)
        self.server.act = lambda request: request.answer(CONTENT, 200, [("ETag", '"one"')])
        self.assertIn(f"cannot write {tag}: expected a plain file", self.fetch(code=2))
        self.assertEqual(len(self.server.seen), 1)
        tag.rmdir()
        self.fetch()
        self.assertEqual(self.content(), CONTENT)
        self.assertEqual(self.names(), [ARCHIVE, "fetched.json"])

    def test_an_answer_without_length_is_taken(self):
        self.server.act = lambda request: request.answer(CONTENT, length=False)
        self.fetch()
        self.assertEqual(self.content(), CONTENT)

    def test_what_is_not_there_and_who_does_not_answer(self):
        self.server.act = lambda request: request.answer(b"gone", 404)
        message = self.fetch(code=4)
        self.assertIn("answers 404", message)
        self.assertIn("by hand", message)
        self.assertEqual(len(self.server.seen), 1)
        closed = begun(lambda request: None)
        address = f"http://127.0.0.1:{closed.server_address[1]}"
        closed.shutdown()
        closed.server_close()
        message = self.fetch(address=address, code=4)
        self.assertIn(f"put it into {self.folder / 'data'}", message)
        self.assertIn(ARCHIVE, message)
        self.assertIn("no network", message)
        self.assertEqual(self.names(), [])

    def test_no_network_is_said_and_leaves_nothing(self):
        message = self.fetch(address="http://no-such-host.invalid", code=4)
        self.assertIn("no network", message)
        self.assertFalse((self.folder / "data").exists())

    def test_a_dry_run_asks_nobody_and_says_from_where_how_large_and_which_hash(self):
        def dry(task, *more):
            done = subprocess.run([XFORMER, "data", "fetch", task, "--into", str(self.folder / "data"), "--dry-run",
                                   *more], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout
        text = dry("text")
        for part in ("https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz", "84,125,825 bytes",
                     "sha256 c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
                     str(self.folder / "data" / "aclImdb_v1.tar.gz")):
            self.assertIn(part, text)
        release = dry("listops")
        for part in ("lra_release.gz", "about 7.7 GB", "hash    unknown: the one found is recorded", "listops-1000"):
            self.assertIn(part, release)
        self.assertIn("https://www.dropbox.com/s/o53umyg6mn3zhxy/data.tar.gz", dry("tabular/helena"))
        self.assertIn("also to be had --from authors", dry("tabular/adult"))
        self.assertNotIn("also to be had", dry(TASK))
        for name in ("EthanolConcentration", "FaceDetection", "Handwriting", "Heartbeat", "JapaneseVowels", "PEMS-SF",
                     "SelfRegulationSCP1", "SelfRegulationSCP2", "SpokenArabicDigits", "UWaveGestureLibrary"):
            self.assertIn("also to be had --from archive", dry(f"uea/{name}"))
            whole = dry(f"uea/{name}", "--from", "archive")
            for part in ("https://www.timeseriesclassification.com/aeon-toolkit/Archives/Multivariate2018_ts.zip",
                         "size    unknown", "hash    unknown: the one found is recorded",
                         f"what has '/{name}/' in its path into {self.folder / 'data' / name}"):
                self.assertIn(part, whole)
        self.assertFalse((self.folder / "data").exists())
        self.fetch()
        self.assertIn(hashlib.sha256(CONTENT).hexdigest() + ", as first fetched", dry(TASK))

    def test_the_second_mirror_helps(self):
        other = begun(lambda request: request.answer(b"", 404))
        try:
            self.fetch(TASK, "--mirror", self.address, address=f"http://127.0.0.1:{other.server_address[1]}")
        finally:
            other.shutdown()
            other.server_close()
        self.assertEqual((len(other.seen), self.content()), (1, CONTENT))

    def test_a_server_that_stalls_is_left(self):
        def stall(request):
            request.send_response(200)
            request.send_header("Content-Length", "1000000")
            request.end_headers()
            request.wfile.write(b"x" * 100)
            request.wfile.flush()
            self.release.wait(180)
        self.server.act = stall
        started = time.monotonic()
        self.assertIn("no byte came", self.fetch(code=4))
        self.assertLess(time.monotonic() - started, 150)

    def test_redirections_are_followed_but_not_for_ever(self):
        def once(request):
            if request.path == "/there":
                request.answer(CONTENT)
            else:
                request.answer(b"", 302, [("Location", "/there")])
        self.server.act = once
        self.fetch()
        self.assertEqual(self.content(), CONTENT)
        (self.folder / "data" / ARCHIVE).unlink()
        self.server.act = lambda request: request.answer(b"", 302, [("Location", request.path)])
        self.assertIn("redirections", self.fetch(code=4))
        self.server.act = lambda request: request.answer(b"", 302, [("Location", "file:///etc/passwd")])
        self.fetch(code=4)
        self.assertNotIn(ARCHIVE, self.names())

    def test_a_signal_leaves_what_came(self):
        def slow(request):
            if request.headers.get("Range"):
                return request.ranged(CONTENT, '"one"')
            request.send_response(200)
            request.send_header("Content-Length", str(len(CONTENT)))
            request.send_header("ETag", '"one"')
            request.end_headers()
            request.wfile.write(CONTENT[:200000])
            request.wfile.flush()
            self.release.wait(30)
        self.server.act = slow
        running = subprocess.Popen(self.command(stall=25), stderr=subprocess.PIPE, text=True)
        part = self.folder / "data" / (ARCHIVE + ".part")
        for _ in range(600):
            if part.exists() and running.poll() is None:
                break
            time.sleep(0.05)
        time.sleep(0.3)
        running.send_signal(signal.SIGINT)
        _, message = running.communicate(timeout=30)
        self.assertEqual(running.returncode, 6, message)
        self.fetch()
        self.assertEqual(self.content(), CONTENT)
        self.assertIsNotNone(self.server.seen[-1][1])

    def test_a_certificate_that_nobody_vouches_for_is_refused(self):
        if shutil.which("openssl") is None:
            self.skipTest("openssl makes the certificate")
        certificate = self.folder / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost", "-keyout", certificate, "-out",
                        self.folder / "public.pem"], check=True, capture_output=True)
        certificate.write_bytes(certificate.read_bytes() + (self.folder / "public.pem").read_bytes())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        address = f"https://localhost:{self.server.server_address[1]}"
        self.assertIn("certificate", self.fetch(address=address, code=4))
        self.assertEqual(self.server.seen, [])
        self.fetch(TASK, "--certificates", str(self.folder / "public.pem"), address=address)
        self.assertEqual(self.content(), CONTENT)

    def test_a_task_without_addresses_says_where_its_files_are(self):
        done = subprocess.run([XFORMER, "data", "fetch", "imagenet", "--into", str(self.folder)],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("no address", done.stderr)


unittest.main()
