"""What ends horovodrun before any rank has started."""


class LaunchError(Exception):
    """A job that cannot be started; the message is a sentence for the person who typed the command."""
