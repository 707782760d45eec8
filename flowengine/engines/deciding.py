"""The part of the public engine with which approvers decide."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from flowengine.engines.actors import Actor, check_user
from flowengine.engines.reading import StoreReader
from flowengine.engines.results import Decision
from flowengine.engines.running.driving import Driving
from flowengine.errors import NotAllowed, UsageError
from flowengine.sdk.argument_checks import check_keywords
from flowengine.store_folder import remote_store
from flowengine.util.blocking import blocking, on_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flowengine.engines.host import Host, ToolAuthority
    from flowengine.engines.infos import Answering, GrantInfo, WaitInfo
    from flowengine.engines.people.tool_authority import CallAnswer, Consultant
    from flowengine.errors import FlowEngineError

PARTS = ("form", "edit", "comment", "attach", "images", "value", "grant", "by", "resume")
"""The keys of `flowengine.engines.infos.Answering`, which the command line does not load."""


class Decider(StoreReader):
    """Records decisions, claims and delegations, and resumes the executions that waited for them.

    Args:
        host: Provides the store.
        user: The acting user, as `user:NAME`.
        via: The channel, for the audit trail of decisions.
    """

    def __init__(self, host: Host, user: str, via: str) -> None:
        super().__init__(host)
        self.user = user
        self._via = via
        self._driving = Driving(host)
        self._tool_authority: ToolAuthority | None = None

    @blocking
    async def decide(self, wait: str, choice: str, **answer: Unpack[Answering]) -> Decision:
        """Decide on an approval, or answer a question (`retry`, `result` with `value`, `fail`).

        The decision is recorded first. The execution then continues in this process, unless another
        process holds it. Repeating the same decision has no effect. A different one raises a
        `Conflict` with the recorded choice, its user and its time.

        Args:
            wait: Id of the wait, or an unambiguous prefix of it.
            choice: Id of the choice.
            **answer: Further parts of the answer, see `Answering`.

        Returns:
            The decision that counts.
        """
        return await self._decided(wait, choice, answer)

    decide_async = on_loop(decide)

    @blocking
    async def approve(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Decide with the choice that counts as approval. See `decide`."""
        return await self._decided(wait, self._choice_of(wait, "approve"), answer)

    approve_async = on_loop(approve)

    @blocking
    async def reject(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Decide with the choice that counts as rejection. See `decide`."""
        return await self._decided(wait, self._choice_of(wait, "reject"), answer)

    reject_async = on_loop(reject)

    @blocking
    async def respond(self, wait: str, value: Any, /, **answer: Unpack[Answering]) -> Decision:
        """Supply the result of a call that waits for approval, instead of making it. See `decide`.

        Args:
            wait: Id of the wait, or an unambiguous prefix of it.
            value: The result, as the tool would return it.
            **answer: Further parts of the answer, see `Answering`.

        Returns:
            The decision that counts.
        """
        return await self._decided(wait, "respond", {**answer, "value": value})

    respond_async = on_loop(respond)

    @blocking
    async def continue_with(self, wait: str, answer: Mapping[str, Any]) -> Decision:
        """Answer an approval in the format that approval handlers use.

        Args:
            wait: Id of the wait, or an unambiguous prefix of it. A handler passes the id of its
                question.
            answer: `{"approved": True}` or `{"approved": False}`, optionally with a `reason`.

        Returns:
            The decision that counts. See `approve` and `reject`.
        """
        choice, details = self._read_answer(wait, answer)
        return await self._decided(wait, choice, details)

    continue_with_async = on_loop(continue_with)

    @contextmanager
    def consulting(
        self,
        execution: str,
        answer: CallAnswer,
        refused: Callable[[FlowEngineError], None] | None = None,
    ) -> Iterator[None]:
        """Consult a function about the calls of one execution, instead of the engine's authority.

        It is consulted while the execution is driven within the block, whenever a call requires
        approval, and about calls that required it in an earlier process. It is cancelled when
        another approver decides first.

        Args:
            execution: Full id. The execution need not exist yet.
            answer: Takes the call, as soon as the question is open, and the preview, which is
                being computed. Returns the decision.
            refused: Receives the error that explains why a decision does not count. The question is
                then left to human approvers.

        Raises:
            UsageError: The store is in Temporal, whose workers do not consult programs of others.
        """
        if remote_store(str(self._host.store.location)) is not None:
            raise UsageError(
                "a store in Temporal does not support programs that decide about calls yet",
                hint="use a store in a directory for it",
            )
        self._host.consultant = self._consultant
        with self._consultant.asking(execution, answer, refused):
            yield

    def claim(self, wait: str, *, by: str | None = None) -> WaitInfo:
        """Claim an approval that has `claim: true`. Only the claiming user can then decide it.

        The claim is on disk when this returns. If two users claim it at the same time, the second
        receives a `Conflict`. Claiming it again has no effect.

        Args:
            wait: Id of the wait, or an unambiguous prefix of it.
            by: The user who claims it, as `user:NAME`. Default: the engine's user.

        Returns:
            The wait afterwards.
        """
        return self._hand_over(wait, "claimed", by)

    def release(self, wait: str, *, by: str | None = None) -> WaitInfo:
        """Release a claimed approval. Only the user who claimed it may do so. See `claim`."""
        return self._hand_over(wait, "released", by)

    def delegate(
        self, wait: str, to: str, *, comment: str | None = None, by: str | None = None
    ) -> WaitInfo:
        """Delegate an approval to another user, who may then decide instead.

        The other assignees may still decide. A claim is delegated with the approval.

        Args:
            wait: Id of the wait, or an unambiguous prefix of it.
            to: The other user, as `user:NAME`.
            comment: The reason, stored with the delegation.
            by: The user who delegates it. Default: the engine's user.

        Returns:
            The wait afterwards.
        """
        return self._hand_over(wait, "delegated", by, to=to, comment=comment)

    def grants(self, execution: str | None = None) -> list[GrantInfo]:
        """Return the grants that apply to an execution, with the number of uses of each.

        Args:
            execution: Its id, or an unambiguous prefix of it. Default: the grants for all
                executions of a flow, of all flows.

        Returns:
            The grants of the execution, then those of its flow, both oldest first.
        """
        from flowengine.engines.people.grants import grants_of

        full = None if execution is None else self._host.store.find_execution(execution)
        return grants_of(self._host, full)

    def revoke(self, grant: str, *, by: str | None = None) -> GrantInfo:
        """Revoke a grant. Later calls, and calls that have not begun yet, require approval again.

        Args:
            grant: Its id, or an unambiguous prefix of it.
            by: The user who revokes it, as `user:NAME`. Default: the engine's user.

        Returns:
            The grant afterwards.
        """
        from flowengine.engines.people.grants import revoke

        return revoke(self._host, grant, self._who(by))

    # Internals

    @cached_property
    def _consultant(self) -> Consultant:
        from flowengine.engines.people.tool_authority import Consultant

        return Consultant(self._host, self._tool_authority, Actor(self.user, "callback"))

    def _who(self, by: str | None) -> Actor:
        """Return the actor, for the history.

        Raises:
            NotAllowed: The host's settings forbid acting on behalf of another user.
            UsageError: `by` is not a user.
        """
        if by in (None, self.user):
            return Actor(self.user, self._via)
        check_user(by)
        if not self._host.settings.act_for_others:
            raise NotAllowed(
                f"{self.user} may not act for {by}: the host's settings say 'act_for_others: false'"
            )
        return Actor(by, self._via, self.user)

    async def _decided(self, wait: str, choice: str, answer: Answering) -> Decision:
        from flowengine.engines.people.answering import record_decision

        check_keywords("a decision", answer, PARTS)
        who = self._who(answer.get("by"))
        decision, resume = record_decision(self._host, wait, choice, answer, who)
        result = await self._driving.go_on(decision.execution, resume=resume)
        return decision._replace(result=result)

    def _choice_of(self, wait: str, counts_as: str) -> str:
        from flowengine.engines.people.answering import choice_of

        return choice_of(self._host, wait, counts_as)

    def _read_answer(self, wait: str, answer: Mapping[str, Any]) -> tuple[str, Answering]:
        from flowengine.engines.people.answering import read_answer

        return read_answer(self._host, wait, answer)

    def _hand_over(self, wait: str, what: str, by: str | None, **more: str | None) -> WaitInfo:
        from flowengine.engines.people.answering import hand_over

        return hand_over(self._host, self._driving, wait, what, self._who(by), **more)
