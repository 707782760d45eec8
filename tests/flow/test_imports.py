# Shows F15
"""Imported files: packages, the hash, the cache and the printed form (F15, F16)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from flowengine import Engine, load
from flowengine.cli.program import main
from flowengine.flow.compile import Compiled, compile_file

pytestmark = pytest.mark.usefixtures("folder")
FILES = {
    "tools.py": """
def echo(text: str = '') -> str:
    return text

def both(a: str, b: str) -> str:
    return a + b
"""
}


def write(name: str, text: str) -> str:
    """Write a flow file below its head and return its name."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"flowengine: 1\nid: {path.stem}\n{text}")
    return name


def run(name: str, **inputs: Any) -> Any:
    """Run a flow and return its outputs, or its error."""
    with Engine(None) as engine:
        result = engine.run(load(name), inputs)
        return result.outputs if result.status == "succeeded" else result.error


LIBRARY = """
tools:
  echo: {python: "tools:echo"}
  hello: {python: "tools:both", with: {a: "Hello, "}}
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


def test_files_of_packages_are_imported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("site/acme/flows/lib.yaml", LIBRARY)
    shutil.copy("tools.py", "site/acme/flows/tools.py")
    (folder / "site/acme/__init__.py").write_text("raise RuntimeError('is not imported')\n")
    monkeypatch.syspath_prepend(str(folder / "site"))
    write("main.yaml", USER.replace("./lib.yaml", '"acme:flows/lib.yaml"'))

    assert run("main.yaml")["one"] == "Hello, Ada"


def compiled(text: str = USER, library: str = LIBRARY) -> Compiled:
    """Compile the flow with its library."""
    write("lib.yaml", library)
    return compile_file(write("main.yaml", text))


# Shows F16
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


def test_check_prints_a_file_with_flows_that_reads_back_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = compiled(USER + "flows: {spare: {steps: [{id: a, wait: 1s}]}}\n").hash

    assert main(["check", "--print", "main.yaml"]) == 0
    Path("again.yaml").write_text(capsys.readouterr().out)

    assert compile_file("again.yaml").hash == first
