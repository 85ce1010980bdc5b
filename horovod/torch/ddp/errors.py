"""All error messages of horovod.torch.ddp; see horovod.common.sentences."""

from __future__ import annotations

from horovod.common.exceptions import NotServed, WrongArgument, WrongSetting, WrongType, WrongUse
from horovod.common.sentences import Explained


class RanksDisagree(WrongArgument):
    """Ranks have different terms; ``facts["terms"]`` has each rank's.

    All ranks raise it, so they can continue together if all catch it.
    """


class TookTooLong(Explained, RuntimeError):
    """An operation was not done within its timeout."""


# Ranks and their process group.

ranks_disagree = RanksDisagree.says(
    "ranks disagree about what is reduced and how: {said}", "give every rank the same"
)
no_terms = RanksDisagree.says("a rank sent {got} for its terms", "run the same build on all ranks")
wrong_settings = WrongSetting.says("{values:by_rank}")
no_process_group = WrongArgument.says(
    "there is no process group", "call torch.distributed.init_process_group() first"
)

# DistributedDataParallel and its hooks.

not_ddp = WrongType.says("ddp.compress() takes a model that is wrapped in DistributedDataParallel, not {got}")
not_wrapped = WrongType.says(
    "ddp.compress() takes a model that is wrapped in DistributedDataParallel, not {got}. {evidence}",
    "{first}",
)
mixed_precision = WrongArgument.says(
    "ddp.compress(): DistributedDataParallel(mixed_precision=...) uses a communication hook of its own, and "
    "torch allows one",
    "use torch.autocast, or a model in bfloat16",
)
python_reducer = WrongArgument.says(
    "ddp.compress(): torch._dynamo.config.optimize_ddp='python_reducer' does without buckets, and so "
    "without hooks of them",
    "use 'ddp_optimizer', torch's default",
)
hooked_already = WrongArgument.says(
    "ddp.compress(): the model has a communication hook already, and torch allows one"
)
wrong_state = WrongArgument.says(
    "ddp.compression_hook got {got} as its state",
    "write ddp.compress(model), or model.register_comm_hook(ddp.CompressionState('bit8'), "
    "ddp.compression_hook)",
)
unknown_names = WrongArgument.says(
    "{said}: rules go by parameters' names, which nobody knows here",
    "pass model=, or call ddp.compress(model, ...)",
)
unknown_parameter = WrongArgument.says(
    "a parameter of shape {shape} is reduced that the model which was given to CompressionState does not "
    "have",
    "give it the model that the hook is registered with",
)

# Reductions.

wrong_op = WrongArgument.says("op={value!r}: gradients can be averaged (Average) or added (Sum) only")
same_name = WrongArgument.says(
    "two gradients of one reduction are called {name!r}", "give each a name of its own"
)
not_contiguous = WrongArgument.says("{tensor}: the gradient is not contiguous", "reduce tensor.contiguous()")
closed = WrongUse.says("This reducer was closed: nothing can be reduced with it any more")
ending = WrongUse.says("The process is ending: nothing can be reduced any more")
not_done = TookTooLong.says("{what}: not done after {seconds:g} seconds")

# The backend "horovod".

splits_no_group = NotServed.says('the backend "horovod" splits no group', "use torch.distributed.new_group")
merges_no_groups = NotServed.says('the backend "horovod" merges no groups', "use torch.distributed.new_group")
feedback_of_sums = WrongSetting.says(
    '{setting}={value}: {compressor} has error feedback, which the backend "horovod" does not serve: it '
    "sees sums, and not whose gradients they are",
    "add error_feedback=0; or let DistributedDataParallel compress, which knows its parameters, with "
    "HOROVOD_DDP_COMPRESSION={value} and the backend gloo or nccl",
)

# FSDP.

nothing_sharded = WrongArgument.says(
    "compress_fsdp(): nothing in the model is sharded; call fully_shard() first. {evidence}", "{first}"
)
unit_outside = WrongArgument.says(
    "compress_fsdp(): parameters of a unit are outside of this model",
    "pass the module with all that went into one fully_shard()",
)
fsdp_op = WrongArgument.says("compressed reduce-scatter of FSDP: {value} is none of SUM, AVG and PREMUL_SUM")
fsdp_async = WrongArgument.says(
    "compressed reduce-scatter of FSDP has no async_op: FSDP itself does not ask for it"
)
fsdp_compressor = WrongArgument.says(
    "{said}: FSDP's gradients are compressed by a codec of the core (fp16, bf16, bit16, bit8, int8, int4) "
    "or not at all"
)
fsdp_feedback = WrongArgument.says(
    "{said}: no error feedback with FSDP: each rank would have to keep what was lost of all gradients, and "
    "not of its shard"
)
old_torch = NotServed.says(
    "compress_fsdp() needs FSDPModule.set_custom_reduce_scatter(), which torch {version} does not have; "
    "torch 2.13 does. DistributedDataParallel is compressed with every torch"
)
unknown_torch = NotServed.says(
    "compress_fsdp() does not know the FSDP of torch {version} ({why}); it knows that of 2.13"
)
