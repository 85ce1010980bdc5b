"""All error messages of horovod.topology: see horovod.common.sentences."""

from __future__ import annotations

from horovod.common.exceptions import WrongArgument, WrongUse
from horovod.runner.errors import LaunchError

takes_no_command = LaunchError.says("--topology starts no command", "leave out `{command}`, or --topology")
no_meaning = LaunchError.says("{option} has no meaning with --topology", "leave it out")
same_host_names = WrongUse.says(
    "two hosts have the name {host}", "give each its own (hostnamectl hostname NAME)"
)
no_host_record = WrongArgument.says("this is no record of a host: {why}", "collect it again")
too_many_numbers = WrongArgument.says("{got!r} are more than {most} numbers")
nvml_missing = WrongUse.says(
    "there is an NVIDIA driver, and no package nvidia-ml-py to ask it", "pip install nvidia-ml-py"
)
nvml_failed = WrongUse.says("NVML, a part of NVIDIA's driver, failed: {why}")
