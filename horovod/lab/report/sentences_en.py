"""English sentences on the numbers of a report. Keys and placeholders are the same as in sentences_zh.py."""

SENTENCES = {
    # Summary
    "scope": "{runs} of {script} on the dataset {dataset}, with {epochs} each, from {seeds}.",
    "only_row": "There is one kind of run, {row}: it trained for {time}.",
    "fastest": (
        "The shortest mean time was that of {row}: {time} of training, {speed_up} times as fast as the "
        "serial run."
    ),
    "fastest_is_serial": "The serial run had the shortest mean time ({time}); {row} came next with {other}.",
    "fastest_without_serial": "The shortest mean time was that of {row}: {time} of training.",
    "fastest_by_chance": "Chance may have decided between it and the next, {row}.",
    "times_of_unequal_work": (
        "These times are of unequal numbers of examples and do not compare like with like."
    ),
    "accuracy_of_one": "It reached {high} accuracy on the test data.",
    "accuracy_equal": "All reached the same accuracy on the test data, {high}.",
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
        "Compression paid in {number} of {cases} comparisons: {row} took {share} less time than the same "
        "without compression ({interval}), because ranks waited less."
    ),
    "compression_unexplained": (
        "In {number} of {cases} comparisons the compressed training took less time, {row} by {share} "
        "({interval}), but less waiting does not explain it, so this does not count as a benefit of "
        "compression."
    ),
    "compression_cost": (
        "In {number} of {cases} comparisons compression cost time: {row} took {share} more than the same "
        "without compression ({interval})."
    ),
    "compression_paid_nowhere": "In none did compression pay.",
    "compression_undecided": (
        "No comparison shows that compression saved or cost time: each difference may be chance."
    ),
    "compression_one_seed": (
        "One seed cannot tell whether compression paid: its difference in time may be chance. --seeds 3 "
        "tells more."
    ),
    "compression_unlike": (
        "It cannot be told whether compression paid: other programs used the processors during too many "
        "runs, and not equally. --repeat-disturbed does those again."
    ),
    "crowded": (
        "Up to {ranks} ranks shared {cores}, so part of what looks like the cost of parallel training is "
        "the cost of waiting for a core."
    ),
    # Warnings
    "warn_datasets": "The runs used different datasets ({values}); their rows cannot be compared.",
    "warn_scripts": "The parallel runs are of different scripts ({values}); their rows cannot be compared.",
    "warn_arguments": "The runs were given different arguments ({values}).",
    "warn_epochs": (
        "The runs had different numbers of epochs ({values}); times and accuracies cannot be compared."
    ),
    "warn_seeds": "Not all rows have the same seeds, as if runs were missing.",
    "warn_disturbed": (
        "During {number} of {all} runs other programs took more than {limit} of the processors, {most} at "
        "most. These runs are marked; their times tell of those programs, too. The same command with "
        "--repeat-disturbed does them again."
    ),
    "warn_examples": (
        "The ranks did not divide the steps of the serial run in: {rows}. If each rank's batch is that "
        "of the serial run, speed-up and efficiency of these rows compare times of unequal numbers of "
        "examples."
    ),
    "warn_diverged": (
        "The training diverged in: {runs}. A loss became infinite or not a number; plots leave such losses "
        "out."
    ),
    "warn_not_identical": (
        "The ranks did not end with the same parameters in: {runs}. These results are not to be trusted."
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
    "unequal_examples": (
        "Speed-up there compares times of unequal numbers of examples: each step of n ranks handles n times "
        "as many, with the same batch on each rank."
    ),
    "per_example_fell": (
        "{row}: speed-up {speed_up} with {examples} times as many examples; the time per example fell by a "
        "factor of {factor}."
    ),
    "per_example_rose": (
        "{row}: speed-up {speed_up} with {examples} times as many examples; the time per example rose by a "
        "factor of {factor}."
    ),
    "among_divided": "What follows is of the rows whose ranks divided the steps.",
    "speed_best": (
        "Ideal is a speed-up equal to the number of devices. The most efficient row is {row}: speed-up "
        "{speed_up} with {ranks} devices, an efficiency of {efficiency}."
    ),
    "speed_worst": (
        "The least efficient is {row}: speed-up {speed_up} with {ranks} devices, an efficiency of "
        "{efficiency}."
    ),
    "slower_than_serial": "That is slower than one device alone.",
    "above_ideal": (
        "That is more than the ideal: the serial run may have been slowed down, or the data of each rank "
        "fits into its cache."
    ),
    "near_ideal": "That is close to the ideal.",
    "part_of_ideal": "That is more than half of the ideal.",
    "far_from_ideal": "That is less than half of the ideal.",
    "limits_title": "What limits it",
    "wait_share": "A step of {row} takes {step} ms, {wait} ms of them ({share} %) waiting for other ranks.",
    "compute_beside_serial": "The other {compute} ms are {factor} times the serial step of {alone} ms.",
    "limit_none": "Neither adds a tenth of a serial step.",
    "limit_slower": "So slower computation keeps it from the ideal most.",
    "busy_meanwhile": (
        "Other programs took {share} of the processors meanwhile, and {serial} during the serial run: "
        "they slow computation, and ranks wait for the slowest."
    ),
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
    "less": "{share} less",
    "more": "{share} more",
    "interval": "interval: {low} to {high}",
    "pair": "{row}: {time} and, without compression, {plain}: {change}.",
    "pair_interval": "Of {seeds}: {interval}.",
    "pair_left_out": "{seeds} are left out, as other programs were busy.",
    "pair_disturbed": "Other programs disturbed these runs, so the interval has {confidence}.",
    "pair_paid": "Less waiting explains {explained} of the saved time: compression paid.",
    "pair_unexplained": (
        "That is less time, but less waiting explains only {explained} of it: no benefit of compression."
    ),
    "pair_unexplained_bytes": "That is less time, but not because of fewer bytes: no benefit of compression.",
    "pair_unexplained_chance": (
        "That is less time, but that ranks waited less may be chance: no benefit of compression."
    ),
    "pair_cost": "Compression cost time.",
    "pair_cost_coding": (
        "Compression cost time, and ranks waited longer: encoding and decoding most likely took more than "
        "the shorter transfer saved."
    ),
    "pair_undecided": "The interval includes 0, so the difference may be chance.",
    "pair_one_seed": "With one seed the difference may be chance; --seeds 3 tells more.",
    "pair_unlike": (
        "Other programs were not equally busy during the runs, so the difference may be theirs; "
        "--repeat-disturbed does these runs again."
    ),
    "rule": (
        "Intervals are of the paired difference of each seed, by Student's t, so wide that in "
        "{confidence} of such reports all of them hold the true value. Compression pays where its "
        "interval lies above 0, and less waiting explains at least half of the saved time."
    ),
    "sends_fewer": "It sends {ratio} times fewer bytes and waits {wait} rather than {plain} per step.",
    "sends_alike": "It sends about as many bytes and waits {wait} rather than {plain} per step.",
    "sends_more": "It sends {ratio} times as many bytes and waits {wait} rather than {plain} per step.",
    "between_places": (
        "The same training with {row}: {first} per step ({here}) and {second} ({there}), {factor} times as "
        "long."
    ),
    "learning_title": "Accuracy",
    "accuracy_change": "Compression changed accuracy most in {row}: by {points} percentage points.",
    "accuracy_unchanged": "Compression changed accuracy nowhere by as much as 0.01 percentage points.",
    "within_seeds": "Its interval ({low} to {high}) includes 0, so the data show no effect.",
    "beyond_seeds": "Its interval ({low} to {high}) does not include 0, so it is probably an effect.",
    "seeds_unknown": "With one seed it cannot be said how much chance alone changes; --seeds 3 would tell.",
    "codec_loses": "One encoding by {codec} loses {share} of the energy of normally distributed numbers.",
    "fewer_updates_lower": (
        "{row} updated the model {steps} times where the serial run did {alone} times, and ended {points} "
        "percentage points lower: fewer and larger steps can cost accuracy when the number of epochs is "
        "kept."
    ),
    "fewer_updates_equal": (
        "{row} updated the model {steps} times where the serial run did {alone} times, and ended equally "
        "accurate."
    ),
    "fewer_updates_not_lower": (
        "{row} updated the model {steps} times where the serial run did {alone} times, and ended {points} "
        "percentage points higher."
    ),
    "fewer_updates_unclear": (
        "{row} updated the model {steps} times where the serial run did {alone} times; their accuracies "
        "differ by {points} percentage points, which may be chance."
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
}
