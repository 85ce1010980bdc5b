"""The lab's command line. Refuses options that cannot work before anything is started."""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from horovod import made_hosts
from horovod.common.compressors import COMPRESSORS
from horovod.lab import conduct, errors
from horovod.lab.places import MadePlace, check_rate
from horovod.lab.plan import EPOCHS, PARALLEL_EXAMPLE, SEEDS, Experiment
from horovod.lab.runs import THIS_HOST, Plan
from horovod.topology.language import LANGUAGES

OUT = "lab-results"
RATES = ("1gbit",)
REQUIRED = ("rich", "matplotlib", "jinja2")  # by the extra `lab`
_ASK = """\
import sys, horovod.torch as hvd
try:
    for text in sys.argv[1:]: hvd.Compression.from_text(text)
except ValueError as error:
    sys.exit(str(error))
"""
EXAMPLES = """\
examples:
  python -m horovod.lab --np 1 2 --compression none bit8 --epochs 1 --seeds 1
  python -m horovod.lab --script my_train.py -- --batch-size 32
  python -m horovod.lab -H node1:2,node2:2
  python -m horovod.lab --made-hosts 2 --rates none 1gbit

docs/lab.md tells more.
"""


@dataclass(frozen=True)
class Chosen:
    """The options of the command line."""

    out: Path
    language: str
    only_list: bool
    repeats: int  # of disturbed runs
    plans: list[Plan]


def parse(words: Sequence[str]) -> Chosen:
    """Parse the options. Exits with SystemExit(2) and a message if they cannot work."""
    own, arguments = list(words), []
    if "--" in own:
        at = own.index("--")
        own, arguments = own[:at], own[at + 1 :]
    parser = _parser()
    given = parser.parse_args(own)
    try:
        experiment = _experiment(given, arguments)
        plans = experiment.plans()
        _check_compressions(plans)
    except ValueError as error:
        parser.error(str(error))
    if not given.list and (lacking := [name for name in REQUIRED if importlib.util.find_spec(name) is None]):
        parser.error(f"not installed: {', '.join(lacking)} (pip install {' '.join(lacking)})")
    return Chosen(given.out, given.lang, given.list, given.repeat_disturbed, plans)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m horovod.lab",
        usage="%(prog)s [options] [-- ARGUMENTS OF THE SCRIPT]",
        description="Trains with several numbers of ranks, compressions and seeds, and writes a report. "
        "Stopped and started again, it does only the runs that are missing.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--np", type=_count, nargs="+", default=[1, 2, 4], metavar="N", help="ranks; 1 is without Horovod")
    add("--compression", nargs="+", default=["none", "bit16", "bit8"], metavar="C", help="as horovodrun's")
    add("--epochs", type=_count, default=EPOCHS, help=f"of each run; default: {EPOCHS}")
    add("--seeds", type=_count, default=SEEDS, help=f"runs of each kind; default: {SEEDS}")
    add("--script", help="your training instead of the MNIST examples")
    add("--threads", type=_count, default=1, help="that each rank computes with; default: 1")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-H", "--hosts", help="hosts and slots to train on, as node1:2,node2:2")
    where.add_argument("--made-hosts", type=_count, metavar="N", help="also on hosts made here (root)")
    add("--rates", nargs="+", metavar="R", help="of made hosts' cables, as 100mbit or none; default: 1gbit")
    add("--out", type=Path, default=Path(OUT), help=f"folder of logs and report; default: {OUT}")
    add("--lang", choices=LANGUAGES, default="en", help="of the report")
    again = "do runs again during which other programs were busy, up to N times; without N once"
    add("--repeat-disturbed", type=_count, nargs="?", const=1, default=0, metavar="N", help=again)
    add("--list", action="store_true", help="show the runs and whether they are done, and end")
    return parser


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _experiment(given: argparse.Namespace, arguments: list[str]) -> Experiment:
    script = given.script
    if script is not None and not Path(script).is_file():
        raise errors.no_script(path=str(script))
    if script is None and not PARALLEL_EXAMPLE.is_file():
        raise errors.no_example(path=str(PARALLEL_EXAMPLE))
    return Experiment(
        ranks=given.np,
        compressions=given.compression,
        epochs=given.epochs,
        seeds=given.seeds,
        places=_places(given),
        script=script,
        arguments=arguments,
        threads=given.threads,
    )


def _places(given: argparse.Namespace) -> list[str]:
    """The places to train at. With made hosts, also this host's memory, for comparison."""
    if given.made_hosts is None:
        if given.rates is not None:
            raise errors.rates_without_hosts()
        return [given.hosts or THIS_HOST]
    reason = "" if given.list else made_hosts.why_not()
    if reason:
        raise errors.hosts_impossible(why=reason)
    if given.made_hosts < 2:
        raise errors.one_host()
    rates = list(dict.fromkeys(rate.lower() for rate in given.rates or RATES))
    for rate in rates:
        check_rate(rate)
    return [THIS_HOST, *(MadePlace(given.made_hosts, rate).name for rate in rates)]


def _check_compressions(plans: Sequence[Plan]) -> None:
    """ValueError if a text names no compressor. A script may register its own compressor when it starts."""
    unsure = sorted(
        {plan.compression for plan in plans} - set(COMPRESSORS)
    )  # known without loading torch, which takes seconds
    if unsure and "Compression.register(" in Path(plans[-1].script).read_text(errors="replace"):
        unsure = [text for text in unsure if re.split(r"\W", text)[0] in COMPRESSORS]
    if not unsure:
        return
    asked = subprocess.run(
        [sys.executable, "-c", _ASK, *unsure],
        env=conduct.environment_of(plans[-1]),
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode != 0:
        raise errors.wrong_compression(why=asked.stderr.strip().rpartition("\n")[2])
