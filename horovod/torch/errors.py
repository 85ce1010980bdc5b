"""All error messages of horovod.torch and its elastic part; see horovod.common.sentences."""

from __future__ import annotations

from horovod.common.exceptions import (
    Disagreement,
    HorovodInternalError,
    NotServed,
    TensorChanged,
    WrongArgument,
    WrongType,
    WrongUse,
)
from horovod.common.sentences import Explained


class OutOfTurn(WrongUse, AssertionError):
    """A call, or a backward pass, while gradients are being reduced."""


class CommitLost(Explained, OSError):
    """A commit could not be written to the host's storage."""


class CommitUnreadable(Explained, MemoryError):
    """There is not enough memory to read a commit."""


# Tensors that an operation receives.

not_a_tensor = WrongArgument.says("{tensor}: expected a torch.Tensor, not {got}")
one_tensor = WrongArgument.says(
    "grouped_allreduce: expected a list of tensors, not one tensor", "use allreduce"
)
wrong_layout = WrongArgument.says(
    "{tensor}: Tensor type {got} is not supported: its layout is {layout}",
    "use sparse_allreduce_async, or tensor.to_dense()",
)
wrong_dtype = WrongArgument.says("{tensor}: Tensor type {got} is not supported")
wrong_place = WrongArgument.says(
    "{tensor}: the tensor is on {device}, and only tensors in CPU memory and on CUDA GPUs are served",
    "pass tensor.cpu()",
)
rocm = WrongArgument.says(
    "{tensor}: the tensor is on {device}, and this is torch for ROCm, and only CUDA is served",
    "pass tensor.cpu()",
)
built_without_cuda = WrongArgument.says(
    "{tensor}: the tensor is on {device}, and this package was built without CUDA",
    "install it again with HOROVOD_WITH_CUDA=1, where there is nvcc, or pass tensor.cpu()",
)
several_devices = WrongArgument.says(
    "{tensor}: the tensors of a group must be on one device, and are on {devices:listed}"
)
recorded = WrongArgument.says(
    "{tensor}: the tensor cannot be worked on: make_fx is recording, and would leave the operation out",
    "call it outside of what is recorded",
)
no_memory = WrongArgument.says(
    "{tensor}: the tensor cannot be worked on: a {got} has no memory of its own",
    "call the operation outside of what is traced or exported (torch.compile breaks its graph there by "
    "itself), or with the tensor that is inside, as DTensor.to_local() gives it",
)
transformed = WrongArgument.says(
    "{tensor}: the tensor cannot be worked on: a transform of torch.func has wrapped it",
    "call the operation outside of the transform",
)
storage_too_small = WrongArgument.says(
    "{tensor}: the tensor cannot be worked on: its storage was resized to {bytes} bytes, of which it needs "
    "{needed}",
    "resize it back before",
)
memory_replaced = TensorChanged.says(
    "{tensor}: the memory of a tensor of shape {shape} was resized or replaced on {ranks:ranks} while the "
    "operation was in flight, and what the operation did with it is lost",
    "leave tensors as they are until synchronize() has returned",
)
no_rows = WrongArgument.says("{tensor}: a tensor without dimensions has no rows", "reshape it to (1,)")
wrong_splits = WrongArgument.says(
    "{tensor}: splits must be a 1-dimensional tensor of int32, a number of rows for each rank, not {dtype} "
    "of shape {shape}"
)
captured = WrongUse.says(
    "Horovod's operations cannot be captured in a CUDA graph: ranks agree about each when it runs",
    "capture forward and backward, and reduce gradients outside of the graph",
)
not_in_flight = WrongArgument.says("handle {handle} is not in flight: unknown, or already synchronized")

# Reduce operations.

no_operation = WrongArgument.says(
    "op={value!r} is not a reduce operation", "use Average, Sum, Adasum, Min, Max or Product"
)
average_of_bool = WrongArgument.says(
    "{tensor}: op=Average of torch.bool, of a tensor of shape {shape}, on {ranks:ranks}: truth values have "
    "no average",
    "reduce tensor.float(), or use op=hvd.Max (true where it is on any rank) or op=hvd.Min (where it is on "
    "all)",
)
complex_op = WrongArgument.says(
    "{tensor}: op={op} of {dtype}: complex numbers are added only",
    "use Sum or Average, or reduce torch.view_as_real(tensor)",
)
scattered_op = HorovodInternalError.says("{tensor}: op={op} is not served", "use Average or Sum")
sparse_op = WrongArgument.says("{tensor}: op must be Average or Sum for sparse tensors")
compressed_op = WrongArgument.says(
    "{tensor}: op={op} with {compressor}: compressed gradients can be added only",
    "use Sum or Average, or Compression.none",
)
scattered_by_python = WrongArgument.says(
    "reducescatter: the output of {compressor} may not be added on the way",
    "use a compressor of hvd.Compression, or allreduce",
)
codes_op = WrongArgument.says(
    "{said} ({compressor}) with op={op}: codes can be added only",
    "use Sum or Average, or one of Compression.none, fp16 and bf16",
)
feedback_op = WrongArgument.says(
    "{said} ({compressor}) with op={op}: error feedback adds what is lost of a gradient to the next one",
    "use it with Sum or Average",
)
bf16_adasum = WrongArgument.says("{said} with op=Adasum", "use Compression.none or fp16")
adasum_over_set = NotServed.says("op=Adasum runs over all ranks only", "leave process_set out")
adasum_size = NotServed.says("op=Adasum needs 2, 4, 8, ... ranks, and this job has {size}")
adasum_hosts = NotServed.says("op=Adasum needs as many ranks on every host")

# Compressors that work in Python.

wrong_rounds = HorovodInternalError.says(
    "{tensor}: rounds() of its compressor returned {got} instead of a tensor of shape {shape}"
)
not_decompressed = HorovodInternalError.says(
    "{tensor}: the codes of {ranks:ranks} ({dtype}, shape {shape}) could not be decompressed by "
    "{compressor} with this rank's ctx: {why}",
    "put what differs by rank into the codes",
)
decompressed_otherwise = HorovodInternalError.says(
    "{tensor}: {compressor} decompressed the codes of {ranks:ranks} to shape {got} instead of {shape}"
)
not_understood = HorovodInternalError.says(
    "{tensor}: what {ranks:ranks} sent is not understood ({why})", "run the same build on all ranks"
)
terms_differ = Disagreement.says(
    "{tensor}: ranks disagree about its {term}: {values:by_rank}",
    "pass the same under one name on every rank",
)

# DistributedOptimizer: its arguments.

wrong_optimizer = WrongArgument.says(
    "DistributedOptimizer takes an optimizer of torch.optim, not {got}",
    "of a model it takes model.named_parameters(), as its second argument",
)
wrapped_already = WrongArgument.says("This optimizer is a DistributedOptimizer already")
not_constructed = WrongType.says(
    "{got} is not constructed",
    "call hvd.DistributedOptimizer(optimizer, ...) with an instance of the optimizer",
)
not_pickled = WrongType.says(
    "A DistributedOptimizer is part of a running job and cannot be pickled",
    "save its state_dict(), and load that into one made by hvd.DistributedOptimizer()",
)
wrong_passes = WrongArgument.says("backward_passes_per_step={value} must be 1 or more")
unregistered_set = WrongArgument.says(
    "process_set={value} is not registered", "use hvd.add_process_set() or init()"
)
predivided_op = WrongArgument.says("gradient_predivide_factor is served with op=Average only")
wrong_predivide_factor = WrongArgument.says("gradient_predivide_factor={value} must be greater than 0")
wrong_unused = WrongArgument.says('unused={value!r} must be "zeros" or "none"')
adasum_skips_nothing = WrongArgument.says(
    "skip_extra_backward=True is not served with op=Adasum, whose steps are made in backward()"
)
adasum_lbfgs = WrongArgument.says("op=Adasum steps each parameter by itself, which LBFGS cannot do")
no_pairs = WrongArgument.says(
    "named_parameters must be a sequence of (name, parameter) tuples, as model.named_parameters() gives"
)
repeated_names = WrongArgument.says(
    "Parameter names in named_parameters must be unique. Found duplicates: {names:listed}",
    "prefix the names when you join the parameters of several models",
)
unnamed_parameters = WrongArgument.says(
    "named_parameters was given, but {count} of the optimizer's parameters are not in it",
    "name all of them, or leave named_parameters out",
)
negative_groups = WrongArgument.says("groups={value}: the number of groups must be 0 (no grouping) or more")
no_groups = WrongArgument.says("groups must be a number of groups or a list of lists of parameters")
no_members = WrongArgument.says("groups must consist of lists of torch.Tensor parameters")
member_twice = WrongArgument.says(
    "groups: a parameter is in two groups, or twice in one; it is reduced only once"
)
strange_member = WrongArgument.says("groups: a tensor is not among the parameters of the optimizer")
groups_differ = WrongArgument.says(
    "groups={value} on {ranks:ranks}: the trainable parameters are not those of rank {root}; different are "
    "{names:listed}",
    "freeze the same parameters on all ranks before wrapping, or give groups as lists",
)
optimizers_differ = WrongArgument.says(
    "Ranks have made different optimizers: on {ranks:ranks} the names of this one end with {own!r}, on "
    "others with {smallest!r} and {largest!r}",
    "make the same optimizers in the same order on all ranks, or give each named_parameters with names that "
    "no other has",
)
shared_unlike = WrongArgument.says(
    "{tensor!r} is also a parameter of a DistributedOptimizer that was made before, as {before!r}. Its "
    "gradient is reduced once, for both, and these options differ: {differing:listed}",
    "wrap both with the same options",
)
taken_over = WrongUse.says(
    "A DistributedOptimizer that was made later has taken over {names:listed}",
    "use that one, or give parameters that two optimizers share other names in each",
)

# DistributedOptimizer: its steps.

no_gradient = WrongArgument.says(
    "{tensor!r} has no gradient on {ranks:ranks} when it shall be reduced: a hook that was registered "
    "before the optimizer was wrapped has set it to None. The optimizer's step() uses it, and zero_grad() "
    "drops it",
    "leave out that hook, or, to step in the backward pass, call hvd.allreduce() in it, without a "
    "DistributedOptimizer",
)
gradient_changed = WrongUse.says(
    "The gradient of {names:listed} was changed on {ranks:ranks} after its reduction had started. Ranks "
    "would differ from here on",
    "call optimizer.synchronize() before you change gradients, and step() inside "
    "optimizer.skip_synchronize()",
)
adasum_gradient_changed = WrongUse.says(
    "The gradient of {names:listed} was changed on {ranks:ranks} after its reduction had started. With "
    "op=Adasum this rank's step has been made from it by then, so that the change would do nothing",
    "change gradients in hooks of the parameters, before they are accumulated, or use another op",
)
adasum_unscaled = WrongUse.says(
    "A GradScaler cannot unscale gradients on {ranks:ranks}. With op=Adasum this rank's step has been made "
    "from them by then, so that the change would do nothing",
    "change gradients in hooks of the parameters, before they are accumulated, or use another op",
)
adasum_synchronizes = OutOfTurn.says(
    "skip_synchronize() is not served with op=Adasum: step() has to wait for it"
)
too_many_passes = OutOfTurn.says(
    "Gradients of {tensor!r} were computed more than backward_passes_per_step={passes} times before step()",
    "raise backward_passes_per_step to accumulate gradients locally; to skip a step{with_op}, call "
    "optimizer.zero_grad()",
)
zeroed_too_early = OutOfTurn.says(
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
    "optimizer.synchronize(): the gradients are being reduced"
)
feedback_in_use = OutOfTurn.says(
    "optimizer.{called}() was called after loss.backward() but before optimizer.step() or "
    "optimizer.synchronize(): reductions are working with the error feedback"
)
not_written = NotServed.says("{owner} does not say how {what}")

# Broadcasts and checkpoints.

no_named_tensors = WrongArgument.says(
    "broadcast_parameters: expected a dict or a list of tensors, not {got}{hint}"
)
no_tensor_pair = WrongArgument.says(
    "broadcast_parameters: expected tensors or (name, tensor) pairs, not {got}"
)
lbfgs_state = WrongArgument.says(
    "broadcast_optimizer_state does not serve torch.optim.LBFGS",
    "broadcast the parameters, and let every rank begin with a new one",
)
other_parameter_groups = WrongArgument.says(
    "broadcast_optimizer_state on {ranks:ranks}: the optimizer has parameter groups of {sizes} parameters, "
    "root's has {roots}"
)
wrong_loss_scale = WrongArgument.says(
    "a loss scale is a finite number above 0 or a GradScaler, not {value!r}"
)
not_a_peer = WrongArgument.says("consolidate_residuals(to={to}): the {owner}'s ranks are {members}")
damaged_checkpoint = WrongArgument.says(
    'The checkpoint\'s entry "horovod" is damaged, or none of this {owner}: {why}',
    "take that entry out of the checkpoint to go on without error feedback",
)
no_size = WrongArgument.says("it does not say of how many ranks it is")
unknown_form = WrongArgument.says("it is of form {form}, and this release reads up to {newest}")
no_feedback_by_rank = WrongArgument.says("it has no error feedback by rank")
no_feedback_by_parameter = WrongArgument.says("it has no error feedback by parameter")
no_feedback_of = WrongArgument.says("it has no error feedback of {name!r:.80}")
no_compressors = WrongArgument.says("it does not say what compressors remember")
no_names = WrongArgument.says("what its compressors remember has no names")
wrong_memory = WrongArgument.says("what the compressor of {name!r:.80} remembers is {wrong}")
wrong_saved_scale = WrongArgument.says("its loss scale is {got}")
wrong_feedback = WrongArgument.says("the error feedback of {name!r:.80} is {wrong}")
wrong_dimensions = WrongArgument.says("the error feedback of {name!r:.80} has {dimensions} dimensions")
no_stage = WrongArgument.says("the error feedback of {name!r:.80} has no stage {stage!r}")
wrong_counts = WrongArgument.says("the error feedback of {name!r:.80} has {got} for its counts")
wrong_usual = WrongArgument.says("the error feedback of {name!r:.80} has {got} for its usual size")
other_count = WrongArgument.says("it had {before} elements, and has {now} now")
not_finite = WrongArgument.says("it is not finite")
other_compressor = WrongArgument.says("{count} residuals of stage {stage} are not those of this compressor")

# SyncBatchNorm.

one_value = WrongArgument.says(
    "SyncBatchNorm: expected more than 1 value per channel when training, got one on all ranks together; "
    "input size here is {shape}"
)
too_few_dimensions = WrongArgument.says("SyncBatchNorm: expected at least 2D input (got {dimensions}D input)")
wrong_features = WrongArgument.says(
    "SyncBatchNorm: expected input with num_features={features} channels in dimension 1, got input of shape "
    "{shape}"
)
not_floating = WrongArgument.says("SyncBatchNorm: expected floating input, got {dtype}")
lazy_batch_norm = WrongArgument.says(
    "convert_sync_batchnorm: a lazy BatchNorm does not know its number of features before its first forward "
    "pass",
    "run one, then convert",
)

# Lightning.

no_meeting = NotServed.says("Horovod's ranks meet through MPI: there is no {what} to meet at")
named_by_strategy = WrongType.says("HorovodStrategy says named_parameters itself")
adasum_strategy = WrongArgument.says(
    "op=Adasum makes steps in the backward pass, where Lightning makes them itself"
)
shared_devices = WrongArgument.says(
    "HorovodStrategy: {local} ranks of this host share {devices} device(s)",
    "give Trainer(devices={local}), or start fewer ranks",
)
automatic_passes = WrongType.says(
    "HorovodStrategy(backward_passes_per_step=...) is for manual optimization",
    "else passes are the Trainer's accumulate_grad_batches",
)
no_strategy_reduction = WrongArgument.says("HorovodStrategy.reduce(): {value!r} is none of {allowed:listed}")
other_group = WrongArgument.says("HorovodStrategy works over all ranks, and not over the group {value}")

# Elastic training.

not_plain = WrongType.says(
    "{where} cannot be kept for a process that is started again: commits are read as tensors and plain "
    "values only (torch.load(weights_only=True))",
    "keep it outside of the state, give the state what it is made of, or allow its class by "
    "torch.serialization.add_safe_globals",
)
commit_not_kept = CommitLost.says(
    "commit {number} cannot be kept in {path}, which has {free:.0f} MB left: {why}. It takes three copies "
    "of the state for a moment",
    "enlarge /dev/shm, or keep less in it",
)
commit_unreadable = CommitUnreadable.says("{path} cannot be read: {why}")
ddp_in_state = WrongArgument.says(
    "TorchState takes the module, not the DistributedDataParallel around it: a process group ends with its "
    "ranks",
    "make the group and the DistributedDataParallel inside of the function that hvd.elastic.run calls "
    "again, of state.model; or train with hvd.DistributedOptimizer",
)
other_parameters = WrongArgument.says(
    "the DistributedOptimizer of {ranks:ranks} has other parameters than rank {root}'s: different are "
    "{names}",
    "make the same model on all workers, and freeze the same parameters",
)
other_dataset = WrongArgument.says(
    "ElasticSampler: {done} samples of epoch {epoch} are said to be done, and the dataset has {samples}: is "
    "it another one than before?"
)
store_unreached = WrongArgument.says(
    "{ranks:ranks} reaches the store of rank 0 at none of {addresses:listed}, port {port}",
    "say which network they share by HOROVOD_TCP_INTERFACES",
)
said_by_itself = WrongArgument.says(
    "hvd.elastic.init_process_group() says {options:listed} itself", "leave it out"
)
group_is_there = WrongArgument.says(
    "there is a default process group already. A reset leaves one that was made inside of the function that "
    "hvd.elastic.run calls; one that was made before stays"
)
