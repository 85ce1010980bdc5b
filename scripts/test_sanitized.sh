#!/usr/bin/env bash
# Builds the core with a sanitizer, beside the ordinary build, and runs test/single with it.
# Usage: test_sanitized.sh PYTHON address,undefined|thread [PYTEST ARGUMENTS]
set -euo pipefail
python=$1 sanitizer=$2
shift 2
cd "$(dirname "$0")/.."
compiler=${CXX:-g++}
base=build/sanitized-${sanitizer//,/-}

echo "building with -fsanitize=$sanitizer"
HOROVOD_SANITIZE=$sanitizer "$python" setup.py -q build --build-base "$base" >"$base.log" 2>&1 ||
  { tail -40 "$base.log"; exit 1; }
library=$(echo "$PWD/$base"/lib.*)

case $sanitizer in
  thread) runtimes=$("$compiler" -print-file-name=libtsan.so) ;;
  *) runtimes="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libubsan.so)" ;;
esac
# Python's own allocations live until exit: no leak check. PyTorch and OpenMP are not instrumented, so ThreadSanitizer
# cannot see how they synchronise: reports from inside them are left out. setarch: older ThreadSanitizers cannot live
# with as much address randomisation as newer kernels use.
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1:suppressions=$PWD/scripts/tsan_suppressions.txt
export PYTHONPATH=$library
# The console script, not `python -m pytest`: that would put this folder, with the ordinary build in it, before PYTHONPATH.
instrumented() { setarch -R env LD_PRELOAD="$runtimes" "$python" "$@"; }
pytest=$(dirname "$python")/pytest
loaded=$(cd / && instrumented -c 'import horovod._native as n; print(n.__file__)')
case $loaded in
  "$library"/*) ;;
  *) echo "the build under test would be $loaded, not the sanitized one in $library" >&2; exit 1 ;;
esac
instrumented "$pytest" -p no:cacheprovider -q --timeout 600 "$@" test/single
