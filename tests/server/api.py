"""The API over a store of its own, called in the process of the tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2

from flowengine import Engine
from flowengine.page.site import PAGES, Site
from flowengine.server.application import Application
from flowengine.server.guard import Hosts
from flowengine.server.records import ServerRecords
from flowengine.server.rights import Access
from flowengine.server.routes import ROUTES
from flowengine.server.talk_routes import talk_routes

HOST = "testserver"
LOCAL = "fe_local"
OWNER = "user:owner"
EXPENSE = """
flowengine: 1
id: expense
inputs:
  amount: {type: number}
  reason: {type: string, default: travel}
steps:
  - id: ask
    approval:
      title: Pay ${{ inputs.amount }}?
      assignees: ["user:ben", "group:finance"]
      claim: false
      subject: {amount: "${{ inputs.amount }}", reason: "${{ inputs.reason }}"}
      edit: [amount]
outputs: {choice: "${{ steps.ask.outcome }}"}
"""
PARCEL = """
flowengine: 1
id: parcel
inputs: {order: {type: string}}
signals: {arrived: {data: {type: object}, key: "${{ inputs.order }}"}}
start: [{signal: arrived, with: {order: "${{ signal.key }}"}}]
steps:
  - {id: come, wait: {signal: arrived}}
"""


class Api:
    """A server over a store, and its callers.

    Args:
        folder: Where the store and the server's own data are.
        flows: The texts of the flows that it offers.
        engine: That of another store.
        pages: Origins of Temporal's pages.
    """

    def __init__(
        self,
        folder: Path,
        flows: Sequence[str] = (EXPENSE, PARCEL),
        engine: Engine | None = None,
        pages: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.engine = engine or Engine(folder / "store", durability="none", user=OWNER)
        self.records = ServerRecords(str(folder / "server"))
        self.flows = []
        for number, text in enumerate(flows):
            path = folder / f"flow{number}.yaml"
            path.write_text(text)
            self.flows.append(self.engine.load(path))
            self.engine.flows.deploy(self.flows[-1])
        self.hosts = Hosts(frozenset({HOST}), pages)
        self.application = self.new_application(self.records)

    def new_application(self, records: ServerRecords) -> Application:
        """Return a server over the store."""
        return Application(
            self.engine,
            records,
            self.hosts,
            LOCAL,
            lambda it: [*Site(it).routes(), *talk_routes(it)],
        )

    def close(self) -> None:
        self.engine.close()
        self.records.close()

    def token(self, user: str, role: str | None = None, *flows: str, content: bool = False) -> str:
        """Return a new token of a user, limited to a role on some flows."""
        scope = None if role is None else Access(role, flows or ("*",), content)
        name = f"{user}-{role or 'all'}-{len(self.records.tokens())}"
        return self.records.create_token(name, user, scope, OWNER, 1, None)

    def __call__(
        self,
        method: str,
        path: str,
        data: Any = None,
        *,
        token: str | None = LOCAL,
        code: int | None = None,
        headers: dict[str, str] | None = None,
        content: bytes | None = None,
    ) -> Any:
        """Send a request and return the JSON of its answer, which must have a status."""
        response = self.response(method, path, data, token=token, headers=headers, content=content)
        if code is not None:
            assert response.status_code == code, response.text
        return json.loads(response.content) if response.content else None

    def response(
        self,
        method: str,
        path: str,
        data: Any = None,
        *,
        token: str | None = LOCAL,
        headers: dict[str, str] | None = None,
        content: bytes | None = None,
    ) -> httpx2.Response:
        """Send a request and return its answer."""
        sent = dict(headers or {})
        if token is not None:
            sent["authorization"] = f"Bearer {token}"

        async def send() -> httpx2.Response:
            transport = httpx2.ASGITransport(app=self.application.asgi)
            async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as one:
                if content is not None:
                    return await one.request(method, path, content=content, headers=sent)
                return await one.request(method, path, json=data, headers=sent)

        return asyncio.run(send())

    def everything(self) -> dict[str, bytes]:
        """Return all that is read by GET, with the right to all of it, by path."""
        executions = self.engine.executions.list(limit=500).items
        paths = {
            route.path.format(
                sha256="0" * 64,
                other=item["execution"],
                execution=item["execution"],
                approval=wait["id"],
                grant=wait["id"],
                environment="none",
                flow=flow.id,
            )
            for route in (*ROUTES, *PAGES)
            if route.method == "GET"
            for item in executions
            for wait in self.engine.approvals.list(status="all").items or [{"id": "none"}]
            for flow in self.flows
        }
        identity = self.application.identity
        secret = identity.begin_session(identity.local())
        headers = {"cookie": f"flowengine_session={secret}"}
        return {
            path: self.response("GET", path, token=None, headers=headers).content
            for path in sorted(paths)
        }

    def started(self, amount: float = 80) -> tuple[str, str]:
        """Return a new execution that waits, and the id of its approval."""
        id = self("POST", "/v1/executions", {"flow": "expense", "inputs": {"amount": amount}})
        execution = id["execution"]
        [wait] = self.engine.resume(execution).waits
        return execution, wait["id"]
