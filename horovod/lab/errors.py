"""All error messages of horovod.lab: see horovod.common.sentences."""

from __future__ import annotations

from horovod.common.exceptions import WrongArgument, WrongSetting
from horovod.common.sentences import Explained


class PlaceError(Explained, ValueError):
    """There is no such place, or it does not suit the run; the message names the remedy."""


class LogError(Explained, ValueError):
    """A log is missing, or incomplete; the message names the file and the line."""


class FolderInUse(Explained, RuntimeError):
    """Another lab is working in the folder."""


class RunFailed(Explained, RuntimeError):
    """A run failed; the message has its folder, the reason and the end of its output."""


# The command line and places
no_script = WrongSetting.says("--script {path}: there is no such file")
no_example = WrongSetting.says("there is no {path}", "name a training with --script, or work in a clone")
rates_without_hosts = WrongSetting.says("--rates are those of --made-hosts, which is not given")
hosts_impossible = WrongSetting.says("--made-hosts: {why}")
one_host = WrongSetting.says(
    "--made-hosts 1: gradients are exchanged between two hosts or more", "give 2 or more"
)
wrong_compression = WrongSetting.says("--compression: {why}")
wrong_rate = PlaceError.says(
    "--rates {value}: no rate of a cable", "write a rate as 1gbit or 100mbit, or none for no limit"
)
hosts_without_rank = PlaceError.says(
    "--np {ranks} with --made-hosts {hosts}: some hosts would have no rank",
    "give at least {hosts} (or 1, which is the run without Horovod)",
)
wrong_hosts = PlaceError.says("{why}")
folder_in_use = FolderInUse.says("another lab works in {path}", "wait for it, or choose another --out")
run_failed = RunFailed.says("{path}: {why}. The end of its {output}:\n{said}")

# Logs
_AT = "{path}, line {line}: "
_AGAIN = "start the lab again to redo the run"
no_plan = LogError.says("{path} is missing or no plan", _AGAIN)
no_load = LogError.says("{path} is missing or no record of a load", _AGAIN)
unreadable = LogError.says("{path} cannot be read: {why}")
no_tuning_log = LogError.says("{path} is no log of the autotuner ({why})", _AGAIN)
more_after_final = LogError.says(_AT + "there is more after the final record")
no_final = LogError.says(_AT + "the final record is missing: the run did not end")
cut_off = LogError.says(_AT + "the line is cut off: the run did not end")
no_json = LogError.says(_AT + "not JSON: {why}")
no_record = LogError.says(_AT + "no record: its event must be one of {choices:listed}")
no_field = LogError.says(_AT + "the {event} record has no {field}")
wrong_field = LogError.says(_AT + "{field} is {got!r}, and must be {expected}")
not_as_planned = LogError.says(_AT + "{field} is {got!r}, but the plan of this run says {expected!r}")
changed = LogError.says(_AT + "{field} is {got!r}, and was {expected!r} before")
wrong_step = LogError.says(
    _AT + "step {step} of epoch {epoch} where step {expected_step} of epoch {expected_epoch} must come"
)
step_beyond = LogError.says(_AT + "step {step} of an epoch of {steps}")
waited_longer = LogError.says(_AT + "wait_seconds is {got}, more than the step's {most} seconds")
wrong_epoch = LogError.says(_AT + "the end of epoch {got} where that of epoch {expected} must come")
short_epoch = LogError.says(_AT + "epoch {epoch} ends after {step} of {steps} steps")
ended_early = LogError.says(
    _AT + "the run ended after {epochs} epochs and {steps} steps; its plan has {planned} epochs"
)

# Results made from logs
no_trial = WrongArgument.says("no trial: {got}")
no_load_record = WrongArgument.says("it is no record of a load: {why}")
no_share = WrongArgument.says("{field} is {got!r}, and must be a number from 0 to 1")
no_environment = WrongArgument.says("this is no record of an environment: {why}", "collect it again")
runs_differ = WrongArgument.says(
    "{path} and {other} cannot be compared: their {field} is {got} and {expected}",
    "delete the folder of the wrong one and start the lab again",
)
same_run = WrongArgument.says("{path} and {other} are the same run", "leave one out")
no_samples = WrongArgument.says("{degrees} degrees of freedom: an interval takes at least two samples")
wrong_confidence = WrongArgument.says("confidence is {got}, and must lie between 0 and 1")
no_language = WrongArgument.says("there is no report in {got!r}", "choose one of {choices:listed}")
nothing_to_report = WrongArgument.says("there are no finished runs to report on", "start the lab again")
