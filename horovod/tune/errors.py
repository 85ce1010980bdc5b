"""All error messages of horovod.tune; see horovod.common.sentences."""

from __future__ import annotations

from horovod.common.exceptions import WrongArgument
from horovod.common.sentences import Explained


class UnusableFile(Explained, ValueError):
    """A file of the cache that cannot be used."""


class UnusableFolder(Explained, OSError):
    """The cache cannot be written now."""


same_choices = WrongArgument.says("{knob}: choices must be different texts, not {choices}")
same_names = WrongArgument.says("knobs must have different names, not {names}")
no_knob = WrongArgument.says("{names:listed}: no such knob", "there are {choices:listed}")
no_decision = WrongArgument.says("no decision of a tuner: {got!r}")
no_pairs = WrongArgument.says("pairs of positive seconds are needed, not {got}")
no_score_mode = WrongArgument.says("there is no score mode {got!r}", "there are {choices:listed}")
no_steps = WrongArgument.says("a block has no steps")
no_regular_file = UnusableFile.says("it is no regular file")
too_many_bytes = UnusableFile.says("it has more than {most} bytes")
no_json = UnusableFile.says("it is no JSON: {why}")
other_format = UnusableFile.says("it is of another version of this package, or of something else")
lacking_parts = UnusableFile.says("parts of it are missing or of another kind")
symbolic_link = UnusableFolder.says("{path} is a symbolic link, which is not followed", "remove it")
folder_locked = UnusableFolder.says("another process has locked the folder")
