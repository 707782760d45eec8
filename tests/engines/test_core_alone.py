"""The core alone: a wheel of nothing but its modules and what is below them runs compiled flows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

from flowengine.engines.flows import load

ROOT = Path(__file__).parents[2]
BELOW = (
    "flowengine.errors", "flowengine.masking", "flowengine.registry", "flowengine.sdk",
    "flowengine.secrets", "flowengine.server_settings", "flowengine.settings",
    "flowengine.store_folder", "flowengine.util",
)  # fmt: skip
"""What the core stands on. None of it knows flows."""
FLOW = """
flowengine: 1
id: alone
inputs:
  n: {type: integer}
steps:
  - id: double
    python: sums:double
    with: {n: "${{ inputs.n }}"}
  - id: ask
    approval: Keep it?
outputs:
  doubled: ${{ steps.double.output }}
"""
BOXED = """
flowengine: 1
id: boxed
environments:
  box: {kind: files}
steps:
  - {id: double, python: "sums:double", environments: [box], with: {n: 1}}
"""
WHEEL = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "flowengine-core"
version = "0"
[tool.hatch.build.targets.wheel]
packages = ["flowengine", "flowengine_nodes"]
"""
PROGRAM = '''
import json, sys
from importlib.util import find_spec
from flowengine.engines.actors import Actor
from flowengine.engines.executions.linked_flows import Language
from flowengine.engines.host import Host, RandomIds, SystemClock
from flowengine.engines.people.approvals import record_decision
from flowengine.engines.running.driving import Driving
from flowengine.engines.starting.beginning import Starting
from flowengine.journal.sqlite.store import SqliteStore
from flowengine.kernel.graph.compiled import Evaluator
from flowengine.settings import Settings
from flowengine.util.blocking import blocking


class Paths(Evaluator):
    """Evaluates the paths of this flow."""

    def __init__(self, expressions, name):
        self.expressions = expressions

    def evaluate(self, number, names):
        _, value, keys = self.expressions[number]["node"]
        value = names[value]
        for key in keys:
            value = value[key]
        return value

    def composed(self, value, tree):
        return value


class NoRules:
    def there(self):
        return False

    def look_again(self):
        pass

    check = look_again


def opened():
    return Host(
        SqliteStore("store/flowengine.db", "process"), language=Language(Paths, None),
        rules=NoRules(), clock=SystemClock(), ids=RandomIds(), settings=Settings(), workdir=".",
        linger=0, ttl=15_000,
    )


with open("compiled.json") as file:
    flow, boxed = json.load(file)
host = opened()
driving = Driving(host)
waiting = blocking(driving.drive)(driving.new(Starting(*flow, {"n": 21}, "it", {}, "user:ana")))
host.close()

host = opened()  # as another process
[wait] = waiting.waits
record_decision(host, wait["id"], "approve", {}, Actor("user:ben", "python"))
driving = Driving(host)
result = blocking(driving.drive)(driving.loaded("it"))
failed = blocking(driving.drive)(driving.new(Starting(*boxed, {}, "boxed", {}, "user:ana")))
host.close()
around = [name for name in sys.argv[1:] if name in sys.modules or find_spec(name)]
done = waiting.status, result.status, result.outputs, failed.error["type"], failed.error["message"]
print(json.dumps([*done, around]))
'''


def _copied(name: str, to: Path) -> None:
    """Copy a module or a package of the checkout, with the packages that contain it."""
    for parent in (".".join(name.split(".")[:end]) for end in range(1, name.count(".") + 1)):
        _copied_file(ROOT / parent.replace(".", "/") / "__init__.py", to)
    source = ROOT / name.replace(".", "/")
    for file in source.rglob("*.py") if source.is_dir() else [source.with_suffix(".py")]:
        _copied_file(file, to)


def _copied_file(file: Path, to: Path) -> None:
    place = to / file.relative_to(ROOT)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, place)


def _wheel(modules: list[str], folder: Path) -> Path:
    """Build a wheel of some modules and the step kind `python`."""
    for name in modules:
        _copied(name, folder)
    steps = folder / "flowengine_nodes"
    steps.mkdir()
    (steps / "__init__.py").touch()
    shutil.copyfile(ROOT / "nodes/flowengine_nodes/python.py", steps / "python.py")
    (folder / "pyproject.toml").write_text(WHEEL)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    [built] = folder.glob("dist/*.whl")
    return built


def test_the_core_alone_runs_compiled_flows_and_knows_nothing_around_it(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    [core] = [each for each in contracts if each["name"].startswith("The core: ")]
    site = tmp_path / "site"
    with zipfile.ZipFile(_wheel([*core["source_modules"], *BELOW], tmp_path / "core")) as wheel:
        wheel.extractall(site)
    (tmp_path / "sums.py").write_text("def double(n: int) -> int:\n    return 2 * n\n")
    compiled = []
    for text in (FLOW, BOXED):
        (tmp_path / "flow.yaml").write_text(text)
        loaded = load(tmp_path / "flow.yaml")
        compiled.append([loaded.compiled, loaded.form])
    (tmp_path / "compiled.json").write_text(json.dumps(compiled))

    found = find_spec("msgpack")
    assert found is not None
    assert found.origin is not None
    libraries = Path(found.origin).parents[1]  # without what installs the checkout, as by -S
    setup = f"import sys; sys.path[:0] = [{str(site)!r}]; sys.path.append({str(libraries)!r})\n"
    around = [name for name in core["forbidden_modules"] if name.startswith("flowengine.")]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", setup + PROGRAM, *around],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        "waiting",
        "succeeded",
        {"doubled": 42},
        "EnvironmentUnavailable",
        "this host opens no environments: it was composed without `environments`",
        [],
    ]
