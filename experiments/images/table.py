"""table.py RECORDS: the records of experiments/images/run."""

import json
import math
import pathlib
import sys


def interval(share, count):
    """Wilson's 95% interval of a share."""
    z = 1.96
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return f"{100 * (centre - half):.1f} to {100 * (centre + half):.1f} %"


def main():
    runs, checks = [], []
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
        record = json.loads(path.read_text())
        (checks if "answer" in record else runs).append((path.stem, record))
    print("# Images on a CPU\n\nShort runs, comparable with nothing published: of Imagenette 309 images to train on and 159 to validate, "
          "64 pixels, 30 epochs; of drawn Pathfinder 200 steps of 32 instead of 62,400 of 256.\n")
    print("| run | model | test, 95 % interval | top 5 | constant answer | parameters | steps | examples/s | peak memory, MB | input |\n"
          "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, record in runs:
        test = record["test"]
        top5 = f"{100 * test['top5_accuracy']:.1f} %" if "top5_accuracy" in test else "-"
        print(f"| {name} | `{record['model']}` | {100 * test['accuracy']:.1f} % ({interval(test['accuracy'], test['examples'])}) | {top5} | "
              f"{100 * record['chance']:.1f} % | {record['parameters']:,} | {record['steps']['done']:,} | "
              f"{record['examples_per_s']:.1f} | {record['peak_process_bytes'] / 1e6:.0f} | {100 * record['speed']['input_share']:.1f} % |")
    print("\n## Making and checking data\n\n| what | images | seconds | processor seconds | peak memory, MB | what it found |\n"
          "| --- | ---: | ---: | ---: | ---: | --- |")
    for name, record in checks:
        answer = record["answer"]
        found = "; ".join(f"{item['check']}: {item['detail']}" for item in answer["checks"])
        images = sum(split["examples"] for split in answer["splits"].values())
        print(f"| `{record['command']}` | {images:,} | {record['seconds']:.0f} | {record['processor_seconds']:.0f} | "
              f"{record['peak_process_bytes'] / 1e6:.0f} | {found} |")
    commits = sorted({record["software"]["commit"][:12] for _, record in runs})
    print(f"\nRecords: `{sys.argv[1]}`, made by `experiments/images/run TREE` of {', '.join(commits)}.")


main()
