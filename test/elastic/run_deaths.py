"""Kills each of 4 ranks at each point of training, and judges what becomes of the job.

    python test/elastic/run_deaths.py --programs 0-99 --resume build/deaths.jsonl

Each program is a line of JSON in the file: a run that was ended goes on where it was. The exit code is 1 if a
job was not as it should be.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "parallel"))

import deaths


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default="0-99", metavar="FIRST-LAST")
    parser.add_argument("--resume", type=Path, required=True, metavar="FILE")
    words = parser.parse_args()
    first, last = map(int, words.programs.split("-"))
    records = (
        [json.loads(line) for line in words.resume.read_text().splitlines()] if words.resume.exists() else []
    )
    known = {record["number"] for record in records}
    for number in range(first, last + 1):
        if number in known:
            continue
        with tempfile.TemporaryDirectory(prefix="deaths-") as folder:
            record = deaths.judged(number, Path(folder))
        records.append(record)
        with words.resume.open("a") as file:
            file.write(json.dumps(record) + "\n")
        said = "; ".join(record["complaints"]) or f"went on after {record['recovery']:.2f} s"
        print(f"{number}: {record['deaths']}: {said}", flush=True)
    print(deaths.summary(records))
    return 1 if any(record["complaints"] for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
