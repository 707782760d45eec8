# Sets `pythons`: the versions of Python that a script uses, given as its arguments (default: those
# of 3.12 to 3.14 that are on the PATH). Sourced by scripts.
pythons=("$@")
if [ "${#pythons[@]}" = 0 ]; then
  for version in 3.12 3.13 3.14; do
    if command -v "python$version" >/dev/null; then pythons+=("python$version"); fi
  done
fi
if [ "${#pythons[@]}" = 0 ]; then
  name=$(basename "$0" .sh)
  echo "$name: no Python of 3.12 to 3.14 on the PATH; name one: scripts/$name.sh /path/to/python" >&2
  exit 2
fi
