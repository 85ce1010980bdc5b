#!/usr/bin/env bash
# Types README's commands on a minimal Debian in a chroot. Usage: fresh_machine.sh REPOSITORY FOLDER COMMAND...
#
# FOLDER becomes the root of the new system.
set -euo pipefail
repository=$(realpath "$1")
root=$(realpath -m "$2")
shift 2
. "$(dirname "$0")/minimal_debian.sh"
make_root

say "what is missing is named"
cp "$repository/scripts/check_prerequisites.sh" "$root/tmp/"
if in_root bash /tmp/check_prerequisites.sh python3; then
  echo "check_prerequisites.sh missed that there is nothing here"
  exit 1
fi

prerequisites=$(grep -m1 -x 'sudo apt-get install .*' "$repository/README.md")
say "$prerequisites"
apt_get ${prerequisites#sudo apt-get }

git clone --quiet "$repository" "$root/tmp/clone"
(cd "$repository" && git ls-files -co --exclude-standard | while read -r f; do [ -f "$f" ] && echo "$f"; done | tar c -T -) |
  tar x -C "$root/tmp/clone"
type_in /tmp/clone "$@"
