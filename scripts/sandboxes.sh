#!/usr/bin/env bash
# Ensure that the programs are installed that the tests of environments run: bubblewrap, the
# system's Python with pip, Node.js with npm, tmux, zsh, fish, Chromium, mmdebstrap, a Docker daemon with
# the image of the docker sandbox, a registry of images, and the packages of the test servers.
# Tests of Temporal and of deployment need ip, a C compiler, and the programs of systemd.
# Missing programs are installed, as root on Debian. Elsewhere they are listed, and their tests are
# skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

say() { echo "sandboxes: $*"; }

missing=()
command -v bwrap >/dev/null || missing+=(bubblewrap)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v tmux >/dev/null || missing+=(tmux)
for shell in zsh fish; do command -v $shell >/dev/null || missing+=($shell); done
command -v less >/dev/null || missing+=(less)
command -v vi >/dev/null || missing+=(vim-tiny)
command -v chromium >/dev/null || missing+=(chromium fonts-dejavu-core)
command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
command -v ip >/dev/null || missing+=(iproute2)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v systemctl >/dev/null || missing+=(systemd)
[ -x /usr/bin/python3 ] || missing+=(python3)
/usr/bin/python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)

if [ ${#missing[@]} != 0 ]; then
  scripts/debian.sh sandboxes "${missing[@]}" || [ $? = 2 ] || exit 1
fi

for servers in tests/mcp_servers tests/page_checks tests/yaml_suite; do
  if command -v npm >/dev/null && ! [ "$servers/node_modules/.package-lock.json" -nt "$servers/package-lock.json" ]; then
    say "installing the packages of $servers"
    npm ci --prefix "$servers" --ignore-scripts --no-audit --no-fund --loglevel=error \
      || say "npm could not install them: the tests that need them are skipped"
  fi
done

# Unpacked, not installed: installing the package would start the service.
registry=tests/docker_registry
if ! command -v docker-registry >/dev/null && ! [ -x "$registry/docker-registry" ] && command -v apt-get >/dev/null; then
  say "fetching the program of the Debian package docker-registry"
  mkdir -p "$registry"
  if (cd "$registry" && { apt-get download docker-registry || { apt-get update && apt-get download docker-registry; }; }) >/dev/null 2>&1; then
    dpkg-deb --fsys-tarfile "$registry"/docker-registry_*.deb \
      | tar --extract --directory "$registry" --strip-components=3 ./usr/bin/docker-registry
    rm -f "$registry"/docker-registry_*.deb
  else
    say "apt-get could not fetch docker-registry: the tests that need a registry are skipped"
  fi
fi

# The images take half a minute and several minutes, so they are built in the background. Tests
# that need them wait.
if scripts/docker.sh; then
  nohup bash -c '.venv/bin/python -m flowengine_envs.sandboxes.docker.image &&
    .venv/bin/python -m flowengine_envs.sandboxes.docker.image data' >/dev/null 2>&1 </dev/null &
fi
