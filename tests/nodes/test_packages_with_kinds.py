"""Step kinds of other packages have the abilities of those that come with the engine.

The engine imports no step kind (a contract of imports), so that it knows those of both only by what
they say. Each ability is shown here with a kind of `packages/acme_kinds.py`.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import flowengine
from flowengine import registry
from flowengine.errors import FlowFileError
from flowengine.flow.compile import compile_file, compile_text

PACKAGE = Path(__file__).parent / "packages" / "acme_kinds.py"
POINTS = """[flowengine.nodes]
invoke = acme_kinds:Invoke
assistant = acme_kinds:Assistant
transcript = acme_kinds:Transcript
model = acme_kinds:Model
table = acme_kinds:Table
panel = acme_kinds:Panel
panel_line = acme_kinds:PanelLine
"""


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Simulates an installed package: its module and its entry points are on the path."""
    site = tmp_path / "site"
    info = site / "acme_kinds-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-kinds\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    shutil.copy(PACKAGE, site)
    monkeypatch.syspath_prepend(str(site))
    for cache in ("_points", "_kinds", "_environments"):
        monkeypatch.setattr(registry, cache, {})
    yield site
    sys.modules.pop("acme_kinds", None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the flows, with a module next to them."""
    folder = tmp_path / "flows"
    folder.mkdir()
    (folder / "work.py").write_text(
        "from flowengine_envs.kinds.sqlite import Database\n"
        "def add(a: int, b: float = 1.5) -> float:\n    return a + b\n"
        "def count(db: Database, table: str) -> int:\n    return 1\n"
    )
    return folder


def test_a_server_of_a_package_has_one_session_with_many_tools(folder: Path) -> None:
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute("create table orders (city text)")
        database.execute("create table people (city text)")
        database.execute("insert into orders values ('Rome'), ('Rome'), ('Oslo')")
    database.close()
    path = folder / "flow.yaml"
    path.write_text(
        "flowengine: 1\nid: f\ntools: {shop: {table: shop.db}}\nsteps:\n"
        "  - {id: a, call: shop.orders, with: {city: Rome}}\n"
        "  - {id: b, call: shop.people, with: {city: Rome}}\n"
        "outputs: {orders: '${{ steps.a.output }}', people: '${{ steps.b.output }}'}\n"
    )

    with flowengine.Engine(None, workdir=folder) as engine:
        result = engine.run(path)

    assert result.outputs == {"orders": 2, "people": 0}


TRANSCRIPT = """flowengine: 1
id: f
state: {said: {type: array, default: [], reducer: append}}
steps:
  - {id: ada, set: {said: {who: Ada, parts: [a, b]}}}
  - {id: read, transcript: {of: said, attack: ATTACK}}
outputs: {read: '${{ steps.read.output }}', said: '${{ state.said }}'}
"""


def test_a_kind_of_a_package_reads_state_by_reference(folder: Path) -> None:
    path = folder / "flow.yaml"
    path.write_text(TRANSCRIPT.replace("ATTACK", "false"))

    with flowengine.Engine(None, workdir=folder) as engine:
        result = engine.run(path)

    entry = {"who": "Ada", "parts": ["a", "b"]}
    assert result.outputs == {"read": {"lines": ["Ada: a/b"], "last": [entry]}, "said": [entry]}


def test_state_that_a_kind_reads_has_to_be_declared_and_is_used(folder: Path) -> None:
    text = re.sub(r"  - \{id: ada.*\n", "", TRANSCRIPT).replace("ATTACK", "false")
    good = compile_text(text.replace(", said: '${{ state.said }}'", ""), folder=folder)
    unused = [one for one in good.diagnostics if one.code == "W105"]

    with pytest.raises(FlowFileError) as caught:
        compile_text(text.replace("of: said", "of: sayd"), folder=folder)

    assert not unused
    [error] = caught.value.diagnostics
    assert (error.code, error.message) == (
        "E301", "'transcript' reads state.sayd, which this flow does not have"
    )  # fmt: skip
    assert error.hint == "declare it: 'state: {sayd: ...}'"


MODELS = """flowengine: 1
id: f
budget: {tokens: 100, cost_usd: 2, tool_calls: 1, fallback_at: 50%}
steps:
  - {id: a, model: {most: 50}}
  - {id: b, model: {most: 50}}
  - {id: c, model: {most: 50}}
  - {id: d, model: {most: 50}, on_error: [{type: BudgetExceeded, output: {model: none}}]}
  - {id: tool, python: 'work:add', with: {a: 1}}
outputs:
  used: '${{ [steps.a.output.model, steps.b.output.model, steps.c.output.model] }}'
  last: '${{ steps.d.output.model }}'
"""


def test_a_kind_of_a_package_uses_tokens_and_money(folder: Path) -> None:
    path = folder / "flow.yaml"
    path.write_text(MODELS)

    with flowengine.Engine(None, workdir=folder) as engine:
        result = engine.run(path)
        [budget] = engine.executions.show(result.execution)["budgets"]

    assert result.outputs == {"used": ["dear", "dear", "cheap"], "last": "none"}
    assert budget["tokens"] == {"used": 120, "running": 0, "estimated": 0, "limit": 100}
    assert budget["cost_usd"] == {"used": 0.75, "running": 0.0, "estimated": 0.0, "limit": 2.0}
    assert budget["tool_calls"] == {"used": 1, "running": 0, "limit": 1}


AGENT = """flowengine: 1
id: f
inputs: {x: {type: string}}
secrets: {TOKEN: {env: ACME_TOKEN}}
steps:
  - id: greet
    assistant:
      instructions: Greet ${{ inputs.x }} for
      settings: {api_key: '${{ secrets.TOKEN }}'}
      takes: [who]
      returns: {type: object, properties: {text: {type: string}, key: {type: integer}}}
    with: {who: Ada}
outputs: {said: '${{ steps.greet.output.text }}', key: '${{ steps.greet.output.key }}'}
"""


def test_what_an_agent_needs_fits_through_the_door(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_TOKEN", "12345678")
    path = folder / "flow.yaml"
    path.write_text(AGENT)

    with flowengine.Engine(None, workdir=folder) as engine:
        result = engine.run(path, {"x": "us"})

    assert result.outputs == {"said": "Greet us for Ada", "key": 8}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{who: Ada}", "{whom: Ada}", "'assistant' takes no argument 'whom'"),
        ("output.text", "output.txt", "txt"),
        ("Greet ${{ inputs.x }}", "Greet ${{ secrets.TOKEN }}", "secret"),
        ("takes: [who]", "takes: ['${{ inputs.x }}']", "an expression is not allowed in 'takes'"),
    ],
)
def test_the_checker_knows_what_a_package_says(
    folder: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(FlowFileError) as refused:
        compile_text(AGENT.replace(old, new, 1), folder=folder)

    assert message in str(refused.value)


PANEL = """flowengine: 1
id: f
inputs: {x: {type: integer}}
tools:
  plus: {python: 'work:plus', with: {b: '${{ inputs.x }}'}}
  also: {python: 'work:plus', with: {b: 2}}
steps:
  - id: ask
    panel: {tools: ['*s', also], greeting: 'Hi ${{ inputs.x }}'}
    with: {n: 1}
    next: {outcome: {agreed: end, split: apart}}
  - {id: apart, output: '${{ steps.ask.outcome }}'}
outputs: {said: '${{ steps.ask.output }}', line: '${{ steps.ask.agent }}'}
"""


@pytest.fixture
def panel(folder: Path) -> Path:
    (folder / "work.py").write_text("def plus(n: int, b: int) -> int:\n    return n + b\n")
    path = folder / "flow.yaml"
    path.write_text(PANEL)
    return path


def test_a_kind_of_a_package_generates_a_flow(folder: Path, panel: Path) -> None:
    with flowengine.Engine(None, workdir=folder) as engine:
        agreed = engine.run(panel, {"x": 2})
        split = engine.run(panel, {"x": 3})
        addresses = [one["address"] for one in engine.executions.show(split.execution)["steps"]]

    assert agreed.outputs == {"said": [30, 30], "line": "Hi 2!"}
    assert split.outputs == {"said": [40, 30], "line": "Hi 3!"}
    assert addresses == ["ask", "ask/ask.plus", "ask/ask.also", "ask/done", "apart"]


def test_an_outcome_of_a_generated_flow_raises_unless_it_is_routed(
    folder: Path, panel: Path
) -> None:
    panel.write_text(PANEL.replace("    next: {outcome: {agreed: end, split: apart}}\n", ""))

    with flowengine.Engine(None, workdir=folder) as engine:
        error = engine.run(panel, {"x": 3}).error

    assert error is not None
    assert (error["type"], error["data"]) == ("Split", [40, 30])
    assert error["message"] == "'ask' ended in Split: they do not agree"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("'*s'", "'x*'", "flow.yaml:9:12: error[E401]: no tool matches 'x*'"),
        ("{n: 1}", "{m: 1}", "'panel' takes no argument 'm'"),
        ("agreed: end, ", "", "flow.yaml:11:12: error[E209]: 'next' of 'ask'"),
        ("panel: {", "panel_line: {", "unknown key 'panel_line' in a step"),
        ("Hi ${{ inputs.x", "Hi ${{ inputs.y", "'inputs.y' is not declared"),
        ("${{ inputs.x }}'}}\n  also", "${{ inputs.z }}'}}\n  also", "'inputs.z' is not declared"),
    ],
)
def test_what_is_wrong_with_a_generated_flow_is_reported_where_it_is_declared(
    panel: Path, old: str, new: str, message: str
) -> None:
    assert old in PANEL
    panel.write_text(PANEL.replace(old, new))

    with pytest.raises(FlowFileError) as refused:
        compile_file(panel)

    assert message in str(refused.value)


def test_a_kind_is_imported_only_where_a_flow_uses_it(site: Path, folder: Path) -> None:
    (site / "acme_kinds.py").write_text("raise SystemError('nobody asked for me')")
    path = folder / "flow.yaml"
    path.write_text("flowengine: 1\nid: f\nsteps: [{id: a, run: echo}]\n")
    program = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "from flowengine.flow.compile import compile_file\n"
        f"compile_file({str(path)!r})\n"
        "print(sorted(m for m in sys.modules if m.startswith(('flowengine_nodes.', 'acme'))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "['flowengine_nodes.commands']"

    path.write_text("flowengine: 1\nid: f\nsteps: [{id: a, invoke: 'a:b'}]\n")
    with pytest.raises(FlowFileError, match="'invoke' cannot be imported: SystemError: nobody"):
        compile_file(path)


@pytest.mark.parametrize("ruled", [False, True])
def test_a_step_whose_package_is_gone_fails_and_can_be_retried(
    ruled: bool, site: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules about calls are read before each step."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    if ruled:
        rules = folder / "config" / "flowengine" / "rules.yaml"
        rules.parent.mkdir(parents=True)
        rules.write_text("rules: [{ask: 'other*'}]\n")
    path = folder / "flow.yaml"
    path.write_text(
        "flowengine: 1\nid: f\nsteps:\n  - {id: sign, approval: Go on?}\n"
        "  - {id: add, invoke: 'work:add', with: {a: 1}}\noutputs: {n: '${{ steps.add.output }}'}\n"
    )
    with flowengine.Engine(folder / "store", workdir=folder) as engine:
        [wait] = engine.run(path, id="f").waits
    installed = site.rename(site.with_name("elsewhere"))
    monkeypatch.setattr(registry, "_points", {})
    monkeypatch.setattr(registry, "_kinds", {})
    with flowengine.Engine(folder / "store", workdir=folder) as engine:
        decided = engine.approvals.approve(wait["id"]).result
        assert decided is not None
        assert decided.error is not None
        assert (decided.status, decided.error["type"]) == ("failed", "UnknownKind")

    installed.rename(site)
    monkeypatch.setattr(registry, "_points", {})
    with flowengine.Engine(folder / "store", workdir=folder) as engine:
        assert engine.executions.retry("f").outputs == {"n": 2.5}
