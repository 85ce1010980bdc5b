# A minimal Debian in a chroot. Sourced by fresh_machine.sh and bare_machine.sh, which set `root`, its folder.
#
# The settings of this machine's package clients are copied (name service, certificates, pip's settings and their local
# folders); no compiler, no Python, nothing else is. Mounts in the system last only while a command runs.
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")
mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null || true; } |
  sed -nE 's/^(URIs:|deb) +(\[[^]]*\] +)?(https?:[^ ]+).*/\3/p' | awk 'NR == 1')

folders=$(python3 -m pip config list 2>/dev/null | grep -oE "(file://)?/[^ '\\]+" | sed -E 's,^file://,,; s,/simple$,,' |
  while read -r path; do [ -d "$path" ] && echo "$path"; done | sort -u || true)
bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
mapfile -t settings < <(env | grep -E '^(PIP_|HTTPS?_PROXY=|https?_proxy=|no_proxy=|NO_PROXY=|TORCH_INDEX=)' || true)

in_root() { # COMMAND WORD...
  unshare --mount --propagation private bash -euc '
    root=$1 folders=$2; shift 2
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    for folder in $folders; do mkdir -p "$root$folder"; mount --bind "$folder" "$root$folder"; done
    exec chroot "$root" /usr/bin/env -i HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "$@"
  ' in_root "$root" "$folders" "${settings[@]}" "$@"
}
say() { printf '\n== %s\n' "$*"; }

make_root() {
  say "a minimal $suite"
  debootstrap --variant=minbase "$suite" "$root" "${mirror:?no apt mirror is configured here}" >"$root.log" 2>&1 ||
    { tail -20 "$root.log"; exit 1; }
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
  [ ! -f "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" ] ||
    install -D "${XDG_CONFIG_HOME:-$HOME/.config}/pip/pip.conf" "$root/tmp/.config/pip/pip.conf"
}

apt_get() { # WORD...: of apt-get, and this machine's certificates after it, which a package of them would replace
  in_root apt-get update -qq
  in_root env DEBIAN_FRONTEND=noninteractive apt-get "$@" -qq >"$root.log" 2>&1 || { tail -20 "$root.log"; exit 1; }
  [ ! -f "$bundle" ] || install -D -m 644 "$bundle" "$root/etc/ssl/certs/ca-certificates.crt"
}

type_in() { # FOLDER COMMAND...: as a person would there, one after the other
  local folder=$1 command
  shift
  for command in "$@"; do
    say "$command"
    SECONDS=0
    in_root bash -c "cd $folder && $command"
    echo "== $command took $SECONDS s"
  done
}
