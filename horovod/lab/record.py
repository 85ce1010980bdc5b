"""Writes the log by which your own script takes part in the lab; docs/lab.md has a complete example.

    recorder = Recorder(args.log_file, dataset="spirals", seed=args.seed, steps=len(loader))
    ...
    recorder.step(loss)                    # a training step is over
    recorder.epoch(test_loss, accuracy)    # the model was tested after an epoch
    recorder.finish(model)                 # all epochs are over

Every rank makes a Recorder, after hvd.init() if it uses Horovod. Only rank 0 writes; without a file no rank
does.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any, TextIO

from horovod.common.basics import basics

# The counters of hvd.metrics() that the log records, for a step and for the run.
_WAITED, _SENT = "blocked_microseconds", "wire_bytes"
_NOTHING = {_WAITED: 0, _SENT: 0}


class Recorder:
    """Times training steps.

    A step lasts from the end of the previous one, from the constructor, or from `epoch`.

    Args:
        path: the log, or None.
        dataset: the data's name.
        seed: of the run.
        steps: in each epoch, of this rank.
    """

    def __init__(self, path: str | None, *, dataset: str, seed: int, steps: int) -> None:
        self._ranks = basics.size() if basics.is_initialized() else 1
        self._steps = steps
        self._facts = {
            "dataset": dataset,
            "compression": os.environ.get("HOROVOD_COMPRESSION", "").strip() or "none",
            "ranks": self._ranks,
            "seed": seed,
        }
        speaks = not basics.is_initialized() or basics.rank() == 0
        self._log: TextIO | None = None
        if path is not None and speaks:
            self._log = Path(path).open("w", buffering=1)  # noqa: SIM115 - closed by finish()
        self._records_at_all = path is not None
        self._epoch, self._step = 1, 0
        self._tested: dict[str, float] = {}
        self._traffic = dict(_NOTHING)
        self._restart()

    def _restart(self) -> None:
        self._began, self._before = time.perf_counter(), self._counters()

    def _counters(self) -> dict[str, int]:
        if not (self._records_at_all and basics.is_initialized()):
            return _NOTHING
        counters = basics.metrics()
        return {name: counters[name] for name in _NOTHING}

    def step(self, loss: Any) -> None:
        """Record the end of a step. loss: this rank's, a number or a tensor with one element."""
        value = float(loss.detach() if hasattr(loss, "detach") else loss)  # on a GPU this waits for the step
        seconds, now = time.perf_counter() - self._began, self._counters()
        spent = {name: now[name] - self._before[name] for name in now}
        self._traffic = {name: self._traffic[name] + spent[name] for name in spent}
        self._step += 1
        counted = {"step": self._step, "steps": self._steps}
        self._write("step", **counted, seconds=seconds, wait_seconds=spent[_WAITED] / 1e6, loss=value)
        self._restart()

    def epoch(self, loss: float, accuracy: float) -> None:
        """Record the end of an epoch. loss, accuracy (0 to 1): of the model on test data."""
        self._tested = {"loss": float(loss), "accuracy": float(accuracy)}
        self._write("epoch", **self._tested)
        self._epoch, self._step = self._epoch + 1, 0
        self._restart()

    def finish(self, model: Any) -> None:
        """Record the end of the run. Collective, as ranks compare their models. model: a torch.nn.Module."""
        if not self._records_at_all:
            return
        checksums = [_checksum(model)]
        if self._ranks > 1:
            import horovod.torch as hvd

            checksums = hvd.allgather_object(checksums[0])
        self._epoch -= 1
        self._write(
            "final",
            **self._tested,
            checksum=checksums[0],
            identical=len(set(checksums)) == 1,
            bytes_sent=self._traffic[_SENT],
        )
        if self._log is not None:
            self._log.close()

    def _write(self, event: str, **values: Any) -> None:
        if self._log is not None:
            record = {"event": event, **self._facts, "epoch": self._epoch, **values}
            self._log.write(json.dumps(record) + "\n")


def _checksum(model: Any) -> str:
    """SHA-256 over all parameters, bit by bit.

    Without buffers: running statistics of batch normalisation differ between ranks.
    """
    import torch

    digest = hashlib.sha256()
    for name, tensor in model.named_parameters():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
