"""The thread that waits for a reducer's operations, one after the other, and completes their futures.

DDP waits for these futures. Further steps of compressors in Python run in this thread too.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable, Sequence

import torch

from horovod.common import jobs
from horovod.common.exceptions import HorovodInternalError
from horovod.common.exits import ended_at_exit
from horovod.torch import devices, handles
from horovod.torch.ddp import errors, group_job

SLICE = 0.1  # seconds between two checks whether the process ends
_EXIT_SECONDS = 10.0


class CompletionThread(threading.Thread):
    """Completes futures for one job, and leaves the job in the end. Thread-safe.

    Attributes:
        failure: an error of this rank alone, such as a compressor's. This rank then leaves the job, so that
            the others do not wait for it.
    """

    def __init__(self, job: jobs.Job) -> None:
        super().__init__(name="horovod-ddp-completion", daemon=True)
        self._job = job
        # each returns whether the thread continues
        self._work: queue.SimpleQueue[Callable[[], bool]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._left = 0  # guarded by _lock
        self.failure: Exception | None = None
        self._is_ending = False
        _running.add(self)
        self.start()

    @property
    def is_idle(self) -> bool:
        """Whether no operation is under way."""
        with self._lock:
            return self._left == 0

    def complete(
        self,
        started: Sequence[int],
        origin: devices.Origin,
        future: torch.futures.Future[None],
        is_inference: bool,
    ) -> None:
        """Complete a future when operations (handles) are done, with their first error if any fails."""

        def wait() -> bool:
            # Tensors made in inference mode may be written to in that mode only.
            mode = torch.inference_mode() if is_inference else torch.no_grad()
            error: Exception | None = None
            try:
                with self._job.entered(), mode, origin.resumed():
                    self._wait_for(started)
            except HorovodInternalError as of_all:
                error = self.failure or of_all
            except BaseException as own:
                error = self.fail(own)
            with self._lock:
                self._left -= 1
            if error is None:
                with origin.resumed():
                    future.set_result(None)
            else:
                future.set_exception(error)  # type: ignore[arg-type]
            return True

        with self._lock:
            self._left += 1
        self._work.put(wait)

    def fail(self, error: BaseException) -> Exception:
        """Note an error of this rank alone, and leave the job. Return it for a future.

        No future accepts a SystemExit, for instance, so that becomes a RuntimeError.
        """
        failure = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
        with self._lock:
            if self.failure is None:
                self.failure = failure
                self._work.put(functools.partial(_left, self._job, goes_on=True))
        return failure

    def close_soon(self) -> None:
        """Make the thread leave the job and end after the operations under way."""
        self._work.put(functools.partial(_left, self._job, goes_on=False))

    def close(self) -> None:
        self.close_soon()
        self.join()

    def end(self) -> None:
        """End the thread at once, as the process ends, without leaving the job."""
        self._is_ending = True
        self._work.put(lambda: False)
        self.join(_EXIT_SECONDS)

    def _wait_for(self, started: Sequence[int]) -> None:
        for handle in started:
            while not handles.is_done_within(handle, SLICE):
                if self._is_ending:
                    raise errors.ending()
        handles.complete_all(started)

    def run(self) -> None:
        while self._work.get()():  # no variable refers to the work while the queue is empty
            pass


def _left(job: jobs.Job, goes_on: bool) -> bool:
    group_job.leave(job)
    return goes_on


# A thread that waits in the core would notice the interpreter's end too late.
_running = ended_at_exit(CompletionThread.end)
