"""The core alone: a folder with nothing but its modules and what is below them runs a flow."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
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
PROGRAM = '''
import json, sys
from importlib.util import find_spec
from flowengine.engines.actors import Actor
from flowengine.engines.executions.linked_flows import Language
from flowengine.engines.host import Host, RandomIds, SystemClock, open_store
from flowengine.engines.people.answering import record_decision
from flowengine.engines.running.driving import Driving
from flowengine.engines.starting.beginning import Starting
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


class NoRules:
    def there(self):
        return False

    def look_again(self):
        pass

    check = look_again


def opened():
    return Host(
        open_store(sys.argv[2], "process"), language=Language(Paths, None), rules=NoRules(),
        environments=lambda host: None, clock=SystemClock(), ids=RandomIds(),
        settings=Settings(), workdir=".", linger=0, ttl=15_000,
    )


with open(sys.argv[1]) as file:
    compiled, hash = json.load(file)
host = opened()
driving = Driving(host)
starting = Starting(compiled, hash, {"n": 21}, "it", {}, "user:ana")
waiting = blocking(driving.drive)(driving.new(starting))
host.close()

host = opened()  # as another process
[wait] = waiting.waits
record_decision(host, wait["id"], "approve", {}, Actor("user:ben", "python"))
driving = Driving(host)
result = blocking(driving.drive)(driving.loaded("it"))
host.close()
around = [name for name in sys.argv[3:] if name in sys.modules or find_spec(name)]
print(json.dumps([waiting.status, result.status, result.outputs, around]))
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


def test_the_core_alone_runs_a_compiled_flow_and_knows_nothing_around_it(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    [core] = [each for each in contracts if each["name"].startswith("The core: ")]
    site = tmp_path / "site"
    for name in (*core["source_modules"], *BELOW):
        _copied(name, site)
    steps = site / "flowengine_nodes"
    steps.mkdir()
    (steps / "__init__.py").touch()
    shutil.copyfile(ROOT / "nodes/flowengine_nodes/python.py", steps / "python.py")
    (tmp_path / "sums.py").write_text("def double(n: int) -> int:\n    return 2 * n\n")
    (tmp_path / "flow.yaml").write_text(FLOW)
    loaded = load(tmp_path / "flow.yaml")
    (tmp_path / "compiled.json").write_text(json.dumps([loaded.compiled, loaded.form]))

    found = find_spec("msgpack")
    assert found is not None
    assert found.origin is not None
    libraries = Path(found.origin).parents[1]  # without what installs the checkout, as by -S
    setup = f"import sys; sys.path[:0] = [{str(site)!r}]; sys.path.append({str(libraries)!r})\n"
    around = [name for name in core["forbidden_modules"] if name.startswith("flowengine.")]
    arguments = ["compiled.json", "store", *around]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", setup + PROGRAM, *arguments],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["waiting", "succeeded", {"doubled": 42}, []]
