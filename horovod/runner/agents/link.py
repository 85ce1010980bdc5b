"""Whether the connection of ssh, by which this host's agent was started, gets no answer any more.

A host that is cut off hears no end of it, perhaps for hours. But an agent says every second that it lives,
and the kernel knows that nobody has acknowledged it. A driver that is stopped is not gone: its kernel does.

Standard library only and few imports, as `agent`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address

# Times that the kernel has sent something again without an answer: after 0.2 s, 0.4 s, ..., 6 s together.
_UNANSWERED = 5
# Columns of /proc/net/tcp. Where the interface is down, what is sent again counts as a probe.
_STATE, _RETRANSMITS, _PROBES, _LAST, _ESTABLISHED = 3, 6, 8, 9, "01"


def is_unanswered(row: Sequence[str]) -> bool:
    """Whether a connection, a row of such a table, gets no answer any more. False for a row of none."""
    if len(row) <= _LAST or row[_STATE] != _ESTABLISHED:
        return False
    return max(int(row[_RETRANSMITS], 16), int(row[_PROBES])) >= _UNANSWERED


def row_of(table: str, connection: str) -> list[str]:
    """Of a table as /proc/net/tcp, the columns of SSH_CONNECTION's connection; [] where it is not there."""
    words = connection.split()
    if len(words) != 4:
        return []
    with suppress(ValueError):
        ports = tuple(f"{int(port):04X}" for port in (words[3], words[1]))  # ours, theirs
        there = _hexadecimal(words[0])
        for line in table.splitlines()[1:]:
            columns = line.split()
            ends = [end.rpartition(":") for end in columns[1:3]]
            if (ends[0][2], ends[1][2]) == ports and ends[1][0].endswith(there):
                return columns
    return []


def is_cut(environment: Mapping[str, str] = os.environ) -> bool:
    """False where this host's agent was started in another way than by ssh."""
    connection = environment.get("SSH_CONNECTION", "")
    for name in ("tcp", "tcp6") if connection else ():
        with suppress(OSError), open(f"/proc/self/net/{name}", encoding="utf-8") as file:
            if is_unanswered(row_of(file.read(), connection)):
                return True
    return False


def _hexadecimal(address: str) -> str:
    """As the kernel's tables have it: words of 4 bytes in the order of the machine. IPv4 may end an IPv6."""
    packed = ip_address(address.partition("%")[0]).packed
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
