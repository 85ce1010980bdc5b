"""For Lightning: a strategy that trains over Horovod's interface, and a callback for Lightning's own DDP.

    Trainer(strategy=HorovodStrategy(compression="bit8"))           # horovodrun, or python alone
    Trainer(strategy="ddp", callbacks=[CompressGradients("bit8")])  # horovodrun --ddp, or torchrun

docs/lightning.md has complete examples. No other module of this package imports this module, or Lightning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from lightning.fabric.plugins import ClusterEnvironment
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import ParallelStrategy
from lightning.pytorch.trainer.states import TrainerFn

import horovod.torch as hvd
from horovod.torch import ddp, errors
from horovod.torch.compression import UNSET

__all__ = ["CompressGradients", "HorovodEnvironment", "HorovodStrategy"]

_OPERATIONS = {
    "mean": hvd.Average, "avg": hvd.Average, "sum": hvd.Sum, "min": hvd.Min, "max": hvd.Max,
    "product": hvd.Product,
}  # fmt: skip


class HorovodEnvironment(ClusterEnvironment):
    """Gives Lightning each process's ranks from Horovod. Needs hvd.init() before."""

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        raise errors.no_meeting(what="address")

    @property
    def main_port(self) -> int:
        raise errors.no_meeting(what="port")

    @staticmethod
    def detect() -> bool:
        """Return False: only HorovodStrategy chooses this class, never Lightning's detection."""
        return False

    def world_size(self) -> int:
        return hvd.size()

    def set_world_size(self, size: int) -> None:
        """Do nothing: the launcher fixes the size. Lightning calls this for its own launchers."""

    def global_rank(self) -> int:
        return hvd.rank()

    def set_global_rank(self, rank: int) -> None:
        """Do nothing, as set_world_size."""

    def local_rank(self) -> int:
        return hvd.local_rank()

    def node_rank(self) -> int:
        return hvd.cross_rank()


class HorovodStrategy(ParallelStrategy):
    """Makes each optimizer an hvd.DistributedOptimizer. Ranks begin with rank 0's parameters.

    Calls hvd.init() if needed. Accumulates as many batches as the Trainer does.

    Args:
        compression, op and further options: those of hvd.DistributedOptimizer, except ``named_parameters``.
        ``backward_passes_per_step`` is for manual optimization only: the number of ``manual_backward()``
        before a step. In automatic optimization it is the Trainer's ``accumulate_grad_batches``.

    Raises:
        TypeError: an option that the strategy sets itself.
        ValueError: op is Adasum, or this host has fewer GPUs than ranks.
    """

    strategy_name = "horovod"
    # types of Lightning's properties
    model: Any
    optimizers: Any
    parallel_devices: list[torch.device] | None

    def __init__(self, compression: Any = UNSET, *, op: int = hvd.Average, **options: Any) -> None:
        if "named_parameters" in options:
            raise errors.named_by_strategy()
        if op == hvd.Adasum:
            raise errors.adasum_strategy()
        if not hvd.is_initialized():
            hvd.init()
        super().__init__(cluster_environment=HorovodEnvironment())
        rank_zero_only.rank = hvd.rank()  # Lightning's loggers and messages read it
        self._passes: int | None = options.pop("backward_passes_per_step", None)
        self._options = {"compression": compression, "op": op, **options}
        self._made: list[torch.optim.Optimizer] = []  # the optimizers that configure_optimizers() made

    # ---- ranks and devices ----

    @property
    def is_distributed(self) -> bool:
        """Lightning asks before it gives loaders a DistributedSampler."""
        return hvd.size() > 1

    @property
    def root_device(self) -> torch.device:
        assert self.parallel_devices
        return self.parallel_devices[hvd.local_rank() % len(self.parallel_devices)]

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        return {"num_replicas": hvd.size(), "rank": hvd.rank()}

    # ---- training ----

    def setup_environment(self) -> None:
        devices = self.parallel_devices or []
        if devices and devices[0].type != "cpu" and len(devices) < hvd.local_size():
            raise errors.shared_devices(local=hvd.local_size(), devices=len(devices))
        super().setup_environment()

    def model_to_device(self) -> None:
        self.model.to(self.root_device)

    def setup(self, trainer: Any) -> None:
        if self._layer_sync is not None and trainer.state.fn == TrainerFn.FITTING:  # sync_batchnorm=True
            self.model = hvd.SyncBatchNorm.convert_sync_batchnorm(self.model)
        super().setup(trainer)
        tensors = {n: t for n, t in self.model.state_dict().items() if isinstance(t, torch.Tensor)}
        hvd.broadcast_parameters(tensors, root_rank=0)

    def setup_optimizers(self, trainer: Any) -> None:
        super().setup_optimizers(trainer)
        self._made = list(self.optimizers)
        if self._passes is not None and self.lightning_module.automatic_optimization:
            raise errors.automatic_passes()
        passes = self._passes or trainer.accumulate_grad_batches
        self.optimizers = [self._distributed(each, passes) for each in self.optimizers]

    def _distributed(self, optimizer: torch.optim.Optimizer, passes: int) -> torch.optim.Optimizer:
        own = {parameter for group in optimizer.param_groups for parameter in group["params"]}
        names = [(name, p) for name, p in self.lightning_module.named_parameters() if p in own]
        if not names:  # Lightning's stand-in if configure_optimizers() returns None
            return optimizer
        return hvd.DistributedOptimizer(optimizer, names, backward_passes_per_step=passes, **self._options)

    def on_train_start(self) -> None:
        """Broadcast optimizer state. A checkpoint, if any, has been loaded by now."""
        for optimizer in filter(_is_distributed, self.optimizers):
            if not isinstance(optimizer, torch.optim.LBFGS):  # broadcasting its state is refused
                hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=self.lightning_module)
            optimizer.zero_grad()
        # Schedulers write rates into the optimizers of configure_optimizers(), which no longer share groups
        # with the wrapped ones after a checkpoint was loaded.
        for made, wrapped in zip(self._made, self.optimizers, strict=True):
            made.__dict__.update(state=wrapped.state, param_groups=wrapped.param_groups)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Follow Lightning's GradientAccumulationScheduler, which may change the number."""
        if not self.lightning_module.automatic_optimization:
            return
        passes = self.lightning_module.trainer.accumulate_grad_batches
        for optimizer in filter(_is_distributed, self.optimizers):
            if optimizer.backward_passes_per_step != passes:
                optimizer.set_backward_passes_per_step(passes)

    def optimizer_step(
        self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **arguments: Any
    ) -> Any:
        """Reduce gradients that no hook has started, as in the last batches of an epoch.

        This happens after the backward pass in ``closure``, and before Lightning unscales and clips them.
        """
        if not _is_distributed(optimizer):
            return super().optimizer_step(optimizer, closure, model, **arguments)
        # it reduces the loss together with the gradients
        decides_by_loss = isinstance(optimizer, torch.optim.LBFGS)

        def closure_and_synchronize() -> Any:
            loss = closure()
            if not decides_by_loss:
                optimizer.synchronize()
            return loss

        with optimizer.skip_synchronize():
            return super().optimizer_step(optimizer, closure_and_synchronize, model, **arguments)

    # ---- checkpoints ----

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """Return the state, on rank 0 with all error feedback. Lightning calls it on all ranks."""
        optimizer = getattr(optimizer, "optimizer", optimizer)  # unwraps a LightningOptimizer
        if _is_distributed(optimizer):
            optimizer.consolidate_residuals(to=0)
        return dict(optimizer.state_dict())

    # ---- collectives ----

    def barrier(self, name: str | None = None) -> None:
        hvd.barrier()

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        return hvd.broadcast_object(obj, root_rank=src)

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Reduce a tensor over all ranks; return any other value unchanged. ValueError for another group."""
        _refuse_group(group)
        if not isinstance(tensor, torch.Tensor):
            return tensor
        name = str(getattr(reduce_op, "name", reduce_op) or "mean").rpartition(".")[2].lower()
        if name not in _OPERATIONS:
            raise errors.no_strategy_reduction(value=str(reduce_op), allowed=list(_OPERATIONS))
        if name in ("mean", "avg") and not tensor.is_floating_point():
            tensor = tensor.float()
        return hvd.allreduce(tensor, op=_OPERATIONS[name])

    def all_gather(self, tensor: torch.Tensor, group: Any = None, sync_grads: bool = False) -> torch.Tensor:
        """Return every rank's tensor, stacked in the order of ranks: shape (ranks, *tensor.shape).

        With ``sync_grads`` the gradient is the sum of all ranks' gradients.
        """
        _refuse_group(group)
        with torch.set_grad_enabled(sync_grads and torch.is_grad_enabled()):
            gathered = hvd.allgather(tensor.unsqueeze(0))
        if gathered.requires_grad:  # Lightning expects the gradients' sum, hvd.allgather averages
            cast(Any, gathered).register_hook(lambda gradient: gradient * hvd.size())
        return gathered


class CompressGradients(Callback):
    """Applies ddp.compress() when fit starts, for ``Trainer(strategy="ddp")``, and saves its state."""

    def __init__(self, compression: Any = UNSET, **options: Any) -> None:
        self._compression, self._options = compression, options
        self._loaded: Any = None
        self.state: ddp.CompressionState | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self.state is not None:
            self.state.close()
        self.state = ddp.compress(trainer.model, self._compression, **self._options)
        loaded, self._loaded = self._loaded, None  # for this fit only
        if loaded is not None:
            self.state.load_state_dict(loaded)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """All ranks call it; Lightning writes rank 0's."""
        if self.state is not None:
            self.state.consolidate_residuals(to=0)
            checkpoint["horovod"] = self.state.state_dict()

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self._loaded = checkpoint.get("horovod")


def _is_distributed(optimizer: Any) -> bool:
    return hasattr(optimizer, "skip_synchronize")


def _refuse_group(group: Any) -> None:
    if group is not None and group is not torch.distributed.group.WORLD:
        raise errors.other_group(value=repr(group))
