"""`documents`: opens readers of documents."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, Field

from flowengine.sdk import EnvironmentUnavailable
from flowengine.sdk.environments import Axis, Capabilities, Request, Spec
from flowengine.sdk.python.extras import install_command
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.web.connections import Rules
from flowengine_envs.documents import conversion as libraries
from flowengine_envs.documents.conversion import MEMORY, folders
from flowengine_envs.documents.reader import Documents
from flowengine_envs.kinds.configurations import OwnPrograms
from flowengine_envs.kinds.supervised import SupervisedProvider
from flowengine_envs.link.call_limits import TIMEOUT

_LARGEST = 64 * 1024
"""Maximum size of all sources together, because they are passed with each file."""


def sources(spec: Spec) -> list[dict[str, str]]:
    """Return the sources of the converters that a spec names.

    Args:
        spec: The requested environment.

    Raises:
        EnvironmentUnavailable: A file or function does not exist, or the sources are too large.
    """
    contents = []
    for named in spec.config.converters:
        module, _, function = named.partition(":")
        path = Path(spec.folder, *module.split(".")).with_suffix(".py")
        try:
            text = path.read_text(encoding="utf-8")
            body = ast.parse(text).body
        except (OSError, ValueError, SyntaxError) as error:
            raise EnvironmentUnavailable(
                f"{spec}: the converter '{named}' cannot be read from {path}: {error}"
            ) from None
        if not any(isinstance(each, ast.FunctionDef) and each.name == function for each in body):
            raise EnvironmentUnavailable(f"{spec}: {path} has no function '{function}'")
        contents.append({"name": named, "function": function, "source": text})
    if sum(len(each["source"].encode()) for each in contents) > _LARGEST:
        raise EnvironmentUnavailable(f"{spec}: its converters have more than {size_text(_LARGEST)}")
    return contents


class DocumentsProvider(SupervisedProvider[Documents]):
    """Opens readers of documents."""

    kind = "documents"
    only_in: ClassVar[tuple[str, ...]] = ("namespace", "host")

    def config_model(self) -> type[BaseModel]:
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
                f"{spec}: {', '.join(missing)} not installed: {install_command('documents')}"
            )

    async def ensure(self, request: Request) -> Documents:
        """Open a reader, which reads each file in a separate process."""
        policy = request.policy
        rules = Rules.of(policy.network, policy.deny_network)
        # Documents are fetched here, and the process that converts them has no network.
        closed = policy.model_copy(update={"network": None, "deny_network": None})
        inside = request._replace(policy=closed, spec=request.spec._replace(policy=closed))
        return await self.open(inside, partial(Documents, rules=rules, added=sources(request.spec)))


# The model of `config:` of the kind `documents`.
#
# Loads pydantic: import it inside `config_model`.


class DocumentsConfig(OwnPrograms):
    """`config:` of the kind `documents`: the limits for one file, and where downloads go."""

    bytes: Annotated[int, Field(gt=0)] = 64 * 1024 * 1024
    """Size of the file."""
    unpacked: Annotated[int, Field(gt=0)] = 256 * 1024 * 1024
    """Maximum unpacked size of an archive, or of a stream of a PDF."""
    entries: Annotated[int, Field(gt=0)] = 10_000
    """Files in an archive."""
    pages: Annotated[int, Field(gt=0)] = 5_000
    """Pages, slides, sheets or chapters. Further ones are left out."""
    cells: Annotated[int, Field(gt=0)] = 200_000
    """Cells of all tables. Further ones are left out."""
    characters: Annotated[int, Field(gt=0)] = 2_000_000
    """Length of the Markdown. The rest is left out."""
    pixels: Annotated[int, Field(gt=0)] = 200_000_000
    """Width times height of an image."""
    pictures: Annotated[int, Field(gt=0)] = 20
    """Pages of a scan that are sent to `vision_model`. Further ones are only noted."""
    converters: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")], ...] = ()
    """Functions that are tried before the built-in converters, in order: `module:function`."""
    comments: bool = False
    """Whether comments in office documents and PDFs are included."""
    vision_model: Annotated[str, Field(pattern=r"^[^/]+/.+$")] | None = None
    """`provider/model` that describes images. Without one, they are not described."""
    downloads: Annotated[str, Field(pattern=r"^[^/]+$")] = "downloads"
    """Directory of the workspace for downloaded files."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """Directories that are visible to the sandbox besides those of the interpreter."""
        return folders()
