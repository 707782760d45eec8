"""`std`: built-in tools, called as `std.NAME`, or declared: `{std: NAME}`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

from flowengine.sdk import CallSignature, Plain, StepContext, StepError, StepKind, Tool
from flowengine.sdk.steps.previews import PreviewContext
from flowengine.sdk.steps.step_kind import Effect, KindPlace
from flowengine.sdk.texts.untrusted import marked, quotes
from flowengine.sdk.tools.schemas import TEXT, record
from flowengine_nodes import (
    browser_tools,
    code_tools,
    document_tools,
    file_tools,
    http_tool,
    shell_tools,
)
from flowengine_nodes.file_tools import LARGEST
from flowengine_nodes.mcp import tool_text


class Std(StepKind):
    """Printing, files, documents, the web, commands, code. `std.ask` is a wait, not a task."""

    places: ClassVar[tuple[KindPlace, ...]] = ("tool",)
    effect = "idempotent"
    constants: ClassVar[Collection[str]] = ("tool",)
    takes_arguments = True

    @classmethod
    def tools(cls) -> dict[str, Tool]:
        """Return the tools, with their arguments and results."""
        return _TOOLS

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration of `std`: the name of a tool."""
        names = sorted(name for name in _TOOLS if name != "ask")
        tool: dict[str, Plain] = {
            "enum": names,
            "description": "The tool, whose arguments `bind` may fix.",
            "examples": ["edit_file"],
        }
        return {**record({"tool": tool}, ["tool"]), "x-main": "tool"}

    @classmethod
    def effect_of(cls, configuration: Mapping[str, Plain]) -> Effect:
        """Return the effect of the tool."""
        return _TOOLS[configuration["tool"]]["effect"]

    @classmethod
    def foreign_of(cls, task: Mapping[str, Plain], effect: str) -> bool:
        """Return whether the tool reads files, or runs code that may."""
        return task.get("tool") in _FOREIGN

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return the arguments, result and environments of the tool."""
        tool = _TOOLS[configuration["tool"]]
        places, opened = tool.get("environments", {}), tool.get("environment")
        optional = tool.get("optional", False)
        args = tool["args"]
        if not optional:  # like parameters of a function that receive an environment
            properties = {**args["properties"], **{name: {} for name in places}}
            required = [*args["required"], *places]
            args = {**args, "properties": properties, "required": required}
        return CallSignature(
            args,
            tool["returns"],
            environments={} if optional else places,
            description=tool["description"],
            optional_environments=places if optional else {},
            opens={} if opened is None else {opened: opened},
        )

    @classmethod
    def label(cls, task: Mapping[str, Plain]) -> str:
        return str(task.get("tool", ""))

    @classmethod
    def address(cls, configuration: Mapping[str, Plain]) -> str | None:
        """Return the address, which may come from an argument."""
        return "${{ args.url }}" if configuration["tool"] in http_tool.TOOLS else None

    @classmethod
    def names(cls, task: Mapping[str, Plain]) -> list[str]:
        """Return the name of the tool without a declaration, and those of tools it can imitate."""
        tool = task["tool"]
        return [f"std.{each}" for each in (tool, *_ALSO.get(tool, ()))]

    def preview(
        self, task: Mapping[str, Plain], args: dict[str, Plain], context: PreviewContext
    ) -> str | None:
        """Return the diff of the changes that a call makes to a file."""
        return file_tools.preview(context, task["tool"], args)

    def quick(
        self, task: Mapping[str, Plain]
    ) -> Callable[[StepContext, Mapping[str, Plain]], Plain] | None:
        """Return the printing function. Tools that access files are called on a thread."""
        if task["tool"] != "print":
            return None
        return lambda context, input: context.say(
            {**input["args"], **input.get("bind", {})}["text"]
        )

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Call the tool that the step names."""
        at_once = self.quick(task)
        if at_once is not None:
            return at_once(context, input)
        args: dict[str, Any] = {**input["args"], **input.get("bind", {})}
        tool = task["tool"]
        sources = _READS.get(tool)
        if not context.for_model or sources is None:
            return await self._call(context, task, args)

        source = next((str(args[name]) for name in sources if args.get(name)), tool)
        try:
            result = await self._call(context, task, args)
        except StepError as error:
            quotes(error, source)
            raise
        if isinstance(result, str):  # the tool has already marked it
            return result
        text = self.text_for_model(task, input, context.mask(result), LARGEST)
        return marked(str(result) if text is None else text, source)

    def text_for_model(
        self, task: Mapping[str, Plain], input: Mapping[str, Plain], output: Plain, room: int
    ) -> str | None:
        """Return the text form of a file, a command's output or a document."""
        return tool_text(task["tool"], input, output, room)

    async def _call(
        self, context: StepContext, task: Mapping[str, Plain], args: dict[str, Any]
    ) -> Plain:
        tool = task["tool"]
        if tool in document_tools.TOOLS:
            return await document_tools.call(context, tool, args, task.get("folder", True))
        for tools in (file_tools, browser_tools, http_tool, shell_tools):
            if tool in tools.TOOLS:
                return await tools.call(context, tool, args)
        return await code_tools.call(context, tool, args)


_READS: Mapping[str, tuple[str, ...]] = {
    "read_document": ("url", "path"),
    "visit_page": ("address",),
    "http": ("url",),
}
"""Tools that read foreign text → the arguments that may name its source. They mark the text
themselves."""
_FOREIGN = frozenset({"read_file", "search_files", *code_tools.TOOLS, *shell_tools.TOOLS})
_ALSO: Mapping[str, tuple[str, ...]] = dict.fromkeys(("shell_run", "shell_type"), ("run_command",))
"""Tools → other tools whose rules also apply to them, because input typed into a pager or an
interpreter runs commands as well."""
_TOOLS: dict[str, Tool] = {
    "print": {
        "description": "Shows a text to the user.",
        "args": record({"text": TEXT}, ["text"]),
        "returns": {"type": "null"},
        "effect": "idempotent",
    },
    "ask": {
        "description": "Asks a person, on the terminal or in the inbox.",
        "args": record({"question": TEXT, "form": {"type": "object"}}, ["question"]),
        "returns": {},
        "effect": "idempotent",
    },
    **browser_tools.TOOLS,
    **document_tools.TOOLS,
    **file_tools.TOOLS,
    **http_tool.TOOLS,
    **code_tools.TOOLS,
    **shell_tools.TOOLS,
}
