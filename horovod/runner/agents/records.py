"""Records on a rank wrapper's standard output: the rank's own output, and its state.

    record := a frame (see `frames`) of this kind, whose body is what was written, or a report
    kind   := "O" (standard output) | "E" (standard error) | "R" (report) | "V" (value: see `function_rank`)
    report := "started" host pid | "ended" code told | "killed" signal told | "refused" code reason...
            | "note" note | "busy" | "stopped" signal | "continued"

`told` is 1 when this rank had been told to end (SIGTERM and the like) before it did: then it is not the
culprit. `note`: the rank's own words, see `horovod.common.notes`. `stopped`: by SIGSTOP or the like. `busy`:
a rank that has left the job uses the processor.

Standard library only and few imports, as `wrapper`.
"""

from __future__ import annotations

from horovod.runner.agents.frames import Splitter

OUTPUT, ERROR, REPORT, VALUE = b"O", b"E", b"R", b"V"


class RecordParser(Splitter):
    """Of what came from one wrapper."""

    def __init__(self) -> None:
        super().__init__((OUTPUT, ERROR, REPORT, VALUE))
