"""Broadcast of parameters, optimizer state and objects, so that ranks start alike; gather of objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

import cloudpickle  # type: ignore[import-untyped]
import torch

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.sentences import type_name
from horovod.torch import errors
from horovod.torch.checkpoint import Peers
from horovod.torch.handles import complete_all, synchronize
from horovod.torch.movements import broadcast_, broadcast_async_
from horovod.torch.requests import start_allgather, start_alltoall

__all__ = [
    "allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters", "can_travel",
    "parameters_of", "peers_in",
]  # fmt: skip

ROW = 1024  # bytes; pickles that differ by pair of ranks travel as rows, as the number of rows is an int32


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[torch.Tensor | tuple[str, torch.Tensor]], root_rank: int
) -> None:
    """Replace parameters on all ranks by those of ``root_rank``.

    Only values are replaced: each tensor keeps its strides. Models should have one memory format on all
    ranks, or their results may be rounded differently.

    Args:
        params: ``model.state_dict()``, or tensors or (name, tensor) pairs such as
            ``model.named_parameters()``.
        root_rank: the rank to take the values from.

    Raises:
        ValueError: params is none of these.
    """
    pairs = _named_tensors(params)
    complete_all([broadcast_async_(tensor, root_rank, name) for name, tensor in pairs])


def _named_tensors(params: Any) -> list[tuple[str | None, torch.Tensor]]:
    if isinstance(params, Mapping):
        pairs: list[Any] = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, torch.Tensor | str):
        pairs = [entry if isinstance(entry, tuple) else (None, entry) for entry in params]
    else:
        hint = "; give its state_dict()" if hasattr(params, "state_dict") else ""
        raise errors.no_named_tensors(got=type_name(params), hint=hint)
    for pair in pairs:
        if len(pair) != 2 or not isinstance(pair[1], torch.Tensor):
            raise errors.no_tensor_pair(got=repr(pair))
    return pairs


class _Slot(NamedTuple):
    """A placeholder in the pickled state for a tensor, which travels separately."""

    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype
    kind: str

    def empty(self, device: torch.device | str) -> torch.Tensor:
        """Return an uninitialized tensor with root's layout.

        In another layout a step may round differently, and ranks would drift apart.
        """
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Replace an optimizer's state and hyper-parameters on all ranks by those of ``root_rank``.

    Parameters are not changed. Other ranks get root's state, with root's strides, and lose any other state.
    As in Horovod, if an optimizer has no state, trainable parameters without gradient get zeros: sparse ones
    for SparseAdam, and for embeddings of ``model`` that were made with ``sparse=True``. If root has loaded a
    checkpoint with the error feedback of all ranks, each rank gets its own.

    Raises:
        ValueError: the optimizer is LBFGS, whose state does not belong to single parameters, or its parameter
            groups differ from root's.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise errors.lbfgs_state()
    if not optimizer.state:
        _give_zero_gradients(optimizer, model)
    is_root = basics.rank() == root_rank
    tensors: list[torch.Tensor] = []
    structure = _described_state(optimizer, tensors) if is_root else None
    reducer = getattr(optimizer, "_reducer", None)  # of a DistributedOptimizer
    parts = reducer.checkpoint.parts() if reducer is not None and is_root else {}
    structure, has_parts = broadcast_object((structure, bool(parts)), root_rank)
    if not is_root:
        structure = _with_tensors(structure, optimizer, tensors)
    base = type(optimizer).__name__
    complete_all([broadcast_async_(t, root_rank, f"{base}.state.{i}") for i, t in enumerate(tensors)])
    part = _exchanged(parts, "parts", global_process_set)[root_rank] if has_parts else None
    if not is_root:
        _install_state(optimizer, structure)
        if reducer is not None:
            reducer.checkpoint.take(part)


def _give_zero_gradients(optimizer: torch.optim.Optimizer, model: torch.nn.Module | None) -> None:
    embeddings = [] if model is None else [m for m in model.modules() if getattr(m, "sparse", False) is True]
    sparse = {weight for embedding in embeddings for weight in embedding.parameters(recurse=False)}
    is_all_sparse = isinstance(optimizer, torch.optim.SparseAdam)
    for parameter in parameters_of(optimizer):
        if parameter.requires_grad and parameter.grad is None:
            zeros = torch.zeros_like(parameter)
            parameter.grad = zeros.to_sparse(1) if is_all_sparse or parameter in sparse else zeros


def _writable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a copy if elements share memory (expanded tensors cannot be filled)."""
    return tensor if tensor.layout != torch.strided or _has_room(tensor) else tensor.contiguous()


def _has_room(tensor: torch.Tensor) -> bool:
    end = 0  # of the memory that the dimensions so far cover
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent > 1 and stride <= end:
            return False
        end += (extent - 1) * stride if extent > 1 else 0
    return True


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return all parameters of an optimizer, in the order of its groups."""
    return [parameter for entry in optimizer.param_groups for parameter in entry["params"]]


def _described_state(optimizer: torch.optim.Optimizer, tensors: list[torch.Tensor]) -> Any:
    """Return groups without parameters, and state by parameter number or other key.

    ``tensors`` gets the tensors, for which slots stand in the result.
    """
    groups = [{k: v for k, v in entry.items() if k != "params"} for entry in optimizer.param_groups]
    state = {i: optimizer.state[p] for i, p in enumerate(parameters_of(optimizer)) if p in optimizer.state}
    others = {key: s for key, s in optimizer.state.items() if not isinstance(key, torch.Tensor)}
    sizes = [len(entry["params"]) for entry in optimizer.param_groups]

    def slot_of(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        tensors.append(tensor := _writable(item.detach()))
        like = tensor if tensor.layout == torch.strided else torch.empty(tensor.shape, device="meta")
        return _Slot(tensor.shape, like.stride(), tensor.dtype, tensor.device.type)

    return _mapped(slot_of, {"sizes": sizes, "groups": groups, "state": state, "others": others})


def _with_tensors(structure: Any, optimizer: torch.optim.Optimizer, tensors: list[torch.Tensor]) -> Any:
    """Return the structure with new tensors in its slots. ``tensors`` gets them, in root's order."""
    # by kind ("cuda"), the device of this rank's parameters; root's number may differ
    own = {each.device.type: each.device for each in reversed(parameters_of(optimizer))}

    def tensor_for(item: Any) -> Any:
        if not isinstance(item, _Slot):
            return item
        tensors.append(item.empty(own.get(item.kind, item.kind)))
        return tensors[-1]

    return _mapped(tensor_for, structure)


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Return nested dicts, lists and tuples with the results of ``function`` for what is in them."""
    if isinstance(value, dict):
        return {key: _mapped(function, item) for key, item in value.items()}
    if isinstance(value, list) or type(value) is tuple:
        items = [_mapped(function, item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return function(value)


def _install_state(optimizer: torch.optim.Optimizer, structure: dict[str, Any]) -> None:
    """Set the state. load_state_dict would cast it to the parameters' dtype, unlike root's."""
    sizes = [len(entry["params"]) for entry in optimizer.param_groups]
    if sizes != structure["sizes"]:
        raise errors.other_parameter_groups(ranks=[basics.rank()], sizes=sizes, roots=structure["sizes"])
    for entry, values in zip(optimizer.param_groups, structure["groups"], strict=True):
        entry.update(values)
    parameters = parameters_of(optimizer)
    optimizer.state.clear()
    for number, state in structure["state"].items():
        optimizer.state[parameters[number]] = state
    optimizer.state.update(structure["others"])


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the ``obj`` of rank ``root_rank`` on every rank of the set. Other ranks' ``obj`` is ignored.

    ``root_rank`` is a rank of the job even with a process set. The object travels by cloudpickle. ValueError
    if this rank or root is not in the set.
    """
    name = name or f"object.{basics.member().next_unnamed(process_set)}"
    is_root = basics.rank() == root_rank
    data = _pickled(obj) if is_root else torch.empty(0, dtype=torch.uint8)
    length = broadcast_(torch.tensor([data.numel()], dtype=torch.int64), root_rank, f"{name}.sz", process_set)
    if not is_root:
        data = torch.empty(int(length.item()), dtype=torch.uint8)
    broadcast_(data, root_rank, f"{name}.t", process_set)
    return obj if is_root else cloudpickle.loads(data.numpy().tobytes())


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """Return every rank's ``obj``, in the order of ranks. Objects travel by cloudpickle."""
    sizes: list[list[int]] = [[]]
    name = name or f"object.{basics.member().next_unnamed(global_process_set)}"
    gathered = cast(
        torch.Tensor, synchronize(start_allgather([_pickled(obj)], name, global_process_set, sizes))
    )
    return [cloudpickle.loads(part.numpy().tobytes()) for part in torch.split(gathered, sizes[0])]


def can_travel(obj: Any) -> bool:
    """Return whether it can be pickled, to find the part of an object that cannot."""
    try:
        cloudpickle.dumps(obj)
    except Exception:  # any failure means no
        return False
    return True


def _pickled(obj: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(cloudpickle.dumps(obj)), dtype=torch.uint8)


def peers_in(process_set: ProcessSet) -> Peers:
    """Return the ranks of a process set, as peers of an optimizer's checkpoint."""

    def gathered(own: Any, at: int) -> list[Any] | None:
        received = _exchanged({at: own}, "residuals", process_set)
        return received if process_set.rank() == at else None

    return Peers("optimizer", lambda: process_set.ranks, process_set.rank, process_set.size, gathered)


def _exchanged(parts: Mapping[int, Any], name: str, process_set: ProcessSet) -> list[Any]:
    """Send ``parts[i]`` to each rank i of the set, and return the objects received, by rank."""
    positions = range(process_set.size() or 1)
    pickled = [cloudpickle.dumps(parts[each]) if each in parts else b"" for each in positions]
    rows = [-(-len(each) // ROW) for each in pickled]
    padded = b"".join(each.ljust(count * ROW, b"\0") for each, count in zip(pickled, rows, strict=True))
    sent = torch.frombuffer(bytearray(padded), dtype=torch.uint8) if padded else torch.ByteTensor()
    splits = torch.tensor(rows, dtype=torch.int32)
    handle = start_alltoall(sent.reshape(-1, ROW), splits, f"DistributedOptimizer.{name}", process_set)
    received, counts = cast(tuple[torch.Tensor, torch.Tensor], synchronize(handle))
    # A pickle marks its own end, so the padding of its last row is not read.
    return [
        cloudpickle.loads(each.numpy().tobytes()) if each.numel() else None
        for each in torch.split(received, counts.tolist())
    ]
