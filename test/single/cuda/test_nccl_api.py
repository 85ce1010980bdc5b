"""Compares the package's declarations of NCCL's interface with nccl.h, if that header is installed."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[3] / "horovod" / "native"
RESULTS = ("Success", "UnhandledCudaError", "SystemError", "InternalError", "InvalidArgument", "InvalidUsage")
ENUMERATORS = (
    *RESULTS,
    *("RemoteError", "InProgress", "Int8", "Uint8", "Int32", "Uint32", "Int64", "Uint64", "Float16"),
    *("Float32", "Float64", "Bfloat16", "Sum", "Prod", "Max", "Min"),
)
FIELDS = {
    "size": "size",
    "magic": "magic",
    "version": "version",
    "blocking": "blocking",
    "cga_cluster_size": "cgaClusterSize",
    "min_ctas": "minCTAs",
    "max_ctas": "maxCTAs",
    "net_name": "netName",
    "split_share": "splitShare",
}
COMPARISON = r"""
#include <nccl.h>

#include <cstddef>
#include <tuple>
#include <type_traits>

#include "cuda/nccl_api.h"

using namespace hvd::nccl;

// Enumerations and handles have names of their own on both sides: what counts is how they are passed.
template <typename A, typename B>
constexpr bool alike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
                       std::is_class_v<A> == std::is_class_v<B>;
template <typename A, typename B>
constexpr bool same_call = false;
template <typename A, typename... As, typename B, typename... Bs>
  requires(sizeof...(As) == sizeof...(Bs))
constexpr bool same_call<A (*)(As...), B (*)(Bs...)> = alike<A, B> && (alike<As, Bs> && ...);

#define COMPARE_CALL(member, name, parameters) \
  static_assert(same_call<decltype(&::name), decltype(Functions::member)>);
HVD_FOR_EACH_NCCL_FUNCTION(COMPARE_CALL)
COMPARE_CALL(get_version, ncclGetVersion, )
static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId) && sizeof(ncclConfig_t) >= sizeof(Config));
constexpr ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
constexpr Config ours;
static_assert(initial.magic == ours.magic && initial.blocking == ours.blocking);
static_assert(initial.netName == ours.net_name);
"""


def nccl_header() -> Path | None:
    """The folder with nccl.h: NCCL_HOME's, the wheel's or the system's."""
    packages = Path(sysconfig.get_path("purelib"))
    given = Path(os.environ.get("NCCL_HOME", "/nowhere"))
    homes = (given, packages / "nvidia" / "nccl", Path("/usr"), Path("/usr/local/cuda"))
    folders = [home / "include" for home in homes]
    return next((folder for folder in folders if (folder / "nccl.h").exists()), None)


def cuda_include() -> Path | None:
    nvcc = shutil.which("nvcc")
    folders = [Path(nvcc).resolve().parents[1] / "include"] if nvcc else []
    folders.append(Path("/usr/local/cuda/include"))
    return next((folder for folder in folders if (folder / "cuda_fp16.h").exists()), None)


def test_declarations_are_nccls_own(tmp_path: Path) -> None:
    nccl, cuda = nccl_header(), cuda_include()
    if nccl is None or cuda is None:
        pytest.skip("no nccl.h (pip install nvidia-nccl-cu13, or NCCL_HOME) or no CUDA headers here")
    lines = [f"static_assert(int{{nccl{name}}} == int{{k{name}}});" for name in ENUMERATORS]
    lines += [
        f"static_assert(offsetof(ncclConfig_t, {theirs}) == offsetof(Config, {ours}));"
        for ours, theirs in FIELDS.items()
    ]
    source = tmp_path / "comparison.cc"
    source.write_text(COMPARISON + "\n".join(lines) + "\n")
    command = ["g++", "-std=c++20", "-fsyntax-only", f"-I{NATIVE}", f"-isystem{nccl}", f"-isystem{cuda}"]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
