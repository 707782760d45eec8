"""The session of a command: its engine, short ids, and command lines to paste."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import TYPE_CHECKING, Any, Self, cast

from flowengine.cli.parsing.command_table import works_there
from flowengine.cli.process import ProcessEnd
from flowengine.engines.engine import Engine
from flowengine.errors import NotFound
from flowengine.store_folder import find_store, remote_store

if TYPE_CHECKING:
    from flowengine.engines.flows import LoadedFlow
    from flowengine.flow.building.flow import Flow

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
    """

    def __init__(
        self, arguments: Namespace, *, make: Flow | str | None = None, named: bool = False
    ) -> None:
        self.arguments = arguments
        self.named: set[str] = set()
        self._filters = False
        self.is_served = bool(arguments.server)
        if self.is_served:
            from flowengine.cli.served_engine import ServedEngine

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
            from flowengine.engines.flows import load

            load(make)  # an invalid flow leaves nothing behind
        self.engine = Engine(
            store if by_name else "",
            durability=arguments.durability,
            workdir=getattr(arguments, "workdir", None),
            via="cli",
            linger=60.0 if getattr(arguments, "linger", None) is None else arguments.linger,
        )

    def __enter__(self) -> Self:
        return self

    def on_host_told(self) -> None:
        """Leave out the warnings of environments about what the user has been told already."""
        self._filter_warnings(add=True)
        self._filters = True

    def _filter_warnings(self, *, add: bool) -> None:
        import logging

        logger = logging.getLogger("flowengine.environments")
        (logger.addFilter if add else logger.removeFilter)(_is_news)

    def __exit__(self, *_: object) -> None:
        if self._filters:
            self._filter_warnings(add=False)
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
            return self.engine.find(named)
        newest = self.engine.executions(limit=1).items
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
        return self.engine.flow_of(execution)


def _is_news(record: object) -> bool:
    """Return whether a warning says more than that something runs unsandboxed."""
    return not getattr(record, "unsandboxed", False)


class NoStore(NotFound):
    """The store does not exist yet, so it contains no executions."""
