"""Give a parser one input again, or many: python test/fuzz/replay.py "lab log" 4711

Without a number it repeats the input that the last run had begun when its process died. --hex gives other
bytes.
"""

from __future__ import annotations

import argparse
import faulthandler

import campaign
from targets import TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("number", type=int, nargs="?")
    parser.add_argument("--seed", type=int, default=campaign.SEED)
    parser.add_argument("--count", type=int, default=1, help="as many, from that number on")
    parser.add_argument("--hex", help="these bytes instead")
    options = parser.parse_args()
    faulthandler.enable()
    target = TARGETS[options.target]
    if options.hex is not None:
        print("taken" if campaign.check(target, bytes.fromhex(options.hex), "given by --hex") else "refused")
        return
    seed, number = options.seed, options.number
    if number is None:
        begun = campaign.last_begun(target.name)
        if begun is None:
            parser.error("no run has begun an input of it; give a number")
        seed, number = begun
    if options.count == 1:
        print(f"seed {seed}, number {number}: {target.input(number, seed)!r}", flush=True)
    taken = campaign.run(target, options.count, seed, number)
    print(f"{taken} taken, {options.count - taken} refused")


if __name__ == "__main__":
    main()
