#!/usr/bin/env bash
# Build the files of a release in dist, and try them in empty environments. Called by the Makefile.
#
#   flowengine-VERSION-py3-none-any.whl   the packages
#   flowengine-VERSION.tar.gz             the source archive
#   flowengine-VERSION.cdx.json           what the wheel needs with all extras (CycloneDX)
#   SHA256SUMS                            their digests
#
# It publishes nothing, and neither commits nor tags: docs/contributing/releasing.md has the steps.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
uv=${UV:-$root/.venv/bin/uv}
say() { echo "release: $*"; }
give_up() { echo "release: $*" >&2; exit 1; }

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' flowengine/__init__.py)
grep -q "^## $version - 20[0-9-]*$" CHANGELOG.md \
  || give_up "CHANGELOG.md has no section '## $version - DATE': rename 'Unreleased'"
[ -z "$(git status --porcelain)" ] || say "note: the checkout has changes that are not committed"

tools=.venv/release
"$uv" venv --quiet --allow-existing --python .venv/bin/python "$tools"
"$uv" pip sync --quiet --python "$tools" requirements/release.txt
rm -rf dist
.venv/bin/python -m hatchling build >/dev/null
"$tools/bin/twine" check --strict dist/*

try=$(mktemp -d)
trap 'rm -rf "$try"' EXIT
# Outside the checkout, and without the user's settings and stores.
export XDG_CONFIG_HOME=$try/config XDG_STATE_HOME=$try/state XDG_CACHE_HOME=$try/cache
unset FLOWENGINE_STORE FLOWENGINE_SERVER PYTHONPATH

# Install a file of the release into an empty environment, and run the first flows of a user.
try_out() { # NAME REQUIREMENT
  "$uv" venv --quiet --python .venv/bin/python "$try/$1"
  "$uv" pip install --quiet --python "$try/$1" "$2"
  mkdir "$try/$1.work"
  (
    cd "$try/$1.work"
    PATH="$try/$1/bin:$PATH"
    [ "$(flowengine --version)" = "flowengine $version" ] || give_up "it is another version"
    flowengine init >/dev/null 2>&1
    flowengine check --strict hello.yaml >/dev/null
    flowengine --quiet run hello.yaml -i name=Ada
    flowengine init refund --example approval >/dev/null 2>&1
    flowengine --quiet run refund/approval.yaml --id r1 -i customer=Ana -i amount=80 2>/dev/null \
      && give_up "the refund did not wait for its approval" || [ $? = 4 ]
    flowengine --quiet approve --all --edit amount=60 --form reason=damaged
    flowengine --json show r1 | python -c 'import json, sys; assert json.load(sys.stdin)["status"] == "succeeded"'
  )
  say "$1 works"
}

try_out wheel "$(echo "$root"/dist/*.whl)"
try_out archive "$(echo "$root"/dist/*.tar.gz)"

"$uv" venv --quiet --python .venv/bin/python "$try/all"
"$uv" pip install --quiet --python "$try/all" "$(echo "$root"/dist/*.whl)[all]"
mkdir "$try/agent"
(
  cd "$try/agent"
  "$try/all/bin/flowengine" init --example agent >/dev/null 2>&1
  "$try/all/bin/flowengine" --quiet run agent.yaml >/dev/null 2>&1 || [ $? = 4 ]
)
say "the example of an agent works with all extras"
rm "$try"/all/lib/python*/site-packages/flowengine-*.dist-info/direct_url.json # a path of this machine
"$tools/bin/cyclonedx-py" environment --output-reproducible --pyproject pyproject.toml \
  --output-file "$try/sbom.json" "$try/all/bin/python"
.venv/bin/python - "$try/sbom.json" "dist/flowengine-$version.cdx.json" "$version" <<'PYTHON'
import json, sys  # the tool reads no dynamic version

source, target, version = sys.argv[1:]
with open(source) as file:
    found = json.load(file)
found["metadata"]["component"]["version"] = version
with open(target, "w") as file:
    json.dump(found, file, indent=1, sort_keys=True)
PYTHON
(cd dist && sha256sum flowengine-* >SHA256SUMS)

say "dist has flowengine $version. To publish it:"
echo "  git tag -s v$version -m 'flowengine $version' && git push origin v$version"
echo "  $tools/bin/twine upload dist/*.whl dist/*.tar.gz"
