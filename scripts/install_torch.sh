#!/usr/bin/env bash
# Installs CPU PyTorch into an environment that has none. Usage: install_torch.sh PYTHON
#
# pip's usual index serves the CUDA build, several gigabytes that nobody needs to try this out; PyTorch's own index has
# the CPU build. Where that does not answer within 5 seconds (a company mirror, no network), the configured index it is.
set -euo pipefail
python=$1
version=${TORCH_VERSION:-2.13.0}
index=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}

if there=$("$python" -c 'import torch; print(torch.__version__)' 2>/dev/null); then
  echo "PyTorch $there is there already"
  exit 0
fi

answers() {
  timeout 6 "$python" - "$index/torch/" <<'EOF' 2>/dev/null
import ssl, sys, urllib.request
context = ssl.create_default_context()
try:  # a bare system may lack ca-certificates; pip brings its own
    from pip._vendor import certifi
    context.load_verify_locations(certifi.where())
except (ImportError, OSError):
    pass
urllib.request.urlopen(sys.argv[1], timeout=5, context=context).read(1)
EOF
}

if answers; then
  echo "installing PyTorch $version for the CPU from $index"
  if "$python" -m pip install --quiet --index-url "$index" "torch==$version"; then
    exit 0
  fi
  echo "that failed: installing torch==$version from pip's configured index instead"
else
  echo "$index does not answer within 5 s: installing torch==$version from pip's configured index"
fi
"$python" -m pip install --quiet "torch==$version"
