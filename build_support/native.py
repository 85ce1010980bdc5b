"""The setuptools commands: build_ext runs CMake, build_py starts with an empty folder."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import SetupError

from build_support import generated_headers, requirements
from build_support.ccache import ccache_settings, compiler_launcher
from build_support.cuda import Cuda, chosen_cuda
from build_support.mpi import Mpi, chosen_mpi
from build_support.requirements import BuildError
from horovod.common.build_info import BUILD_INFO, core_digest

ROOT = Path(__file__).resolve().parent.parent
PLUGINS = {"any": ("libhorovod_mpi_open_mpi.so", "libhorovod_mpi_mpich.so"), "none": ()}
LINKED_PLUGIN = ("libhorovod_mpi.so",)
CUDA_PLUGIN = "libhorovod_cuda.so"


class BuildPackage(build_py):  # type: ignore[misc]
    """Copies the Python files. Removes an earlier build's files in build/lib: a wheel must not have them."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib) / "horovod", ignore_errors=True)
        super().run()


class BuildNative(build_ext):  # type: ignore[misc]
    """Builds horovod/_native.*.so and the libraries for MPI and CUDA, and writes build_info.json.

    In a build inside the clone (`--inplace`, an editable install), HOROVOD_DEVELOPER=1 also builds
    _native_testing, which no wheel contains, and writes the stub of _native.
    """

    cuda: Cuda | None = None
    mpi: Mpi | None = None

    def run(self) -> None:
        try:
            requirements.check_requested_features()
            requirements.check_pip_requirements([*requirements.ALWAYS, *requirements.needed_from_pip()])
            requirements.check_python_headers()
            compiler = requirements.compiler()
            self.mpi = mpi = chosen_mpi()
            self.cuda = chosen_cuda(compiler)
            if launcher := compiler_launcher():
                print(f"horovod: compiling with {launcher}", flush=True)
            self._build(mpi, compiler)
        except BuildError as error:
            raise SetupError(f"horovod: {error}") from None

    def get_outputs(self) -> list[str]:
        return [str(Path(self.build_lib) / "horovod" / name) for name in self._file_names()]

    def get_output_mapping(self) -> dict[str, str]:
        if not self.inplace:
            return {}
        return {output: str(ROOT / "horovod" / Path(output).name) for output in self.get_outputs()}

    def _file_names(self) -> list[str]:
        names = [*_mpi_plugins(self.mpi or chosen_mpi())]
        names += [] if self.cuda is None else [CUDA_PLUGIN]
        names += [f"_native_testing{self._suffix()}"] if self._is_for_tests() else []
        return [f"_native{self._suffix()}", *names, BUILD_INFO]

    def _is_of_developer(self) -> bool:
        """Whether this is a developer's build in the clone: HOROVOD_DEVELOPER=1 does not change a wheel."""
        return bool(self.inplace) and requirements.switched_on("HOROVOD_DEVELOPER")

    def _is_for_tests(self) -> bool:
        return self._is_of_developer() or bool(os.environ.get("HOROVOD_SANITIZE"))

    def _build(self, mpi: Mpi, compiler: list[str]) -> None:
        generated_headers.write()
        build = self._build_folder()
        self._configure(build, mpi, compiler)
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
        self._cmake("--build", str(build), "--parallel", jobs)
        target = Path(self.get_ext_fullpath("horovod._native")).resolve().parent
        target.mkdir(parents=True, exist_ok=True)
        for name in (*LINKED_PLUGIN, *PLUGINS["any"], CUDA_PLUGIN, f"_native_testing{self._suffix()}"):
            (target / name).unlink(missing_ok=True)
        facts = json.loads((build / "facts.json").read_text())
        record = {
            "version": version(),  # not the distribution's, which may contain a build label
            "digest": core_digest(ROOT / "horovod"),
            "mpi": mpi.record(),
            **facts,
            "cuda": None if self.cuda is None else self.cuda.record(),
            "nccl": None if self.cuda is None else self.cuda.nccl_record(),
        }
        (build / "out" / BUILD_INFO).write_text(json.dumps(record, indent=2) + "\n")
        for name in self._file_names():
            # A running process may have the old file mapped: replace the name, not the content.
            fresh = target / f".{name}.new"
            shutil.copy2(build / "out" / name, fresh)
            os.replace(fresh, target / name)
        if self._is_of_developer():
            self._write_stub()

    def _write_stub(self) -> None:
        """Write horovod/_native.pyi, which is tracked, from the signatures just built."""
        if importlib.util.find_spec("ruff") is None:  # before `make test` has installed the checks' tools
            print("horovod: without ruff, horovod/_native.pyi stays as it is", flush=True)
            return
        script = ROOT / "scripts" / "make_stub.py"
        if subprocess.run([sys.executable, str(script)], check=False).returncode != 0:
            raise BuildError("scripts/make_stub.py failed; the reason is in its output above")

    def _build_folder(self) -> Path:
        """CMake's folder: setuptools' temporary one, but a permanent one for fast editable installs."""
        if self.editable_mode:
            return ROOT / "build" / f"temp.{self.plat_name}-{sys.implementation.cache_tag}" / "cmake"
        return Path(self.build_temp).resolve() / "cmake"

    def _suffix(self) -> str:
        """The suffix of the module's file from setuptools: ".cpython-311-x86_64-linux-gnu.so"."""
        return Path(self.get_ext_filename("horovod._native")).name.removeprefix("_native")

    def _configure(self, build: Path, mpi: Mpi, compiler: list[str]) -> None:
        import nanobind

        sanitize = os.environ.get("HOROVOD_SANITIZE", "")
        # CMake cannot change these in an existing build folder.
        nvcc = "" if self.cuda is None else self.cuda.nvcc
        identity = " ".join([sanitize, sys.executable, nvcc, *compiler, os.environ.get("CMAKE_ARGS", "")])
        stamp = build / "identity"
        if not stamp.exists() or stamp.read_text() != identity:
            shutil.rmtree(build, ignore_errors=True)
            build.mkdir(parents=True)
            stamp.write_text(identity)
        # pip's build environment has a new path each time: ccache would not recognise its headers.
        needs = build / "needs"
        nanobind_copy = _copied(Path(nanobind.cmake_dir()).parent, needs / "nanobind")
        includes = [
            _copied(Path(folder), needs / f"mpi{number}") if mpi.source == "wheel" else folder
            for number, folder in enumerate(mpi.include_directories)
        ]
        settings = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_CXX_COMPILER": compiler[0],
            "CMAKE_CXX_FLAGS": " ".join([*compiler[1:], os.environ.get("CXXFLAGS", "")]).strip(),
            "CMAKE_MAKE_PROGRAM": str(requirements.find_tool("ninja")),
            "CMAKE_CXX_COMPILER_LAUNCHER": compiler_launcher(),
            "Python_EXECUTABLE": sys.executable,
            "nanobind_DIR": str(nanobind_copy / "cmake"),
            "HOROVOD_VERSION": version(),
            "HOROVOD_BUILD_DIGEST": core_digest(ROOT / "horovod"),
            "HOROVOD_DEVELOPER": "ON" if requirements.switched_on("HOROVOD_DEVELOPER") else "OFF",
            "HOROVOD_TESTING": "ON" if self._is_for_tests() else "OFF",
            "HOROVOD_SANITIZE": sanitize,
            "HOROVOD_MPI_INCLUDE": ";".join(map(str, includes)),
            "HOROVOD_MPI_LINK": ";".join(mpi.link),
            "HOROVOD_MPI_RPATH": ";".join(mpi.library_directories),
            "HOROVOD_OPEN_MPI_INCLUDE": mpi.headers.get("open_mpi", ""),
            "HOROVOD_MPICH_INCLUDE": mpi.headers.get("mpich", ""),
            "HOROVOD_STABLE_ABI": "ON" if requirements.stable_abi() else "OFF",
            "HOROVOD_MODULE_SUFFIX": self._suffix(),
            "HOROVOD_CUDA_COMPILER": nvcc,
            "HOROVOD_CUDA_ARCHITECTURES": "" if self.cuda is None else self.cuda.cmake_architectures(),
        }
        arguments = [f"-D{name}={value}" for name, value in settings.items()]
        arguments += shlex.split(os.environ.get("CMAKE_ARGS", ""))  # other build tools read this variable too
        self._cmake("-S", str(ROOT), "-B", str(build), "-G", "Ninja", *arguments)

    def _cmake(self, *arguments: str) -> None:
        cmake = requirements.usable_cmake()
        if cmake is None:
            raise BuildError(
                f"no CMake of version 3.18 or later was found; type: {sys.executable} -m pip install cmake"
            )
        if subprocess.run([cmake, *arguments], env=ccache_settings(), check=False).returncode != 0:
            step = "compilation" if "--build" in arguments else "configuration"
            raise BuildError(f"the {step} failed; the reason is in CMake's output above")


def _copied(folder: Path, target: Path) -> Path:
    """A copy of the folder, with its files' times, at the target."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(folder, target))


def _mpi_plugins(mpi: Mpi) -> tuple[str, ...]:
    return PLUGINS.get(mpi.source, LINKED_PLUGIN)


def version() -> str:
    """horovod.__version__, read without importing the package."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "horovod" / "__init__.py").read_text(), re.MULTILINE)
    assert found, "horovod/__init__.py must define __version__"
    return found[1]
