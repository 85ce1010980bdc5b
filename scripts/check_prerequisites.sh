#!/usr/bin/env bash
# Prints missing prerequisites, and the apt command that installs them. Usage: check_prerequisites.sh PYTHON
set -u
python=${1:-python3}
missing=()
for program in git make; do
  command -v "$program" >/dev/null || missing+=("$program")
done
command -v "${CXX:-g++}" >/dev/null || command -v clang++ >/dev/null || missing+=("g++")
if ! command -v "$python" >/dev/null; then
  missing+=(python3-venv python3-dev)
else
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "$("$python" --version) is too old: Python 3.10 or later is needed (choose one with: make PYTHON=python3.12 ...)" >&2
    exit 1
  fi
  # Debian's venv lacks ensurepip, and its Python lacks Python.h, without these two packages.
  "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || missing+=(python3-dev)
fi
if ((${#missing[@]})); then
  printf 'missing: %s\ninstall with:\n  sudo apt-get install -y git make g++ python3-venv python3-dev\n' "${missing[*]}" >&2
  exit 1
fi
