"""The lab between hosts that it makes: a short experiment, at memory speed and at a cable's speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import rig

from horovod.made_hosts import cluster

sys.path.insert(0, str(rig.ROOT / "test" / "parallel"))
import lab_runs
from page_blocks import blocks

OPTIONS = ["--np", "2", "--compression", "none", "bit8", "--epochs", "1", "--seeds", "1", "--out", "out"]


def abandoned() -> set[str]:
    """Return the clusters `processPIDclusterN` of ended processes; other tests may make theirs meanwhile."""
    names = [path.name for path in cluster.FOLDER.glob("process*cluster*") if path.is_dir()]
    pids = {name: name.removeprefix("process").partition("cluster")[0] for name in names}
    return {name for name, pid in pids.items() if not Path(f"/proc/{pid}").exists()}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_made_hosts(hosts_can_be: None, tmp_path: Path) -> None:
    (script,) = blocks("docs/lab.md", "python")
    (tmp_path / "my_train.py").write_text(script)
    before = abandoned()
    said = lab_runs.done(
        tmp_path, *OPTIONS, "--made-hosts", "2", "--rates", "1gbit", "--script", "my_train.py", limit=280
    )
    assert abandoned() <= before, "the lab left hosts"
    found = {path.name: path for path in (tmp_path / "out" / "runs").iterdir()}
    slow = [name for name in found if "2_hosts_at_1gbit" in name]
    assert len(found) == 4 and len(slow) == 2, said
    for name in slow:
        plan = json.loads((found[name] / "plan.json").read_text())
        assert plan["place"] == "2 hosts at 1gbit"
        assert "-H h1:1,h2:1" in (found[name] / "output.txt").read_text()
    # Ranks in other places got the same models, because compression does not depend on the transport.
    for kind in ("none", "bit8"):
        ends = [records[-1] for name, records in lab_runs.logs(tmp_path / "out").items() if kind in name]
        assert len({end["checksum"] for end in ends}) == 1
        assert all(end["identical"] for end in ends)
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.timeout(200)
def test_hosts_by_name(cluster: rig.Cluster, tmp_path: Path) -> None:
    script = lab_runs.write_script(tmp_path)
    words = [sys.executable, "-m", "horovod.lab", *OPTIONS, "-H", "t1:1,t2:1", "--script", str(script)]
    done = cluster.run("t1", ["sh", "-c", f"cd {tmp_path} && exec {subprocess.list2cmdline(words)}"], 180)
    assert done.returncode == 0, done.stdout + done.stderr
    plans = [json.loads(path.read_text()) for path in tmp_path.glob("out/runs/*/plan.json")]
    assert [plan["place"] for plan in plans] == ["t1:1,t2:1"] * 2
