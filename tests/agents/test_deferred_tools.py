# Shows G7
"""Tools that a model is offered once it has found them (G7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine import Agent
from flowengine.agents.models.port import ModelRequest
from flowengine.agents.text_calls.marked_form import ToolOffer
from flowengine.agents.tool_search import FIND, finder, found
from flowengine.errors import FlowFileError
from flowengine.testing import call as said
from flowengine.testing import scripted
from tests.agents.flows import Case, call, flow
from tests.rows import each_row

OFFERS = [
    ToolOffer("github.create_issue", "Opens an issue in a repository."),
    ToolOffer("github.list_issues", "Lists the issues of a repository."),
    ToolOffer("mail.send", "Sends a letter to a customer.", {"properties": {"recipient": {}}}),
    ToolOffer("payRefund", "Returns money for an order."),
    ToolOffer("übersetzen", "Translates a text into German."),
]


@each_row(
    "query, first",
    [
        ("create an issue", "github.create_issue"),
        ("list issues", "github.list_issues"),
        ("listing of all issues", "github.list_issues"),
        ("send letters", "mail.send"),
        ("recipient", "mail.send"),
        ("refund", "payRefund"),
        ("ÜBERSETZEN", "übersetzen"),
        ('"; DROP TABLE tools; -- refund', "payRefund"),
        ("NEAR(refund) OR * AND ^", "payRefund"),
        ("weather", None),
        ("", None),
        ("?!", None),
    ],
)
def test_words_find_tools(query: str, first: str | None) -> None:
    assert next(iter(found(query, OFFERS)), None) == first


def test_they_are_offered_after_all_others_once_they_were_found(tmp_path: Path) -> None:
    script = [
        {"calls": [call(FIND, query="addition of numbers")]},
        {"calls": [call("add", a=1, b=2)]},
        {"text": "3"},
    ]
    agent = "first:\n  instructions: You add.\n  tools: [add, boom]\n  defer: [add]\n"
    case = Case(tmp_path, flow(agent), script)

    assert case.run().outputs["answer"] == "3"
    assert [case.offered(n) for n in range(3)] == [["boom", FIND], *[["boom", FIND, "add"]] * 2]
    assert case.answers(1) == ["You can now call: add."]
    assert case.called == ["add 1 2"]


def test_one_that_was_not_found_cannot_be_called(tmp_path: Path) -> None:
    script = [{"calls": [call("add", a=1, b=2)]}, {"text": "so"}]
    agent = "first:\n  instructions: You add.\n  tools: [add, boom]\n  defer: ['*']\n"
    case = Case(tmp_path, flow(agent), script)

    case.run()

    assert case.called == []
    assert "There is no tool 'add'" in case.answers(1)[0]


@each_row(
    "more, message",
    [
        ("tools: [add]\n  defer: [ad]", "the agent has no tool 'ad'"),
        ("tools: [add]\n  defer: [github.*]", "the agent has no tool 'github.*'"),
        ("tools: [{tool: add, as: find_tools}]\n  defer: ['*']", "agents get 'find_tools'"),
    ],
)
def test_check_names_what_is_wrong(tmp_path: Path, more: str, message: str) -> None:
    case = Case(tmp_path, flow(f"first:\n  instructions: You add.\n  {more}\n"), [])

    with pytest.raises(FlowFileError) as error:
        case.run()
    assert message in str(error.value)


@pytest.mark.endurance
def test_four_hundred_tools_take_less_than_2000_tokens() -> None:
    def tool(number: int) -> Any:
        def lookup(order: int, region: str, details: bool = False) -> str:
            return f"{number}"

        lookup.__name__ = f"look_up_{number}"
        lookup.__doc__ = f"Look up the record {number} of an order in one region.\n\nArgs:\n"
        lookup.__doc__ += "    order: The number of the order.\n    region: EU or US.\n"
        return lookup

    agent = Agent(name="Desk", tools=[tool(n) for n in range(400)], defer=["look_up_*"])
    replies = (said(FIND, query="record 217"), said("look_up_217", order=1, region="EU"), "Done.")
    with scripted(*replies) as model:
        assert agent.run("Look it up.").output == "Done."

    assert [len(_encoded(request)) < 2000 for request in model.requests] == [True] * 3
    assert "217" in str(model.requests[2].messages[-1]["content"])


def test_the_finder_names_servers_by_the_number_of_their_tools() -> None:
    assert "There are 5, among them those of github (2), mail (1)." in finder(OFFERS).description


def _encoded(request: ModelRequest) -> list[int]:
    """Return the tokens of a request, by the tokenizer that comes with litellm."""
    import litellm.litellm_core_utils.default_encoding as bundled  # sets the path of its file

    tools = [[tool.name, tool.description, tool.schema] for tool in request.tools]
    tokens: list[int] = bundled.encoding.encode(str([*tools, *request.messages]))
    return tokens
