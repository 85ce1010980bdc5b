#!/usr/bin/env bash
# Builds the core with a sanitizer, beside the ordinary build, and runs test/single or the named tests with it. For
# named tests it omits MPI's part and the loops for other instruction sets: these have no threads, and take a third of
# the time.
# Usage: test_sanitized.sh PYTHON address,undefined|thread [TESTS]
set -euo pipefail
python=$1 sanitizer=$2
shift 2
cd "$(dirname "$0")/.."
compiler=${CXX:-g++}
base=build/sanitized-${sanitizer//,/-}

if [ $# -gt 0 ]; then
  base+=-slice
  export CMAKE_ARGS="-DHOROVOD_X86_64_V3=OFF -DHOROVOD_X86_64_V4=OFF" HOROVOD_WITHOUT_MPI=1
fi
echo "building with -fsanitize=$sanitizer"
HOROVOD_SANITIZE=$sanitizer "$python" setup.py -q build --build-base "$base" >"$base.log" 2>&1 ||
  { tail -40 "$base.log"; exit 1; }
library=$(echo "$PWD/$base"/lib.*)

# Parsers have no threads, so only the first two sanitizers get many spoiled inputs (test/fuzz).
case $sanitizer in
  thread) runtimes=$("$compiler" -print-file-name=libtsan.so) ;;
  *)
    runtimes="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libubsan.so)"
    export HOROVOD_FUZZ_INPUTS=${HOROVOD_FUZZ_INPUTS:-1000000}
    ;;
esac
# No leak check: Python's own allocations live until exit. PyTorch and OpenMP are not instrumented, so ThreadSanitizer
# cannot see their synchronisation: reports from inside them are suppressed. setarch: older ThreadSanitizers fail with
# the address randomisation of newer kernels. Reports go to a file, because pytest captures stderr.
# Kernels on the emulated GPU are coroutines, whose stacks AddressSanitizer must not replace.
# Programs that a test starts run the ordinary build: they are not the core, and some shells fail under a sanitizer.
report=$PWD/$base.report
rm -f "$report".*
common=halt_on_error=1:log_path=$report
run_pytest='
import os, sys
sys.path.pop(0)  # this folder, which contains the ordinary build
import pytest
import horovod._native as native
library = os.environ.pop("PYTHONPATH")
assert native.__file__.startswith(library), f"{native.__file__} is not the sanitized build in {library}"
del os.environ["LD_PRELOAD"]
sys.exit(pytest.main())
'
status=0
ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0:$common UBSAN_OPTIONS=print_stacktrace=1:$common \
TSAN_OPTIONS=ignore_noninstrumented_modules=1:suppressions=$PWD/scripts/tsan_suppressions.txt:$common \
PYTHONPATH=$library \
  setarch -R env LD_PRELOAD="$runtimes" "$python" -c "$run_pytest" \
  -p no:cacheprovider -q --timeout 600 "${@:-test/single}" ||
  status=$?
cat "$report".* 2>/dev/null || true
exit "$status"
