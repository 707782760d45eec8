"""The sessions of a store."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from flowengine.agents.agent import AgentDefinition
from flowengine.agents.loggers import LoggerManager
from flowengine.engines.agent_events import Conversation, conversations
from flowengine.engines.engine import Engine
from flowengine.engines.infos import ExecutionPage
from flowengine.engines.interventions.fork import fork
from flowengine.engines.operating import ask_to_cancel
from flowengine.engines.reading import Group
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict, NotFound, UsageError
from flowengine.runner.responses import described, history
from flowengine.runner.session_places import (
    SESSION,
    SESSIONS,
    STEP,
    Place,
    messages_sent,
    session_of,
)
from flowengine.runner.work import Work, check_inputs
from flowengine.util.blocking import blocking, on_loop


class Sessions(Group):
    """The sessions of agents: lists, reads, seeds, branches, trims, ends and deletes them.

    A session is an execution with the label `session`. `run(…, session=name)` starts or continues
    it.

    Args:
        engine: The engine, whose user acts.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._public = engine

    def list(
        self, *, search: str | None = None, limit: int = 50, after: str | None = None
    ) -> ExecutionPage:
        """Return a page of sessions, newest first. The cost does not depend on their number.

        Args:
            search: Text of up to 200 characters. Each of its words begins a word of the name or of
                the title, which is the agent that began.
            limit: Size of the page.
            after: `next` of the page before.

        Returns:
            Their executions. The name of each is its label `session`.
        """
        page = self._public.executions.list(flow=SESSIONS, search=search, limit=limit, after=after)
        return page._replace(items=[item for item in page.items if SESSION in item["labels"]])

    def read(self, name: str) -> Conversation:
        """Return the conversation of a session, also of one that has ended.

        Args:
            name: Its name.

        Raises:
            NotFound: The session does not exist.
        """
        id = self._find(name)
        executions = self._public.executions
        found = conversations(self._public, id).get(STEP)
        if found is None:  # it has ended
            ends = [entry["seq"] for entry in executions.events(id) if entry["type"] == "cancel"]
            if ends:
                found = conversations(self._public, id, until=ends[-1]).get(STEP)
        if found is None:
            # It has ended by itself, such as by its budget.
            inputs = executions.show(id)["inputs"]
            run: Mapping[str, Any] = (executions.result(id).outputs or {}).get(STEP) or {}
            messages = run.get("messages", inputs["messages"])
            context = run.get("context", inputs["context"])
            found = Conversation(messages, context, run.get("agent", ""), {}, -1, {}, "", "")
        return found._replace(messages=history(self._public, id, found.messages))

    @blocking
    async def seed(
        self,
        name: str,
        agent: AgentDefinition,
        messages: builtins.list[dict[str, Any]],
        context_variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Start a session with an earlier conversation. No model is called.

        Args:
            name: Its name.
            agent: The agent that answers the next message, to be passed to that run.
            messages: Complete exchanges, which end with an answer. Empty: a new conversation.
            context_variables: Data for functions.

        Returns:
            The id of its execution.

        Raises:
            Conflict: There is a session with this name.
            UsageError: The messages are not a complete conversation.
        """
        variables = dict(context_variables or {})
        check_inputs(messages, variables)
        last = messages[-1] if messages else {"role": "assistant"}
        if last["role"] != "assistant" or last.get("tool_calls"):
            raise UsageError(
                "the messages do not end with an answer",
                hint="give complete exchanges here, and the next message to run(…, session=…)",
            )
        inputs = {"messages": messages, "context": variables}
        flow, id = described((agent,), chat=True), self._free(name)
        work = Work(LoggerManager.get_logger(), flow, id, inputs, {}, {}, {SESSION: name})
        begun = self._driving.new(work.request(self._public))
        return (await self._driving.drive(begun)).execution

    seed_async = on_loop(seed)

    def branch(self, name: str, to: str, *, drop: int = 0) -> str:
        """Start a session with the conversation of another one, which is not changed.

        Args:
            name: Name of the other one. It may have ended.
            to: Name of the new one.
            drop: Number of the user's newest messages to leave out, with their answers.

        Returns:
            The id of the new execution.

        Raises:
            Conflict: There is a session named `to`.
            NotFound: The session `name` does not exist.
            UsageError: The session has fewer messages after its first.
        """
        id, new = self._find(name), self._free(to)
        labels = {**self.store.execution(id).labels, SESSION: to}
        return self._forked(id, self._place(id, name, drop), new, labels)

    @blocking
    async def trim(self, name: str, drop: int = 1) -> str:
        """Remove the newest messages of the user and all that followed them from a session.

        It is ended, and replaced by a branch of itself. If the process dies in between, it has
        ended with all of its messages, and repeating the call completes it.

        Args:
            name: Its name.
            drop: Number of the user's messages.

        Returns:
            The id of its execution.

        Raises:
            Conflict: The session answers a message, or waits for a decision.
            NotFound: The session does not exist.
            UsageError: The session has fewer messages after its first.
        """
        id = self._find(name)
        result = self._public.executions.result(id)
        if not result.ended and Place.of(result.waits) is None:
            raise Conflict(
                f"the session {name!r} answers a message", hint="trim it after its answer"
            )
        at = self._place(id, name, drop)
        await self._ended(name)
        self._forked(id, at, id, self.store.execution(id).labels)
        self._host.flows.forget()
        return id

    trim_async = on_loop(trim)

    @blocking
    async def end(self, name: str) -> ExecutionResult:
        """End a session. It accepts no more messages, and can be read and branched.

        Args:
            name: Its name.

        Returns:
            The state of its execution.

        Raises:
            NotFound: The session does not exist.
        """
        return await self._ended(name)

    end_async = on_loop(end)

    @blocking
    async def delete(self, name: str) -> None:
        """End a session, and delete all that is stored of it. Its name is free afterwards.

        Temporal deletes it some time later.

        Args:
            name: Its name.

        Raises:
            Conflict: Another process answers a message, and has not stopped yet.
            NotFound: The session does not exist.
        """
        result = await self._ended(name)
        if not result.ended or not self.store.prune(0, (), [result.execution]).executions:
            raise Conflict(
                f"the session {name!r} is being ended by another process",
                hint="delete it again in a moment",
            )
        self._host.flows.forget()

    delete_async = on_loop(delete)

    # Internals

    async def _ended(self, name: str) -> ExecutionResult:
        id = self._find(name)
        result = self._public.executions.result(id)
        if result.ended:
            return result
        ask_to_cancel(self._host, id, "the session was ended", self._who(None), now=False)
        return await self._driving.go_on(id) or self._public.executions.result(id)

    def _forked(self, id: str, at: str, new: str, labels: Mapping[str, str]) -> str:
        forked = fork(self._host, id, at, None, None, new, labels, self._engine.user)
        return self._driving.leave(forked).execution

    def _find(self, name: str) -> str:
        id, exists = session_of(self._host, name)
        if not exists:
            raise NotFound(
                f"there is no session {name!r}",
                hint="list them: flowengine sessions list, or Sessions(engine).list()",
            )
        return id

    def _free(self, name: str) -> str:
        id, exists = session_of(self._host, name)
        if exists:
            raise Conflict(f"there is a session {name!r} already", hint="take another name")
        return id

    def _place(self, id: str, name: str, drop: int) -> str:
        """Return the address at which a session waited for a message, some messages ago."""
        sent = messages_sent(self._public.executions.events(id))
        places = [address for _, address in sent]
        for status in ("pending", "closed"):
            page = self._public.approvals.list(
                execution=id, status=status, kinds=[SESSION], limit=1
            )
            if (last := Place.of(page.items)) is not None and last.address not in places:
                places.append(last.address)
        if not places:
            raise Conflict(f"the session {name!r} has no answer yet")
        if not 0 <= drop < len(places):
            raise UsageError(
                f"the session {name!r} has no {drop} messages after its first",
                hint="end or delete it, and seed another one",
            )
        return places[-1 - drop]
