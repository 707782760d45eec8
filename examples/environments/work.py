"""Functions of the steps. A parameter named like an environment receives its resource."""

from __future__ import annotations

from typing import Any


async def tidy(drafts: Any) -> list[str]:
    """Reduce the space between words to one character, in the copy."""
    paths = await drafts.async_list("*.txt")
    for path in paths:
        text = (await drafts.async_read(path)).decode()
        tidied = "".join(" ".join(line.split()) + "\n" for line in text.splitlines())
        await drafts.async_write(path, tidied)
    return [f"{path}: {(drafts.original / path).read_text().split()[0]}" for path in paths]


async def publish(drafts: Any) -> dict[str, list[str]]:
    """Write the changes back to the original."""
    changes = await drafts.async_write_back()
    return {"added": changes.added, "changed": changes.changed, "removed": changes.removed}


async def convert(units: Any, celsius: float) -> str:
    """Call a tool of an MCP server."""
    tools = [tool["name"] for tool in await units.async_list_tools()]
    answer = await units.async_call_tool("fahrenheit", {"celsius": celsius})
    return f"{', '.join(tools)}: {celsius:g} °C are {answer.text} °F"
