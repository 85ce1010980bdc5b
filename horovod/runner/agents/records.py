"""Records on a wrapper's standard output: the rank's output and state.

    record := a frame (see `frames`) of this kind; the body is output or a report
    kind   := "O" (standard output) | "E" (standard error) | "R" (report) | "V" (value: see `function_rank`)
    report := "started" host pid | "ended" code told | "killed" signal told | "refused" code reason...
            | "note" note | "busy" | "stopped" signal | "continued"

`told` is 1 if this rank was asked to end (SIGTERM and the like) before it ended: then it is not the culprit.
`note`: written by the rank itself, see `horovod.common.notes`. `stopped`: by SIGSTOP or the like. `busy`: a
rank that has left the job uses the processor.

Standard library only and few imports, as `wrapper`.
"""

from __future__ import annotations

from horovod.runner.agents.frames import Splitter

OUTPUT, ERROR, REPORT, VALUE = b"O", b"E", b"R", b"V"


class RecordParser(Splitter):
    """Parses the output of one wrapper."""

    def __init__(self) -> None:
        super().__init__((OUTPUT, ERROR, REPORT, VALUE))
