"""Carries the messages of reductions between GPUs: everything is put on a stream, and no thread is needed."""

from __future__ import annotations

import torch

from horovod.torch import devices
from horovod.torch.ddp.agreement import RanksDisagree
from horovod.torch.ddp.exchange import Exchange, Operation
from horovod.torch.ddp.groups import OwnGroups

__all__ = ["StreamCourier"]


class StreamCourier:
    """For tensors of one GPU. As HostCourier, but `start` carries operations out, on a stream of their own
    beside the caller's, so that they overlap with what the caller does next.

    A future is done when the work is on the stream; whoever waits for it goes on behind.
    """

    is_idle = True  # nothing of the host is under way

    def __init__(self, groups: OwnGroups, device: int) -> None:
        self._groups = groups
        self._device = device
        self._origin = devices.Origin.beside(device)
        self._failure: Exception | None = None

    def start(self, operation: Operation) -> torch.futures.Future[None]:
        """See HostCourier. Raises what an operation has failed with before."""
        if self._failure is not None:
            raise self._failure
        self._origin.wait_for_caller()
        with self._origin.resumed():
            try:
                for exchange in operation:
                    for step in range(exchange.steps):
                        self._carry(exchange, step)
            except Exception as error:
                if not isinstance(error, RanksDisagree):
                    self._failure = error
                    self._groups.close()
                return devices.future_with(error)
            return devices.done_future(self._device)

    def close(self) -> None:
        """Wait for what is on the stream, then let go of the groups."""
        self._origin.synchronize()
        self._groups.close()

    def _carry(self, exchange: Exchange, step: int) -> None:
        """Put a step on the current stream."""
        size = self._groups.size
        messages = self._buffer(size if exchange.is_scattered else 1, exchange.message_bytes)
        exchange.pack(list(messages), step)
        arrived = self._buffer(size, exchange.message_bytes)
        if messages.numel():
            give = self._groups.give_each if exchange.is_scattered else self._groups.give_all
            give(arrived.view(-1), messages.view(-1)).wait()
        result = self._buffer(1, exchange.result_bytes)[0]
        exchange.reduce(list(arrived), result, step)
        if exchange.result_bytes:
            results = self._buffer(size, exchange.result_bytes)
            self._groups.give_all(results.view(-1), result).wait()
            exchange.unpack(list(results), step)

    def _buffer(self, messages: int, nbytes: int) -> torch.Tensor:
        device = devices.torch_device(self._device)
        return torch.empty(messages, nbytes, dtype=torch.uint8, device=device)
