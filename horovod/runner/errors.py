"""What ends horovodrun before any rank has started."""

from __future__ import annotations

from horovod.common.sentences import Explained


class LaunchError(Explained):
    """A job that cannot be started; the message is a sentence for the person who typed the command."""
