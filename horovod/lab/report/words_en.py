"""English. Keys and placeholders are those of words_zh.py; a test holds the two together."""

WORDS = {
    "comma": ", ",
    "gap": " ",  # between sentences
    "s": "s",
    "ms": "ms",
    "runs_one": "{number} run",
    "runs_many": "{number} runs",
    "epochs_one": "{number} epoch",
    "epochs_many": "{number} epochs",
    "seeds_one": "{number} seed",
    "seeds_many": "{number} seeds",
    "cores_one": "{number} usable core",
    "cores_many": "{number} usable cores",
    # Headings
    "title": "Data-parallel training with compressed gradients",
    "kicker": "Experiment report",
    "summary_heading": "Summary",
    "warnings_heading": "Read with care",
    "method_heading": "How it was done",
    "environment_heading": "Environment",
    "topology_heading": "Topology",
    "results_heading": "Results",
    "plots_heading": "Plots",
    "explanation_heading": "Comparison and explanation",
    "runs_heading": "Where the numbers come from",
    "footer": "Written by horovod.lab from the logs in the folders named above. Nothing was typed by hand.",
    "again": "The same runs are asked for by:",
    # Names
    "serial": "serial",
    "place_memory": "this host",
    "place_made": "{hosts} hosts at {rate}",
    "place_unlimited": "{hosts} hosts, unlimited cables",
    "row_at": "{row} on {place}",
    "shortened": "Short names: {names}.",
    "title_at": "{title}: {place}",
    # Summary
    "scope": "{runs} of {script} on the dataset {dataset}, with {epochs} each, from {seeds}.",
    "only_row": "There is one kind of run, {row}: it trained for {time}.",
    "fastest": "The fastest was {row}: {time} of training, {speed_up} times as fast as the serial run.",
    "fastest_is_serial": "Nothing was faster than training serially ({time}); {row} came next with {other}.",
    "fastest_without_serial": "The fastest was {row}: {time} of training.",
    "accuracy_of_one": "It reached {high} accuracy on the test data.",
    "accuracy_same": (
        "All reached the same accuracy on the test data, as far as the spread between seeds can tell: from "
        "{low} ({worst}) to {high} ({best})."
    ),
    "accuracy_differs": (
        "The most accurate was {best} with {high}, the least accurate {worst} with {low}; that is more than "
        "the spread between seeds."
    ),
    "accuracy_one_seed": (
        "The most accurate was {best} with {high}, the least accurate {worst} with {low}; one seed cannot "
        "tell whether that is more than chance."
    ),
    "bytes_saved": "{row} sent {ratio} times fewer bytes than training without compression.",
    "compression_paid": (
        "Compression paid: {row} took {share} less time than the same without compression (clearly faster "
        "in {faster} of {cases} comparisons)."
    ),
    "compression_paid_and_cost": (
        "Compression paid in places: {row} took {share} less time than the same without compression, but of "
        "{cases} comparisons {faster} came out clearly faster and {slower} clearly slower."
    ),
    "compression_cost": (
        "Compression did not pay here: even the best case, {row}, took {share} more time than the same "
        "without compression."
    ),
    "compression_did_not_pay": "Compression saved bytes and no clear amount of time here.",
    "crowded": (
        "Up to {ranks} ranks shared {cores}, so part of what looks like the cost of parallel training is "
        "the cost of waiting for a core."
    ),
    # Method
    "script": "Script",
    "arguments": "Its arguments",
    "dataset": "Dataset",
    "places": "Where",
    "epochs": "Epochs",
    "seeds": "Seeds",
    "number_of_ranks": "Ranks",
    "compressions": "Compression",
    "threads": "Threads per rank",
    "measured": (
        "Time is that of training on rank 0, tests of the model left out. Time per step is the median over "
        "all steps; the waiting in it is how long the training thread stood still until the other ranks' "
        "gradients had come. Accuracy is that on the test data after the last epoch."
    ),
    # Warnings
    "warn_datasets": "The runs used different datasets ({values}); their rows cannot be compared.",
    "warn_scripts": "The parallel runs are of different scripts ({values}); their rows cannot be compared.",
    "warn_arguments": "The runs were given different arguments ({values}).",
    "warn_epochs": (
        "The runs had different numbers of epochs ({values}); times and accuracies cannot be compared."
    ),
    "warn_seeds": "Not all rows have the same seeds, as if runs were missing.",
    "warn_not_identical": (
        "The ranks did not end with the same parameters in: {runs}. These results are not to be trusted."
    ),
    # Environment
    "part": "Part",
    "what": "What there is",
    "absent": "none found",
    "section_hardware": "Hardware",
    "section_software": "Software",
    "entry_servers": "Servers",
    "entry_cpu": "Processor",
    "entry_cores": "Cores",
    "entry_memory": "Memory",
    "entry_nic": "Network interface",
    "entry_nic_speed": "Its speed",
    "entry_gpu": "GPU",
    "entry_gpu_number": "Number of GPUs",
    "entry_gpu_connection": "Connection of GPUs",
    "entry_os": "Operating system",
    "entry_kernel": "Kernel",
    "entry_nic_driver": "Network driver",
    "entry_gpu_driver": "GPU driver",
    "entry_python": "Python",
    "entry_pytorch": "PyTorch",
    "entry_numpy": "NumPy",
    "entry_horovod": "horovod",
    "entry_cuda": "CUDA",
    "entry_mpi": "MPI",
    "entry_nccl": "NCCL",
    "hosts": "Hosts",
    "host": "Host",
    "usable_cores": "Usable cores",
    "topology_title": "Hosts and their links",
    "topology_caption": "The hosts, as they were when this report was written.",
    # Results
    "algorithm": "Algorithm",
    "ranks": "Devices",
    "training_seconds": "Training time, s",
    "step_seconds": "Time per step, ms",
    "wait_seconds": "of it waiting, ms",
    "accuracy": "Accuracy, %",
    "speed_up": "Speed-up",
    "efficiency": "Scaling efficiency, %",
    "bytes_per_step": "Sent per step, KB",
    "compression_ratio": "Compression ratio",
    "runs_by_seed": "Runs, by seed",
    "results_caption": "One run for each row.",
    "results_caption_spread": "Mean ± sample standard deviation over {seeds} seeds.",
    "results_place": "On {place}.",
    "why_no_log": "The logs do not say.",
    "why_no_waiting": "A serial run waits for nobody.",
    "why_no_serial": "There is no serial run with as many epochs to compare with.",
    "why_no_bytes": "A serial run sends nothing.",
    "why_no_uncompressed": (
        "There is no run without compression with as many devices at this place to compare with."
    ),
    # Plots
    "loss_axis": "loss",
    "accuracy_axis": "accuracy on the test data, %",
    "epoch_axis": "epoch",
    "time_axis": "training time, s",
    "step_axis": "median time per step, ms",
    "training_axis": "training time, s",
    "share_axis": "share of the elements, %",
    "relative_error_axis": "relative error of an element",
    "computing": "computation, and communication that it hides",
    "waiting": "waiting for the other ranks",
    "loss_by_epoch_title": "Loss against epochs",
    "loss_by_epoch_caption": (
        "Lines: loss on the training data of rank 0, in pieces of equally many steps. Marks: loss on the "
        "test data after each epoch. Colour is the algorithm, dashes are the number of devices."
    ),
    "loss_by_time_title": "Loss against time",
    "loss_by_time_caption": "The same against training time. Further left is sooner.",
    "accuracy_by_epoch_title": "Accuracy against epochs",
    "accuracy_by_epoch_caption": "On the test data after each epoch.",
    "accuracy_by_time_title": "Accuracy against time",
    "accuracy_by_time_caption": "The same against training time. Further left is sooner, higher is better.",
    "steps_title": "Where the time of a step goes",
    "steps_caption": (
        "The hatched part is what the allreduce adds. What is hidden behind computation does not show."
    ),
    "times_title": "Training time by algorithm",
    "times_caption": (
        "The same number of epochs for each row. Thin lines: spread over seeds, where there are several."
    ),
    "accuracies_title": "Accuracy by algorithm",
    "accuracies_caption": (
        "After the last epoch. Dots: means; strokes: single runs of several. The axis does not begin at 0."
    ),
    "codecs_title": "Errors of the codecs",
    "codecs_caption": (
        "Each codec applied once to 131,072 numbers of N(0, 1). Relative error is |restored − x| / |x|; 1 "
        "(10⁰) means that an element became 0, and the left end holds all that came back exactly. NMSE is "
        "|restored − x|² / |x|² of all."
    ),
    # Explanation
    "speed_title": "Speed-up",
    "no_serial": "There is no serial run, so no speed-up can be computed. Add 1 to --np.",
    "steps_divided": (
        "For one epoch {row} took {steps} steps where the serial run took {serial_steps}: each rank trains "
        "on its own part of the data, and one step of all ranks uses {ranks} times as many examples."
    ),
    "steps_same": "{row} took as many steps for an epoch as the serial run ({steps} and {serial_steps}).",
    "steps_other": "For one epoch {row} took {steps} steps, the serial run {serial_steps}.",
    "speed_best": (
        "Ideal is a speed-up equal to the number of devices. The most efficient row is {row}: speed-up "
        "{speed_up} with {ranks} devices, an efficiency of {efficiency}."
    ),
    "speed_worst": (
        "The least efficient is {row}: speed-up {speed_up} with {ranks} devices, an efficiency of "
        "{efficiency}."
    ),
    "slower_than_serial": "That is slower than one device alone.",
    "near_ideal": "That is close to the ideal.",
    "part_of_ideal": "That is more than half of the ideal.",
    "far_from_ideal": "That is less than half of the ideal.",
    "limits_title": "What limits it",
    "wait_share": "A step of {row} takes {step} ms, {wait} ms of them ({share} %) waiting for other ranks.",
    "compute_beside_serial": "The other {compute} ms are {factor} times the serial step of {alone} ms.",
    "limit_none": "Neither adds a tenth of a serial step.",
    "limit_waiting": "So waiting is what keeps it from the ideal most.",
    "limit_cores": (
        "So slower computation keeps it from the ideal most: there are more ranks than cores, and they take "
        "turns."
    ),
    "limit_unknown": (
        "So slower computation keeps it from the ideal most. How many cores the ranks shared is not known."
    ),
    "limit_compute": (
        "So slower computation keeps it from the ideal most. There is a core for each rank; what else they "
        "share, such as memory, caches and the engine's own threads, is not measured here."
    ),
    "pay_title": "Does compression pay?",
    "pair_faster": "{row}: {time} rather than {plain}, {share} faster.",
    "pair_slower": "{row}: {time} rather than {plain}, {share} slower.",
    "pair_same": "{row}: {time} and {plain}, no clear difference ({share}).",
    "waiting_less": (
        "It sends {ratio} times fewer bytes and waits {wait} rather than {plain} per step: the transfer was "
        "part of what ranks waited for."
    ),
    "waiting_more": (
        "It sends {ratio} times fewer bytes, yet waits {wait} rather than {plain} per step: most likely, "
        "encoding and decoding took longer than the shorter transfer saved."
    ),
    "waiting_same": (
        "It sends {ratio} times fewer bytes and waits about as long ({wait} and {plain} per step): bytes "
        "are not what ranks waited for."
    ),
    "rule": (
        "A difference counts as clear when it is more than {share} and more than twice the larger spread."
    ),
    "between_places": (
        "The same training with {row}: {first} per step ({here}) and {second} ({there}), {factor} times as "
        "long."
    ),
    "learning_title": "Accuracy",
    "accuracy_change": "Compression changed accuracy most in {row}: by {points} percentage points.",
    "within_seeds": (
        "That is no more than twice the spread between seeds ({spread}), so the data show no effect."
    ),
    "beyond_seeds": (
        "That is more than twice the spread between seeds ({spread}), so it is probably an effect."
    ),
    "seeds_unknown": "With one seed it cannot be said how much chance alone changes; --seeds 3 would tell.",
    "codec_loses": "One encoding by {codec} loses {share} of the energy of normally distributed numbers.",
    "fewer_updates_lower": (
        "{row} updated the model {steps} times where the serial run did {alone} times, and ended {points} "
        "percentage points lower: fewer and larger steps can cost accuracy when the number of epochs is "
        "kept."
    ),
    "fewer_updates_not_lower": (
        "{row} updated the model {steps} times where the serial run did {alone} times, and did not end "
        "lower ({points} percentage points)."
    ),
    "same_model_title": "One model on all ranks",
    "places_same": (
        "Where the ranks run changed nothing: the same training ended with the same checksum everywhere."
    ),
    "places_apart": (
        "The checksums of different places are not all equal; sums may be split differently there."
    ),
    "identical": "In every parallel run all ranks ended with the same parameters, bit for bit.",
    "not_identical": "In {runs} the ranks drifted apart; the accuracy is that of rank 0 alone.",
    # Runs
    "runs_caption": (
        "Each folder holds plan.json (what was asked for), log.jsonl (every step) and output.txt (what the "
        "ranks printed). The checksum is the beginning of the SHA-256 of rank 0's parameters."
    ),
    "run": "Folder",
    "row": "Row",
    "seed": "Seed",
    "steps": "Steps",
    "same_model": "Ranks identical",
    "checksum": "Checksum",
    "yes": "yes",
    "no": "no",
    "one_rank": "one rank",
}
