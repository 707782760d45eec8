"""The order of tests: those that share something expensive run in one process, from its beginning.

The processes of `-n` begin with equal shares of the tests. One that is done takes the last tests of
another, so the first tests of a share stay together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

TOGETHER = (
    # Each process that runs them starts a server. They wait long and compute little, so they run
    # beside the others from the beginning.
    ("tests/engines/test_temporal",),
    # The model library takes three CPU seconds to load, and that of MCP takes one.
    (
        "tests/agents/models/",
        "tests/agents/test_checks_beside.py",
        "tests/agents/test_checks_of_arriving_text.py",
        "tests/agents/test_deferred_tools.py",
        "tests/agents/test_equipped_agents.py::test_a_search_service_is_asked",
        "tests/agents/test_reservations.py",
        "tests/agents/test_streamed_runs.py",
        "tests/cli/test_chat.py",
        "tests/cli/test_chat_streams.py",
        "tests/nodes/test_web_search.py",
    ),
    (
        "tests/envs/mcp/",
        "tests/agents/elicited.cases.yaml",
        "tests/agents/test_agent_servers.py",
        "tests/agents/test_agents_of_other_files.py",
        "tests/agents/test_bound_arguments.py",
        "tests/agents/test_equipped_agents.py",
        "tests/agents/test_limited_tools.py",
        "tests/agents/test_server_parts.py",
        "tests/cli/test_logins.py",
        "tests/engines/elicitation.cases.yaml",
        "tests/engines/mcp_tools.cases.yaml",
        "tests/engines/requested_input.cases.yaml",
        "tests/engines/test_approved_calls.py",
        "tests/engines/test_changed_server_tools.py",
        "tests/engines/test_elicitation.py",
        "tests/engines/test_mcp_tools.py",
        "tests/engines/test_tool_limits.py",
        "tests/server/test_mcp",
        "tests/server/test_requested_input.py",
        "tests/test_transcripts.py::test_what_a_row_shows_happens[docker-agent: MCP]",
        "tests/test_transcripts.py::test_what_a_row_shows_happens[openai-agents: MCP servers]",
        "tests/testing/test_recorded_agents.py",
    ),
)
"""Tests that share something in their process: a server, or a slow-loading library."""
_SECOND = re.compile(r"\[(.*-)?temporal(-.*)?\]$")
"""Second cases of the tests of engines, which belong to the first group."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let each process of `-n` begin with another group of `TOGETHER`."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    order = arranged([item.nodeid for item in items], workers)
    place = {test: number for number, test in enumerate(order)}
    items.sort(key=lambda item: place[item.nodeid])


def arranged(tests: Sequence[str], workers: int) -> list[str]:
    """Return the IDs of tests in an order in which each share begins with another group."""
    groups: list[list[str]] = [[] for _ in TOGETHER]
    others: list[str] = []
    for test in tests:
        name = TOGETHER[0][0] if _SECOND.search(test) else test
        found = [
            group for group, begins in zip(groups, TOGETHER, strict=True) if name.startswith(begins)
        ]
        (found or [others])[0].append(test)
    order: list[str] = []
    for worker in range(workers):
        share = (len(tests) - len(order)) // (workers - worker)
        first = [test for group in groups[worker::workers] for test in group]
        rest = max(0, share - len(first))
        order += first + others[:rest]
        del others[:rest]
    return order
