"""Whether the ssh connection by which this host's agent was started is cut.

A host that is cut off may not see the connection end for hours. But an agent sends a sign of life every
second, and the kernel counts retransmissions. The kernel of a stopped driver still acknowledges.

Standard library only and few imports, as `agent`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address

# Retransmissions without an answer: after 0.2 s, 0.4 s, ..., 6 s in all.
_UNANSWERED = 5
# Columns of /proc/net/tcp. If the interface is down, retransmissions count as probes.
_STATE, _RETRANSMITS, _PROBES, _LAST, _ESTABLISHED = 3, 6, 8, 9, "01"


def is_unanswered(row: Sequence[str]) -> bool:
    """Whether a connection (a row of that table) gets no answers; False for an empty row."""
    if len(row) <= _LAST or row[_STATE] != _ESTABLISHED:
        return False
    return max(int(row[_RETRANSMITS], 16), int(row[_PROBES])) >= _UNANSWERED


def row_of(table: str, connection: str) -> list[str]:
    """Return the columns of SSH_CONNECTION's connection in a table as /proc/net/tcp; [] if it is missing."""
    words = connection.split()
    if len(words) != 4:
        return []
    with suppress(ValueError):
        ports = tuple(f"{int(port):04X}" for port in (words[3], words[1]))  # of this host, of the other
        there = _hexadecimal(words[0])
        for line in table.splitlines()[1:]:
            columns = line.split()
            ends = [end.rpartition(":") for end in columns[1:3]]
            if (ends[0][2], ends[1][2]) == ports and ends[1][0].endswith(there):
                return columns
    return []


def is_cut(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the connection is cut; False if this host's agent was not started by ssh."""
    connection = environment.get("SSH_CONNECTION", "")
    for name in ("tcp", "tcp6") if connection else ():
        with suppress(OSError), open(f"/proc/self/net/{name}", encoding="utf-8") as file:
            if is_unanswered(row_of(file.read(), connection)):
                return True
    return False


def _hexadecimal(address: str) -> str:
    """Return an address as in the kernel's tables: 4-byte words in the machine's byte order. An IPv4 address
    is the end of its IPv6 form.
    """
    packed = ip_address(address.partition("%")[0]).packed
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
