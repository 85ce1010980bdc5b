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
ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 \
UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1:suppressions=$PWD/scripts/tsan_suppressions.txt \
PYTHONPATH=$library \
  setarch -R env LD_PRELOAD="$runtimes" "$python" -m pytest -p no:cacheprovider -q --timeout 600 "$@" test/single
