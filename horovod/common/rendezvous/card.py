"""A rank's card, sent before ranks are connected: JSON, from processes that are not authenticated yet.

    {"version": 1, "package": "0.29.0", "host": ..., "namespace": ..., "name": "node1, process 4711",
     "addresses": [["eth0", "10.0.0.1/24", 1000], ...], "route": "10.0.0.1" or "", "wanted": ["eth0"],
     "nonce": 64 hexadecimal digits, "has_secret": false}

A rank that cannot take part sends {"version": 1, "package": "0.29.0", "name": ..., "error": why}.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from typing import Any

import horovod
from horovod.common import errors, networks
from horovod.common.networks import Address, Description, Interface
from horovod.common.options import BY_VARIABLE
from horovod.common.sentences import facts_of

VERSION = 1
MOST_BYTES = 64 << 10  # of one rank's message
NONCE_BYTES = 32
_MOST_ADDRESSES, _MOST_WANTED, _MOST_CHARACTERS = 200, 64, 300
_FASTEST = 2**31  # Mbit/s


@dataclass(frozen=True)
class Card:
    """One rank's card."""

    host: str  # the same text for ranks that can share memory
    namespace: str  # the same for ranks that reach each other at a loopback address
    name: str
    addresses: tuple[tuple[str, Interface, int], ...]
    route: Address | None  # the rank's own address towards the meeting place; None if others cannot reach it
    wanted: tuple[str, ...]  # interfaces, or networks as 10.0.0.0/8, to listen in; () for the default
    nonce: bytes
    has_secret: bool

    def description(self) -> Description:
        """The host for `networks`, without addresses that end at the host itself."""
        ends = tuple(
            (name, at)
            for name, at, _ in self.addresses
            if not (at.ip.is_loopback or at.ip.is_link_local or at.ip.is_multicast)
        )
        return Description(ends, speeds={name: speed for name, _, speed in self.addresses})

    def to_bytes(self) -> bytes:
        addresses = [[name, str(at), speed] for name, at, speed in self.addresses]
        texts = {"route": str(self.route or ""), "nonce": self.nonce.hex()}
        return _written({**vars(self), "addresses": addresses, **texts})


def complaint(error: Exception) -> bytes:
    """The message instead of a card: why this rank cannot take part."""
    return _written({"name": own_name(), "error": " ".join(str(error).split())[:_MOST_CHARACTERS]})


def own(meets_at: str, has_secret: bool, environment: Mapping[str, str]) -> Card:
    """This process' card, with a new nonce. `meets_at`: the host where ranks meet, or "".

    ValueError: a setting is wrong. ImportError, OSError: facts of the host cannot be read.
    """
    found = [(n, at, speed) for n, at, speed in networks.addresses() if not at.ip.is_link_local]
    name, boot = socket.gethostname(), _first_line("/proc/sys/kernel/random/boot_id")
    return Card(
        # Ranks that share memory also check by process ids whether the others live.
        host=f"{name} {boot} {_number('/dev/shm', 'st_dev')} {_number('/proc/self/ns/pid', 'st_ino')}",
        namespace=f"{boot or name} {_number('/proc/self/ns/net', 'st_ino')}",
        name=own_name(),
        addresses=tuple(found[:_MOST_ADDRESSES]),
        route=networks.address_towards(meets_at),
        wanted=_wanted(environment),
        nonce=secrets.token_bytes(NONCE_BYTES),
        has_secret=has_secret,
    )


def own_name() -> str:
    return f"{socket.gethostname()}, process {os.getpid()}"


def _wanted(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Interfaces and networks set by the user or by horovodrun."""
    option = BY_VARIABLE["HOROVOD_TCP_INTERFACES"]
    words = option.read(environment)
    try:
        return _ways(words)
    except ValueError as error:
        raise errors.no_interfaces(
            **facts_of(error, setting=option.variable, value=",".join(words)[:80])
        ) from None


def _ways(words: Any) -> tuple[str, ...]:
    """Interfaces and networks. ValueError for anything else."""
    if not isinstance(words, list) or len(words) > _MOST_WANTED or not all(map(_is_text, words)):
        raise errors.not_networks()
    for word in words:
        if "/" in word:
            ip_network(word, strict=False)
    return tuple(words)


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _number(path: str, what: str) -> str:
    """A number of a file's status; "" on systems without such a file."""
    try:
        return str(getattr(os.stat(path), what))
    except OSError:
        return ""


def _written(said: dict[str, Any]) -> bytes:
    return json.dumps({"version": VERSION, "package": horovod.__version__, **said}).encode()


def parsed(rank: int, text: bytes) -> Card:
    """Parse a rank's card. ValueError, which names the rank, for anything else, a complaint included."""
    record = record_of(rank, text)
    if record.get("version") != VERSION:
        package = record.get("package")
        got = f"horovod {package}" if _is_text(package) else "something else"
        raise errors.other_release(ranks=[rank], got=got, expected=horovod.__version__)
    name, why = record.get("name"), record.get("error")
    if _is_text(name) and _is_text(why):
        raise errors.cannot_take_part(ranks=[rank], host=name, why=why)
    try:
        return _card_of(record)
    except (ValueError, KeyError, TypeError, OverflowError):
        raise misunderstood(rank, text) from None


def record_of(rank: int, text: bytes) -> dict[str, Any]:
    """A rank's message as a JSON object. ValueError, which names the rank, for anything else."""
    try:
        record = json.loads(text) if len(text) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise misunderstood(rank, text)
    return record


def _card_of(record: dict[str, Any]) -> Card:
    """A card. ValueError, KeyError, TypeError, OverflowError if a part has another form."""
    host, namespace, name = texts = [record[key] for key in ("host", "namespace", "name")]
    addresses, route, has_secret = record["addresses"], record["route"], record["has_secret"]
    if not all(map(_is_text, texts)) or type(has_secret) is not bool:
        raise ValueError
    if not isinstance(addresses, list) or len(addresses) > _MOST_ADDRESSES or not isinstance(route, str):
        raise ValueError
    if len(nonce := bytes.fromhex(record["nonce"])) != NONCE_BYTES:
        raise ValueError
    ends = tuple(map(_address_of, addresses))
    towards = _without_scope(ip_address(route)) if route else None
    return Card(host, namespace, name, ends, towards, _ways(record["wanted"]), nonce, has_secret)


def _address_of(entry: Any) -> tuple[str, Interface, int]:
    name, address, speed = entry
    if not (_is_text(name) and _is_text(address) and type(speed) is int and 0 <= speed <= _FASTEST):
        raise ValueError
    interface = ip_interface(address)
    _without_scope(interface)
    return name, interface, speed


def _without_scope(address: Address) -> Address:
    """The address. ValueError if it has a scope, as fe80::1%eth0, which means nothing on another host."""
    if getattr(address, "scope_id", None) is not None:
        raise ValueError
    return address


def _is_text(value: Any) -> bool:
    """Whether the value is a text that may be printed and passed on."""
    return isinstance(value, str) and 0 < len(value) <= _MOST_CHARACTERS and value.isprintable()


def misunderstood(rank: int, text: bytes) -> ValueError:
    return errors.misunderstood(ranks=[rank], got=text[:80], bytes=len(text))
