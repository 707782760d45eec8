"""`agent`: runs an agent until its final answer. It generates a flow around `agent_turn`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from flowengine.agents import skills
from flowengine.agents.actions import failure, summary
from flowengine.agents.agent import instructions_of
from flowengine.agents.agent_declarations import declare_in
from flowengine.agents.agent_state import BACKGROUND_STATE, PROGRAM_STATE, STATE, AgentState
from flowengine.agents.declared import generate
from flowengine.agents.first_messages import ASKED, asked, chosen, opened
from flowengine.agents.live_functions import converter, function_of
from flowengine.agents.models.registry import prepare
from flowengine.agents.program_rounds import ProgramRound
from flowengine.agents.rehearsals import opening, turn
from flowengine.agents.server_tools import offered
from flowengine.agents.tool_answers import envelope, with_kept
from flowengine.agents.turn_taking import TakenRound, ahead_of, read, sent
from flowengine.agents.turns import AgentTurn
from flowengine.sdk import CallSignature, Meter, Need, Plain, StepContext, StepKind, Synonym
from flowengine.sdk.python.user_code import in_time
from flowengine.sdk.steps.generated_flows import Declarations, GeneratedFlow
from flowengine.sdk.steps.rehearsals import Rehearsal
from flowengine.sdk.steps.step_kind import AsText, BuiltFlow, KindPlace
from flowengine_nodes.python import Python, context_variables, look_at


class Agent(StepKind):
    """Runs an agent of the file."""

    places: ClassVar[tuple[KindPlace, ...]] = ("step", "tool")
    takes_arguments = True
    constants: ClassVar[Collection[str]] = ("name", "chat", "max_turns")
    synonyms = (
        Synonym(
            "session session_id thread thread_id conversation conversation_id memory",
            "an ongoing conversation is an execution that waits for its next message: "
            "write 'agent: {name: NAME, chat: true}'. Pass results of earlier steps in "
            "'context'",
        ),
    )
    outcomes = ("resolved",)
    raises: ClassVar[Mapping[str, str]] = {
        "not_resolved": "NotResolved",
        "max_turns": "MaxTurns",
        "budget": "BudgetExceeded",
    }

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of `agent`: the agent's name and settings of the step."""
        name: dict[str, Plain] = {
            "type": "string",
            "pattern": r"^[A-Za-z][A-Za-z0-9_]*(\.[a-z][a-z0-9_]*)?$",
            "description": "An entry of `agents`, or `alias.name` of an import.",
            "examples": ["researcher"],
        }
        chat: dict[str, Plain] = {
            "type": "boolean",
            "description": "Shows each answer to a user, whose reply is the next message.",
            "examples": [True],
        }
        count: dict[str, Plain] = {"type": "integer", "minimum": 1}
        then: dict[str, Plain] = {"enum": ["fail", "answer"]}
        turns: dict[str, Plain] = {
            "anyOf": [
                count,
                {
                    "type": "object",
                    "properties": {"count": count, "then": then},
                    "additionalProperties": False,
                },
            ],
            "description": "Replaces the agent's own limit of model calls.",
            "examples": [5],
        }
        return {
            "type": "object",
            "x-main": "name",
            "x-inline": "InlineAgent",
            "properties": {"name": name, "chat": chat, "max_turns": turns},
            "required": ["name"],
            "additionalProperties": False,
        }

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return the arguments of an agent."""
        return CallSignature(ASKED, None)

    @classmethod
    def label(cls, task: Mapping[str, Plain]) -> str:
        return str(task.get("name", ""))

    @classmethod
    def names(cls, task: Mapping[str, Plain]) -> list[str]:
        """Return none: running an agent is not a call, and rules apply to its calls only."""
        return []

    @classmethod
    def declared(cls, given: object, flow: BuiltFlow) -> object:
        """Return the name of an agent given as a Python object, after declaring it."""
        if isinstance(given, Mapping):
            return {**given, "name": declare_in(given["name"], flow)}
        return declare_in(given, flow)

    @classmethod
    def generate(
        cls, configuration: Mapping[str, Plain], declarations: Declarations
    ) -> GeneratedFlow | None:
        """Return the flow that runs the agent, and the agents that it may hand over to."""
        turns = configuration.get("max_turns")
        return generate(
            configuration["name"],
            declarations,
            chat=configuration.get("chat") is True,
            max_turns={"count": turns} if isinstance(turns, int) else turns,
        )

    @classmethod
    def summary(cls, kind: str, output: Plain) -> str | None:
        """Return a summary of a turn's reply and calls, or of a call's result."""
        return summary(kind, output)

    @classmethod
    def failure_of(cls, kind: str, output: Plain) -> str | None:
        """Return the exit code of failed code or of a failed command, with its last line."""
        return failure(kind, output)

    def adapt(
        self, context: StepContext, task: Mapping[str, Plain], result: object, text: AsText
    ) -> Plain:
        """Convert the result of a tool to the text for the model."""
        return envelope(context, task, result, text)


class Offer(StepKind):
    """Prepares an agent's work: the models to use, and the first messages of the conversation."""

    places = ("generated",)
    effect = "idempotent"
    constants = ("models", "servers")
    meters = {}  # noqa: RUF012 - nothing changes it

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Return the prepared models, tools and messages."""
        served: dict[str, Plain] = {}
        left_out: dict[str, str] = {}
        if task.get("servers"):
            again = input.get("again") is True
            tools = await offered(context.resources, task["servers"], again=again)
            served, left_out = tools.data, tools.left_out
        for name, why in left_out.items():
            context.log.warning("%s is not offered to the model: %s", name, why)
        model, args = asked(input)
        made = await opened(task["models"], model, args, served)
        files = context.execution.artifacts
        made["messages"] = [with_kept(message, files) for message in made["messages"]]
        return {**made, "left_out": left_out} if left_out else made

    def rehearse(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Rehearsal:
        """Return the prepared models, tools and messages in a test case."""
        return opening(task, input)


class Program(StepKind):
    """Runs a program of a model in a sandbox, until it ends or waits for answers of tools."""

    places = ("generated",)
    effect = "idempotent"
    constants = ("agent",)

    @classmethod
    def reads(cls, configuration: Mapping[str, Plain]) -> tuple[str, ...]:
        """Return the state that a program's calls are read from."""
        return (*Turn.reads(configuration), *PROGRAM_STATE)

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Run the program, and return its next calls or the answer to the model."""
        turn = AgentTurn(task["agent"], AgentState(context.state).seen(), "", {})
        return await ProgramRound(context, turn, input["program"]).output()


class AgentSkill(StepKind):
    """Reads a skill of an agent, or copies its files to where the agent's commands run."""

    places = ("generated",)
    effect = "idempotent"
    takes_arguments = True
    constants = ("does", "skills")

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return the arguments: the name of a skill, and optionally one of its files."""
        properties: dict[str, Plain] = {"name": {"enum": [*configuration["skills"]]}}
        if configuration["does"] == "read":
            properties["path"] = {"type": "string"}
        return CallSignature({"type": "object", "properties": properties, "required": ["name"]})

    @classmethod
    def label(cls, task: Mapping[str, Plain]) -> str:
        return str(task.get("does", ""))

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Return the text of a file, or the path that the files were copied to."""
        name = input["args"]["name"]
        files = task["skills"][name]
        if task["does"] == "read":
            return skills.read_skill(files, name, input["args"].get("path", skills.SKILL))
        return await skills.copy_skill(files, name, context.resources[skills.ENVIRONMENT])


class Turn(StepKind):
    """Takes a round of an agent: calls its model, at most once, and returns what is called next."""

    places = ("generated",)
    effect = "idempotent"
    constants = ("agent",)
    secrets = ("settings",)
    meters = {  # noqa: RUF012 - nothing changes it
        "tokens": Meter(("usage.input_tokens", "usage.output_tokens")),
        "cost_usd": Meter(("usage.cost_usd",)),
    }

    @classmethod
    def reads(cls, configuration: Mapping[str, Plain]) -> tuple[str, ...]:
        """Return the state that a round sees."""
        agent = configuration["agent"]
        started = BACKGROUND_STATE if agent["starts"] else ()
        return (*STATE, *started, *(PROGRAM_STATE if "code" in agent else ()))

    @classmethod
    def ahead(cls, task: Mapping[str, Plain], labels: Mapping[str, str]) -> None:
        """Load the code that the models need. The library for providers takes seconds to load."""
        for models in chosen(task["agent"]["offers"], labels.get("model", "")).values():
            for model in models:
                prepare(model)

    async def needs(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Mapping[str, Need]:
        """Return the amounts that the call of the model may use of budgets."""
        taken = TakenRound(context, task, input)
        needs = await taken.needs(
            lambda: _instructions(context, task, input, taken.changed_context)
        )
        return needs or dict.fromkeys(self.meters, Need(0, 0, 0))

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Take the round, and return its calls or its end."""
        taken = TakenRound(context, task, input)
        instructed: list[str] = []

        async def instructions() -> str:
            instructed.append(await _instructions(context, task, input, taken.changed_context))
            return instructed[0]

        async def judge(check: Mapping[str, Any], given: Mapping[str, Plain]) -> object:
            # The function of a check of arriving text is never called on the event loop itself.
            function = look_at(
                await context.on_thread(lambda: function_of(context, check["function"]))
            )
            arguments = function.arguments(context, {"args": given})
            return await Python().called(context, function._replace(is_quick=False), arguments)

        made = await taken.result(instructions, judge)
        if instructed and "instructions" in task["agent"]:
            made["instructions"] = instructed[0]  # nothing else records the result of a function
        return made

    def takes_resources(self, task: Mapping[str, Plain]) -> bool:
        """Return whether functions or types of the program take part in a turn."""
        return not {"instructions", "returns_type", "arriving"}.isdisjoint(task["agent"])

    def rehearse(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Rehearsal | None:
        """Return the course of a test case, which contains the model's reply."""
        return turn(TakenRound(context, task, input))

    def request(
        self,
        context: StepContext,
        task: Mapping[str, Plain],
        input: Mapping[str, Plain],
        output: Plain,
    ) -> Mapping[str, Plain] | None:
        """Return the request to the model, or None if it was not called."""
        return sent(TakenRound(context, task, input), output if isinstance(output, Mapping) else {})


class Ahead(StepKind):
    """Calls a model for the next turn of an agent, while checks of the prompt run.

    Followers receive nothing. The next round takes its output as the reply.
    """

    places = ("generated",)
    effect = "idempotent"
    constants = ("agent",)
    secrets = ("settings",)
    meters = Turn.meters
    reads = Turn.reads

    async def needs(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Mapping[str, Need]:
        """Return the amounts that the call of the model may use of budgets."""
        return await ahead_of(
            context, task, input, await _instructions(context, task, input)
        ).needs(context)

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Call the model, and return its reply."""
        instructions = await _instructions(context, task, input)
        turn = ahead_of(context, task, input, instructions)
        if "returns_type" in turn.agent:
            turn.convert = converter(context, turn.agent["returns_type"])
        output = await read(turn, context)
        if "instructions" in turn.agent:
            output["instructions"] = instructions
        return output

    def takes_resources(self, task: Mapping[str, Plain]) -> bool:
        """Return whether functions or types of the program take part."""
        return not {"instructions", "returns_type"}.isdisjoint(task["agent"])


async def _instructions(
    context: StepContext,
    task: Mapping[str, Plain],
    input: Mapping[str, Plain],
    changed: Mapping[str, Plain] = MappingProxyType({}),
) -> str:
    """Return the instructions of an agent, which a function may return.

    Args:
        changed: Context variables that the round has changed.
    """
    agent = task["agent"]
    written = agent.get("instructions")
    if written is None:
        return str(input["instructions"])

    name, variables = agent.get("called", agent["name"]), {**context_variables(context), **changed}
    more, objects = written.get("then", ""), context.resources

    def text() -> str:
        return instructions_of(name, function_of(context, written), more, variables, objects)

    return await in_time(context.on_thread(text), f"the instructions of agent {name!r}")
