"""The model of `config:` of the kind `documents`.

Loads pydantic: import it inside `config_model`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from flowengine_envs.documents.libraries import folders
from flowengine_envs.kinds.configurations import OwnPrograms


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
