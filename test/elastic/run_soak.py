"""One long elastic job, whose workers and hosts are struck at random moments. As root on made hosts.

    python test/elastic/run_soak.py --events 200 --minutes 20 --seed 1
    python test/elastic/run_soak.py --events 20 --minutes 1 --loopback

Kills, hosts that come and go, are cut off or lose their power, workers that are stopped: nobody may hang, no
process may hold more and more, no sample of an epoch may be lost, and all ranks have the same bits when an
epoch ends. The exit code is 1 if it was not so; `--keep FOLDER` has what workers wrote and the job printed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "parallel"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from soak import Loopback, Made, Report, Soak

from horovod.made_hosts import MadeHosts, why_not

# Workers start all the time: without what the compiler needs that takes half of the processor.
LEAN_TORCH = Path(__file__).resolve().parents[1] / "lean_torch"


def run(folder: Path, events: int, seconds: float, seed: int, on_loopback: bool) -> Report:
    """`folder` may exist."""
    folder.mkdir(parents=True, exist_ok=True)
    with nullcontext() if on_loopback else MadeHosts(3, name=f"soak{seed}") as hosts:
        place = Loopback() if hosts is None else Made(hosts)
        return Soak(place, folder, events, seconds, seed).run()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--loopback", action="store_true", help="hosts are names of this machine: no root")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    words = parser.parse_args()
    if not words.loopback and (reason := why_not()):
        parser.error(f"{reason}; --loopback needs no made hosts")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(LEAN_TORCH), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory(prefix="soak-") as own:
        folder = words.keep or Path(own)
        report = run(folder, words.events, 60 * words.minutes, words.seed, words.loopback)
    print(json.dumps(report.figures, indent=1))
    if report.complaints:
        print("\n".join(report.events[-20:]), report.said[-6000:], sep="\n", file=sys.stderr)
    print("\n".join(report.complaints) or f"{len(report.events)} events: all as it should be")
    return 1 if report.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
