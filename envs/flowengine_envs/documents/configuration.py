"""The model of `config:` of the kind `documents`.

Loads pydantic: import it inside `config_model`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from flowengine_envs.documents.libraries import folders
from flowengine_envs.kinds.configurations import OwnPrograms


class DocumentsConfig(OwnPrograms):
    """`config:` of the kind `documents`: what one file may take, and where downloads go."""

    bytes: Annotated[int, Field(gt=0)] = 64 * 1024 * 1024
    """Size of the file."""
    unpacked: Annotated[int, Field(gt=0)] = 256 * 1024 * 1024
    """What an archive, or a stream of a PDF, unpacks to."""
    entries: Annotated[int, Field(gt=0)] = 10_000
    """Files in an archive."""
    pages: Annotated[int, Field(gt=0)] = 5_000
    """Pages, slides, sheets or chapters; further ones are left out."""
    cells: Annotated[int, Field(gt=0)] = 200_000
    """Cells of all tables; further ones are left out."""
    characters: Annotated[int, Field(gt=0)] = 2_000_000
    """Length of the Markdown; the rest is left out."""
    pixels: Annotated[int, Field(gt=0)] = 200_000_000
    """Width times height of an image."""
    pictures: Annotated[int, Field(gt=0)] = 20
    """Pages of a scan that `vision_model` is shown; of further ones there is only a note."""
    converters: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")], ...] = ()
    """Functions that are tried before the built-in converters, in order: `module:function`."""
    comments: bool = False
    """Whether comments of people in office documents and PDFs are read, too."""
    vision_model: Annotated[str, Field(pattern=r"^[^/]+/.+$")] | None = None
    """`provider/model` that describes images; without one, they are not described."""
    downloads: Annotated[str, Field(pattern=r"^[^/]+$")] = "downloads"
    """Folder of the workspace for files that are downloaded."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """Folders that are shown to the sandbox beside the interpreter's."""
        return folders()
