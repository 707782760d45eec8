"""The engine of a command line that uses a server: the client, called as the engine is."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from flowengine.cli.parsing.arguments import is_deployed
from flowengine.cli.parsing.command_table import works_there
from flowengine.errors import FlowEngineError, UsageError
from flowengine.journal.ports.directory import every_item
from flowengine.journal.records import ENDED
from flowengine.journal.short_ids import SHORT_EXECUTION, shortest

if TYPE_CHECKING:
    from flowengine.client.client import Client
    from flowengine.engines.infos import DeployedInfo, UpgradeInfo
    from flowengine.engines.results import ExecutionPage, WaitPage

_LARGEST_PAGE = 500
"""Number of items that a server returns at most."""
_STORE_ONLY = ("by", "resume")
"""Arguments that only an engine with a store takes."""


def connect(url: str) -> Client:
    """Return a client of a server, with the token of the environment."""
    from flowengine.client.client import Client

    return Client(url)


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
        return partial(self._called, getattr(self._client, name))

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

    def deploy(self, flow: str) -> DeployedInfo:
        """Deploy a flow file, or return to a deployed version."""
        by_name = self._client.deploy_version if is_deployed(flow) else self._client.deploy
        return cast("DeployedInfo", self._called(by_name, flow))

    def upgrade(self, flow: str, *executions: str, **given: Any) -> list[UpgradeInfo]:
        """Move executions, one after the other. None: the open ones of other versions."""
        ids = executions or self._open(flow)
        infos = [self._called(self._client.upgrade, flow, execution, **given) for execution in ids]
        return [info for info in infos if executions or info["verdict"] not in ("current", "ended")]

    def _open(self, flow: str) -> list[str]:
        """Return the open executions of a flow, oldest first."""
        id = self._called(self._client.flow, flow)["flow"]
        pages = every_item(lambda after: self.executions(flow=id, after=after))
        return [page["execution"] for page in pages if page["status"] not in ENDED][::-1]

    def executions(self, *, limit: int = 50, **given: Any) -> ExecutionPage:
        """Return a page of any size, of several pages of the server."""
        page = cast("ExecutionPage", self._page(self._client.executions, limit, given))
        self._listed += [item["execution"] for item in page.items]
        return page

    def waits(self, *, limit: int = 50, **given: Any) -> WaitPage:
        """Return a page of any size, as `executions` does."""
        return cast("WaitPage", self._page(self._client.waits, limit, given))

    def _page(self, method: Any, limit: int, given: dict[str, Any]) -> Any:
        page = self._called(method, limit=min(limit, _LARGEST_PAGE), **given)
        while page.next is not None and (missing := limit - len(page.items)) > 0:
            given["after"] = page.next
            more = self._called(method, limit=min(missing, _LARGEST_PAGE), **given)
            page = page._replace(items=[*page.items, *more.items], next=more.next)
        return page

    def close(self) -> None:
        """Close the connections."""
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
