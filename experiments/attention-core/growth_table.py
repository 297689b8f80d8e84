"""growth_table.py REPORT.json < `xformer list attentions --json`: a table of growth exponents from a bench over lengths.

An exponent is the slope of a straight line through the logarithms, by least squares: 1 is linear, 2 quadratic. The last
columns are the slope between the two longest lengths alone, where what does not grow counts least.
"""

import json
import math
import sys


def slope(points):
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def main():
    report = json.load(open(sys.argv[1]))
    declared = {row["name"]: row["complexity"] for row in json.load(sys.stdin)}
    rows = {}
    for row in report["rows"]:
        if row["status"] == "ok":
            rows.setdefault(row["model"], []).append((row["length"], row["step_ms"]["median"], row["peak_bytes"]))
    lengths = sorted({row["length"] for row in report["rows"]})
    print("# Growth of a training step with the length\n")
    print("One layer of the ListOps model, batch", report["rows"][0]["batch"], "- slopes of log time and log peak memory "
          f"over {', '.join(f'{n:,}' for n in lengths)} tokens (1 is linear, 2 quadratic), and between the two longest.\n")
    print("| attention | declared | time | memory | time, last two | memory, last two | step at "
          f"{lengths[-1]:,}, ms | peak, MB |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, points in sorted(rows.items()):
        times, peaks = [(n, ms) for n, ms, _ in points], [(n, peak) for n, _, peak in points]
        print(f"| `{name}` | {declared[name]} | {slope(times):.2f} | {slope(peaks):.2f} | {slope(times[-2:]):.2f} | "
              f"{slope(peaks[-2:]):.2f} | {points[-1][1]:.1f} | {points[-1][2] / 1e6:.1f} |")
    for row in report["rows"]:
        if row["status"] != "ok":
            print(f"\n`{row['model']}` at {row['length']:,}: {row['status']}, {row['message']}")
    hardware, conditions = report["hardware"], report["conditions"]
    print(f"\n`{report['command']}`, {report['date']}, xformer {report['software']['xformer']} "
          f"({report['software'].get('commit', '')[:12]}), {hardware['processor']}, {conditions['threads']} threads, dropout on, "
          "every position valid, in turns.")


main()
