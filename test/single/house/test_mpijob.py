"""Checks deploy/kubeflow/mpijob.yaml against the API (MPI Operator, v2beta1) and against the repository.

test/container/test_pods.py runs it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from horovod.runner import command_line

ROOT = Path(__file__).resolve().parents[3]
MANIFEST = yaml.safe_load((ROOT / "deploy" / "kubeflow" / "mpijob.yaml").read_text())
SSHD_CONFIG = (ROOT / "deploy" / "container" / "sshd_config").read_text()

# Field -> type, a tuple of the allowed values, or the fields below. The part of the API that the manifest
# uses: a field that is not here is not in the API, or is not looked up yet.
CONTAINER: dict[str, Any] = {
    "name": str,
    "image": str,
    "command": list,
    "args": list,
    "workingDir": str,
    "ports": list,
    "volumeMounts": list,
    "securityContext": {"runAsUser": int, "runAsNonRoot": bool, "allowPrivilegeEscalation": bool},
    "readinessProbe": {"tcpSocket": {"port": int}, "initialDelaySeconds": int, "periodSeconds": int},
    "resources": {"requests": {"cpu": str, "memory": str}, "limits": {"cpu": str, "memory": str}},
}
REPLICA: dict[str, Any] = {
    "replicas": int,
    "restartPolicy": ("Never", "OnFailure"),
    "template": {"metadata": {"annotations": dict}, "spec": {"containers": list, "volumes": list}},
}
MPIJOB: dict[str, Any] = {
    "apiVersion": ("kubeflow.org/v2beta1",),
    "kind": ("MPIJob",),
    "metadata": {"name": str},
    "spec": {
        "slotsPerWorker": int,
        "sshAuthMountPath": str,
        "mpiImplementation": ("OpenMPI", "Intel", "MPICH"),
        "runLauncherAsWorker": bool,
        "launcherCreationPolicy": ("AtStartup", "WaitForWorkersReady"),
        "runPolicy": {
            "cleanPodPolicy": ("None", "Running", "All"),
            "backoffLimit": int,
            "ttlSecondsAfterFinished": int,
            "activeDeadlineSeconds": int,
            "suspend": bool,
        },
        "mpiReplicaSpecs": {"Launcher": REPLICA, "Worker": REPLICA},
    },
}
REQUIRED = ("apiVersion", "kind", "metadata.name", "spec.mpiReplicaSpecs.Launcher.template")


def complaints(value: Any, schema: Any, where: str = "") -> list[str]:
    """The differences between a document and the schema, with their places."""
    if isinstance(schema, tuple):
        return [] if value in schema else [f"{where}: {value!r} is none of {schema}"]
    if isinstance(schema, type):
        return [] if type(value) is schema else [f"{where}: {value!r} is no {schema.__name__}"]
    if not isinstance(value, dict):
        return [f"{where}: {value!r} is no mapping"]
    found = [f"{where}.{name}: there is no such field" for name in sorted(value.keys() - schema.keys())]
    for name in value.keys() & schema.keys():
        found += complaints(value[name], schema[name], f"{where}.{name}")
    return found


def container(role: str) -> dict[str, Any]:
    (found,) = MANIFEST["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]["containers"]
    return dict(found)


def test_all_fields_are_those_of_the_api() -> None:
    assert complaints(MANIFEST, MPIJOB) == []
    for role in ("Launcher", "Worker"):
        assert complaints(container(role), CONTAINER, role) == []
    for path in REQUIRED:
        value = MANIFEST
        for name in path.split("."):
            value = value[name]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"slots": 2}, ".slots: there is no such field"),
        ({"slotsPerWorker": "2"}, ".slotsPerWorker: '2' is no int"),
        ({"mpiImplementation": "OpenMPI5"}, ".mpiImplementation: 'OpenMPI5' is none of"),
        ({"runPolicy": "Never"}, ".runPolicy: 'Never' is no mapping"),
    ],
)
def test_a_wrong_field_is_found(change: dict[str, Any], said: str) -> None:
    (found,) = complaints({**MANIFEST["spec"], **change}, MPIJOB["spec"])
    assert found.startswith(said)


def test_the_launcher_types_what_horovodrun_understands() -> None:
    launcher, spec = container("Launcher"), MANIFEST["spec"]
    assert launcher["command"] == ["horovodrun"]
    given, command = command_line.parse(launcher["args"])
    workers = spec["mpiReplicaSpecs"]["Worker"]["replicas"]
    assert given["np"] == workers * spec["slotsPerWorker"]
    assert given["hostfile"] == "/etc/mpi/hostfile"  # the operator writes it there
    assert command[0] == "python"
    assert (ROOT / command[1]).is_file()


def test_workers_listen_where_the_launcher_asks() -> None:
    (port,) = re.findall(r"^Port (\d+)$", SSHD_CONFIG, re.MULTILINE)
    client = (ROOT / "deploy" / "container" / "ssh_config").read_text()
    assert re.findall(r"^ +Port (\d+)$", client, re.MULTILINE) == [port]
    assert command_line.parse(container("Launcher")["args"])[0]["ssh_port"] == int(port)
    worker = container("Worker")
    assert worker["readinessProbe"]["tcpSocket"]["port"] == int(port)
    assert [entry["containerPort"] for entry in worker["ports"]] == [int(port)]
    assert f"EXPOSE {port}" in (ROOT / "Dockerfile").read_text()


def test_keys_and_users_are_those_of_the_image() -> None:
    (key,) = re.findall(r"^HostKey (\S+)$", SSHD_CONFIG, re.MULTILINE)
    assert key == f"{MANIFEST['spec']['sshAuthMountPath']}/id_rsa"
    (user,) = re.findall(r"useradd --uid (\d+)", (ROOT / "Dockerfile").read_text())
    for role in ("Launcher", "Worker"):
        assert container(role)["securityContext"]["runAsUser"] == int(user)
    images = {container(role)["image"] for role in ("Launcher", "Worker")}
    assert len(images) == 1


def test_workers_have_shared_memory() -> None:
    spec = MANIFEST["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    (mount,) = container("Worker")["volumeMounts"]
    (volume,) = spec["volumes"]
    assert mount == {"name": volume["name"], "mountPath": "/dev/shm"}
    assert volume["emptyDir"]["medium"] == "Memory"
