#!/usr/bin/env python3
"""fetch_archive_test.py XFORMER: archives that `xformer data fetch` unpacks, and tasks that read them."""

import hashlib
import io
import json
import shutil
import struct
import subprocess
import sys
import unittest
import zipfile
import zlib

sys.dont_write_bytecode = True
from fetch_case import TASK, XFORMER, FetchCase  # noqa: E402
from served import tar_of  # noqa: E402


class FetchArchive(FetchCase):
    def test_an_archive_is_unpacked_and_used(self):
        rows = b"1.0\ta\tb\tfirst document\tsecond\n0.0\tc\td\tx\tyz\n"
        inner = {f"lra_release/tsv_data/new_aan_pairs.{part}.tsv": rows for part in ("train", "eval", "test")}
        body = tar_of({**inner, "lra_release/listops-1000/basic_train.tsv": b"not asked for"})
        self.server.act = lambda request: request.answer(body)
        self.assertIn("unpacked into", self.fetch("retrieval"))
        self.assertFalse((self.folder / "data" / "lra_release" / "lra_release" / "listops-1000").exists())
        done = subprocess.run([XFORMER, "data", "make", "retrieval", "--data", str(self.folder / "data")],
                              capture_output=True, text=True, timeout=60,
                              env={"XFORMER_CACHE": str(self.folder / "cache"), "PATH": "/usr/bin:/bin"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 examples", done.stdout)

    def test_the_arenas_listops_and_the_authors_tables_are_found_where_they_unpack(self):
        rows = b"Source\tTarget\n( ( ( [MAX 1 ) 2 ) ] )\t2\n"
        inner = {f"lra_release/listops-1000/basic_{part}.tsv": rows for part in ("train", "val", "test")}
        body = tar_of({**inner, "lra_release/tsv_data/new_aan_pairs.train.tsv": b"not asked for"})
        self.server.act = lambda request: request.answer(body)
        self.fetch("listops")
        self.assertFalse((self.folder / "data" / "lra_release-listops" / "lra_release" / "tsv_data").exists())
        environment = {"XFORMER_CACHE": str(self.folder / "cache"), "PATH": "/usr/bin:/bin"}
        done = subprocess.run([XFORMER, "data", "make", "listops", "--data", str(self.folder / "data")],
                              capture_output=True, text=True, timeout=60, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)

        def array(values, descr):
            shape = f"({len(values)},)" if descr == "|u1" else f"({len(values)}, 1)"
            head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
            head += b" " * (-(len(head) + 11) % 64) + b"\n"
            numbers = struct.pack(f"<{len(values)}f", *values) if descr == "<f4" else bytes(values)
            return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + numbers
        table = {"info.json": b'{"task_type": "binclass", "n_num_features": 1}'}
        for part in ("train", "val", "test"):
            table.update({f"N_{part}.npy": array([1.0, 2.0], "<f4"), f"y_{part}.npy": array([0, 1], "|u1")})
        body = tar_of({f"data/{name}/{file}": content for name in ("helena", "higgs_small")
                             for file, content in table.items()})
        self.fetch("tabular/higgs-small")
        self.assertFalse((self.folder / "data" / "rtdl-higgs-small" / "data" / "helena").exists())
        done = subprocess.run([XFORMER, "data", "make", "tabular/higgs-small", "--data", str(self.folder / "data")],
                              capture_output=True, text=True, timeout=60, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 examples", done.stdout)
        # Adult is the archive's where that is asked for; else UCI's.
        body = tar_of({f"data/adult/{file}": content for file, content in table.items()})
        shutil.rmtree(self.folder / "data")
        self.fetch("tabular/adult", "--from", "authors")
        done = subprocess.run([XFORMER, "data", "make", "tabular/adult", "--data", str(self.folder / "data")],
                              capture_output=True, text=True, timeout=60, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 examples", done.stdout)

    def test_a_set_of_the_whole_archive_is_unpacked_alone_and_used(self):
        cases = ("@problemName made\n@timeStamps false\n@univariate true\n@dimensions 1\n@classLabel true a b\n@data\n"
                 "1.0,2.0,3.0:a\n2.0,4.0,5.0:b\n")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name in ("Handwriting", "PEMS-SF", "StandWalkJump"):
                for part in ("TRAIN", "TEST"):
                    archive.writestr(f"Multivariate_ts/{name}/{name}_{part}.ts", cases)
        self.server.act = lambda request: request.answer(packed.getvalue())
        for name in ("Handwriting", "PEMS-SF"):
            self.fetch(f"uea/{name}", "--from", "archive")
            unpacked = self.folder / "data" / name / "Multivariate_ts"
            self.assertEqual([path.name for path in unpacked.iterdir()], [name])
            done = subprocess.run([XFORMER, "data", "make", f"uea/{name}", "--protocol", "published",
                                   "--data", str(self.folder / "data")], capture_output=True, text=True, timeout=60,
                                  env={"XFORMER_CACHE": str(self.folder / "cache"), "PATH": "/usr/bin:/bin"})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("2 examples", done.stdout)
        self.assertEqual(len(self.server.seen), 1)
        digest = hashlib.sha256(packed.getvalue()).hexdigest()
        self.assertEqual(json.loads((self.folder / "data" / "fetched.json").read_text()),
                         {"Multivariate2018_ts.zip": digest})

    def test_a_publisher_that_a_set_does_not_have_is_refused(self):
        self.assertIn("did you mean 'authors'?", self.fetch("tabular/adult", "--from", "author", code=2))
        self.assertIn("have one publisher", self.fetch("tabular/helena", "--from", "authors", code=2))
        self.assertIn("have one publisher", self.fetch(TASK, "--from", "archive", code=2))
        self.assertEqual(self.names(), [])

    def test_every_part_of_an_archive_is_asked_for_by_its_own_path(self):
        for task, only in (("pathfinder32", "pathfinder32/curv_contour_length_14/"), ("retrieval", "tsv_data/"),
                           ("pathfinder32-easy", "pathfinder32/curv_baseline/"), ("tabular/covertype", "/covtype/"),
                           ("path-x", "pathfinder128/curv_contour_length_14/"), ("listops", "/listops-1000/")):
            done = subprocess.run([XFORMER, "data", "fetch", task, "--dry-run"], capture_output=True, text=True,
                                  timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"what has '{only}' in its path", done.stdout)
            self.assertIn("unknown: the one found is recorded", done.stdout)

    def test_an_archive_without_the_part_that_is_wanted_is_refused(self):
        body = tar_of({"lra_release/listops-1000/basic_train.tsv": b"x"})
        self.server.act = lambda request: request.answer(body)
        message = self.fetch("pathfinder32-easy", code=3)
        self.assertIn("pathfinder32/curv_baseline/", message)
        self.assertEqual(self.names(), ["fetched.json", "lra_release.gz"])

    def test_one_archive_serves_several_tasks(self):
        """Drawn images as their authors lay them out: fetched, unpacked, read, the archive fetched once."""
        def png(level):
            def chunk(kind, data):
                return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            rows = b"".join(b"\0" + bytes([level] * 32) for _ in range(32))
            return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 0, 0, 0, 0)) +
                    chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
        members = {}
        for name, length in (("curv_baseline", 6), ("curv_contour_length_9", 9)):
            place = f"lra_release/lra_release/pathfinder32/{name}"
            members[f"{place}/metadata/0.npy"] = b"".join(
                b"imgs/0 sample_%d.png %d %d 1.0 %d 3.0 2 0.5 1 1\n" % (i, i, i % 2, length) for i in range(20))
            members.update({f"{place}/imgs/0/sample_{i}.png": png(10 * i + 1) for i in range(20)})
        body = tar_of(members)
        self.server.act = lambda request: request.answer(body)
        for task in ("pathfinder32-easy", "pathfinder32-inter"):
            self.fetch(task)
            done = subprocess.run([XFORMER, "data", "make", task, "--data", str(self.folder / "data")],
                                  capture_output=True, text=True, timeout=60,
                                  env={"XFORMER_CACHE": str(self.folder / "cache"), "PATH": "/usr/bin:/bin"})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("16 examples", done.stdout)
        self.assertEqual(len(self.server.seen), 1)

    def test_an_archive_that_leads_out_is_refused(self):
        body = tar_of({"lra_release/tsv_data/../../../out": b"x"})
        self.server.act = lambda request: request.answer(body)
        self.assertIn("..", self.fetch("retrieval", code=3))
        self.assertFalse((self.folder / "data" / "lra_release").exists())
        self.assertFalse((self.folder / "out").exists())


unittest.main()
