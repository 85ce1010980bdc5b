"""Each rank of a failing job: trains until an event happens here or elsewhere.

    python failing_rank.py FOLDER

FOLDER has program.json. The rank writes notes into a file there, a line of JSON each, with the time on the
kernel's clock, which made hosts share: "begins", "trains" (past init()), and just before an event happens
"strikes" with its number.

These are the ranks of fixed jobs: they use the core without PyTorch, because a job must start quickly. Ranks
of elastic jobs are in failing_worker.py.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from failure_programs import AT_ANY_INSTANT

FLOAT32, SUM = 6, 1
LONGEST = 150.0  # seconds after which a rank without an event gives up
GIVEN_UP, WRONG_SUM = 98, 97  # exit codes
BURST = 200  # lines


class Deeds:
    """The actions of a rank against itself, by the names of events. Other events come from outside."""

    def killed(self, _: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def segfault(self, _: int) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def stopped(self, _: int) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def os_exit(self, code: int) -> None:
        os._exit(code)

    os_exit_0 = os_exit

    def sys_exit(self, code: int) -> None:
        sys.exit(code)

    sys_exit_0 = sys_exit

    def exception(self, _: int) -> None:
        raise RuntimeError("the loss is not finite")

    def exception_like_a_loss(self, _: int) -> None:
        raise RuntimeError("Connection closed by peer: of a database of the script's own")

    def internal_error(self, _: int) -> None:
        from horovod.common.exceptions import HorovodInternalError

        raise HorovodInternalError("raised by the function itself")

    def rank_disk_full(self, _: int) -> None:
        Path("/dev/full").write_bytes(bytes(100_000))

    def rank_pipe_closed(self, _: int) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        os.write(writer, b"to nobody")


class Striker:
    """Strikes its own rank at the time in the program."""

    def __init__(self, folder: Path, program: dict[str, Any], rank: int, note: Callable[..., None]) -> None:
        self.folder, self.note = folder, note
        self.events: list[dict[str, Any]] = program["events"]
        self.mine = [(n, event) for n, event in enumerate(self.events) if event["rank"] == rank]
        self.training = threading.Event()
        self.submitted = threading.Event()  # the allreduce during which an event happens
        self.trained_from = float("inf")

    def strike(self, number: int) -> None:
        event = self.events[number]
        if deed := getattr(Deeds(), event["kind"], None):
            self.note("strikes", number=number)
            deed(event["code"])

    def start_threads(self) -> None:
        for number, event in self.mine:
            if self.has_thread(number, event):
                threading.Thread(target=self.at_any_instant, args=(number, event), daemon=True).start()

    def has_thread(self, number: int, event: dict[str, Any]) -> bool:
        """Return whether a thread causes the event. An event before a certain step is the main thread's."""
        return number > 0 or (event["kind"] in AT_ANY_INSTANT and event["moment"]["phase"] != "step")

    def at_any_instant(self, number: int, event: dict[str, Any]) -> None:
        """In a thread: wait for the moment, then strike."""
        moment = event["moment"]
        if number > 0:
            while not self.first_has_struck():
                time.sleep(0.005)
            time.sleep(event["gap"])
        else:
            if moment["phase"] != "starting":
                (self.training if moment["phase"] == "training" else self.submitted).wait()
            time.sleep(moment["seconds"])
        self.strike(number)

    def first_has_struck(self) -> bool:
        return any('"number": 0' in path.read_text() for path in self.folder.glob("worker-*.jsonl"))

    def trains(self) -> None:
        self.note("trains")
        self.trained_from = time.monotonic()
        self.training.set()

    def by_the_script(self, phase: str, step: int = 0) -> None:
        """Between two statements of the script: strike if it is time."""
        for number, event in self.mine:
            moment = event["moment"]
            if moment["phase"] != phase or self.has_thread(number, event):
                continue
            if phase == "starting":
                time.sleep(moment["seconds"])
            if phase == "training" and time.monotonic() < self.trained_from + moment["seconds"]:
                continue
            if step >= moment["step"]:
                self.strike(number)

    def at(self, point: str, step: int) -> None:
        """Strike at a point of an elastic job's training, unless it happened before all ranks restarted."""
        for number, event in self.mine:
            moment, mark = event["moment"], self.folder / f"struck-{number}"
            is_now = step >= moment["step"] if point == "reset" else step == moment["step"]
            if moment["phase"] == point and is_now and not mark.exists():
                mark.touch()
                self.strike(number)


class FixedRank:
    def __init__(self, folder: Path, program: dict[str, Any]) -> None:
        self.folder, self.program = folder, program
        self.rank = int(os.environ["HOROVOD_RANK"])
        self.began = time.monotonic()
        self.notes = os.open(folder / f"worker-{self.rank}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.striker = Striker(folder, program, self.rank, self.note)

    def note(self, what: str, **more: Any) -> None:
        os.write(self.notes, json.dumps({"what": what, "at": time.monotonic(), **more}).encode() + b"\n")

    def run(self) -> None:
        self.note("begins")
        self.striker.start_threads()
        self.striker.by_the_script("starting")
        self.train()

    def train(self) -> None:
        import numpy as np

        from horovod import _native as native
        from horovod.common import waiting
        from horovod.common.basics import basics

        basics.init()
        engine, size, striker = basics.member().engine, basics.size(), self.striker
        striker.trains()
        gradients = [np.empty(count, np.float32) for count in self.program["sizes"]]
        codec = native.codec_named(self.program["codec"]) if self.program["codec"] else None
        reduction = native.Reduction(SUM, codec=codec)
        for used in (*gradients, reduction):
            # Never freed: operations in flight when an exception ends the script use it until the very end.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(used))
        step = 0
        while time.monotonic() < self.began + LONGEST:
            striker.by_the_script("training")
            striker.by_the_script("step", step)
            which = step % len(gradients)
            gradient = gradients[which]
            gradient.fill(self.rank + 1)
            tensor = native.Tensor(gradient.ctypes.data, gradient.ctypes.data, [gradient.size], FLOAT32)
            handle = engine.allreduce(f"gradient.{which}", [tensor], reduction)
            if any(e["moment"]["phase"] == "inside" and step >= e["moment"]["step"] for _, e in striker.mine):
                striker.submitted.set()
                striker.by_the_script("inside", step)
            waiting.wait(engine, handle)
            if codec is None and gradient[-1] != size * (size + 1) / 2:
                print(f"step {step}: the sum is {gradient[-1]}", file=sys.stderr, flush=True)
                os._exit(WRONG_SUM)
            self.end_of_step(step, gradient.data)
            step += 1
        os._exit(GIVEN_UP)

    def end_of_step(self, step: int, gradient: memoryview) -> None:
        """Do the other work of a script: print lines, sometimes many, and write rank 0's checkpoint."""
        print(f"step {step} of rank {self.rank}", flush=True)
        every = self.program["burst_every"]
        if every and step % every == every - 1:
            print(f"{'progress ' * 10}\n" * BURST, end="", flush=True)
        every = self.program["checkpoint_every"]
        if every and self.rank == 0 and step % every == every - 1:
            (self.folder / "checkpoint").write_bytes(gradient[:1_000_000])
        time.sleep(0.01)


def run(folder: Path) -> None:
    program: dict[str, Any] = json.loads((folder / "program.json").read_text())
    if program["kind"] == "fixed":
        FixedRank(folder, program).run()
        return
    import failing_worker  # which imports PyTorch

    failing_worker.run(program)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
