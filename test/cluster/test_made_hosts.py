"""The made hosts: their separate parts, the rates of their cables, and that nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import rig
from refusals import refused

from horovod.made_hosts import MadeHosts, cluster, errors, system

pytestmark = pytest.mark.quick

SEND = "import socket; socket.create_connection(('h1', 5000)).sendall(bytes({}))"
RECEIVE = """
import socket, time
with socket.create_server(("", 5000)) as server:
    print("ready", flush=True)
    connection = server.accept()[0]
count, begin = 0, time.perf_counter()
while part := connection.recv(1 << 20):
    count += len(part)
print(count, time.perf_counter() - begin)
"""


def said(hosts: MadeHosts, host: str, script: str) -> str:
    done = hosts.run(host, ["sh", "-c", script])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def traces(name: str) -> list[str]:
    """Return the traces of a cluster on this machine."""
    namespaces = [path.name for path in system.NETWORK_NAMESPACES.iterdir() if f"-{name}-" in path.name]
    return namespaces + [str(path) for path in (cluster.FOLDER / name,) if path.exists()]


def test_a_host_has_its_own_of_what_jobs_could_confuse(made: MadeHosts, tmp_path: Path) -> None:
    made.up()
    outside = os.listdir("/dev/shm")
    assert said(made, "h1", "uname -n; echo $TMPDIR") == f"h1\n{made.login.temporary}"
    said(made, "h1", 'touch /dev/shm/mine "$TMPDIR/mine"')
    assert said(made, "h1", 'ls /dev/shm "$TMPDIR" | grep -c mine') == "2"
    assert said(made, "h2", 'ls /dev/shm "$TMPDIR"').split("\n")[1:] == ["", f"{made.login.temporary}:"]
    assert os.listdir("/dev/shm") == outside
    assert said(made, "h1", "ls /sys/class/net") == "eth0\nlo"
    assert int(said(made, "h2", "ls -d /proc/[0-9]* | wc -l")) < 5  # sshd and this
    assert said(made, "h1", "ssh h2 uname -n; ssh 10.77.0.2 uname -n") == "h2\nh2"
    assert said(made, "h1", "ip route") == "10.77.0.0/24 dev eth0 proto kernel scope link src 10.77.0.1"
    (tmp_path / "shared").write_text("seen")
    assert said(made, "h2", f"cat {tmp_path}/shared") == "seen"


def test_cables_carry_what_their_rate_allows_and_count_it(made: MadeHosts) -> None:
    made.up()
    count = 20_000_000
    before = {name: made.bytes(name) for name in made.names}
    receiver = made.start("h1", [sys.executable, "-c", RECEIVE])
    assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
    made.rate("200mbit")
    made.run("h2", [sys.executable, "-c", SEND.format(count)])
    received, seconds = receiver.communicate(timeout=60)[0].split()
    assert int(received) == count
    # 25 MB/s with headers, after a bucket of 256 KiB; never faster, also on a busy machine
    assert float(seconds) > 0.95 * (count - 262_144) / 25e6
    (received_here, _), (_, sent) = made.bytes("h1"), made.bytes("h2")
    for carried in (received_here - before["h1"][0], sent - before["h2"][1]):
        assert count < carried < 1.05 * count + 20_000


def test_clusters_of_the_same_addresses_do_not_meet(made: MadeHosts) -> None:
    made.up()
    with MadeHosts(3, prefix="other", name="lock") as others:  # a file of ours must not block a name
        assert said(others, "other1", "ssh other2 uname -n") == "other2"
        assert said(made, "h1", "ssh h2 uname -n") == "h2"
        assert made.run("h1", ["ssh", "10.77.0.3", "true"]).returncode == 255
        assert set(others.addresses.values()) > set(made.addresses.values())
    assert traces(others.cluster) == []
    assert made.status() == {"h1": "10.77.0.1 up", "h2": "10.77.0.2 up"}


def test_up_and_down_again_and_again(made: MadeHosts) -> None:
    made.up()
    sleeper = made.start("h1", ["sleep", "300"])
    made.up()
    assert sleeper.wait(timeout=10) != 0
    assert made.status() == {"h1": "10.77.0.1 up", "h2": "10.77.0.2 up"}
    made.down()
    made.down()
    assert traces(made.cluster) == []
    with refused(errors.not_up, host="h1"):
        made.start("h1", ["true"])


def test_hosts_of_a_process_that_was_killed_are_removed(made: MadeHosts) -> None:
    code = "import time; from horovod.made_hosts import MadeHosts; MadeHosts(1, name='lost').up()"
    words = [sys.executable, "-c", f"{code}; print('up', flush=True); time.sleep(300)"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=rig.ROOT) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        made.up()  # its maker is alive
        assert len(traces("lost")) == 3
        process.send_signal(signal.SIGKILL)
    made.up()
    assert traces("lost") == []


def test_what_stops_a_command_stops_it_on_the_host(made: MadeHosts) -> None:
    made.up()
    with refused(errors.too_slow_on_host, host="h1", limit=1):
        made.run("h1", ["sleep", "271"], limit=1)
    assert "271" not in said(made, "h1", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")


def test_the_command_line(made: MadeHosts) -> None:
    def command(*words: str) -> str:
        whole = [sys.executable, "-m", "horovod.made_hosts", "--name", made.cluster, *words]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=30, cwd=rig.ROOT)
        return done.stdout + done.stderr + (f"exit {done.returncode}" if done.returncode else "")

    assert command("down") == ""
    assert command("status") == f"made_hosts: there is no cluster named {made.cluster}\nexit 1"
    assert command("up", "2", "--rate", "1gbit") == ""
    assert command("exec", "h2", "uname", "-n") == "h2\n"
    assert "tbf" in command("exec", "h1", "tc", "qdisc", "show", "dev", "eth0")
    assert command("rate", "none") == ""
    assert "tbf" not in command("exec", "h1", "tc", "qdisc", "show", "dev", "eth0")
    assert [int(word) >= 0 for word in command("bytes", "h1").split()] == [True, True]
    assert command("unlink", "h1") + command("cut", "h2") == ""
    assert command("status") == "h1 10.77.0.1 unlinked\nh2 10.77.0.2 down\n"
    assert "h2 is not up" in command("exec", "h2", "true")
    assert command("link", "h1") + command("boot", "h2") == ""
    assert command("exec", "h1", "ssh", "h2", "uname", "-n") == "h2\n"
    assert "there is no host h9" in command("kill", "h9")
    assert "Error: " in command("rate", "fast") or "fail" in command("rate", "fast")
    assert command("down") == "" and traces(made.cluster) == []


CONNECT = """
import socket, time
took = []
for _ in range(9):
    begin = time.perf_counter()
    socket.create_connection(("h2", 22)).close()
    took.append(time.perf_counter() - begin)
print(sorted(took)[4])
"""


def test_round_trips_take_what_they_shall(hosts_can_be: None) -> None:
    """A connection is open after one delay; a stream arrives complete, no faster than the cable."""
    with MadeHosts(2, rate="100mbit", rtt="20ms", name=f"far{os.getpid()}") as hosts:
        assert 0.020 <= float(said(hosts, "h1", f"{sys.executable} -c '{CONNECT}'")) < 0.5
        receiver = hosts.start("h1", [sys.executable, "-c", RECEIVE])
        assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
        assert hosts.run("h2", [sys.executable, "-c", SEND.format(20_000_000)]).returncode == 0
        count, seconds = receiver.communicate(timeout=30)[0].split()
        assert int(count) == 20_000_000 and float(seconds) > 1.5
        assert MadeHosts.open(hosts.cluster).rtt == "20ms" and hosts.switch_seconds() > 0.0
    assert not traces(hosts.cluster)
