"""The session of a command: its engine, short ids, and command lines to paste."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Self, cast

from flowengine import client
from flowengine.cli.parsing.arguments import flow_named, is_deployed
from flowengine.cli.parsing.command_table import works_there
from flowengine.cli.parsing.declared import Added, Command, together
from flowengine.cli.process import ProcessEnd
from flowengine.cli.terminal.output import err, out_json
from flowengine.engines.engine import Engine
from flowengine.engines.flows import LoadedFlow, load
from flowengine.engines.infos import DeployedInfo, ExecutionPage, UpgradeInfo, WaitPage
from flowengine.errors import FlowEngineError, NotFound, UsageError
from flowengine.flow import building
from flowengine.journal.records import ENDED
from flowengine.journal.short_ids import SHORT_EXECUTION, shortest
from flowengine.journal.store import every_item
from flowengine.store_folder import find_store, remote_store

NEWEST = "its id, or any unambiguous prefix (default: the newest execution)"
"""The help of an argument for `CliSession.execution`."""


class CliSession:
    """The engine of one command line, and its options.

    Args:
        make: The flow to run, or the path of its file. A missing store is created once this flow
            has proved valid. None: the store must exist.
        named: A missing store is also created if it was named.

    Attributes:
        engine: The engine.
        arguments: The arguments of the command line.
        is_served: Whether a server is behind the engine. It then has the methods of the client.
        named: Executions that have been introduced to the user.
        named_on_host: Unsandboxed steps that the user has seen.
    """

    def __init__(
        self, arguments: Namespace, *, make: building.Flow | str | None = None, named: bool = False
    ) -> None:
        self.arguments = arguments
        self.began = time.time_ns() // 1_000_000
        """When the command began (ms)."""
        self.named: set[str] = set()
        self.named_on_host: set[str] = set()
        self._unfilter: Callable[[], object] = lambda: None
        self.is_served = bool(arguments.server)
        if self.is_served:
            self.engine = cast("Engine", ServedEngine(arguments.server))
            return
        store, by_name = find_store(arguments.store or "")
        creates = named and by_name
        if remote_store(store) is None and not os.path.exists(store) and not creates:
            if make is None:
                above = "" if by_name else " or in a directory above it"
                raise NoStore(
                    f"no store exists at {store}{above}",
                    hint="the first run creates it, and --store PATH names another one",
                )

            # An invalid flow leaves nothing behind.
            load(flow_named(make) if isinstance(make, str) else make)
        self.engine = Engine(
            store if by_name else "",
            durability=arguments.durability,
            workdir=getattr(arguments, "workdir", None),
            via="cli",
            offers=getattr(arguments, "offers", ()),
            linger=60.0 if getattr(arguments, "linger", None) is None else arguments.linger,
        )

    def __enter__(self) -> Self:
        return self

    def on_host_told(self) -> None:
        """Hide the warnings of environments that the user has already seen."""
        import logging

        logger = logging.getLogger("flowengine.environments")
        logger.addFilter(_is_news)
        self._unfilter = partial(logger.removeFilter, _is_news)

    def __exit__(self, *_: object) -> None:
        self._unfilter()
        if ProcessEnd.ends_at_once:
            self.engine.leave()
        else:
            self.engine.close()

    def execution(self, named: str | None) -> str:
        """Return the full id of the execution that the command line names (None: the newest).

        Raises:
            NotFound: There is none, or the store is empty.
        """
        if named is not None:
            return self.engine.executions.find(named)
        newest = self.engine.executions.list(limit=1).items
        if not newest:
            raise NotFound(f"no execution has run yet in {self.place}")
        return newest[0]["execution"]

    def command(self, *words: str) -> str:
        """Return a command line that works when pasted here."""
        import shlex

        store = ["--store", self.arguments.store] if self.arguments.store else []
        if self.is_served and self.arguments.server != os.environ.get("FLOWENGINE_SERVER"):
            store = ["--server", self.arguments.server]
        return shlex.join(["flowengine", *store, *words])

    def make_pasted(self, view: Any) -> None:
        """Replace the command lines in a view, if any, with ones that work when pasted here."""
        for choice, command in view.get("commands", {}).items():
            view["commands"][choice] = self.pasted(command)
        if not view.get("command"):
            return
        if self.is_served and not works_there(view["command"]):
            del view["command"]
        else:
            view["command"] = self.pasted(view["command"])

    def pasted(self, command: str) -> str:
        """Return the engine's command line in a form that works when pasted here."""
        if self.is_served:
            command = command.replace("--file FILE", "--file FLOW")  # a deployed one
        return command.replace("flowengine", self.command(), 1)

    @property
    def place(self) -> str:
        """The directory of the store, or its address, for messages."""
        if self.is_served:
            return str(self.arguments.server)
        location = self.engine.store.location
        return remote_store(location) or os.path.dirname(location)

    @property
    def is_remote(self) -> bool:
        """Whether workers drive the executions, perhaps on other machines."""
        return self.is_served or remote_store(self.engine.store.location) is not None

    def short(self, execution: str) -> str:
        """Return the shortest unambiguous prefix of an execution's id."""
        return str(self._ids.short_execution(execution))

    def origin(self, forked_from: str | None) -> str:
        """Return the origin of a fork, as `ID at STEP`. Empty: it is not a fork."""
        id, at, step = (forked_from or "").partition(" ")
        return f"{self.short(id)}{at}{step}" if id else ""

    def short_wait(self, wait: str) -> str:
        """Return the shortest unambiguous prefix of a wait's id."""
        return str(self._ids.short_wait(wait))

    @property
    def _ids(self) -> Any:
        return self.engine if self.is_served else self.engine.store

    def flow_of(self, execution: str) -> LoadedFlow:
        """Return the flow that an execution runs, as the store keeps it.

        Args:
            execution: Full id.
        """
        return self.engine.executions.flow_of(execution)


def _is_news(record: object) -> bool:
    """Return whether a warning reports more than unsandboxed execution."""
    return not getattr(record, "unsandboxed", False)


def session_command(
    help: str, example: str, *arguments: Added, lists: bool = False
) -> Callable[[Callable[[CliSession, Namespace], int | None]], Command]:
    """Make a command of a function that also takes the session of the command line.

    Args:
        help: Its effect, in one line.
        example: Lines to paste.
        *arguments: Its arguments.
        lists: Whether it lists, so that it does nothing if no store exists yet.
    """

    def decorated(run: Callable[[CliSession, Namespace], int | None]) -> Command:
        def in_session(given: Namespace) -> int | None:
            try:
                opened = CliSession(given)
            except NoStore as error:
                if not lists or given.store:  # a named store is expected to exist
                    raise
                out_json([]) if given.json else err(error.message)
                return None
            with opened as session:
                return run(session, given)

        return Command(help, example, together(*arguments), in_session)

    return decorated


class NoStore(NotFound):
    """The store does not exist yet, so it contains no executions."""


# The engine of a command line that uses a server: the client, called as the engine is.

_LARGEST_PAGE = 500
"""Number of items that a server returns at most."""
_STORE_ONLY = ("by", "resume")
"""Arguments that only an engine with a store takes."""


def connect(url: str) -> client.client.Client:
    """Return a client of a server, with the token of the environment."""
    return client.client.Client(url)


class ServedGroup:
    """A group of the engine, with a server behind it.

    Args:
        engine: Has the methods that differ from those of the client, as `GROUP_METHOD`.
        name: Name of the group.
    """

    def __init__(self, engine: ServedEngine, name: str) -> None:
        self._engine = engine
        self._name = name

    def __getattr__(self, name: str) -> Any:
        own = f"{self._name}_{name}"
        if hasattr(ServedEngine, own):
            return getattr(self._engine, own)
        method = getattr(getattr(self._engine._client, self._name), name)
        return partial(self._engine._called, method)


class ServedEngine:
    """The methods of the engine that commands use, with a server behind them.

    Args:
        url: Address of the server.
    """

    def __init__(self, url: str) -> None:
        self._client = connect(url)
        self._listed: list[str] = []
        """Ids of the executions that were listed."""

    def short_execution(self, id: str) -> str:
        """Return a prefix of an execution's id, which none of the listed ones has.

        Ids begin with their time, so those that are not listed differ in it.
        """
        return shortest(id, [other for other in self._listed if other != id], SHORT_EXECUTION)

    def short_wait(self, id: str) -> str:
        """Return a prefix of a wait's id that is long enough to be unique."""
        return shortest(id, [], SHORT_EXECUTION)

    def __getattr__(self, name: str) -> Any:
        part = getattr(self._client, name)
        is_group = isinstance(part, client.client.ClientGroup)
        return ServedGroup(self, name) if is_group else partial(self._called, part)

    @cached_property
    def user(self) -> str:
        """The user of the token."""
        return self._client.user()

    def resume(self, execution: str, *, on_crash: str | None = None) -> Any:
        """Answer the questions about interrupted attempts.

        Raises:
            UsageError: No answer is given. Only the process that drives an execution resumes it.
        """
        if on_crash is None:
            raise UsageError(
                "a server drives no executions: a worker of its store resumes them",
                hint="answer questions about interrupted steps with --on-crash retry or fail",
            )
        return self._client.resume(execution, on_crash=on_crash)

    def flows_deploy(self, flow: str) -> DeployedInfo:
        """Deploy a flow file, or return to a deployed version."""
        by_name = (
            self._client.flows.deploy_version if is_deployed(flow) else self._client.flows.deploy
        )
        return cast("DeployedInfo", self._called(by_name, flow))

    def executions_upgrade(self, flow: str, *executions: str, **given: Any) -> list[UpgradeInfo]:
        """Move executions, one after the other. None: the open ones of other versions."""
        ids = executions or self._open(flow)
        infos = [
            self._called(self._client.executions.upgrade, flow, execution, **given)
            for execution in ids
        ]
        return [info for info in infos if executions or info["verdict"] not in ("current", "ended")]

    def _open(self, flow: str) -> list[str]:
        """Return the open executions of a flow, oldest first."""
        id = self._called(self._client.flows.show, flow)["flow"]
        pages = every_item(lambda after: self.executions.list(flow=id, after=after))
        return [page["execution"] for page in pages if page["status"] not in ENDED][::-1]

    def executions_list(self, *, limit: int = 50, **given: Any) -> ExecutionPage:
        """Return a page of any size, of several pages of the server."""
        page = cast("ExecutionPage", self._page(self._client.executions.list, limit, given))
        self._listed += [item["execution"] for item in page.items]
        return page

    def approvals_list(self, *, limit: int = 50, **given: Any) -> WaitPage:
        """Return a page of any size, as `executions_list` does."""
        return cast("WaitPage", self._page(self._client.approvals.list, limit, given))

    def _page(self, method: Any, limit: int, given: dict[str, Any]) -> Any:
        page = self._called(method, limit=min(limit, _LARGEST_PAGE), **given)
        while page.next is not None and (missing := limit - len(page.items)) > 0:
            given["after"] = page.next
            more = self._called(method, limit=min(missing, _LARGEST_PAGE), **given)
            page = page._replace(items=[*page.items, *more.items], next=more.next)
        return page

    def close(self) -> None:
        self._client.close()

    leave = close

    def _called(self, method: Any, *args: Any, **given: Any) -> Any:
        """Call a method of the client, and upload the files among its arguments."""
        given = {name: value for name, value in given.items() if name not in _STORE_ONLY}
        if given.get("attach"):
            given["attach"] = [self._client.upload(path) for path in given["attach"]]
        if given.get("images"):
            given["images"] = [self._client.upload(path).sha256 for path in given["images"]]
        given = {name: value for name, value in given.items() if value is not None}
        try:
            return method(*args, **given)
        except FlowEngineError as error:
            lines = (error.hint_for("cli") or "").splitlines()
            error.hint = "\n".join(line for line in lines if works_there(line)) or None
            raise
