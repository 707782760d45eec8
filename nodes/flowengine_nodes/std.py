"""`std`: tools that come with the engine, called as `std.NAME`, or declared: `{std: NAME}`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from flowengine.sdk import CallSignature, Plain, StepContext, StepError, StepKind, Tool
from flowengine_nodes import (
    browser_tools,
    code_tools,
    document_tools,
    file_tools,
    http_tool,
    shell_tools,
)
from flowengine_nodes.file_tools import LARGEST
from flowengine_nodes.tool_schemas import TEXT, record

if TYPE_CHECKING:
    from flowengine.sdk.previews import PreviewContext
    from flowengine.sdk.step_kind import Effect, KindPlace


class Std(StepKind):
    """Printing, files, documents, the web, commands, code. `std.ask` is a wait, not a task."""

    places: ClassVar[tuple[KindPlace, ...]] = ("tool",)
    effect = "idempotent"
    constants: ClassVar[Collection[str]] = ("tool",)
    takes_arguments = True

    @classmethod
    def tools(cls) -> dict[str, Tool]:
        """Return the tools, with what they take and give."""
        return _TOOLS

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of what stands behind `std`: the name of a tool."""
        names = sorted(name for name in _TOOLS if name != "ask")
        tool: dict[str, Plain] = {
            "enum": names,
            "description": "The tool, whose arguments `bind` may fix.",
            "examples": ["edit_file"],
        }
        return {
            "type": "object",
            "x-main": "tool",
            "properties": {"tool": tool},
            "required": ["tool"],
            "additionalProperties": False,
        }

    @classmethod
    def effect_of(cls, configuration: Mapping[str, Plain]) -> Effect:
        """Return the effect of the tool."""
        return _TOOLS[configuration["tool"]]["effect"]

    @classmethod
    def foreign_of(cls, task: Mapping[str, Plain], effect: str) -> bool:
        """Return whether the tool reads files, or runs what does."""
        return task.get("tool") in _FOREIGN

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return what the tool takes and gives, and in which environments it works."""
        tool = _TOOLS[configuration["tool"]]
        places, opened = tool.get("environments", {}), tool.get("environment")
        optional = tool.get("optional", False)
        args = tool["args"]
        if not optional:  # like parameters of a function that take an environment
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
        """Return the tool."""
        return str(task.get("tool", ""))

    @classmethod
    def address(cls, configuration: Mapping[str, Plain]) -> str | None:
        """Return the address, which an argument may be."""
        return "${{ args.url }}" if configuration["tool"] in http_tool.TOOLS else None

    @classmethod
    def names(cls, task: Mapping[str, Plain]) -> list[str]:
        """Return the name of the tool that needs no declaration, and of what it does as well."""
        tool = task["tool"]
        return [f"std.{each}" for each in (tool, *_ALSO.get(tool, ()))]

    def preview(
        self, task: Mapping[str, Plain], args: dict[str, Plain], context: PreviewContext
    ) -> str | None:
        """Return the difference that a call makes to a file."""
        return file_tools.preview(context, task["tool"], args)

    def quick(
        self, task: Mapping[str, Plain]
    ) -> Callable[[StepContext, Mapping[str, Plain]], Plain] | None:
        """Return what prints; the tools that touch files are called on a thread."""
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
            return await self._call(context, tool, args)
        from flowengine.sdk.untrusted import mark_error, marked

        source = next((str(args[name]) for name in sources if args.get(name)), tool)
        try:
            result = await self._call(context, tool, args)
        except StepError as error:
            mark_error(error, source)
            raise
        if isinstance(result, str):  # marked where it was made, between what the project says of it
            return result
        text = self.text_for_model(task, input, context.mask(result), LARGEST)
        return marked(str(result) if text is None else text, source)

    def text_for_model(
        self, task: Mapping[str, Plain], input: Mapping[str, Plain], output: Plain, room: int
    ) -> str | None:
        """Return how a file, the output of a command or a document reads."""
        from flowengine_nodes.tool_texts import tool_text

        return tool_text(task["tool"], input, output, room)

    async def _call(self, context: StepContext, tool: str, args: dict[str, Any]) -> Plain:
        for tools in (file_tools, document_tools, browser_tools, http_tool, shell_tools):
            if tool in tools.TOOLS:
                return await tools.call(context, tool, args)
        return await code_tools.call(context, tool, args)


_READS: Mapping[str, tuple[str, ...]] = {
    "read_document": ("url", "path"),
    "visit_page": ("address",),
    "http": ("url",),
}
"""Tools that read what others wrote → the arguments that may name it. They mark it themselves."""
_FOREIGN = frozenset({"read_file", "search_files", *code_tools.TOOLS, *shell_tools.TOOLS})
_ALSO: Mapping[str, tuple[str, ...]] = dict.fromkeys(("shell_run", "shell_type"), ("run_command",))
"""Tools → others whose rules hold for them, too: what is typed into a pager or a program that reads
commands runs them as well."""
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
