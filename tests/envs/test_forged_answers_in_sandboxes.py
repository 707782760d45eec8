# Shows S25
"""Code that answers in place of its interpreter: its call ends with one error, at once."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.sdk import ToolError
from flowengine.sdk.environments import Sandbox
from flowengine_envs.kinds.node import NodeSandbox
from flowengine_envs.kinds.python import Python, PythonSandbox
from flowengine_envs.link import code_answers, frames, plain
from flowengine_envs.sandboxes.host import HostSandbox
from tests.envs.opening import opened
from tests.sliced_examples import sliced

# What hostile code finds in its interpreter, however private.
FORGE = """
import sys, json, struct, time
frame = sys._getframe()
while "request" not in frame.f_locals:
    frame = frame.f_back
worker, token = frame.f_locals["self"], frame.f_locals["request"]["id"]

def send(body, length=None):
    data = body if isinstance(body, bytes) else json.dumps({"id": token, **body}).encode()
    worker._control.sendall(struct.pack(">I", len(data) if length is None else length) + data)

send(BODY)
time.sleep(60)
"""
ERROR = {"type": "E", "message": "m", "traceback": "", "line": 1}
FORGED: dict[str, str] = {
    "bytes of a number": "{'value': {'$bytes': 5}}",
    "bytes that are none": "{'value': {'$bytes': 'no base64'}}",
    "a map of a number": "{'value': {'$map': 3}}",
    "a map of odd pairs": "{'value': {'$map': [[1, 2], 3]}}",
    "a value within others": "{'value': [[{'$bytes': None}]]}",
    "an error that is text": "{'error': 'no'}",
    "an error of numbers": repr({"error": {**ERROR, "type": 1}}),
    "an error without a line": "{'error': {'type': 'E', 'message': 'm', 'traceback': ''}}",
    "text that is none": "{'text': 7}",
    "threads that are none": "{'left': 'all'}",
    "no map": "b'[]'",
    "no JSON": "b'{'",
    "no text": "b'\\xff\\xfe'",
    "deep lists": "b'[' * 100_000",
    "a deep value": 'b\'{"id": "%s", "value": %s}\' % '
    "(token.encode(), b'[' * 500 + b']' * 500)",
    "70 MB": "b'x' * 70_000_000",
    "a length of 4 GB": "b'x', 2**32 - 1",
}


@pytest.mark.wherever
@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_answer_ends_its_call_at_once(python: PythonSandbox, forged: str) -> None:
    python.run("x = 41")
    result = python.run(FORGE.replace("BODY", FORGED[forged]), timeout=300)

    assert result.error is not None
    assert result.error.type == "ProtocolError", result
    assert result.namespace_lost
    assert python.run("'x' in globals()").value is False


def test_what_is_forged_for_no_call_is_not_heard(python: PythonSandbox) -> None:
    code = FORGE.replace("BODY", """b'{"id": "another", "value": 7}'""").replace("60", "0")

    assert python.run(f"{code}\n42").value == 42


JAVASCRIPT = ["'[]\\n'", '\'{"value": {"$map": 3}}\\n\'', "'['.repeat(100000)"]


@pytest.mark.parametrize("forged", JAVASCRIPT)
def test_a_forged_answer_of_node_is_an_error(node: NodeSandbox, forged: str) -> None:
    result = node.run(f"require('fs').writeSync(3, {forged}); process.exit(0)")

    assert result.error is not None
    assert result.error.type == "ProtocolError"
    assert node.run("return 42").value == 42


def test_a_value_is_data_up_to_a_depth(sandbox: type[Sandbox], tmp_path: Path) -> None:
    code = "x = []\nfor _ in range({}): x = [x]\nx"
    with opened(Python(), sandbox, tmp_path) as python:
        deep, deeper = (python.run(code.format(depth)) for depth in (190, 5000))

    assert json.dumps(deep.value) == "[" * 191 + "]" * 191
    assert deeper.error is None
    assert deeper.value is None


ENTRY = {"path": "a", "kind": "file", "size": 1, "mode": 0o644, "modified": 1.0}
LISTINGS: dict[str, list[Any]] = {
    "no map": [1],
    "another field": [{**ENTRY, "more": 1}],
    "a path of numbers": [{**ENTRY, "path": 1}],
    "long paths": [{**ENTRY, "path": "a/" * 5000}] * 1500,
    "many": [ENTRY] * 20_000,
}


@pytest.mark.parametrize("forged", LISTINGS)
def test_a_forged_listing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forged: str
) -> None:
    """As if programs had taken over the supervisor."""
    with opened(Python(), HostSandbox, tmp_path) as python:

        async def entries(path: str, *, deep: bool) -> list[Any]:
            return LISTINGS[forged]

        monkeypatch.setattr(python, "entries", entries)
        with pytest.raises(ToolError, match="its listing cannot be read"):
            python.list(deep=True)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | st.just("$bytes"), inner, max_size=4)
    ),
    max_leaves=20,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["$bytes", "$map", "value", "error", "text", "left", "type", "line"])
            | st.text(max_size=4),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)


@sliced(examples=30)
@given(PLAIN)
def test_plain_data_comes_back(value: Any) -> None:
    assert plain.decode(json.loads(plain.dumps(value))) == value


@sliced(examples=30)
@given(st.dictionaries(st.sampled_from(["value", "error", "text", "left", "large", "id"]), JSON))
def test_any_answer_is_of_the_right_types_or_broken(answer: dict[str, Any]) -> None:
    try:
        found = code_answers.check(answer)
    except code_answers.Broken:
        return
    plain.decode(found.get("value"))
    assert isinstance(found.get("text", ""), str)
    assert found.get("error", ERROR).keys() == ERROR.keys()
    assert all(isinstance(each, str) for each in found.get("left", []))


@sliced(examples=30)
@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_map_or_broken(body: bytes) -> None:
    with suppress(code_answers.Broken):
        assert isinstance(code_answers.read(body), dict)


@sliced(examples=30)
@given(st.binary(max_size=200))
def test_any_body_is_a_message_or_unusable(body: bytes) -> None:
    assert isinstance(frames.message(body), (frames.LinkMessage, frames.Unusable))
