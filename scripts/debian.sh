#!/usr/bin/env bash
# Install Debian packages, as root. While another process uses apt, it waits, up to ten minutes.
# usage: scripts/debian.sh WHO PACKAGE...   (WHO begins each message)
# Exit code 2: it cannot install any here, and has printed the command.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
who=$1
shift

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "$who: this machine lacks $*; on Debian or Ubuntu: sudo apt-get install $*" >&2
  exit 2
fi
echo "$who: installing the Debian packages $*"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
end=$((SECONDS + 600))
until { apt-get update && apt-get install --yes --no-install-recommends "$@"; } >"$log" 2>&1; do
  if [ $SECONDS -ge $end ] || ! grep -q '^E: Could not get lock' "$log"; then
    cat "$log" >&2
    echo "$who: apt-get could not install $*" >&2
    exit 1
  fi
  sleep 1
done
