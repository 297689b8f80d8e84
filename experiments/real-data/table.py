"""table.py RECORDS: the records of experiments/real-data/run beside the published numbers, with every difference."""

import collections
import json
import math
import pathlib
import statistics
import sys

# MrsFormer: Tables 8 (accuracy, %, five seeds) and 10 (accuracy, %, or RMSE), and the Flowformer table for softmax.
PUBLISHED = {
    ("uea/JapaneseVowels", "linear"): 99.28, ("uea/JapaneseVowels", "mrs-linear"): 99.46,
    ("uea/JapaneseVowels", "softmax"): 98.7, ("uea/Handwriting", "softmax"): 32.0,
    ("uea/Handwriting", "linear"): 33.29, ("uea/Handwriting", "mrs-linear"): 32.98,
    ("uea/UWaveGestureLibrary", "mrs-linear"): 82.19,
    ("tabular/california-housing", "softmax"): 0.4671, ("tabular/california-housing", "mrs-softmax"): 0.468,
    ("tabular/adult", "softmax"): 85.76, ("tabular/adult", "mrs-softmax"): 85.87,
}


def interval(share, count):
    """Wilson's 95% interval of a share."""
    z = 1.96
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return centre - half, centre + half


def number(value, unit):
    return "-" if value is None else f"{value:.2f} %" if unit == "%" else f"{value:.4f}"


def main():
    groups, inputs = collections.OrderedDict(), collections.defaultdict(list)
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
        record = json.loads(path.read_text())
        plan = record["plan"]
        key = (record["task"], record["model"], plan.get("data.length"),
               (plan.get("model.interaction"), plan.get("data.subjects") or "new"))
        if "input_share" in record["speed"]:
            inputs[key + (plan["training.batch"],)].append(record)
        if not path.stem.startswith("input-"):
            groups.setdefault(key, []).append((path.stem, record))
    print("# Real files and generated tasks on a CPU\n")
    print("Accuracy or RMSE on test of the weights that were selected; the interval is Wilson's, over examples, of the best dev "
          "accuracy; several seeds: mean and sample standard deviation.\n")
    print("| task | model | test | published | best dev, 95% interval | constant answer | seeds | steps | what differs from the "
          "published run |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for (task, model, length, (interaction, subjects)), rows in groups.items():
        records = [record for _, record in rows]
        first = records[0]
        rmse = first.get("accuracy") is None
        values = [record["rmse"] if rmse else 100 * record["accuracy"] for record in records]
        unit = "" if rmse else "%"
        text = number(statistics.mean(values), unit)
        if len(values) > 1:
            text += f" ± {statistics.stdev(values):.2f}"
        best = first["selection"]["best"]
        dev = number(best.get("rmse"), "")
        if not rmse:
            low, high = interval(best["accuracy"], best["examples"])
            dev = f"{100 * low:.2f} to {100 * high:.2f} %"
        differs = []
        if task in ("text", "image", "listops"):
            differs.append(f"{first['steps']['done']:,} steps")
        if task == "image":
            differs.append(f"{first['data']['sizes']['train']:,} training images of 45,000")
        if task.startswith(("uea/", "tabular/")) and len(records) < 5:
            differs.append(f"{len(records)} of 5 seeds")
        if task == "tabular/adult":
            differs.append("published split's sizes; whether its rows are the same is not known")
        if task == "aan-synth":
            differs.append("generated, no LRA data")
        if task in ("adding", "temporal-order"):
            differs.append(f"{first['data']['sizes']['train']:,} examples of 100,000, {first['plan']['training.epochs']} epochs")
        shown = task + (f", {length:,}" if length and task != "uea" else "") + (f", {interaction}, {subjects} subjects" if task == "aan-synth" else "")
        print(f"| {shown} | `{model}` | {text} | {number(PUBLISHED.get((task, model)), unit)} | {dev} | "
              f"{number(first['chance'] if rmse else 100 * first['chance'], unit)} | {len(records)} | "
              f"{first['steps']['done']:,} | {'; '.join(differs) or '-'} |")
    print("\n## Input\n\nWork: what the thread beside the training spends on making one batch from the cache, in memory or generated; the mean "
          "of all steps. Waited: the share of all steps' time in which training stood still for it. A dash: recorded before the work was measured.\n\n"
          "| task | model | batch | step, ms | work, ms | waited |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for (task, model, length, _, batch), records in sorted(inputs.items(), key=str):
        work = [r["speed"]["input_work_ms"] for r in records if "input_work_ms" in r["speed"]]
        print(f"| {task}{f', {length:,}' if length else ''} | `{model}` | {batch} | "
              f"{statistics.median(r['speed']['step_ms']['median'] for r in records):,.1f} | "
              f"{f'{statistics.median(work):,.2f}' if work else '-'} | "
              f"{100 * max(r['speed']['input_share'] for r in records):.2f} % |")
    records = [record for rows in groups.values() for _, record in rows] + [record for rows in inputs.values() for record in rows]
    commits = sorted({record["software"]["commit"][:12] for record in records})
    print(f"\nRecords: `{sys.argv[1]}`, made by `experiments/real-data/run DATA` of {', '.join(commits)}.")


main()
