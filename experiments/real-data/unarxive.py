#!/usr/bin/env python3
"""unarxive.py ARCHIVE DIR [CHARACTERS]: texts in folders by class, for the task longdoc/unarxive.

ARCHIVE is unArXive's sample (Saier, Krause, Faerber 2023: unarXive_data_sample.tar.gz), JSON lines of papers in a tar. A
paper's class is its first category: cs, math or physics (every other archive of arXiv but econ, eess, q-bio, q-fin and
stat, which are left out). Its text is cut into pieces of CHARACTERS (4096), a file each, twelve at most, since a few
papers are books; what is left at the end is dropped. Of every class the papers in the order of their numbers go in turn
to train (three), dev and test: no paper is in two of them.
"""
import json
import pathlib
import re
import sys
import tarfile

OTHERS = {"econ", "eess", "q-bio", "q-fin", "stat"}
MOST = 12
TURN = ("train", "train", "train", "dev", "test")


def papers(archive):
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.endswith(".jsonl"):
                for line in tar.extractfile(member):
                    yield json.loads(line)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    folder, size = pathlib.Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) == 4 else 4096
    classes = {}
    for paper in papers(sys.argv[1]):
        first = paper["metadata"]["categories"].split()[0].split(".")[0]
        if first in OTHERS:
            continue
        # {{formula:...}} and {{cite:...}} name their object by a long number.
        text = " ".join(re.sub(r"\{\{(\w+):[^}]*\}\}", r"{\1}", part["text"]) for part in paper["body_text"])
        text = re.sub(r"\s+", " ", text)
        classes.setdefault(first if first in ("cs", "math") else "physics", []).append((paper["paper_id"], text))
    for name, texts in sorted(classes.items()):
        pieces = dict.fromkeys(TURN, 0)
        for i, (number, text) in enumerate(sorted(texts)):
            split = TURN[i % len(TURN)]
            place = folder / split / name
            place.mkdir(parents=True, exist_ok=True)
            for k in range(min(len(text) // size, MOST)):
                (place / f"{number}-{k:02}.txt").write_text(text[k * size : (k + 1) * size], encoding="utf-8")
                pieces[split] += 1
        print(f"{name}: {len(texts)} papers, {', '.join(f'{count} pieces in {split}' for split, count in pieces.items())}")


main()
