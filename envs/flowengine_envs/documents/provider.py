"""`documents`: opens readers of documents."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import Axis, Capabilities, Request, Spec
from flowengine.sdk.web.rules import Rules
from flowengine_envs.documents import libraries
from flowengine_envs.documents.added import sources
from flowengine_envs.documents.conversion import MEMORY
from flowengine_envs.documents.reader import Documents
from flowengine_envs.kinds.supervised import SupervisedProvider
from flowengine_envs.link.call_limits import TIMEOUT

if TYPE_CHECKING:
    from pydantic import BaseModel


class DocumentsProvider(SupervisedProvider[Documents]):
    """Opens readers of documents."""

    kind = "documents"
    only_in: ClassVar[tuple[str, ...]] = ("namespace", "host")

    def config_model(self) -> type[BaseModel]:
        """Return the model of `config:`."""
        from flowengine_envs.documents.configuration import DocumentsConfig

        return DocumentsConfig

    def capabilities(self, sandbox: Capabilities) -> Capabilities:
        """Return the capabilities of the sandbox and of the process itself."""
        holds: dict[Axis, str] = {
            "memory": "the process that reads a file limits itself (RLIMIT_DATA)"
        }
        mine = super().capabilities(sandbox)
        return mine.also({**holds, **mine.holds}, {"memory": MEMORY, "time": TIMEOUT})

    async def probe(self, spec: Spec) -> None:
        """Check that the libraries are installed.

        Raises:
            EnvironmentUnavailable: A library is not installed.
        """
        await super().probe(spec)
        sources(spec)
        if missing := libraries.missing():
            raise EnvironmentUnavailable(
                f"{spec}: {', '.join(missing)} not installed: pip install 'flowengine[documents]'"
            )

    async def ensure(self, request: Request) -> Documents:
        """Open a reader, which reads each file in a separate process."""
        policy = request.policy
        rules = Rules.of(policy.network, policy.deny_network)
        # Documents are fetched here, and the process that converts them has no network.
        closed = policy.model_copy(update={"network": None, "deny_network": None})
        inside = request._replace(policy=closed, spec=request.spec._replace(policy=closed))
        return await self.open(inside, partial(Documents, rules=rules, added=sources(request.spec)))
