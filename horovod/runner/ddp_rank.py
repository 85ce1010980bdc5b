"""Tells a rank of `horovodrun --ddp` its place, in the variables that torchrun sets, and becomes its command.

Started by its path, as `ddp_rank.py HOSTS COMMAND...`: standard library only. What is the same for all ranks
(MASTER_ADDR, WORLD_SIZE, ...: see `rendezvous`) is in the environment already.

    HOSTS := host ("/" host)*          in the order in which ranks fill them
    host  := ranks ":" interfaces      names, comma-separated, for gloo; nothing leaves the choice to it
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from itertools import accumulate


def position_of(hosts: str, rank: int, local_rank: int, local_size: int) -> dict[str, str]:
    """The variables of this rank. ValueError when the MPI placed it other than host after host."""
    listed = [host.partition(":") for host in hosts.split("/")]
    ends = list(accumulate(int(size) for size, _, _ in listed))
    group = next(number for number, end in enumerate(ends) if rank < end)
    size, _, interfaces = listed[group]
    first = ends[group] - int(size)
    if (local_rank, local_size) != (rank - first, int(size)):
        from horovod.runner import errors

        raise errors.other_order(
            rank=rank, local_rank=local_rank, local_size=local_size, expected=rank - first, slots=int(size)
        )
    position = {"RANK": rank, "ROLE_RANK": rank, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_size}
    position |= {"GROUP_RANK": group, "NODE_RANK": group}
    gloo = {"GLOO_SOCKET_IFNAME": interfaces} if interfaces else {}
    return {**{name: str(number) for name, number in position.items()}, **gloo}


def defaults(local_size: int) -> dict[str, str]:
    """What is set unless the user has set it: a rank starts a thread per core otherwise."""
    return {"OMP_NUM_THREADS": "1"} if local_size > 1 else {}


def main(hosts: str, command: list[str]) -> None:
    """Become the command. Does not return."""
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from horovod.runner.rank import NOT_EXECUTABLE, NOT_FOUND, rank_and_local_size

    rank, local_size = rank_and_local_size()
    try:
        position = position_of(hosts, rank, _local_rank(os.environ), local_size)
    except ValueError as error:
        sys.exit(f"horovodrun --ddp: {error}")
    given = {name: os.environ[name] for name in ("GLOO_SOCKET_IFNAME",) if name in os.environ}
    environment = {**defaults(local_size), **os.environ, **position, **given}
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        path = (
            f" (PATH is {environment.get('PATH', 'empty')})" if isinstance(error, FileNotFoundError) else ""
        )
        why = f"horovodrun --ddp: the command {command[0]} cannot be started: {error.strerror}{path}"
        print(why, file=sys.stderr, flush=True)
        sys.exit(NOT_EXECUTABLE if isinstance(error, PermissionError) else NOT_FOUND)


def _local_rank(environment: Mapping[str, str]) -> int:
    from horovod.common.launched import LOCAL_RANKS
    from horovod.runner import errors

    text = next((environment[name] for name in LOCAL_RANKS if name in environment), None)
    if text is None:
        raise errors.no_local_ranks(variables=list(LOCAL_RANKS))
    return int(text)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
