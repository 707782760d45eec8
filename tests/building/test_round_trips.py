# Shows F7
"""A flow in either form, written out in the other, has the same meaning (F7)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine import Flow, FlowFileError
from flowengine.flow.compile import compile_file, compile_text
from flowengine.flow.export.definition import expanded, to_yaml
from flowengine.flow.loading.load import load_source
from flowengine.flow.source.diagnostics import Diagnostics
from flowengine.flow.source.yaml_source import read_text
from tests.cases.form import read_cases
from tests.language.stage import TOOLS
from tests.sliced_examples import sliced
from tests.testing.random_flows import LIBRARY, Author

ROOT = Path(__file__).parents[2]
EXAMPLES = [
    path
    for path in sorted((ROOT / "examples").rglob("*.yaml"))
    if path.read_text().find("flowengine: 1") >= 0
]


def long_form(text: str) -> str:
    """Return a flow with all short forms expanded, and sorted keys."""
    model = load_source(read_text(text), Diagnostics())
    assert model is not None
    return expanded(model)


def data_of(text: str) -> Any:
    return in_order(read_text(long_form(text)).data)


def in_order(data: Any) -> Any:
    """Return data with the keys of all maps sorted, as their order has no meaning."""
    if isinstance(data, dict):
        return {key: in_order(data[key]) for key in sorted(data)}
    return [in_order(one) for one in data] if isinstance(data, list) else data


def check(text: str, folder: Path, wanted: str) -> None:
    """Write a flow with this hash as YAML and as Python, and read both again."""
    flow = Flow.from_text(text, folder)

    written = flow.to_yaml()
    again = Flow.from_text(written, folder)
    program = flow.to_python()
    found: dict[str, Any] = {}
    exec(compile(program, "<program>", "exec"), found)
    built: Flow = found["flow"]
    built.folder = str(folder)

    assert flow.compile().hash == wanted
    assert compile_text(written, folder=folder).hash == wanted, written
    assert data_of(written) == data_of(text), written
    assert again.to_yaml() == written
    assert built.compile().hash == wanted, program
    assert data_of(built.to_yaml()) == data_of(written)
    assert built.to_python() == program


@pytest.mark.endurance
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.stem))
def test_examples(path: Path) -> None:
    assert compile_file(path).hash == Flow.from_yaml(path).compile().hash
    text = path.read_text()
    check(text, path.parent, compile_text(text, folder=path.parent).hash)


def flows_in_the_docs() -> list[str]:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = [
        block
        for page in pages
        for block in re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.M | re.S)
    ]
    return [text for text in found if re.search(r"^flowengine: 1$", text, re.M)]


def flows_in_the_tests() -> list[str]:
    """Return the flows of the cases of the language."""
    files = sorted((ROOT / "tests" / "language").glob("*.cases.yaml"))
    played = [case for file in files for case in read_cases(file)]
    return list(dict.fromkeys(case.flow for case in played if case.flow and not case.files))


@pytest.mark.endurance
@pytest.mark.parametrize("part", range(10))
def test_flows_of_the_docs_and_of_the_tests(part: int, tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    checked = 0
    for text in [*flows_in_the_docs(), *flows_in_the_tests()][part::10]:
        try:
            wanted = compile_text(text, folder=tmp_path).hash
        except FlowFileError:
            continue
        check(text, tmp_path, wanted)
        checked += 1

    assert checked > 15


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    (folder / "tools.py").write_text(TOOLS)
    (folder / "lib.yaml").write_text(to_yaml(LIBRARY))
    return folder


@pytest.mark.endurance
@pytest.mark.parametrize("part", range(10))
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), wild=st.booleans())
def test_random_flows(tools: Path, part: int, seed: int, wild: bool) -> None:
    author = Author(10 * seed + part, wild=wild, library="lib.yaml")
    text = to_yaml({"flowengine": 1, "id": "flow", **author.flow()})
    try:
        wanted = compile_text(text, folder=tools).hash
    except FlowFileError:
        return
    check(text, tools, wanted)


TEXT = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    [
        "yes",
        "null",
        "1.0",
        "a: b",
        "a #b",
        "- x",
        "'q'",
        '"',
        "$${{ x",
        "{a}",
        "a,b",
        " lead",
        "\n",
        "\\'",
    ]
)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@sliced(examples=30)
@given(DATA)
def test_any_data_is_written_so_that_it_is_read_again(data: Any) -> None:
    flow = Flow("data")
    flow.step("give", output={"data": escaped(data)})

    written = Flow.from_text(flow.to_yaml())
    found: dict[str, Any] = {}
    exec(flow.to_python(), found)

    assert written.compile().hash == flow.compile().hash == found["flow"].compile().hash


def escaped(data: Any) -> Any:
    """Return data with the starts of expressions escaped."""
    if isinstance(data, dict):
        return {key.replace("${{", ""): escaped(one) for key, one in data.items()}
    if isinstance(data, list):
        return [escaped(one) for one in data]
    return data.replace("${{", "") if isinstance(data, str) else data
