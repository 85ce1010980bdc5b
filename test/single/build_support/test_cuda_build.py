"""How the build chooses a CUDA toolkit, and how --check-build reports it. The toolkits are shell scripts."""

# private: _simd_level: a machine with another processor

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3]))  # last, as a sanitized build may be before it

from build_support import cuda
from build_support.cuda import architectures, chosen_cuda, find_nvcc
from build_support.requirements import BuildError, check_requested_features
from horovod.common.build_info import BuildInfo, from_record
from horovod.runner import build_report

KNOWN = [75, 80, 86, 90, 100, 120]


def toolkit(folder: Path, release: str = "13.0", compiles: bool = True, gpus: str = "75 80 86 90") -> Path:
    """A CUDA toolkit whose nvcc, a shell script, prints these answers. The folder has no spaces."""
    nvcc = folder / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    outcome = "exit 0" if compiles else "echo 'fatal error: unsupported GNU version' >&2; exit 1"
    nvcc.write_text(
        f"""#!/bin/sh
case "$1" in
--version) echo "Cuda compilation tools, release {release}, V{release}.88" ;;
--list-gpu-arch) for gpu in {gpus}; do echo compute_$gpu; done ;;
*) {outcome} ;;
esac
"""
    )
    nvcc.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def a_machine_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_native_gpus", list)
    monkeypatch.setattr(cuda, "GPU_FILE", Path("/nowhere/nvidia0"))


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_native_gpus", lambda: [90])


def choose(**environment: str) -> cuda.Cuda | None:
    return chosen_cuda(["c++"], {"PATH": "/nowhere", **environment})


def test_a_toolkit_that_is_found_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = toolkit(tmp_path / "cuda")
    for environment in (
        {"CUDA_HOME": str(home)},
        {"HOROVOD_CUDA_HOME": str(home), "CUDA_HOME": "/elsewhere"},
        {"PATH": str(home / "bin")},
    ):
        found = choose(HOROVOD_WITH_CUDA="1", **environment)
        assert found is not None
        assert found.nvcc == str(home / "bin" / "nvcc")
        assert found.record() == "13.0; sm_80, PTX 75"
        assert found.cmake_architectures() == "80-real;75-virtual"
        assert "nvidia-nccl-cu13" in found.nccl_record()
        said = capsys.readouterr().out
        assert said == "horovod: building with CUDA 13.0; sm_80, PTX 75: HOROVOD_WITH_CUDA=1\n"


@pytest.mark.parametrize("setting", ["", "auto", " auto "])
def test_without_a_gpu_a_compiler_alone_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str
) -> None:
    home = toolkit(tmp_path / "cuda", compiles=False)  # it is not even tried
    assert choose(CUDA_HOME=str(home), HOROVOD_WITH_CUDA=setting) is None
    assert capsys.readouterr().out == (
        "horovod: building without CUDA: nvcc is here, no GPU is; HOROVOD_WITH_CUDA=1 builds for one\n"
    )


def test_with_a_gpu_a_compiler_is_used(
    a_gpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = choose(CUDA_HOME=str(toolkit(tmp_path / "cuda")))
    assert found is not None and found.real == (90,)
    said = capsys.readouterr().out
    assert said == "horovod: building with CUDA 13.0; sm_90, PTX 75: a GPU is here\n"


def test_a_driver_without_nvidia_smi_is_a_gpu_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = toolkit(tmp_path / "cuda")
    monkeypatch.setattr(cuda, "GPU_FILE", tmp_path / "nvidia0")
    assert choose(CUDA_HOME=str(home)) is None
    (tmp_path / "nvidia0").touch()
    found = choose(CUDA_HOME=str(home))
    assert found is not None and found.real == (cuda.USUAL_GPU,)


def test_switched_off(a_gpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert choose(CUDA_HOME=str(toolkit(tmp_path / "cuda")), HOROVOD_WITH_CUDA="0") is None
    assert capsys.readouterr().out == "horovod: building without CUDA: HOROVOD_WITH_CUDA=0\n"


ASKING = (
    {"HOROVOD_WITH_CUDA": "1"},
    {"HOROVOD_GPU_OPERATIONS": "NCCL"},
    {"HOROVOD_GPU": "CUDA", "HOROVOD_WITH_CUDA": "auto"},
    {"HOROVOD_BUILD_CUDA_CC_LIST": "75"},
)


@pytest.mark.parametrize("asked", ASKING)
def test_who_asks_needs_no_gpu(
    tmp_path: Path, asked: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert choose(CUDA_HOME=str(toolkit(tmp_path / "cuda")), **asked) is not None
    name, value = next(iter(asked.items()))
    assert capsys.readouterr().out.endswith(f": {name}={value}\n")


@pytest.mark.parametrize("asked", ASKING)
def test_who_asks_needs_a_compiler(monkeypatch: pytest.MonkeyPatch, asked: dict[str, str]) -> None:
    monkeypatch.setattr(cuda, "find_nvcc", lambda environment: None)
    with pytest.raises(BuildError, match=r"CUDA was asked for, and no nvcc was found: .* set CUDA_HOME"):
        choose(**asked)


def test_no_toolkit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cuda, "find_nvcc", lambda environment: None)
    assert choose() is None
    assert capsys.readouterr().out == "horovod: building without CUDA: there is no GPU here\n"
    monkeypatch.setattr(cuda, "_native_gpus", lambda: [90])
    assert choose() is None
    assert "without CUDA: a GPU is here, nvcc is not; to use GPUs, install" in capsys.readouterr().out


def test_a_home_without_a_compiler(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=f"CUDA_HOME={tmp_path} has no bin/nvcc"):
        find_nvcc({"CUDA_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({"release": "11.8"}, "is of CUDA 11.8, and 12.0 or later is needed"),
        ({"release": "soon"}, "does not say its version"),
        ({"gpus": ""}, "does not list the GPUs it knows"),
        ({"compiles": False}, "cannot compile with c[+][+]: fatal error: unsupported GNU version; set CXX"),
    ],
)
def test_a_toolkit_that_will_not_do(
    a_gpu: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    description: dict[str, str],
    words: str,
) -> None:
    home = toolkit(tmp_path / "cuda", **description)  # type: ignore[arg-type]
    assert choose(CUDA_HOME=str(home)) is None
    assert f"horovod: building without CUDA: {home}/bin/nvcc " in capsys.readouterr().out
    with pytest.raises(BuildError, match=words):
        choose(CUDA_HOME=str(home), HOROVOD_WITH_CUDA="1")


def test_gpus_to_compile_for() -> None:
    assert architectures(KNOWN, "", []) == ((80,), 75)
    assert architectures(KNOWN, "", [90, 90, 75]) == ((75, 90), 75)
    assert architectures(KNOWN, "", [61]) == ((), 75)  # ignores a GPU that is too old
    assert architectures([90, 100], "", [100]) == ((100,), 90)
    assert architectures(KNOWN, "86, 7.5,90", [120]) == ((75, 86, 90), 90)


@pytest.mark.parametrize(
    ("asked", "known", "words"),
    [
        ("75,99", KNOWN, "nvcc cannot compile for 99; it knows 75, 80"),
        ("70", [70, *KNOWN], "GPUs from 75 on are served"),
        ("75,new", KNOWN, "'new' is no compute capability; an example is 75,86,90"),
        ("75,,80", KNOWN, "'' is no compute capability"),
    ],
)
def test_gpus_that_cannot_be_compiled_for(asked: str, known: list[int], words: str) -> None:
    with pytest.raises(BuildError, match=words):
        architectures(known, asked, [])


def test_a_list_of_gpus_is_not_ignored(tmp_path: Path) -> None:
    home = toolkit(tmp_path / "cuda")
    with pytest.raises(BuildError, match="cannot compile for 120"):
        choose(CUDA_HOME=str(home), HOROVOD_BUILD_CUDA_CC_LIST="120")
    found = choose(CUDA_HOME=str(home), HOROVOD_BUILD_CUDA_CC_LIST="75,86,90")
    assert found is not None
    assert found.record() == "13.0; sm_75, sm_86, sm_90, PTX 90"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"HOROVOD_GPU": "ROCM"}, "HOROVOD_GPU=ROCM cannot be honoured: this package provides CUDA"),
        ({"HOROVOD_GPU_ALLREDUCE": "DDL"}, "HOROVOD_GPU_ALLREDUCE=DDL cannot be honoured: .* MPI and NCCL"),
        ({"HOROVOD_CPU_OPERATIONS": "NCCL"}, "HOROVOD_CPU_OPERATIONS=NCCL cannot be honoured"),
        (
            {"HOROVOD_WITH_CUDA": "0", "HOROVOD_GPU_OPERATIONS": "NCCL"},
            "HOROVOD_WITH_CUDA=0 contradicts HOROVOD_GPU_OPERATIONS=NCCL",
        ),
        (
            {"HOROVOD_WITH_CUDA": "0", "HOROVOD_BUILD_CUDA_CC_LIST": "90"},
            "HOROVOD_WITH_CUDA=0 contradicts HOROVOD_BUILD_CUDA_CC_LIST=90",
        ),
        ({"HOROVOD_WITH_CUDA": "yes"}, "HOROVOD_WITH_CUDA=yes is not understood: set it to auto, 1 or 0"),
    ],
)
def test_what_cannot_be_honoured(environment: dict[str, str], words: str) -> None:
    with pytest.raises(BuildError, match=words):
        check_requested_features(environment)


def test_what_is_honoured() -> None:
    check_requested_features({"HOROVOD_WITH_CUDA": "auto"})
    check_requested_features({"HOROVOD_GPU_OPERATIONS": "NCCL", "HOROVOD_GPU": "CUDA"})
    check_requested_features({"HOROVOD_WITH_CUDA": "1", "HOROVOD_GPU_ALLGATHER": "NCCL"})
    check_requested_features({"HOROVOD_GPU_OPERATIONS": "", "HOROVOD_GPU_BROADCAST": "mpi"})


def report_of(monkeypatch: pytest.MonkeyPatch, info: BuildInfo) -> str:
    monkeypatch.setattr(build_report, "build_info", lambda: info)
    monkeypatch.setattr(build_report, "_simd_level", lambda: "x86-64-v3")
    return build_report.report()


def test_a_core_that_does_not_load_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    for script, why in (("echo a >&2; echo x: no file >&2; exit 1", "x: no file"), ("exit 3", "no message")):
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(python))
        assert build_report._simd_level() == f"the native core does not load: {why}"


def test_check_build_tells_cuda_and_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {"cuda": "13.0; sm_90, PTX 75", "nccl": "found at run time: the wheel's"}
    monkeypatch.setattr(build_report, "_torch_has_cuda", lambda: True)
    with_cuda = report_of(monkeypatch, from_record(record))
    assert "    [X] NCCL" in with_cuda
    assert "    CUDA: 13.0; sm_90, PTX 75" in with_cuda
    assert "    NCCL: found at run time: the wheel's" in with_cuda
    without = report_of(monkeypatch, from_record({}))
    assert "    [ ] NCCL" in without
    assert "    CUDA: none" in without and "    NCCL: none" in without


def test_check_build_tells_what_else_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Horovod, whose scripts use it to find their requirements."""
    mpi = {"source": "system", "name": "MPICH", "version": "4.2", "mpirun": "/opt/mpirun"}
    said = report_of(monkeypatch, from_record({"version": "9.9", "compiler": "GNU 12.2", "mpi": mpi}))
    lines = said.splitlines()
    assert lines[0] == "Horovod v9.9:"
    assert lines[2:6] == ["Available Frameworks:", "    [ ] TensorFlow", "    [X] PyTorch", "    [ ] MXNet"]
    assert lines[7:10] == ["Available Controllers:", "    [X] MPI", "    [ ] Gloo"]
    assert {"    [ ] DDL", "    [ ] CCL", "    MPI: MPICH 4.2 (system; /opt/mpirun)"} <= set(lines)
    assert {"    Compiler: GNU 12.2", "    SIMD: x86-64-v3"} <= set(lines)
    monkeypatch.setattr(build_report, "find_spec", lambda name: None)
    bare = report_of(monkeypatch, from_record({})).splitlines()
    assert {"    [ ] PyTorch", "    [ ] MPI", "    MPI: none", "    PyTorch: not installed"} <= set(bare)
    assert "    Compiler: unknown" in bare


def test_nccl_is_not_used_by_a_pytorch_for_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build has written them to a file."""
    torch = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(build_report, "find_spec", lambda name: torch if name == "torch" else None)
    told = {None: False, "cuda: Optional[str] = None\nhip: str = '6'\n": False, "cuda: str = '12.4'\n": True}
    for text, has_cuda in told.items():
        if text is not None:
            (tmp_path / "version.py").write_text(text)
        said = report_of(monkeypatch, from_record({"nccl": "2.21"}))
        assert ("    [X] NCCL" in said, "    NCCL: 2.21\n" in said) == (has_cuda, has_cuda)
        assert ("not used, as this PyTorch is for CPUs alone" in said) == (not has_cuda)
    torch.origin = None
    assert "    [ ] NCCL" in report_of(monkeypatch, from_record({"nccl": "2.21"}))


@pytest.mark.skipif(not Path("/usr/local/cuda/bin/nvcc").exists(), reason="no /usr/local/cuda")
def test_a_real_toolkit_compiles_the_trial() -> None:
    found = choose(HOROVOD_WITH_CUDA="1", CUDA_HOME="/usr/local/cuda", PATH="/usr/bin")
    assert found is not None and found.virtual == 75
