"""Imports: declarations of other files, resolved within their own file (F15, F16, F96)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, FlowFileError, check, load
from flowengine.cli.program import main
from flowengine.flow.compile import Compiled, compile_file


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools.py").write_text(
        "def echo(text: str = '') -> str:\n    return text\n\n\n"
        "def both(a: str, b: str) -> str:\n    return a + b\n"
    )
    return tmp_path


def write(name: str, text: str) -> str:
    """Write a flow file below its head and return its name."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"flowengine: 1\nid: {path.stem}\n{text}")
    return name


def refused(name: str) -> list[tuple[str, int, str, str]]:
    """Return file, line, code and message of each error."""
    with pytest.raises(FlowFileError) as caught:
        compile_file(name)
    found = [one for one in caught.value.diagnostics if not one.is_warning]
    return [(one.file, one.line, one.code, one.message) for one in found]


def run(name: str, **inputs: Any) -> Any:
    """Run a flow and return its outputs, or its error."""
    with Engine(None) as engine:
        result = engine.run(load(name), inputs)
        return result.outputs if result.status == "succeeded" else result.error


LIBRARY = """
tools:
  echo: {python: "tools:echo"}
  hello: {python: "tools:both", bind: {a: "Hello, "}}
flows:
  greet:
    inputs: {name: {type: string}}
    outputs: {text: "${{ steps.say.output }}"}
    steps:
      - {id: say, call: hello, with: {b: "${{ inputs.name }}"}}
"""
USER = """
imports: {lib: ./lib.yaml}
inputs: {name: {type: string, default: Ada}}
outputs: {one: "${{ steps.one.output }}", two: "${{ steps.two.output.text }}"}
steps:
  - {id: one, call: lib.hello, with: {b: "${{ inputs.name }}"}}
  - {id: two, flow: lib.greet, with: {name: "${{ steps.one.output }}!"}}
"""


def test_tools_and_flows_of_another_file_are_used_like_local_ones() -> None:
    write("lib.yaml", LIBRARY)
    write("main.yaml", USER)

    assert check("main.yaml") == []
    assert run("main.yaml") == {"one": "Hello, Ada", "two": "Hello, Hello, Ada!"}


def test_paths_and_modules_are_looked_for_beside_the_file_that_names_them(folder: Path) -> None:
    library = LIBRARY.replace("steps:\n", "steps:\n      - {id: echo, call: more.echo}\n")
    write("parts/lib.yaml", "imports: {more: ../more.yaml}\n" + library)
    shutil.move("tools.py", "parts/tools.py")
    write("more.yaml", "tools: {echo: {python: 'tools:echo'}}\n")
    write("main.yaml", USER.replace("./lib", "parts/lib"))

    (file, _, code, message) = refused("main.yaml")[0]
    assert (file, code) == ("more.yaml", "E401")
    assert "tools" in message

    write("more.yaml", "tools: {echo: {shell: [echo, hi]}}\n")
    assert run("main.yaml") == {"one": "Hello, Ada", "two": "Hello, Hello, Ada!"}


def test_files_of_packages_are_imported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("site/acme/flows/lib.yaml", LIBRARY)
    shutil.copy("tools.py", "site/acme/flows/tools.py")
    (folder / "site/acme/__init__.py").write_text("raise RuntimeError('is not imported')\n")
    monkeypatch.syspath_prepend(str(folder / "site"))
    write("main.yaml", USER.replace("./lib.yaml", '"acme:flows/lib.yaml"'))

    assert run("main.yaml")["one"] == "Hello, Ada"

    write("main.yaml", USER.replace("./lib.yaml", '"nowhere:flows/lib.yaml"'))
    assert refused("main.yaml")[0][1:] == (4, "E401", "there is no package 'nowhere'")
    write("main.yaml", USER.replace("./lib.yaml", '"package:acme/flows/lib.yaml"'))
    assert "write its name before the colon" in (check("main.yaml")[0].hint or "")


def test_a_flow_of_another_file_is_run_by_its_path_or_as_the_flow_of_an_import() -> None:
    write(
        "child.yaml",
        "inputs: {n: {type: integer}}\noutputs: {n: '${{ inputs.n + 1 }}'}\n"
        "steps: [{id: a, output: 1}]\n",
    )
    write(
        "main.yaml",
        """
imports: {other: ./child.yaml}
outputs: {n: "${{ steps.two.output.n }}"}
steps:
  - {id: one, flow: ./child.yaml, with: {n: 1}}
  - {id: two, flow: other.child, with: {n: "${{ int(steps.one.output.n) }}"}}
""",
    )

    assert run("main.yaml") == {"n": 3}
    assert len(load("main.yaml").compiled["flows"]) == 1


def test_two_files_run_one_another() -> None:
    for name, other in (("even", "odd"), ("odd", "even")):
        write(
            f"{name}.yaml",
            f"""
inputs: {{n: {{type: integer}}}}
outputs: {{is: {{value: "${{{{ default(steps.ask.output.is, '{name}') }}}}", type: string}}}}
steps:
  - {{id: ask, when: "${{{{ inputs.n > 0 }}}}", flow: ./{other}.yaml, with: {{n: "${{{{ inputs.n - 1 }}}}"}}}}
""",  # noqa: E501
        )

    assert run("even.yaml", n=5) == {"is": "odd"}


# Lexical scope


def test_declarations_see_the_secrets_and_defaults_of_their_own_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OURS", "ours-1234")
    monkeypatch.setenv("THEIRS", "theirs-1234")
    write(
        "lib.yaml",
        """
secrets: {KEY: {env: THEIRS}}
defaults: {retry: {attempts: 7, delay: 1ms}, timeout: 9s, effect: idempotent}
tools:
  call:
    shell:
      argv: [sh, -c, 'test "$KEY" = theirs-1234 && echo right']
      env: {KEY: "${{ secrets.KEY }}"}
""",
    )
    write(
        "main.yaml",
        """
imports: {lib: ./lib.yaml}
secrets: {KEY: {env: OURS}}
defaults: {timeout: 1s}
steps:
  - {id: a, call: lib.call}
  - {id: b, run: {script: 'test "$KEY" = ours-1234', env: {KEY: "${{ secrets.KEY }}"}}}
outputs: {out: "${{ steps.a.output.stdout }}"}
""",
    )

    compiled = load("main.yaml").compiled
    assert run("main.yaml") == {"out": "right\n"}
    assert compiled["steps"][0]["retry"]["attempts"] == 7
    assert compiled["steps"][0]["timeout"] == ["const", "9s"]
    assert compiled["steps"][1]["timeout"] == ["const", "1s"]
    assert set(compiled["secrets"]) == {"KEY", "lib.KEY"}


NAMES_INPUTS = """
inputs: {account: {type: string, default: theirs}}
tools:
  pay: {python: "tools:both", bind: {a: "${{ inputs.account }}"}}
steps:
  - {id: a, call: pay, with: {b: "!"}}
outputs: {paid: "${{ steps.a.output }}"}
"""


def test_a_declaration_that_names_inputs_is_for_the_flow_of_its_file_only() -> None:
    write("bank.yaml", NAMES_INPUTS)
    write(
        "main.yaml",
        "imports: {bank: ./bank.yaml}\ninputs: {account: {type: string}}\n"
        "steps:\n  - {id: a, call: bank.pay, with: {b: x}}\n",
    )

    assert run("bank.yaml") == {"paid": "theirs!"}
    ((file, line, code, message),) = refused("main.yaml")
    assert (file, line, code) == ("main.yaml", 6, "E301")
    assert "bank.pay" in message

    write(
        "main.yaml",
        "imports: {bank: ./bank.yaml}\nsteps:\n  - {id: a, flow: bank.bank}\n"
        "outputs: {all: '${{ steps.a.output }}'}\n",
    )
    assert run("main.yaml") == {"all": {"paid": "theirs!"}}


def test_nor_is_it_for_an_entry_of_flows() -> None:
    flows = "flows:\n  child:\n    steps: [{id: b, call: pay, with: {b: x}}]\n"
    write("bank.yaml", NAMES_INPUTS + flows)

    assert refused("bank.yaml")[0][1:3] == (12, "E301")


# Tools that are flows


def test_a_flow_is_called_as_a_tool_with_what_is_bound() -> None:
    write(
        "main.yaml",
        """
tools:
  sum: {flow: add, bind: {a: 40}, retry: 2}
flows:
  add:
    inputs: {a: {type: integer}, b: {type: integer}}
    outputs: {sum: {value: "${{ inputs.a + inputs.b }}", type: integer}}
    steps: [{id: x, output: 1}]
steps:
  - {id: s, call: sum, with: {b: 2}}
outputs: {sum: "${{ steps.s.output.sum }}"}
""",
    )

    assert check("main.yaml") == []
    assert run("main.yaml") == {"sum": 42}


def test_a_secret_is_no_input() -> None:
    write(
        "main.yaml",
        """
secrets: {KEY: {env: KEY}}
tools: {t: {flow: child, bind: {key: "${{ secrets.KEY }}"}}}
flows: {child: {inputs: {key: {type: string}}, steps: [{id: a, output: 1}]}}
steps: [{id: s, call: t}]
""",
    )

    assert [one[2] for one in refused("main.yaml")] == ["E403"]


# Hash, definition, cache


def compiled(text: str = USER, library: str = LIBRARY) -> Compiled:
    """Compile the flow with its library."""
    write("lib.yaml", library)
    return compile_file(write("main.yaml", text))


def test_the_hash_covers_what_is_imported_and_only_what_is_used() -> None:
    first = compiled().hash

    assert compiled(library="# a comment\n" + LIBRARY).hash == first
    assert compiled(library=LIBRARY.replace("Hello, ", "Hi, ")).hash != first
    unused = LIBRARY.replace("tools:\n", "tools:\n  other: {shell: [true]}\n", 1)
    assert compiled(library=unused).hash == first
    assert compiled(USER.replace("lib", "shelf").replace("shelf.yaml", "lib.yaml")).hash == first
    assert compiled(library=LIBRARY.replace("id: say,", "id: say, retry: 1,")).hash != first


def test_a_changed_library_is_seen_by_the_next_run(folder: Path) -> None:
    write("lib.yaml", LIBRARY)
    write("main.yaml", USER)
    sources = [Path(path).name for path, _ in compile_file("main.yaml").sources]
    assert sources == ["main.yaml", "lib.yaml", "tools.py"]

    def text() -> str:
        with Engine(folder / "store.db") as engine:
            outputs = engine.run("main.yaml").outputs
            assert outputs is not None
            return str(outputs["one"])

    assert text() == "Hello, Ada"
    write("lib.yaml", LIBRARY.replace("Hello, ", "Hi, "))
    assert text() == "Hi, Ada"


# Errors


@pytest.mark.parametrize(
    ("text", "line", "code", "message"),
    [
        ("steps: [{id: a, flow: chidl}]\n", 3, "E401", "there is no flow 'chidl'"),
        ("steps: [{id: a, flow: lib.gret}]\n", 3, "E401", "there is no flow 'lib.gret'"),
        ("steps: [{id: a, call: lib.ehco}]\n", 3, "E401", "there is no tool 'lib.ehco'"),
        ("steps: [{id: a, flow: ./chidl.yaml}]\n", 3, "E401", "there is no file './chidl.yaml'"),
        ("steps: [{id: a, flow: ./lib.yaml}]\n", 3, "E401", "'./lib.yaml' is a library"),
        ("steps: [{id: a, flow: child}]\n", 3, "E402", "'child' needs 'n'"),
        ("steps: [{id: a, flow: child, with: {n: x}}]\n", 3, "E402", "child.n"),
        ("steps: [{id: a, flow: child, with: {n: 1, m: 2}}]\n", 3, "E402", "no argument 'm'"),
        (
            "steps: [{id: a, flow: child, with: {n: 1}},{id: b, output: '${{ steps.a.output.x }}'}]\n",  # noqa: E501
            3,
            "E301",
            "steps.a.output.x",
        ),
        (
            "steps: [{id: a, flow: child, with: {n: 1}, on_error: [{type: Http, next: end}]}]\n",
            3,
            "E210",
            "'Http' cannot occur",
        ),
        ("steps: [{id: a, flow: main}]\n", 3, "E406", "every path through 'main'"),
        ("steps: [{id: a, detach: true}]\n", 3, "E103", "no meaning without 'flow'"),
        (
            "steps: [{id: a, flow: child, with: {n: '${{ item }}'}}]\n",
            3,
            "E301",
            "'item' is not visible",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_at_its_place(text: str, line: int, code: str, message: str) -> None:
    write("lib.yaml", LIBRARY)
    more = (
        "imports: {lib: ./lib.yaml}\n"
        "flows:\n  child:\n    inputs: {n: {type: integer}}\n    outputs: {n: '${{ inputs.n }}'}\n"
        "    steps: [{id: x, output: '${{ inputs.n }}'}]\n"
    )
    write("main.yaml", text + more)

    found = refused("main.yaml")

    assert any(
        one[0] == "main.yaml" and one[1] == line and one[2].startswith(code) and message in one[3]
        for one in found
    ), found


def test_errors_of_an_imported_file_are_told_at_its_own_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("lib.yaml", LIBRARY.replace("inputs.name", "inputs.nmae"))
    write("main.yaml", USER)

    ((file, line, code, _),) = refused("main.yaml")
    assert (file, line, code) == ("lib.yaml", 12, "E301")
    assert main(["check", "main.yaml"]) == 3
    assert "did you mean 'inputs.name'?" in capsys.readouterr().err


def test_a_circle_of_imports_is_named() -> None:
    write("a.yaml", "imports: {b: ./b.yaml}\nsteps: [{id: s, output: 1}]\n")
    write("b.yaml", "imports: {c: ./c.yaml}\ntools: {t: {shell: [true]}}\n")
    write("c.yaml", "imports: {a: ./a.yaml}\ntools: {t: {shell: [true]}}\n")

    ((file, line, code, message),) = refused("a.yaml")

    assert (file, line, code) == ("c.yaml", 3, "E405")
    assert "a.yaml → b.yaml → c.yaml → a.yaml" in message


def test_flows_that_run_one_another_for_ever_are_found() -> None:
    write(
        "main.yaml",
        """
flows:
  ping: {steps: [{id: a, group: [{id: b, flow: pong}]}]}
  pong: {steps: [{id: a, output: 1}, {id: b, flow: ping}]}
steps: [{id: s, flow: ping}]
""",
    )

    assert [one[2:] for one in refused("main.yaml")] == [
        ("E406", "every path through 'ping' runs 'ping' again: it never ends"),
        ("E406", "every path through 'pong' runs 'pong' again: it never ends"),
    ]


def test_locks_are_taken_in_one_order_through_subflows_too() -> None:
    write(
        "main.yaml",
        """
flows:
  one: {steps: [{id: x, lock: b, output: 1}]}
  two: {steps: [{id: y, lock: b, flow: three}]}
  three: {steps: [{id: z, lock: a, output: 1}]}
steps:
  - {id: p, lock: a, flow: one}
  - {id: q, flow: two}
""",
    )

    ((_, line, code, message),) = refused("main.yaml")
    assert (line, code) == (7, "E409")
    assert "'x' takes 'b' inside 'a'" in message


def test_what_must_not_be_repeated_is_not_tried_again_in_a_subflow() -> None:
    text = """
flows:
  inner: {{steps: [{{id: x, python: "tools:echo"{effect}}}]}}
  outer: {{steps: [{{id: y, flow: inner}}]}}
steps: [{{id: s, flow: outer, retry: 3}}]
"""
    write("main.yaml", text.format(effect=""))
    assert [one[2] for one in refused("main.yaml")] == ["E404"]

    write("main.yaml", text.format(effect=", effect: pure"))
    assert check("main.yaml") == []


def test_one_signal_is_the_same_in_all_flows_of_an_execution() -> None:
    write(
        "child.yaml",
        "signals: {s: {data: {type: integer}}}\nsteps: [{id: w, wait: {signal: s}}]\n",
    )
    write(
        "main.yaml",
        "signals: {s: {data: {type: string}}}\n"
        "steps: [{id: a, flow: ./child.yaml}, {id: w, wait: {signal: s}}]\n",
    )

    ((file, line, code, _),) = refused("main.yaml")
    assert (file, line, code) == ("child.yaml", 3, "E103")


def test_unused_declarations_are_told_of_the_file_that_is_compiled_only() -> None:
    write("lib.yaml", LIBRARY)
    write("main.yaml", USER + "flows: {spare: {steps: [{id: a, output: 1}]}}\n")

    assert [(one.code, one.message) for one in check("main.yaml")] == [
        ("W105", "the flow 'spare' is never used")
    ]


# The command line


def test_a_library_is_checked_by_itself_and_cannot_be_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("lib.yaml", LIBRARY)

    assert check("lib.yaml") == []
    assert main(["check", "--strict", "lib.yaml"]) == 0
    assert capsys.readouterr().out == "lib.yaml: ok\n"
    assert main(["run", "lib.yaml"]) == 3
    assert "this file is a library" in capsys.readouterr().err
    write("lib.yaml", LIBRARY.replace("call: hello", "call: hallo"))
    assert main(["check", "lib.yaml"]) == 3
    assert "did you mean 'hello'?" in capsys.readouterr().err


def test_check_prints_a_file_with_flows_that_reads_back_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = compiled(USER + "flows: {spare: {steps: [{id: a, wait: 1s}]}}\n").hash

    assert main(["check", "--print", "main.yaml"]) == 0
    Path("again.yaml").write_text(capsys.readouterr().out)

    assert compile_file("again.yaml").hash == first


def test_the_graph_shows_the_flows_inside(capsys: pytest.CaptureFixture[str]) -> None:
    compiled()

    for form in ("mermaid", "dot"):
        assert main(["graph", "main.yaml", "--format", form]) == 0
        shown = capsys.readouterr().out
        assert "two" in shown
        assert "greet" in shown
        assert "say" in shown


def test_the_schema_for_a_file_knows_the_flows_it_can_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    compiled()

    assert main(["schema", "--for", "main.yaml"]) == 0
    definitions = json.loads(capsys.readouterr().out)["$defs"]
    names = json.dumps(definitions["FlowName"])
    assert "lib.greet" in names
    assert "lib.hello" in json.dumps(definitions["ToolName"])


def test_a_function_in_folders_without_init_files(folder: Path) -> None:
    (folder / "steps" / "billing").mkdir(parents=True)
    (folder / "steps" / "billing" / "charge.py").write_text(
        "def total(a: int) -> int:\n    return a * 2\n"
    )
    name = write(
        "f.yaml",
        "outputs: {x: '${{ steps.a.output }}'}\n"
        "steps:\n  - {id: a, python: 'steps.billing.charge:total', with: {a: 4}}\n",
    )

    assert run(name) == {"x": 8}
    write("g.yaml", "steps:\n  - {id: a, python: 'steps.billing.nothing:total'}\n")
    assert refused("g.yaml") == [
        ("g.yaml", 4, "E401", "there is no module 'steps.billing.nothing'")
    ]
