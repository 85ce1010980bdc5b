"""English headings, names and labels; the sentences on the numbers are in sentences_en.py.

Keys and placeholders are the same as in words_zh.py; a test compares them.
"""

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
        "gradients had come. Accuracy is that on the test data after the last epoch. The runs were done in "
        "rounds: one of each kind with a seed, then all with the next, in the opposite order."
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
    "why_nothing_sent": "Nothing was sent, so there is nothing to compare.",
    "row_disturbed": "Disturbed: during {number} of {all} runs other programs used the processors.",
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
    "step_time_axis": "time of a step, ms",
    "step_number_axis": "step",
    "each_step": "each step",
    "kept_settings": "with the settings kept",
    "tried_settings": "with others tried",
    "tuning_title": "What the autotuner tried: {row}, {place}",
    "tuning_caption": (
        "Bars are the blocks of steps that the autotuner measured; up to the dashed line it searched. "
        "Chosen: {changed}."
    ),
    "tuning_changed_nothing": "what the run began with",
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
    # Runs
    "runs_caption": (
        "Each folder holds plan.json (what was asked for), log.jsonl (every step), output.txt (what the "
        "ranks printed) and load.json (what other programs took of the processors before, during and after "
        "it). The checksum is the beginning of the SHA-256 of rank 0's parameters."
    ),
    "run": "Folder",
    "row": "Row",
    "seed": "Seed",
    "steps": "Steps",
    "same_model": "Ranks identical",
    "checksum": "Checksum",
    "load": "Others, % of the processors",
    "load_disturbed": "{shares}, disturbed",
    "yes": "yes",
    "no": "no",
    "one_rank": "one rank",
}
