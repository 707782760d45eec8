# Shows T30
"""Images attached to a decision are shown to the model that made the call."""

from __future__ import annotations

from base64 import b64encode
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.models.conversations import answers_first
from flowengine.errors import InputError
from tests.agents.flows import HEAD, Case, call, flow
from tests.command_line import flowengine
from tests.stored_data import stored_in

PNG = b"\x89PNG\r\n\x1a\n" + b"1" * 20
GIF = b"GIF89a" + b"2" * 20
ASKS = HEAD.replace('"tools:add"}', '"tools:add", approval: ask}')
ADDER = "first: {instructions: You add., tools: [add]}"


def url(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{b64encode(data).decode()}"


def case(folder: Path) -> Case:
    calls = [call("add", "c1", a=1, b=2), call("add", "c2", a=3, b=4)]
    return Case(folder, flow(ADDER, head=ASKS), [{"calls": calls}, {"text": "so"}])


def images(messages: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return the images of each message that has some, with the text before them."""
    found = []
    for one in messages:
        if isinstance(one["content"], list):
            text, *shown = one["content"]
            found.append((text["text"], [part["image_url"]["url"] for part in shown]))
    return found


def test_all_of_them_reach_the_model_with_a_yes_and_with_a_no(tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(PNG)
    one = case(tmp_path)
    with one.engine_open() as engine:
        first, second = engine.run(one.path).waits
        shown: list[Any] = [tmp_path / "one.png", GIF]
        engine.approvals.approve(first["id"], comment="Like this.", images=shown, resume=False)
        engine.approvals.reject(
            second["id"], comment="Not so.", images=[url("gif", GIF)], resume=False
        )
        result = engine.resume(first["execution"])
        decided = engine.approvals.show(first["id"])["decision"]["images"]
        entries = repr(list(engine.executions.events(first["execution"])))
    assert result.status == "succeeded", result.error
    assert b64encode(PNG).decode() not in entries
    stored = stored_in(tmp_path / "store.db").values()
    assert PNG in stored
    assert not [content for content in stored if b64encode(PNG) in content]

    sent = one.sent(1)
    yes, no = (one["content"] for one in sent if one["role"] == "tool")
    assert "Like this." in yes
    assert "Not so." in no
    assert images(sent) == [
        ("From the person who approved the call:", [url("png", PNG), url("gif", GIF)]),
        ("From the person who rejected the call:", [url("gif", GIF)]),
    ]
    assert [(one["media_type"], one["size"]) for one in decided] == [
        ("image/png", 28),
        ("image/gif", 26),
    ]


def test_they_are_given_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(PNG)
    one = case(tmp_path)
    with one.engine_open() as engine:
        waits = engine.run(one.path).waits
    for verb, wait in zip(("approve", "reject"), waits, strict=True):
        words = [verb, wait["id"], "--image", "one.png", "--no-resume"]
        with chdir(tmp_path):
            done = flowengine("--store", "store.db", *words)
        assert done.code == 0, done.err
    with one.engine_open() as engine:
        engine.resume(waits[0]["execution"])
    assert [shown for _, shown in images(one.sent(1))] == [[url("png", PNG)]] * 2


@pytest.mark.parametrize(
    ("choice", "given", "message"),
    [
        ("approve", [b"no image"], "the image is not one that models accept"),
        ("approve", ["missing.png"], "image missing.png: No such file"),
        ("reject", ["data:image/png;base64,AAAA"], "the image is not one that models accept"),
        ("approve", [PNG] * 9, "9 images are given: at most 8 are allowed"),
        ("approve", [PNG + b"1" * (10 * 2**20)], "the image is not one that models accept"),
        ("respond", [PNG], "images go with the approval or rejection of a call"),
    ],
)
def test_what_no_model_can_be_shown_is_refused_and_the_question_stays_open(
    tmp_path: Path, choice: str, given: list[Any], message: str
) -> None:
    one = case(tmp_path)
    value: Any = {"value": 3} if choice == "respond" else {}
    with one.engine_open() as engine:
        [wait, _] = engine.run(one.path).waits
        with pytest.raises(InputError, match=message):
            engine.approvals.decide(wait["id"], choice, images=given, **value)
        assert engine.approvals.show(wait["id"])["status"] == "pending"


def test_what_a_tool_raises_is_not_taken_for_a_decision_with_images(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "from flowengine.sdk import Rejected, ToolError\n"
        "def add(a: int, b: int) -> int:\n    'Add.'\n"
        "    data = {'images': ['http://evil.example/x.png', 7]}\n"
        "    raise (Rejected if a == 1 else ToolError)('no', data=data)\n"
        "def boom(): 'No.'\n"
    )
    calls = [call("add", "c1", a=1, b=2), call("add", "c2", a=3, b=4)]
    one = Case(tmp_path, flow(ADDER), [{"calls": calls}, {"text": "so"}])
    assert one.run().status == "succeeded"
    assert [shown for _, shown in images(one.sent(1)) if shown] == []


def test_providers_get_the_answers_to_all_calls_before_the_images() -> None:
    def said(role: str, text: str, **more: Any) -> dict[str, Any]:
        return {"role": role, "content": text, **more}

    calls = [{"id": id, "function": {"name": "add", "arguments": "{}"}} for id in "ab"]
    messages = [
        said("user", "1"),
        said("assistant", "2", tool_calls=calls),
        said("tool", "3", tool_call_id="a"),
        said("user", "5"),
        said("tool", "4", tool_call_id="b"),
        said("user", "6"),
        said("assistant", "7", tool_calls=calls[:1]),
        said("user", "8"),
        said("assistant", "9"),
    ]
    assert [one["content"] for one in answers_first(messages)] == [*"123456789"]
