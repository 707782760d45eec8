"""The part of the public engine with which approvers decide."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Unpack

from flowengine.engines import asking
from flowengine.engines.actors import Actor, is_assignee
from flowengine.engines.grants import grants_of, revoke
from flowengine.engines.host import Host
from flowengine.engines.infos import GrantInfo, WaitPage
from flowengine.engines.people.approvals import (
    hand_over,
    is_logged_in,
    login_of,
    record_decision,
)
from flowengine.engines.people.waits import stored_wait_view, wait_of
from flowengine.engines.reading import Group
from flowengine.engines.results import Answering, Decision, ExecutionResult, WaitInfo
from flowengine.errors import FlowEngineError, UsageError
from flowengine.journal.records import ListedWait, WaitFilter
from flowengine.journal.shapes import WAITS
from flowengine.sdk.environments import LoginPage
from flowengine.sdk.environments.resources import background
from flowengine.sdk.python.argument_checks import check_keywords, check_one_of
from flowengine.settings import Settings
from flowengine.store_folder import remote_store
from flowengine.util.blocking import Either, blocking, on_loop


class Approvals(Group):
    """The waits of executions: lists them, records decisions, claims and delegations."""

    def list(
        self,
        *,
        flow: str | None = None,
        execution: str | None = None,
        assignee: str | None = None,
        batch: str | None = None,
        status: str = "pending",
        kinds: Iterable[str] = (),
        since: int | None = None,
        before: int | None = None,
        in_turn: bool = False,
        limit: int = 50,
        after: str | None = None,
    ) -> WaitPage:
        """Return a page of waits, oldest first. With the status `closed`: newest first.

        Args:
            flow: Id of the flow.
            execution: Id of an execution, or an unambiguous prefix of it.
            assignee: `user:NAME`: waits that the user may answer, by name or group.
            batch: The `batch` of the waits.
            status: `pending`, `closed` or `all`.
            kinds: See `WaitInfo.kind`. Empty: all of `execution`, otherwise all but `session`.
                Messages of conversations (`chat`) are listed only for their `execution`.
            since: Opened at this time or later, in milliseconds since 1970.
            before: Opened at this time or earlier.
            in_turn: Those that are due first come first, then those that are never due, oldest
                first. For `pending` waits.
            limit: Size of the page.
            after: `next` of the page before.

        Returns:
            The page.
        """
        check_one_of("status", status, ("pending", "closed", "all"))
        return page_of_waits(
            self._host,
            limit,
            after,
            assignee,
            flow=flow,
            execution=execution,
            batch=batch,
            state=status,
            kinds=tuple(kinds),
            since=since,
            before=before,
            in_turn=in_turn and status == "pending",
        )

    def show(self, wait: str) -> WaitInfo:
        """Return one wait, open or closed, by any unambiguous prefix of its id."""
        return wait_of(self._host, wait)

    def may_answer(self, wait: WaitInfo, user: str) -> bool:
        """Return whether a wait is addressed to a user, by name or group.

        Args:
            wait: The wait.
            user: `user:NAME`.
        """
        return is_assignee(wait, user, self._host.settings)

    def needs_login(self, wait: WaitInfo) -> bool:
        """Return whether a wait is about a login that has not taken place.

        It can be approved after `log_in`.

        Args:
            wait: The wait.
        """
        login = login_of(wait) if wait.get("status") != "closed" else None
        return login is not None and not is_logged_in(login)

    @blocking
    async def log_in(self, wait: str, page: LoginPage, *, by: str | None = None) -> None:
        """Log in at the server that an execution waits for. Decides nothing.

        The tokens are kept in the state directory of the user who runs this process. If another
        user started the execution, the login is lent to this execution only.

        Args:
            wait: Id of the wait, or an unambiguous prefix of it.
            page: Leads the user to the authorization server.
            by: The user who logs in, as `user:NAME`. Default: the engine's user.

        Raises:
            UsageError: The wait is about no login.
            NotFound: The login is not known on this machine.
            StepError: The login failed, or was refused.
        """
        asked = self.show(wait)
        if (login := login_of(asked)) is None:
            raise UsageError(f"{wait} is about no login", hint="decide it: flowengine approve ID")
        work = partial(asking.logins.log_in, login, self._who(by).user, page)
        await Either(lambda: background().run(work()), lambda: background().wait(work()))

    log_in_async = on_loop(log_in)

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
        return await self._decided(wait, "approve", answer, counts=True)

    approve_async = on_loop(approve)

    @blocking
    async def reject(self, wait: str, **answer: Unpack[Answering]) -> Decision:
        """Decide with the choice that counts as rejection. See `decide`."""
        return await self._decided(wait, "reject", answer, counts=True)

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

    @contextmanager
    def consulting(
        self,
        execution: str,
        answer: asking.tool_authority.CallAnswer,
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
        self._host.consultant = self._engine._consultant
        with self._engine._consultant.asking(execution, answer, refused):
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

    def grants(self, execution: str | None = None) -> builtins.list[GrantInfo]:
        """Return the grants that apply to an execution, with the number of uses of each.

        Args:
            execution: Its id, or an unambiguous prefix of it. Default: the grants for all
                executions of a flow, of all flows.

        Returns:
            The grants of the execution, then those of its flow, both oldest first.
        """
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
        return revoke(self._host, grant, self._who(by))

    # Internals

    async def _decided(
        self, wait: str, choice: str, answer: Answering, *, counts: bool = False
    ) -> Decision:
        check_keywords("a decision", answer, Answering.__annotations__)
        who = self._who(answer.get("by"))
        decision, resume = record_decision(self._host, wait, choice, answer, who, counts=counts)
        result = await self._driving.go_on(decision.execution, resume=resume)
        return decision._replace(result=result)

    def _hand_over(self, wait: str, what: str, by: str | None, **more: str | None) -> WaitInfo:
        return hand_over(self._host, self._driving, wait, what, self._who(by), **more)


def page_of_waits(
    host: Host, limit: int, after: str | None, assignee: str | None, **wanted: Any
) -> WaitPage:
    """Return a page of waits.

    Args:
        host: Provides the store.
        limit: Size of the page.
        after: `next` of the page before.
        assignee: Only waits that this user may answer.
        **wanted: Other fields of `WaitFilter`. `execution` may be a prefix of its id.

    Returns:
        The page. It is shorter than `limit` if the user is excluded from some waits, has delegated
        or approved some, or other users have claimed some. Messages of conversations are only among
        the waits of their execution, since a conversation is not an approval.
    """
    settings = host.settings
    if wanted["execution"] is not None:
        wanted["execution"] = host.store.find_execution(wanted["execution"])
    elif not wanted["kinds"]:
        wanted["kinds"] = sorted(WAITS - {"session"})
    if assignee is not None:
        wanted["assignees"] = [assignee, *settings.groups_of(assignee)]
    page = host.store.waits(WaitFilter(**wanted), after, limit)
    return WaitPage(
        [
            stored_wait_view(wait)
            for wait in page.items
            if (assignee is None or _is_mine(wait, assignee, settings))
            and (wanted["execution"] or not wait.record.get("chat") or wait.record["kind"] != "ask")
        ],
        page.next,
    )


def _is_mine(wait: ListedWait, user: str, settings: Settings) -> bool:
    """Return whether a user may decide on a wait, perhaps after claiming it, and has not yet."""
    if not is_assignee(wait.record, user, settings):
        return False
    is_free = wait.record.get("claimed_by") in (None, user) and user not in wait.journaled
    return not wait.open or is_free


def answer_questions(host: Host, result: ExecutionResult, choice: str, who: Actor) -> bool:
    """Answer all open questions about attempts with an unknown outcome.

    Args:
        host: Provides the store.
        result: The state of the execution.
        choice: `retry` or `fail`.
        who: The actor who answers.

    Returns:
        Whether there were any.

    Raises:
        UsageError: The choice answers no question.
    """
    if choice not in ("retry", "fail"):
        raise UsageError(f"on_crash is {choice!r}", hint="it is retry or fail")
    questions = [wait for wait in result.waits if wait.get("ran") == "maybe"]
    for wait in questions:
        record_decision(host, wait["id"], choice, {}, who)
    return bool(questions)
