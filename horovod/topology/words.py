"""Facts as words and figures, for both drawings and the lab's table."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from horovod.topology.facts import Gpu, GpuLink, Host, Nic, Ranks, Socket
from horovod.topology.language import ENGLISH, Language

_LEGAL_FORMS = r",? (Corporation|Technologies|Semiconductor|Co\.|Inc\.|Ltd\.?)(?= |,|$)"
PCIE_WAYS = {
    "switch": "through a switch that both are on",
    "root": "through the root of their socket",
    "sockets": "across the sockets",
}


def memory(size: int) -> str:
    """A size in GiB or TiB, as memory is sold."""
    gib = size / 2**30
    number, unit = (gib / 1024, "TiB") if gib >= 1000 else (gib, "GiB")
    return f"{number:.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"


def rate(bits_per_second: float) -> str:
    factor, unit = (1e9, "Gbit/s") if bits_per_second >= 1e9 else (1e6, "Mbit/s")
    number = bits_per_second / factor
    return f"{number:.3g} {unit}" if number < 1000 else f"{number:.0f} {unit}"


def size(count: int) -> str:
    """A size of a message: "1 MB" is a million bytes."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"


def duration(milliseconds: float) -> str:
    digits = 0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 2 if milliseconds >= 1 else 3
    return f"{milliseconds:.{digits}f} ms"


def number_of(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def numbers(values: Iterable[int]) -> str:
    """ "0-3, 6"."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def rank_label(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {numbers(ranks)}" if ranks else "no rank"


def processor(socket: Socket, say: Language = ENGLISH) -> str:
    """ "Intel Xeon Gold 6348 @ 2.60GHz": without the makers' trade marks."""
    if socket.model is None:
        return say("model unknown")
    plain = re.sub(r"\((R|TM|r|tm)\)|\bCPU\b|\bProcessor\b", "", socket.model)
    return re.sub(r"\s+", " ", plain).strip() or socket.model


def gpu_model(gpu: Gpu) -> str:
    """ "NVIDIA A100-SXM4-80GB, 80 GiB"."""
    return gpu.model + (f", {memory(gpu.memory_bytes)}" if gpu.memory_bytes is not None else "")


def cores(socket: Socket, say: Language = ENGLISH) -> str:
    parts = [] if socket.cores is None else [say("{count} core{s}", count=socket.cores)]
    return ", ".join([*parts, say("{count} thread{s}", count=socket.threads)])


def speed(nic: Nic, say: Language = ENGLISH) -> str:
    """ "25 Gbit/s, RDMA"; also that the speed is unknown, or the cable is unplugged."""
    if not nic.is_up:
        return say("no link")
    told = say("speed unknown") if nic.bits_per_second is None else rate(nic.bits_per_second)
    return told + ", RDMA" * nic.is_rdma


def nic_model(nic: Nic) -> str:
    """Its model, else its driver; "" if neither is known, as for most virtual ones."""
    return re.sub(_LEGAL_FORMS, "", nic.model) if nic.model else nic.driver or ""


def connections(host: Host, say: Language = ENGLISH) -> list[str]:
    """The connections of the GPUs: one sentence if all pairs are alike, else one for each kind."""
    kinds: dict[tuple[str, int], list[GpuLink]] = {}
    for link in host.gpu_links:
        kinds.setdefault((link.kind, link.links), []).append(link)
    if len(kinds) == 1 and len(host.gpus) > 2:
        return [say("{way}, between any two GPUs", way=_way(host.gpu_links[0], say))]
    return [
        f"{_way(links[0], say)}: {', '.join(f'{link.first}-{link.second}' for link in links)}"
        for links in kinds.values()
    ]


def _way(link: GpuLink, say: Language) -> str:
    if link.kind != "NVLink":
        return say(f"PCIe {PCIE_WAYS[link.kind]}")
    links = say("{count} link{s}", count=link.links)
    if link.bytes_per_second is None:
        return say("NVLink, {links}", links=links)
    rate = f"{link.bytes_per_second / 1e9:.3g}"
    return say("NVLink, {links} of {rate} GB/s each way", links=links, rate=rate)


def switches(host: Host) -> list[list[int]]:
    """GPUs (indices) that share a PCIe switch."""
    found: list[set[int]] = []
    for link in host.gpu_links:
        if link.kind == "switch":
            both = {link.first, link.second}
            touching = [group for group in found if group & both]
            found = [group for group in found if not group & both] + [both.union(*touching)]
    return [sorted(group) for group in sorted(found, key=min)]


@dataclass(frozen=True)
class Group:
    """Similar hosts that are drawn as one, or a single host, and the ranks on them."""

    hosts: tuple[Host, ...]
    ranks: tuple[int, ...]

    @property
    def host(self) -> Host:
        return self.hosts[0]

    def title(self) -> str:
        if len(self.hosts) == 1:
            return self.host.name
        return f"{len(self.hosts)} x the same: {', '.join(host.name for host in self.hosts)}"

    def rank_text(self) -> str:
        each = f", {len(self.ranks) // len(self.hosts)} on each" if len(self.hosts) > 1 and self.ranks else ""
        return rank_label(self.ranks) + each

    def addresses(self, nic: Nic) -> str:
        """The interface's addresses; in a group of hosts, the networks of their interfaces of this name."""
        if len(self.hosts) == 1:
            return ", ".join(nic.addresses)
        return ", ".join(dict.fromkeys(nic.networks))


FOLD_FROM = 3  # two similar hosts are drawn separately, to show their connection


def groups(hosts: Sequence[Host], ranks: Ranks | None) -> list[Group]:
    """Hosts in order. Neighbours that are alike and have equally many ranks form a group if they are many."""
    singles = [Group((host,), tuple(ranks.of(n)) if ranks else ()) for n, host in enumerate(hosts)]
    found: list[Group] = []
    for _, part in itertools.groupby(singles, key=lambda one: (_shape(one.host), len(one.ranks))):
        alike = list(part)
        if len(alike) < FOLD_FROM:
            found += alike
        else:
            members = tuple(one.host for one in alike)
            found.append(Group(members, tuple(rank for one in alike for rank in one.ranks)))
    return found


def _shape(host: Host) -> tuple[Host, str]:
    """A host without the differences between similar hosts: names, addresses, a few bytes of memory."""
    nics = tuple(replace(nic, addresses=nic.networks) for nic in host.nics)
    total = "" if host.memory_bytes is None else memory(host.memory_bytes)
    sockets = tuple(replace(socket, memory_bytes=None) for socket in host.sockets)
    return replace(host, name="", nics=nics, sockets=sockets, memory_bytes=None), total


def shared_networks(hosts: Sequence[Host]) -> dict[str, list[tuple[int, str]]]:
    """Networks with several hosts: network -> (index of host, name of its interface)."""
    found: dict[str, list[tuple[int, str]]] = {}
    for number, host in enumerate(hosts):
        for nic in host.nics:
            for network in nic.networks:
                found.setdefault(network, []).append((number, nic.name))
    return {network: ends for network, ends in found.items() if len({host for host, _ in ends}) > 1}
