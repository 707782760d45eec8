#!/usr/bin/env bash
# See to it that the programs are there which the tests of sandboxes run: bubblewrap, the system's
# own Python with pip, Node.js. What is missing is installed, as root on Debian; elsewhere it is
# named, and its tests are skipped.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

say() { echo "sandboxes: $*"; }

missing=()
command -v bwrap >/dev/null || missing+=(bubblewrap)
command -v node >/dev/null || missing+=(nodejs)
[ -x /usr/bin/python3 ] || missing+=(python3)
/usr/bin/python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
[ ${#missing[@]} = 0 ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  say "this machine lacks ${missing[*]}; on Debian or Ubuntu: sudo apt-get install ${missing[*]}"
  exit 0
fi
say "installing the Debian packages ${missing[*]}"
log=$(mktemp)
if ! { apt-get update && apt-get install --yes --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  cat "$log" >&2
  say "apt-get could not install ${missing[*]}"
  exit 1
fi
rm -f "$log"
