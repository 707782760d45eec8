"""`mcp`: calls a tool of an MCP server, in the session that an environment is."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from flowengine.sdk import Plain, StepContext, StepKind, ToolError


class Mcp(StepKind):
    """Calls a tool once: whether it may be repeated is the flow's to say, not the server's."""

    places = ()
    takes_arguments = True

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Call the tool that the step names and return what it answered.

        Args:
            task: `server`, the environment; `tool`, its name there.
            input: `args`, and what the flow fixes.

        Returns:
            The answer as data if the tool gives it, else its text; parts that are no text, if there
            are any.

        Raises:
            ToolError: The tool says that it failed; its data is the answer.
        """
        session = context.resources[task["server"]]
        args = {**input["args"], **input.get("bind", {})}
        answer = await session.async_call_tool(task["tool"], args)
        if answer.is_error:
            data = {"content": answer.content, "structured": answer.structured}
            raise ToolError(
                f"{task['tool']}: {answer.text or 'the tool failed'}", data=data, retryable=False
            )
        if answer.structured is not None:
            return answer.structured
        if all(part.get("type") == "text" for part in answer.content):
            return answer.text
        return [_kept(context, part, number) for number, part in enumerate(answer.content)]


def _kept(context: StepContext, part: Mapping[str, Any], number: int) -> dict[str, Plain]:
    """Return a part of an answer, its bytes as a file."""
    name, holder = ("blob", part["resource"]) if "resource" in part else ("data", part)
    if not isinstance(holder.get(name), str):
        return dict(part)
    try:
        data = base64.b64decode(holder[name], validate=True)
    except ValueError as error:
        raise ToolError(f"a part of the answer is not base64: {error}", retryable=False) from None
    file = context.execution.artifacts.put(data, f"part_{number + 1}")
    rest = {key: value for key, value in holder.items() if key != name}
    return {**rest, "type": part["type"], "file": file}
