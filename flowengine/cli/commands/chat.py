"""`flowengine chat`: talk to an agent from a flow file, or to the built-in assistant."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable

import flowengine
from flowengine.cli.driving.chat import Chat, ChatDisplay, cost
from flowengine.cli.driving.dialogue import drive_and_ask
from flowengine.cli.driving.drive import warn_of_host_steps
from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, flag, many
from flowengine.cli.parsing.python_objects import object_of
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err
from flowengine.cli.views.outcome import show_outcome
from flowengine.engines.results import ExecutionResult
from flowengine.errors import NotAllowed, UsageError
from flowengine.flow.building.conversation import conversation, conversation_with
from flowengine.flow.building.flow import Flow
from flowengine.runner.agent import Agent

ASSISTANT = os.path.join(os.path.dirname(flowengine.__file__), "agents", "assistant.yaml")
"""The flow file of the assistant."""
VARIABLE = "FLOWENGINE_MODEL"
CHAT = "chat"
"""The label that distinguishes conversations from runs in lists. Its value is the agent."""


@command(
    "talk to an agent from a flow file, or to the built-in assistant, and keep the conversation",
    """\
flowengine chat
flowengine chat --lazy
flowengine chat support.yaml
flowengine chat support.yaml --agent billing --model openai/gpt-4o
flowengine chat --resume 01k8xq7mf4jb""",
    arg(
        "file FILE",
        "a file that declares agents, or FILE.py:NAME (default: the built-in assistant)",
        nargs="?",
    ),
    arg("--agent NAME", "which of its agents"),
    arg("--resume ID", "an earlier conversation"),
    flag(
        "--lazy", "open each environment on its first use, even if the file opens it at the start"
    ),
    read.MODEL,
    many("-i --input NAME=VALUE|@FILE", "an input of the file", type=read.given_input),
    read.WORKDIR,
    read.LINGER,
)
def chat_command(arguments: Namespace) -> int:
    """Talk until the user leaves, or the conversation ends.

    Returns:
        The exit code: 0 also where it was left open.

    Raises:
        UsageError: Both a file and a conversation are given.
    """
    if arguments.file is not None and arguments.resume is not None:
        hint = "a resumed conversation already has its flow"
        raise UsageError("give a file with agents, or --resume ID, not both", hint=hint)
    model = arguments.model
    if arguments.file is None and arguments.resume is None:
        arguments.file = ASSISTANT
        model = model or os.environ.get(VARIABLE) or None  # its file names one, too
    flow = None if arguments.file is None else _conversation(arguments)
    with read.model_named(model), CliSession(arguments, make=flow) as session:
        talk = ChatDisplay(session)
        call = _resumed(session) if flow is None else _begun(session, flow, model)
        end = session.engine.subscribe(talk.came)
        try:
            result = drive_and_ask(session, call, Chat(session, talk), talk)
        finally:
            end()
        if result is None:
            return 0
        if result.ended:
            return show_outcome(session, result)
        short = session.short(result.execution)
        err(cost(session, result.execution))
        err(f"saved, to continue: {session.command('chat', '--resume', short)}")
        return 0


def _conversation(arguments: Namespace) -> Flow:
    if read.names_python(arguments.file):
        folder = os.path.dirname(os.path.abspath(arguments.file))
        return conversation_with(object_of(arguments.file, Agent, "agent"), folder)
    return conversation(arguments.file, arguments.agent, lazy=arguments.lazy)


def _begun(session: CliSession, flow: Flow, model: str | None) -> Callable[[], ExecutionResult]:
    """Return the function that begins a conversation.

    Args:
        flow: The flow of the conversation.
        model: The model of all agents. None: as in the file.
    """
    loaded = session.engine.load(flow)
    warn_of_host_steps(session, loaded)
    [step] = flow.every()
    labels = {CHAT: step.spec["agent"]["name"], **read.model_labels(model)}
    inputs = read.inputs(loaded.inputs, session.arguments.input)
    return lambda: session.engine.run(loaded, inputs, labels=labels)


def _resumed(session: CliSession) -> Callable[[], ExecutionResult]:
    """Return the function that resumes a conversation.

    Raises:
        NotAllowed: It is that of another user.
    """
    engine = session.engine
    execution = engine.executions.find(session.arguments.resume)
    for wait in engine.approvals.list(execution=execution, kinds=["ask"]).items:
        if wait.get("chat") and not engine.approvals.may_answer(wait, engine.user):
            users = ", ".join(wait["assignees"])
            raise NotAllowed(
                f"the next message of {session.short(execution)} is that of {users}, not of "
                f"{engine.user}",
                hint=f"to read it: {session.command('show', session.short(execution))}",
            )
    warn_of_host_steps(session, session.flow_of(execution))
    return lambda: engine.resume(execution)
