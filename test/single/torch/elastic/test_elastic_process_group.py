"""Process groups in hvd.elastic.run: which are refused, left or closed, in a world of one."""

# private: _Watch, _watch, _connections: the cut comes at a moment that a test chooses

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import busy
import pytest
import torch.distributed as dist
from refusals import refused

import horovod.torch as hvd
from horovod.common import jobs
from horovod.common.exceptions import HorovodInternalError
from horovod.torch import errors
from horovod.torch.elastic import process_group
from horovod.torch.elastic.process_group import Groups

BROKEN = RuntimeError("Connection closed by peer [127.0.0.1]:9")


@pytest.fixture(autouse=True)
def world(alone: None) -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def test_a_reset_leaves_the_group_and_another_is_made() -> None:
    groups = Groups()
    groups.begin()
    opened = []
    for _ in range(4):
        hvd.elastic.init_process_group("gloo")
        assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
        with refused(errors.group_is_there):
            hvd.elastic.init_process_group("gloo")
        groups.leave()
        groups.leave()
        assert not dist.is_initialized()
        opened.append(len(os.listdir("/proc/self/fd")))
    assert opened[-1] <= opened[1], opened


def test_a_group_of_before_stays() -> None:
    hvd.elastic.init_process_group("gloo")
    groups = Groups()
    groups.begin()
    assert groups.loss_behind(BROKEN) is None
    groups.leave()
    assert dist.is_initialized()


def test_which_errors_come_of_a_broken_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_group, "_most_seconds", lambda: 0.2)
    monkeypatch.setattr(process_group, "_LOOKS_EVERY", 1000.0)  # connections are cut when the test says so
    groups = Groups()
    groups.begin()
    assert groups.loss_behind(BROKEN) is None, "there is no group"
    hvd.elastic.init_process_group("gloo")
    assert groups.loss_behind(BROKEN) is None, "the world is well"
    member: Any = jobs.current().member
    member.engine.shutdown()
    assert groups.loss_behind(RuntimeError("the data is damaged")) is None
    assert groups.loss_behind(ValueError(str(BROKEN))) is None
    assert isinstance(groups.loss_behind(BROKEN), HorovodInternalError)
    assert process_group._watch is not None
    process_group._watch.cut()
    assert isinstance(groups.loss_behind(RuntimeError("others' words")), HorovodInternalError)
    groups.leave()


def test_connections_are_closed_when_the_engine_ends() -> None:
    before = process_group._connections()
    watch = process_group._Watch(before)
    with socket.create_server(("127.0.0.1", 0)) as server:
        mine = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        inner, other = socket.socketpair()  # none of TCP
        watch.has_begun()
        later = socket.create_connection(server.getsockname())
        member: Any = jobs.current().member
        member.engine.shutdown()
        busy.until(lambda: watch.has_cut)
        watch.cut()
        assert mine.recv(1) == b"" and theirs.recv(1) == b""
        inner.send(b"x")
        assert other.recv(1) == b"x"
        assert later.getpeername() and server.accept()[0].getpeername(), "later ones, and the server"
        for each in (mine, theirs, inner, other, later):
            each.close()
