"""What each rank of a fault program runs: a loop of allreduces, until something goes wrong here or elsewhere.

    python faulty_rank.py FOLDER

FOLDER has program.json. The rank writes into FOLDER/R.notes, each with the time on the clock of the kernel,
which made hosts share: "begun", "training" (past init()), "struck N" just before fault number N.

It uses the core without PyTorch, as a job must start in a moment here.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

FLOAT32, SUM = 6, 1
LONGEST = 150.0  # seconds after which a rank to which nothing happens gives up
GIVEN_UP, WRONG_SUM = 98, 97  # exit codes
BURST = 200  # lines


class FaultyRank:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program: dict[str, Any] = json.loads((folder / "program.json").read_text())
        self.rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
        self.began = time.monotonic()
        self.notes = os.open(folder / f"{self.rank}.notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.training = threading.Event()
        self.submitted = threading.Event()  # the allreduce that a fault is to fall into
        self.trained_from = float("inf")

    def note(self, text: str) -> None:
        os.write(self.notes, f"{text} {time.monotonic()}\n".encode())

    def mine(self) -> list[tuple[int, dict[str, Any]]]:
        return [(n, fault) for n, fault in enumerate(self.program["faults"]) if fault["rank"] == self.rank]

    def strike(self, number: int, fault: dict[str, Any]) -> None:
        """Kinds that are none of a rank's happen to it from outside."""
        deed = getattr(self, fault["kind"], None)
        if deed is not None:
            self.note(f"struck {number}")
            deed(fault["code"])

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

    def rank_disk_full(self, _: int) -> None:
        Path("/dev/full").write_bytes(bytes(100_000))

    def rank_pipe_closed(self, _: int) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        os.write(writer, b"to nobody")

    def at_any_instant(self, number: int, fault: dict[str, Any]) -> None:
        """In a thread: wait for the moment."""
        moment = fault["moment"]
        if number > 0:
            while not self.first_has_struck():
                time.sleep(0.005)
            time.sleep(fault["gap"])
        elif moment["phase"] == "starting":
            time.sleep(moment["seconds"])
        else:
            (self.training if moment["phase"] == "training" else self.submitted).wait()
            time.sleep(moment["seconds"])
        self.strike(number, fault)

    def first_has_struck(self) -> bool:
        return any("struck 0 " in path.read_text() for path in self.folder.glob("*.notes"))

    def by_the_script(self, phase: str, step: int = 0) -> None:
        """Between two statements of the script: is it time?"""
        for number, fault in self.mine():
            moment = fault["moment"]
            if number > 0 or self.has_thread(number, fault) or moment["phase"] != phase:
                continue
            if phase == "starting":
                time.sleep(moment["seconds"])
            if phase == "training" and time.monotonic() < self.trained_from + moment["seconds"]:
                continue
            if step >= moment["step"]:
                self.strike(number, fault)

    def has_thread(self, number: int, fault: dict[str, Any]) -> bool:
        """A fault before a certain step is the main thread's, whatever kind it is."""
        at_once = fault["kind"] in ("killed", "segfault", "stopped", "os_exit", "os_exit_0")
        return number > 0 or (at_once and fault["moment"]["phase"] != "step")

    def run(self) -> None:
        self.note("begun")
        for number, fault in self.mine():
            if self.has_thread(number, fault):
                threading.Thread(target=self.at_any_instant, args=(number, fault), daemon=True).start()
        self.by_the_script("starting")
        self.train()

    def train(self) -> None:
        import numpy as np

        from horovod import _native as native
        from horovod.common import waiting
        from horovod.common.basics import basics

        basics.init()
        engine, size = basics.member().engine, basics.size()
        self.note("training")
        self.trained_from = time.monotonic()
        self.training.set()
        gradients = [np.empty(count, np.float32) for count in self.program["sizes"]]
        codec = native.codec_named(self.program["codec"]) if self.program["codec"] else None
        reduction = native.Reduction(SUM, codec=codec)
        for used in (*gradients, reduction):
            # Never freed: what is in flight when an exception ends the script is in use until the very end.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(used))
        step = 0
        while time.monotonic() < self.began + LONGEST:
            self.by_the_script("training")
            self.by_the_script("step", step)
            which = step % len(gradients)
            gradient = gradients[which]
            gradient.fill(self.rank + 1)
            tensor = native.Tensor(gradient.ctypes.data, gradient.ctypes.data, [gradient.size], FLOAT32)
            handle = engine.allreduce(f"gradient.{which}", [tensor], reduction)
            if any(f["moment"]["phase"] == "inside" and step >= f["moment"]["step"] for _, f in self.mine()):
                self.submitted.set()
                self.by_the_script("inside", step)
            waiting.wait(engine, handle)
            if codec is None and gradient[-1] != size * (size + 1) / 2:
                print(f"step {step}: the sum is {gradient[-1]}", file=sys.stderr, flush=True)
                os._exit(WRONG_SUM)
            self.end_of_step(step, gradient.data)
            step += 1
        os._exit(GIVEN_UP)

    def end_of_step(self, step: int, gradient: memoryview) -> None:
        """What a script does beside: words, sometimes many of them, and a checkpoint of rank 0's."""
        print(f"step {step} of rank {self.rank}", flush=True)
        every = self.program["burst_every"]
        if every and step % every == every - 1:
            print(f"{'progress ' * 10}\n" * BURST, end="", flush=True)
        every = self.program["checkpoint_every"]
        if every and self.rank == 0 and step % every == every - 1:
            (self.folder / "checkpoint").write_bytes(gradient[:1_000_000])
        time.sleep(0.01)


if __name__ == "__main__":
    this = FaultyRank(Path(sys.argv[1]))
    this.run()
