#!/usr/bin/env bash
# Ensure that a Docker daemon is running, for the tests of the docker sandbox. A running daemon is
# left unchanged. Otherwise it is installed and started, which requires root on Debian.
set -euo pipefail

run=${FLOWENGINE_DOCKER_RUN:-/run/flowengine-docker}

say() { echo "docker: $*"; }
give_up() { echo "docker: $*" >&2; exit 1; }
answers() { timeout 10 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

answers && exit 0
[ "$(id -u)" = 0 ] || give_up "no Docker daemon answers; start it, or run this as root on Debian"

if ! command -v dockerd >/dev/null || ! command -v iptables >/dev/null; then
  "$(dirname "$0")/debian.sh" docker docker.io iptables
  answers && exit 0
fi

mkdir -p "$run"
exec 9>"$run/lock"
flock 9 # two test runs that begin at once start one daemon
answers && exit 0

# A killed daemon leaves pid files. If their processes are dead, or are zombies without a parent
# that reaps them, the next daemon would wait for them and give up.
for pid_file in /var/run/docker.pid /var/run/docker/containerd/containerd.pid; do
  [ -f "$pid_file" ] || continue
  process=/proc/$(cat "$pid_file")
  state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "$process/status" 2>/dev/null || true)
  case "$(cat "$process/comm" 2>/dev/null || true)/$state" in
    dockerd/[!ZX] | containerd/[!ZX]) ;;
    *) rm -f "$pid_file" "${pid_file%.pid}.sock" ;;
  esac
done

say "starting dockerd"
setsid nohup dockerd --log-level=warn >"$run/dockerd.log" 2>&1 9>&- </dev/null &
daemon=$!
for _ in $(seq 1 150); do
  answers && exit 0
  kill -0 "$daemon" 2>/dev/null || break
  sleep 0.2
done
tail -n 20 "$run/dockerd.log" >&2
give_up "dockerd did not start; its log is $run/dockerd.log"
