"""Each rank of an elastic job: the training of survival/worker.py, which an event strikes at its points."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from failing_rank import Striker

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from survival import worker
from survival.worker import hvd, torch

from horovod.common.agent_channel import AgentChannel
from horovod.common.agent_messages import Place

BULK = 8 << 20  # elements of the tensor in transfer when a worker dies
_rename = os.rename


class ElasticRank(worker.Worker):
    """way: a DistributedOptimizer; or DDP: "plain" and "compress" over gloo, "backend" over horovod's."""

    def __init__(self, program: dict[str, Any]) -> None:
        self.epochs, self.way, self.events = program["epochs"], program["way"], program["events"]
        self.striker = Striker(worker.FOLDER, program, worker.START_RANK, worker.note)
        self.meet_or_die()
        super().__init__()
        self.adapt()
        if program["resume"]:
            self.resume(program["resume"])

    def new_optimizer(self) -> Any:
        return torch.optim.Adam(self.model.parameters()) if self.way else super().new_optimizer()

    def new_state(self, **parts: Any) -> Any:
        state = State(self.striker, **parts)
        state.register_reset_callbacks([self.adapt])
        return state

    def adapt(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = 0.01 * hvd.size()

    def at(self, point: str) -> None:
        self.striker.at(point, self.state.step)
        if point == "idle":
            self.die_while_others_wait()

    def meet_or_die(self) -> None:
        """Strike after the launcher has assigned a place, and before other ranks know it."""
        assigned = AgentChannel.assign

        def assign_or_die(channel: AgentChannel) -> Place:
            place = assigned(channel)
            self.striker.at("meeting", 0)
            return place

        AgentChannel.assign = assign_or_die  # type: ignore[method-assign]

    def die_while_others_wait(self) -> None:
        """Die in the middle of an allreduce that the others take part in."""
        for point, size in (("negotiation", 10), ("bulk", BULK)):
            moments = [event["moment"] for event in self.events]
            if any(m["phase"] == point and m["step"] == self.state.step for m in moments):
                handle = hvd.allreduce_async(torch.ones(size), name=point, op=hvd.Sum)
                time.sleep(0.004 if point == "bulk" else 0)
                self.striker.at(point, self.state.step)
                hvd.synchronize(handle)

    def train(self, state: Any) -> None:
        super().train(state)
        print(f"<{worker.HOST} ends as {hvd.rank()} of {hvd.size()}>", flush=True)

    def begins(self, **place: Any) -> None:
        """Note the beginning; the state that is kept is for the undisturbed job."""
        kept = worker.FOLDER / f"began-{os.getpid()}-{time.monotonic_ns()}.pt"
        if hvd.rank() == 0:
            parts = {name: part.state_dict() for name, part in self.parts.items()}
            torch.save({**parts, "step": self.state.step, "epoch": self.state.epoch}, kept)
        commits = os.environ.get("HOROVOD_COMMITS_FOLDER", "")
        super().begins(**place, kept=str(kept), commits=commits)
        if self.way:
            self.net = self.in_a_new_group()

    def in_a_new_group(self) -> torch.nn.Module:
        from horovod.torch import ddp

        hvd.elastic.init_process_group("horovod" if self.way == "backend" else "gloo")
        net = torch.nn.parallel.DistributedDataParallel(self.model)
        assert torch.distributed.get_world_size() == hvd.size()
        assert torch.distributed.get_rank() == hvd.rank()
        if self.way == "compress":
            ddp.compress(net, "bit8")
        return net

    def resume(self, path: str) -> None:
        """Continue from a state that a job kept, as a job that begins with this number of ranks."""
        found = torch.load(path, weights_only=False)
        for name, part in self.parts.items():
            part.load_state_dict(found[name])
        self.adapt()
        self.state.step, self.state.epoch = found["step"], found["epoch"]
        self.state.save()


class State(hvd.elastic.TorchState):
    def __init__(self, striker: Striker, **parts: Any) -> None:
        self.__dict__["_striker"] = striker  # not part of the state
        super().__init__(**parts)

    def _content(self) -> dict[str, Any]:
        """Strike in the middle of a commit: parts are copied, and not yet kept."""
        content = super()._content()
        self._striker.at("commit", content["objects"].get("step", 0))
        return content


def note_a_line() -> None:
    """Note a line of standard input: the first rank 0 has it, and others find its end.

    The read holds no lock of sys.stdin: this thread may still wait in it when the process ends.
    """
    worker.note("reads", line=os.read(0, 1000).decode())


def run(program: dict[str, Any]) -> None:
    threading.Thread(target=note_a_line, daemon=True).start()

    def rename_or_die(source: Any, target: Any) -> None:
        """Strike at the end of a commit's way to the memory of the host."""
        if str(source).endswith(".part"):
            rank.striker.at("kept", rank.state.step)
        _rename(source, target)

    os.rename = rename_or_die  # type: ignore[assignment]
    rank = ElasticRank(program)
    rank.run()
    if rank.way:
        torch.distributed.destroy_process_group()
