"""The options of the autotuner: Horovod's names, and those that it has not."""

from __future__ import annotations

from horovod.common.options.option import COMPRESSION, JOB, PYTHON, RANK, TUNING, Option

__all__ = ["TUNING_OPTIONS"]


def _of_gaussian_process(name: str, help_: str) -> Option:
    """Accepted, so that scripts of Horovod's go on; there is no Gaussian process that it could be for."""
    return Option(
        f"autotune_{name}",
        help_,
        (f"--autotune-{name.replace('_', '-')}",),
        variable=f"HOROVOD_AUTOTUNE_{name.upper()}",
        key=f"autotune.{name}",
        type="float",
        group=TUNING,
    )


TUNING_OPTIONS: tuple[Option, ...] = (
    Option(
        "autotune",
        "try settings while the job trains, keep what is faster, and remember it for the next job like it",
        ("--autotune",),
        ("--no-autotune",),
        variable="HOROVOD_AUTOTUNE",
        key="autotune.enabled",
        type="bool",
        default="0",
        part=PYTHON,
        scope=JOB,
        group=TUNING,
    ),
    Option(
        "autotune_log_file",
        "file for what tuning tried and chose, as JSON, written by rank 0",
        ("--autotune-log-file",),
        variable="HOROVOD_AUTOTUNE_LOG",
        key="autotune.log_file",
        part=PYTHON,
        scope=RANK,
        group=TUNING,
    ),
    Option(
        "autotune_warmup_samples",
        "blocks of steps at the beginning that do not count",
        ("--autotune-warmup-samples",),
        variable="HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
        key="autotune.warmup_samples",
        type="int",
        default="3",
        maximum=100_000,
        part=PYTHON,
        scope=RANK,
        group=TUNING,
    ),
    Option(
        "autotune_steps_per_sample",
        "steps of a block that count; in one more before them settings change",
        ("--autotune-steps-per-sample",),
        variable="HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
        key="autotune.steps_per_sample",
        type="int",
        default="4",
        minimum=1,
        maximum=100_000,
        part=PYTHON,
        scope=RANK,
        group=TUNING,
    ),
    Option(
        "autotune_max_steps",
        "steps that tuning takes at most, those of the warm-up among them",
        ("--autotune-max-steps",),
        variable="HOROVOD_AUTOTUNE_MAX_STEPS",
        key="autotune.max_steps",
        type="int",
        default="400",
        maximum=1_000_000,
        part=PYTHON,
        scope=RANK,
        is_new=True,
        group=TUNING,
    ),
    Option(
        "autotune_mode",
        "what a block of steps counts as: time, their mean; filter, without steps that something else made "
        "longer, as a checkpoint; profile, the same, and the shares of communication are printed",
        ("--autotune-mode",),
        variable="HOROVOD_AUTOTUNE_MODE",
        key="autotune.mode",
        default="filter",
        choices=("time", "filter", "profile"),
        part=PYTHON,
        scope=RANK,
        is_new=True,
        group=TUNING,
    ),
    Option(
        "autotune_reuse",
        "what earlier jobs like this have found: reuse, take it and try nothing; update, begin with it; off",
        ("--autotune-reuse",),
        variable="HOROVOD_AUTOTUNE_REUSE",
        key="autotune.reuse",
        default="reuse",
        choices=("reuse", "update", "off"),
        part=PYTHON,
        scope=RANK,
        is_new=True,
        group=TUNING,
    ),
    Option(
        "autotune_compression",
        "let tuning try steps without compression too, where a script asks for one",
        ("--autotune-compression",),
        variable="HOROVOD_AUTOTUNE_COMPRESSION",
        key="autotune.compression",
        type="bool",
        default="0",
        part=PYTHON,
        scope=JOB,
        is_new=True,
        group=COMPRESSION,
    ),
    Option(
        "autotune_cache",
        "folder in which rank 0 keeps what was found. Default: ~/.cache/horovod/tune",
        variable="HOROVOD_AUTOTUNE_CACHE",
        part=PYTHON,
        scope=RANK,
        is_new=True,
    ),
    _of_gaussian_process(
        "bayes_opt_max_samples",
        "accepted for scripts of Horovod's, and without effect: the search is no Bayesian one, and ends by "
        "itself or with --autotune-max-steps",
    ),
    _of_gaussian_process(
        "gaussian_process_noise",
        "accepted for scripts of Horovod's, and without effect: the noise is measured",
    ),
)
