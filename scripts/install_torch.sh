#!/usr/bin/env bash
# Installs PyTorch into an environment that has none. Usage: install_torch.sh PYTHON
#
# CUDA=0, the default, is PyTorch for the CPU: pip's usual index serves the CUDA build, several gigabytes that nobody
# needs to try this out; PyTorch's own index has the CPU build. Where that does not answer within 5 seconds (a company
# mirror, no network), the configured index it is. CUDA=1 is the build of the configured index, and CUDA=12.8 the one
# for that CUDA from PyTorch's index; then it is an error when what arrives has no CUDA.
set -euo pipefail
python=$1
version=${TORCH_VERSION:-2.13.0}
cuda=${CUDA:-0}
case $cuda in
  0) index=https://download.pytorch.org/whl/cpu kind="the CPU" ;;
  1) index='' kind="CUDA" ;;
  [1-9]*.*[0-9]) index=https://download.pytorch.org/whl/cu${cuda//./} kind="CUDA $cuda" ;;
  *) echo "CUDA=$cuda is not understood: set it to 0, 1 or a version such as 12.8" >&2; exit 2 ;;
esac
index=${TORCH_INDEX:-$index}

there() { "$python" -c 'import torch; print(torch.__version__)' 2>/dev/null; }

answers() {
  timeout 6 "$python" - "$index/torch/" <<'PYTHON' 2>/dev/null
import ssl, sys, urllib.request
context = ssl.create_default_context()
try:  # a bare system may lack ca-certificates; pip brings its own
    from pip._vendor import certifi
    context.load_verify_locations(certifi.where())
except (ImportError, OSError):
    pass
urllib.request.urlopen(sys.argv[1], timeout=5, context=context).read(1)
PYTHON
}

install() {
  if [ -z "$index" ]; then
    echo "installing PyTorch $version from pip's configured index"
  elif answers; then
    echo "installing PyTorch $version for $kind from $index"
    "$python" -m pip install --quiet --index-url "$index" "torch==$version" && return
    echo "that failed: installing torch==$version from pip's configured index instead"
  else
    echo "$index does not answer within 5 s: installing torch==$version from pip's configured index"
  fi
  "$python" -m pip install --quiet "torch==$version"
}

if found=$(there); then
  echo "PyTorch $found is there already"
else
  install
fi
if [ "$cuda" != 0 ] && ! "$python" -c 'import sys, torch; sys.exit(torch.version.cuda is None)'; then
  echo "CUDA=$cuda was asked for, and PyTorch $(there) has no CUDA: name an index that has such a build in TORCH_INDEX" >&2
  exit 1
fi
