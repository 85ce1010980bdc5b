"""`horovodrun --topology`, also `python -m horovod.topology`: draws a topology, and explains it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from horovod.common.basics import basics
from horovod.runner.errors import LaunchError
from horovod.runner.streams import say
from horovod.topology import job, routes, svg, text
from horovod.topology.facts import Host


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the drawing, the links and the routes. Returns the exit code."""
    try:
        options = job.options_of(sys.argv[1:] if arguments is None else arguments)
        options, remark = job.with_ranks(options)
        hosts, ranks, note = routes.topology_of(options)
    except LaunchError as error:
        say(str(error))
        return 2
    except RuntimeError as error:
        say(str(error))
        return 1
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `--topology | head` is not an error
    chosen = routes.routes(ranks)
    remarks = [f"{line}\n\n" for line in (remark, note, _about_gpus(hosts)) if line]
    whole = "".join(remarks) + text.drawing(hosts, ranks) + "\n" + text.explanation(ranks, chosen)
    has_boxes = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(whole if has_boxes else text.plain(whole), end="")
    return _write(options.get("topology_file"), svg.drawing(hosts, ranks, chosen))


def _about_gpus(hosts: Sequence[Host]) -> str:
    if basics.cuda_built() or not any(host.gpus for host in hosts):
        return ""
    return "This build serves no tensors on GPUs: their links play no part in the routes below."


def _write(path: str | None, drawing: str) -> int:
    if path is None:
        return 0
    try:
        Path(path).write_text(drawing, encoding="utf-8")
    except OSError as error:
        say(f"the drawing cannot be written: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
