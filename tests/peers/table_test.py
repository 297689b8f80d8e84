#!/usr/bin/env python3
"""The tables of scripts/compare-pytorch, from results made up here whose numbers are easy to follow."""

import copy
import unittest

import table


def pair(ms, ours, **more):
    # The ratio of the medians is another number than the median of the rounds' ratios, which the tables print.
    return {"status": "ok", "rounds": 3, "ms": table.summary(ms), "ours_ms": table.summary(ours), "ratio": 9.9,
            "ratio_of_rounds": {"median": ms[1] / ours[1], "p10": 3.5, "p90": 4.5}, "peak_bytes": 900e6,
            "setup_seconds": 7.4, "parameters": 5, **more}


# 6 GFLOP by ours, 4 by PyTorch; products of 2 GFLOP take 50 ms, which is 40 GFLOP/s, so the floor is 0.1 s.
ROW = {"shape": "listops", "length": 2048, "batch": 32, "model": "linear", "run": 0, "date": "2026-01-01T00:00:00Z",
       "software": {"xformer": "0.1.0", "commit": "0123456789abcdef", "dirty": False},
       "ours": {"step_ms": {"median": 210.0}, "flops": {"step_counted": 6e9}, "parameters": 5, "peak_process_bytes": 300e6},
       "kinds": {"eager": pair([700.0, 800.0, 900.0], [190.0, 200.0, 210.0]),
                 "caching": pair([300.0, 500.0, 900.0], [190.0, 200.0, 210.0]),
                 "compile": {"status": "failed", "message": "no compiler | here"},
                 "products": pair([49.0, 50.0, 51.0], [240.0, 250.0, 260.0], step_flops=4e9, product_flops=2e9,
                                  libraries={"LIBXSMM": 0.75, "MKL": 0.25, "oneDNN": 0.001})}}
RUN = {"date": "2026-01-01T00:00:00Z", "command": "scripts/compare-pytorch --rounds 3", "processor": "P", "processors": 2,
       "memory_bytes": 24e9, "threads": 2, "rounds": 3, "seconds": 9, "python": "3.1", "torch": "2.1", "transformers": "4.1",
       "compiler": "c++ 1", "ceilings": {"mm 2 x 2, GFLOP/s": 120.4}}


class Table(unittest.TestCase):
    def setUp(self):
        self.row = copy.deepcopy(ROW)

    def lines(self):
        return table.markdown({"runs": [RUN], "rows": [self.row]}).splitlines()

    def test_quantiles_lie_between_the_sorted_values(self):
        found = table.summary([30.0, 10.0, 20.0])
        self.assertEqual((found["median"], found["p10"], found["p90"]), (20.0, 12.0, 28.0))
        self.assertEqual(table.summary([5.0, 7.0])["median"], 6.0)
        self.assertEqual(table.summary([5.0])["p90"], 5.0)

    def test_ratios_and_floor(self):
        # ours / floor is that of the rounds with the products, 0.25 / 0.1; eager is four times ours.
        self.assertIn("| `linear` | listops, 2,048 x 32 | 0123456, 2026-01-01 | 0.210 | 4.00 | 2.50 | - | - | - | - | - | 2.50 | 2.50 | 10.00 | 300 | "
                      "900 | 900 | - | - | - | - | - |", self.lines())
        self.assertIn("| `linear` | listops, 2,048 x 32 | 6 | 4 | 40.0 | LIBXSMM 75%, MKL 25% | 0.100 | 5 |", self.lines())

    def test_conditions_name_the_pause_before_a_step_where_there_was_one(self):
        self.assertTrue(any(line.endswith("fewer where they took 9 s.") for line in self.lines()))
        lines = table.markdown({"runs": [RUN | {"pause_ms": 30.0}], "rows": [self.row]}).splitlines()
        self.assertTrue(any(line.endswith("fewer where they took 9 s, 30 ms before each step.") for line in lines))

    def test_the_best_is_the_fastest_of_the_same_function(self):
        self.row["kinds"]["bf16"] = pair([1.0, 300.0, 400.0], [190.0, 200.0, 210.0])
        self.row["kinds"]["sdpa"] = pair([1.0, 100.0, 400.0], [190.0, 200.0, 210.0])
        self.assertEqual(table.best(self.row), 1.5)
        self.row["kinds"] = {}
        self.assertIsNone(table.best(self.row))

    def test_rows_say_their_precision_and_old_ones_are_of_fp32(self):
        self.row["precision"] = "bf16"
        self.assertEqual(sum(line.startswith("| `linear`, bf16 | listops") for line in self.lines()), 6)
        del self.row["precision"], self.row["kinds"]["products"]["libraries"]
        self.assertIn("| `linear` | listops, 2,048 x 32 | 6 | 4 | 40.0 | PyTorch 100% | 0.100 | 5 |", self.lines())

    def test_the_smaller_count_makes_the_floor(self):
        self.row["ours"]["flops"]["step_counted"] = 3e9
        self.assertAlmostEqual(table.floor(self.row)[1], 0.075)

    def test_pairs_have_their_spread_and_failures_their_reason(self):
        self.assertIn("| `linear` | listops, 2,048 x 32 | eager | 0.800 (0.720 to 0.880) | 0.200 (0.192 to 0.208) | "
                      "4.00 (3.50 to 4.50) | 3 | 7 |", self.lines())
        self.assertIn("| `linear` | listops, 2,048 x 32 | torch.compile | no compiler / here | - | - | - | - |", self.lines())

    def test_on_a_gpu_pairs_have_the_times_of_device_and_host(self):
        apart = {"ours_device_ms": 190.0, "ours_host_ms": 20.0, "device_ms": 700.0, "host_ms": 780.0}
        self.row["kinds"] = {"eager": pair([700.0, 800.0, 900.0], [190.0, 200.0, 210.0],
                                           **{key: table.summary([ms]) for key, ms in apart.items()}),
                             "compile": self.row["kinds"]["compile"]}
        self.row["ours"]["peak_bytes"] = 1e6
        lines = table.markdown({"device": "cuda", "runs": [RUN], "rows": [self.row]}).splitlines()
        head = next(line for line in lines if line.startswith("| model | shape | PyTorch |"))
        self.assertIn("| ratio | PyTorch, device | PyTorch, host | ours, device | ours, host | rounds |", head)
        self.assertTrue(any("| 4.00 (3.50 to 4.50) | 0.700000 | 0.780000 | 0.190000 | 0.020000 | 3 | 7 |" in line for line in lines))
        self.assertTrue(any(line.endswith("no compiler / here |" + " - |" * 8) and line.count("|") == head.count("|") for line in lines))

    def test_models_of_different_size_are_seen(self):
        self.row["kinds"]["products"]["parameters"] = 6
        self.assertTrue(any(line.endswith("| 5 / 6 |") for line in self.lines()))

    def test_without_products_there_is_no_floor(self):
        self.row["kinds"]["products"] = {"status": "failed", "message": "killed"}
        self.assertTrue(any("| 4.00 | 2.50 | - | - | - | - | - | 2.50 | - | - | 300 |" in line for line in self.lines()))

    def test_conditions_name_versions_machine_and_command(self):
        text = "\n".join(self.lines())
        for part in ("`scripts/compare-pytorch --rounds 3`", "0123456789ab)", "PyTorch 2.1", "transformers 4.1", "Python 3.1",
                     "c++ 1", "2 threads", "| mm 2 x 2 | GFLOP/s | 120 |"):
            self.assertIn(part, text)

    def test_every_line_of_a_table_has_the_columns_of_its_head(self):
        columns = 0
        for line in self.lines():
            if not line.startswith("|"):
                columns = 0
            elif columns == 0:
                columns = line.count("|")
            self.assertEqual(line.count("|"), columns if line.startswith("|") else 0, line)


if __name__ == "__main__":
    unittest.main()
