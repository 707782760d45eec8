# Shows E56, G15
"""Tools that change during a session (E56), and tools of several servers (E49)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from flowengine.execution_environment import EnvironmentManager, Event, SpecInvalid
from flowengine.sdk import EnvironmentStartFailed, ToolError
from flowengine_envs.mcp.session import McpSession
from tests.envs.mcp.conftest import HERE, NASTY, Open
from tests.envs.opening import managed_processes

LISTED = Path(__file__).parents[2] / "agents" / "mcp_server.py"
SDK = [sys.executable, str(HERE / "sdk_server.py"), "stdio"]
Difference = Mapping[str, Sequence[str]]


class Changes(list[Event]):
    """Records the events that announce changed tools."""

    def __init__(self, manager: EnvironmentManager) -> None:
        self._manager = manager
        manager.subscribe(self._hear)

    def _hear(self, event: Event) -> None:
        if event.event == "execution_environment.changed":
            self.append(event)

    def told(self) -> list[Difference | None]:
        assert self._manager.flush_events()
        return [event.difference for event in self]


def test_a_change_is_told_as_an_event_with_the_names(
    manager: EnvironmentManager, nasty: Open
) -> None:
    changes = Changes(manager)
    session = nasty(name="tools")

    session.call_tool("change")
    assert changes.told() == []
    with pytest.raises(ToolError, match="there is no tool 'fail'"):
        session.call_tool("fail")

    assert changes.told() == [{"added": ["new"], "changed": ["env"], "removed": ["fail"]}]
    assert (changes[0].resource_key, changes[0].state, changes[0].error) == ("tools", "ready", None)
    assert "instructions" not in str(changes[0].data())
    assert session.call_tool("new").text == "hang"
    assert len(changes.told()) == 1


# Lists that differ from the protocol

_ANY = {"type": "object"}
_ARGS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOLERATED: list[tuple[dict[str, Any], Any]] = [
    ({"inputSchema": {}}, _ANY),
    ({}, _ANY),
    ({"inputSchema": None}, _ANY),
    ({"inputSchema": []}, _ANY),
    ({"inputSchema": {"properties": {"n": {}}}}, {"type": "object", "properties": {"n": {}}}),
    ({"inputSchema": {"type": None}}, _ANY),
    ({"inputSchema": {"type": "object", "properties": None, "required": None}}, _ANY),
    (
        {"inputSchema": {"type": "object", "properties": [], "required": {}}},
        {"type": "object", "properties": {}},
    ),
    ({"inputSchema": _ARGS, "description": None}, _ARGS),
    ({"inputSchema": _ARGS, "description": ["two", "lines"]}, _ARGS),
    ({"inputSchema": _ARGS, "title": 7, "icons": "none", "_meta": [], "execution": 1}, _ARGS),
    ({"inputSchema": _ARGS, "icons": [{"src": 3}]}, _ARGS),
    ({"inputSchema": _ARGS, "annotations": None}, _ARGS),
    ({"inputSchema": _ARGS, "annotations": []}, _ARGS),
    ({"inputSchema": _ARGS, "annotations": {"destructiveHint": "perhaps", "title": []}}, _ARGS),
    ({"inputSchema": _ARGS, "outputSchema": {"properties": {}}}, _ARGS),
    ({"inputSchema": _ARGS, "outputSchema": None}, _ARGS),
    ({"inputSchema": _ARGS, "outputSchema": "text"}, _ARGS),
    ({"inputSchema": _ARGS, "outputSchema": {"type": "array", "items": {}}}, _ARGS),
    ({"inputSchema": {**_ARGS, "additionalProperties": None}}, _ARGS),
    (
        {
            "inputSchema": {
                "properties": {
                    "pair": {"items": [{"type": "string"}], "additionalItems": False},
                    "size": {"minimum": 0, "exclusiveMinimum": True, "exclusiveMaximum": False},
                    "name": {"type": "string", "nullable": True},
                    "exclusiveMinimum": {"anyOf": [{"items": [{}]}, {"items": {"type": "string"}}]},
                },
                "dependencies": {"size": ["name"], "pair": {"required": ["name"]}},
                "definitions": {"Pair": {"items": [{}]}},
            }
        },
        {
            "type": "object",
            "properties": {
                "pair": {"prefixItems": [{"type": "string"}], "items": False},
                "size": {"exclusiveMinimum": 0},
                "name": {"type": ["string", "null"]},
                "exclusiveMinimum": {
                    "anyOf": [{"prefixItems": [{}]}, {"items": {"type": "string"}}]
                },
            },
            "dependentRequired": {"size": ["name"]},
            "dependentSchemas": {"pair": {"required": ["name"]}},
            "definitions": {"Pair": {"prefixItems": [{}]}},
        },
    ),
]
"""Tools that other clients accept, without their names, and the schema of their arguments."""
LEFT_OUT: list[tuple[Any, str, str]] = [
    ({"name": "x", "inputSchema": {"type": "string"}}, "x", "does not describe an object"),
    ({"name": "x", "inputSchema": "any"}, "x", "does not describe an object"),
    ({"name": "x", "inputSchema": [1]}, "x", "does not describe an object"),
    ({"name": "x", "inputSchema": {"properties": {"a": 7}}}, "x", "no schema for the property a"),
    ({"name": "x", "inputSchema": {"properties": "a"}}, "x", "'properties' that are not a map"),
    ({"name": "x", "inputSchema": {"required": True}}, "x", "'required' that is not a list"),
    ({"name": "x", "inputSchema": {"$schema": 7}}, "x", "'$schema' that is not text"),
    (7, "entry 2", "no name"),
    (None, "entry 2", "no name"),
    ({"inputSchema": _ANY}, "entry 2", "no name"),
    ({"name": 7, "inputSchema": _ANY}, "entry 2", "its name is 7"),
    ({"name": None, "inputSchema": _ANY}, "entry 2", "no name"),
    ({"name": "", "inputSchema": _ANY}, "entry 2", "its name is ''"),
    ({"name": "n" * 100_000, "inputSchema": _ANY}, "entry 2", "its name is 'nnn"),
    ({"name": "x\x1b[2J\u202e\n", "inputSchema": _ANY}, "entry 2", r"its name is 'x\x1b[2J"),
    ({"name": "first", "inputSchema": _ARGS}, "first", "two different tools of this name"),
]
"""An entry after the tool `first`, the name under which it is left out, and the reason."""


def test_one_odd_entry_of_a_list_does_not_cost_the_others(opened: Open, tmp_path: Path) -> None:
    tools = tmp_path / "list.json"
    tools.write_text("[]")
    session = opened(command=[sys.executable, str(LISTED), str(tools)])

    def listed(*entries: Any) -> dict[str, Any]:
        tools.write_text(json.dumps(entries))
        return {str(tool["name"]): tool["inputSchema"] for tool in session.list_tools()}

    first, last = ({"name": name, "inputSchema": _ANY} for name in ("first", "last"))
    for given, schema in TOLERATED:
        assert listed(first, {"name": "odd", **given}, last)["odd"] == schema, given
        assert [offer.fault for offer in session.offers()] == ["", "", ""]
    assert listed(first, first) == {"first": _ANY}
    assert session.call_tool("odd" if "odd" in listed({"name": "odd"}) else "").text

    for entry, name, why in LEFT_OUT:
        kept = listed(first, entry, last)
        assert kept == {one["name"]: _ANY for one in (first, last) if one["name"] != name}, entry
        faults = {offer.name: offer.fault for offer in session.offers()}
        assert why in faults.pop(name), entry
        assert set(faults.values()) <= {""}
        assert all(len(fault) < 400 for fault in faults.values())
        if name == "x":
            with pytest.raises(ToolError, match="the tool 'x' cannot be called: the schema of"):
                session.call_tool("x")


ODD: dict[str, dict[str, tuple[Any, Any]]] = {
    "resources": {
        "kept": ({"uri": "a:odd"}, {"uri": "a:odd"}),
        "described": (
            {"uri": "a:odd", "size": "big", "description": 7, "annotations": 5, "icons": "none"},
            {"uri": "a:odd"},
        ),
        "no address": ({}, "its 'uri' is not valid"),
        "odd address": ({"uri": 5}, "its 'uri' is not valid"),
        "nameless": ({"uri": "a:odd", "name": 5}, "it is not a resource with a readable name"),
    },
    "prompts": {
        "kept": ({"arguments": [{"name": "n"}]}, {"arguments": [{"name": "n"}]}),
        "described": ({"title": 5, "description": []}, {}),
        "odd arguments": ({"arguments": [{"description": 5}]}, "its 'arguments' is not valid"),
        "nameless": ({"name": None}, "it is not a prompt with a readable name"),
    },
}
"""An entry between two others, and what remains of it, or why it is left out."""


def test_one_odd_resource_or_prompt_does_not_cost_the_others(
    opened: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listed = tmp_path / "list.json"
    listed.write_text("[]")
    session = opened(command=[sys.executable, str(LISTED), str(listed)])
    for kinds, read in (("resources", session.list_resources), ("prompts", session.list_prompts)):
        for entry, wanted in ODD[kinds].values():
            between = {"name": "odd", **entry}
            ends = [{"name": name, "uri": f"a:{name}"} for name in ("first", "last")]
            listed.write_text(json.dumps([ends[0], between, 7, ends[1]]))
            caplog.clear()
            found = {str(one.pop("name")): one for one in read()}
            left_out = isinstance(wanted, str)
            assert list(found) == ["first", *([] if left_out else ["odd"]), "last"], between
            assert found.get("odd") == (None if left_out else wanted)
            assert f"left out of the server's {kinds}: " in caplog.text
            assert wanted in caplog.text if left_out else "odd" not in caplog.text


# Several servers


@pytest.mark.endurance
# Shows E49
def test_tools_of_several_servers_have_names_of_their_own(
    manager: EnvironmentManager, opened: Open, address: str
) -> None:
    """Over both transports at once."""
    changes = Changes(manager)
    servers = {"here": {"command": SDK}, "there": {"url": address}}
    session = opened(servers=servers)

    names = [tool["name"] for tool in session.list_tools()]
    assert names == [
        f"{one}.{tool}" for one in servers for tool in ("add", "fail", "grow", "request")
    ]
    assert session.call_tool("here.add", {"a": 1, "b": 2}).text == "3"
    assert session.call_tool("there.add", {"a": 2, "b": 2}).text == "4"
    for name, near in [("their.add", "'there'"), ("here.ad", "'add'"), ("add", "here, there")]:
        with pytest.raises(ToolError, match=near):
            session.call_tool(name)
    assert {type(one) for one in session.servers.values()} == {McpSession}  # type: ignore[attr-defined]

    session.call_tool("here.grow", {"name": "more"})
    assert session.call_tool("here.more").text == "more"
    assert changes.told() == [{"added": ["here.more"], "changed": [], "removed": []}]


def test_if_one_of_several_does_not_start_the_others_are_ended(
    manager: EnvironmentManager, opened: Open
) -> None:
    servers = {"good": {"command": NASTY}, "bad": {"command": [*NASTY, "old"]}}

    with pytest.raises(EnvironmentStartFailed, match="server 'bad'"):
        opened(servers=servers)

    assert managed_processes(manager) == []


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"servers": {}}, "one of 'command', 'url' and 'servers'"),
        ({"servers": {"a.b": {"url": "http://localhost"}}}, "must be text that matches"),
        ({"servers": {"a": {"urll": "http://localhost"}}}, "did you mean 'url'"),
        ({"servers": {"a": {}}}, "either 'command' or 'url'"),
        ({"servers": {"a": {"command": "x"}}, "cwd": "."}, "cannot be combined with other keys"),
    ],
)
def test_a_table_with_faults_is_refused(
    opened: Open, config: dict[str, object], message: str
) -> None:
    with pytest.raises(SpecInvalid, match=message):
        opened(**config)
