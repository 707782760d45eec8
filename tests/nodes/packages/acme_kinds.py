"""Step kinds of another package.

They import only `flowengine.sdk`.
"""

from __future__ import annotations

from collections.abc import Mapping

from flowengine.sdk import (
    AsText,
    CallSignature,
    Command,
    Declarations,
    GeneratedFlow,
    Given,
    Mark,
    Meter,
    Plain,
    StepContext,
    StepKind,
    import_function,
)


class Invoke(StepKind):
    """A call of a Python function, like `python`."""

    constants = ("function",)
    takes_arguments = True

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        return {
            "type": "object",
            "x-main": "function",
            "properties": {"function": {"type": "string", "pattern": r"^[\w.]+:\w+$"}},
            "required": ["function"],
            "additionalProperties": False,
        }

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        from flowengine.sdk.python.signature import derive

        found = derive(configuration["function"], folder)
        task = {"folder": folder, "quick": found.quick}
        return CallSignature(found.args, found.returns, task, found.classes, found.paths)

    @classmethod
    def label(cls, task: Mapping[str, Plain]) -> str:
        return str(task["function"])

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        function = import_function(task["function"], task["folder"])
        arguments = {**input["args"], **input.get("bind", {}), **context.resources}
        return await context.on_thread(lambda: function(**arguments))


class Table(StepKind):
    """Tables of a database as tools: `orders.TABLE` counts the matching rows."""

    places = ("tool",)
    takes_arguments = True
    session = "sqlite"

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        text: dict[str, Plain] = {"type": "string"}
        names: dict[str, Plain] = {"type": "array", "items": text}
        properties = {"path": text, "include": names, "exclude": names}
        return {
            "type": "object",
            "x-main": "path",
            "properties": properties,
            "required": ["path"],
            "additionalProperties": False,
        }

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        database = context.resources[task["server"]]
        rows = await database.async_query(
            f"select count(*) as n from {task['tool']} where city = ?", [input["args"]["city"]]
        )
        return rows[0]["n"]


class Transcript(StepKind):
    """Reads a growing list of the flow's state without copying it."""

    constants = ("of",)

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        return {
            "type": "object",
            "x-main": "of",
            "properties": {"of": {"type": "string"}, "attack": {"type": "boolean"}},
            "required": ["of"],
        }

    @classmethod
    def reads(cls, configuration: Mapping[str, Plain]) -> list[str]:
        return [configuration["of"]]

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        said = context.state[task["of"]]
        if input.get("attack"):
            said[0]["parts"].append("changed")
        return {
            "lines": [f"{one['who']}: {'/'.join(one['parts'])}" for one in said],
            "last": said[-1:],
        }


class Model(StepKind):
    """Uses tokens and money, like a model."""

    meters = {  # noqa: RUF012 - nothing changes it
        "tokens": Meter(used=("usage.read", "usage.written"), reserved="most"),
        "cost_usd": Meter(used=("usage.cost",)),
    }
    effect = "idempotent"

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        model = "cheap" if context.fallback else "dear"
        return {"model": model, "usage": {"read": 30, "written": 10, "cost": 0.25}}


class Assistant(StepKind):
    """An agent's needs: arguments and configuration, secrets, an environment, a typed answer."""

    constants = ("returns", "takes")
    secrets = ("settings",)
    in_environment = True
    takes_arguments = True

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        properties: dict[str, Plain] = {
            "instructions": {"type": "string"},
            "settings": {"type": "object"},
            "takes": {"type": "array", "items": {"type": "string"}},
            "returns": {"type": "object"},
        }
        return {
            "type": "object",
            "x-main": "instructions",
            "properties": properties,
            "required": ["instructions"],
            "additionalProperties": False,
        }

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        takes = configuration.get("takes", [])
        args = {
            "type": "object",
            "properties": {name: {"type": "string"} for name in takes},
            "required": takes,
            "additionalProperties": False,
        }
        return CallSignature(args=args, returns=configuration.get("returns"))

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        configuration = input["configuration"]
        key = configuration.get("settings", {}).get("api_key", "")
        ran = await context.environment(task["in"]).run(
            context, Command("echo $WHO", None, {"WHO": input["args"]["who"]}, None, None, {})
        )
        said = f"{configuration['instructions']} {ran['stdout'].strip()}"
        return {"text": said, "key": len(key), "attempt": context.attempt}


class Panel(StepKind):
    """Asks each of several tools, like an agent, by generating a flow."""

    takes_arguments = True
    outcomes = ("agreed",)
    raises = {"split": "Split"}  # noqa: RUF012 - nothing changes it

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        texts: dict[str, Plain] = {"type": "array", "items": {"type": "string"}}
        return {
            "type": "object",
            "properties": {"tools": texts, "greeting": {"type": "string"}},
            "required": ["tools"],
            "additionalProperties": False,
        }

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        args = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        return CallSignature(args={**args, "additionalProperties": False})

    @classmethod
    def generate(
        cls, configuration: Mapping[str, Plain], declarations: Declarations
    ) -> GeneratedFlow | None:
        tools = [
            tool for pattern in configuration["tools"] for tool in declarations.tools(pattern, ())
        ]
        steps: list[Plain] = [
            {
                "id": f"ask.{tool.name}",
                "call": tool.name,
                "with": "${{ inputs._args }}",
                "set": {"answers": "${{ output }}"},
            }
            for tool in tools
        ]
        body: dict[str, Plain] = {
            "inputs": {"_args": {"type": "object"}, "_greeting": {"type": "string"}},
            "state": {"answers": {"type": "array", "default": [], "reducer": "append"}},
            "steps": [*steps, {"id": "done", "panel_line": {"text": "${{ inputs._greeting }}"}}],
            "outputs": {
                "output": {"value": "${{ state.answers }}"},
                "agent": {"value": "${{ steps.done.output }}"},
                "reason": {"value": "they do not agree"},
            },
            "outcome": "${{ size(unique(state.answers)) == 1 ? 'agreed' : 'split' }}",
        }
        greeting = configuration.get("greeting", "")
        return GeneratedFlow(
            id="panel",
            body=body,
            home=declarations,
            given={"_greeting": Given(greeting, ("steps",), declarations)},
            marks={f"ask.{tool.name}": Mark(adapter={"times": 10}) for tool in tools},
            returns={"type": "array"},
        )

    def adapt(
        self, context: StepContext, task: Mapping[str, Plain], result: object, text: AsText
    ) -> Plain:
        return task["times"] * result


class PanelLine(StepKind):
    """A line of a panel, which flow files cannot name."""

    places = ("generated",)

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        return f"{input['text']}!"
