#!/usr/bin/env bash
# Types commands on a minimal Debian with python3-venv, in a chroot. Usage: bare_machine.sh FOLDER COMMAND...
#
# FOLDER becomes the root of that system with the first call; later calls use it again. Commands are typed in its /tmp, where
# the environment venv counts as activated. MNIST_DATA_DIR, if it is set, is available there too.
set -euo pipefail
root=$(realpath -m "$1")
shift
. "$(dirname "$0")/minimal_debian.sh"
if [ ! -e "$root.made" ]; then
  make_root
  apt_get install -y --no-install-recommends python3-venv
  touch "$root.made"
fi

settings+=("PATH=/tmp/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin" DEBIAN_FRONTEND=noninteractive)
[ -z "${MNIST_DATA_DIR:-}" ] || { folders+=$'\n'$MNIST_DATA_DIR; settings+=("MNIST_DATA_DIR=$MNIST_DATA_DIR"); }
type_in /tmp "$@"
