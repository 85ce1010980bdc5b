#!/usr/bin/env bash
# Installs PyTorch into an environment that has none. Usage: install_torch.sh PYTHON [OPTION of pip install...]
#
# CUDA=0, the default, installs PyTorch for the CPU from PyTorch's own index: pip's usual index serves the CUDA build,
# which has several gigabytes. If PyTorch's index does not answer within 5 seconds (a company mirror, no network), the
# configured index is used. CUDA=1 installs the build of the configured index, and CUDA=12.8 the one for that CUDA from
# PyTorch's index; for both, a PyTorch without CUDA is an error.
set -euo pipefail
python=$1 options=("${@:2}")
version=${TORCH_VERSION:-2.13.0}
cuda=${CUDA:-0}
gigabytes="some 3 GB to download, 7 GB on disk"
case $cuda in
  0) index=https://download.pytorch.org/whl/cpu kind="the CPU" size="some 200 MB to download, 750 MB on disk" ;;
  1) index='' kind="CUDA" size=$gigabytes ;;
  [1-9]*.*[0-9]) index=https://download.pytorch.org/whl/cu${cuda//./} kind="CUDA $cuda" size=$gigabytes ;;
  *) echo "CUDA=$cuda is not understood: set it to 0, 1 or a version such as 12.8" >&2; exit 2 ;;
esac
[ -z "${TORCH_INDEX:-}" ] || index=$TORCH_INDEX size=

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

# On a terminal, overwrite the latest line of a build that runs meanwhile (scripts/show_build.py).
[ -t 1 ] && clear_line=$'\r\033[K' || clear_line=
say() { printf '%s%s\n' "$clear_line" "$*"; }

# pip keeps its downloads in TMPDIR until they are complete.
show_progress() { # FOLDER: every 10 seconds, until this script ends
  local begin=$SECONDS arrived
  trap 'kill "$!" 2>/dev/null; exit' TERM
  while sleep 10 & wait "$!" && kill -0 $$ 2>/dev/null; do
    arrived=$(du -sm "$1" | cut -f1)
    if ((arrived > 1)); then
      say "  PyTorch: $arrived MB downloaded after $((SECONDS - begin)) s"
    else  # pip reads a package that is on this machine, or unpacks one
      say "  pip is working: $((SECONDS - begin)) s"
    fi
  done
}

fetch() { # arguments of pip install
  local folder ticker status=0
  folder=$(mktemp -d)
  show_progress "$folder" &
  ticker=$!
  trap 'kill "$ticker" 2>/dev/null; rm -rf "$folder"' EXIT
  TMPDIR=$folder "$python" -m pip install --progress-bar off "${options[@]}" "$@" |
    while read -r line; do
      case $line in
        *.metadata\ *) ;;
        *"Downloading "*\(* | *"Using cached "*\(*) say "  ${line/https:*\//}" ;;
        "Installing collected"*) say "  unpacking" ;;
      esac
    done || status=$?
  kill "$ticker" 2>/dev/null || true
  rm -rf "$folder"
  trap - EXIT
  return "$status"
}

install() {
  if [ -z "$index" ]; then
    echo "installing PyTorch $version from pip's configured index: $size"
  elif answers; then
    echo "installing PyTorch $version for $kind from $index${size:+: $size}"
    fetch --index-url "$index" "torch==$version" && return
    echo "that failed: installing torch==$version from pip's configured index instead"
  else
    echo "$index does not answer within 5 s: installing torch==$version from pip's configured index"
  fi
  if [ "$cuda" = 0 ]; then
    echo "  Unless yours is another, that index serves the CUDA build: $gigabytes."
    echo "  To avoid it, stop this with Ctrl-C, and name an index that has PyTorch for the CPU: TORCH_INDEX=https://..."
  fi
  fetch "torch==$version"
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
