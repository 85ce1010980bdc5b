"""Hosts as JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from horovod.topology import errors
from horovod.topology.facts import Gpu, GpuLink, Host, Nic, Socket

_PARTS = {"sockets": Socket, "gpus": Gpu, "gpu_links": GpuLink, "nics": Nic}


def to_record(host: Host) -> dict[str, Any]:
    """A record for json.dumps."""
    return asdict(host)


def from_record(record: Mapping[str, Any]) -> Host:
    """The host in a record. ValueError names missing or unknown fields."""
    try:
        fields = dict(record)
        for name, kind in _PARTS.items():
            fields[name] = tuple(kind(**_with_tuples(part)) for part in fields[name])
        return Host(**_with_tuples(fields))
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise errors.no_host_record(why=str(error)) from None


def _with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
