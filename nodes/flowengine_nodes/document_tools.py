"""`std` tools that read documents: files of the working directory, and web pages."""

from __future__ import annotations

import posixpath
from typing import Any

from flowengine.agents.models.registry import describe_document, described, in_folder
from flowengine.sdk import (
    HttpError,
    Plain,
    StepContext,
    Tool,
    ToolError,
    ValidationError,
)
from flowengine.sdk.tools.schemas import FLAG, TEXT, WHOLE, listed, record
from flowengine_nodes.file_tools import FILES, folder_of, kept_file, read_kept

LARGEST = 64 * 1024 * 1024
DOCUMENTS = "documents"
"""The kind of environment that reads documents, and the default name of the environment used."""


class _NoFolder:
    """Replaces the working directory in a flow without access to it."""

    def read(self, path: str, most: int) -> bytes:
        """Refuse to read a file."""
        raise ToolError(
            f"{path!r} is not an address of the web, and this flow may not read files of the host: "
            "give the tool an environment named 'files'"
        )

    def glob(self, path: str, pattern: str) -> list[str]:
        """Refuse to list a directory."""
        raise ToolError("the flow has no directory")


async def call(
    context: StepContext, tool: str, args: dict[str, Any], may_use_folder: bool
) -> Plain:
    """Call one of these tools.

    Args:
        context: The attempt.
        tool: Its name.
        args: Its arguments.
        may_use_folder: Whether it may read files of the working directory.
    """
    has_files = may_use_folder or FILES in context.resources
    folder = folder_of(context) if has_files else _NoFolder()
    if tool == "read_document":
        return await _read_document(context, folder, **args)
    resource, address = context.resources[DOCUMENTS], args["address"]
    source: str | bytes = address
    if "://" not in address:
        try:
            source = await context.on_thread(lambda: folder.read(address, LARGEST))
        except ToolError as error:
            listed = await context.on_thread(lambda: _listing(folder, address))
            if listed is not None:
                source = listed
            elif not resource.is_host(address):
                raise error
    page, find, name = args.get("page", 1), args.get("find", ""), posixpath.basename(address)
    view = await resource.async_page(source, page, find, name, address)
    text = await _described(context, resource, view, args.get("question", ""))
    return view._replace(text=text).as_text()


async def _read_document(
    context: StepContext,
    folder: Any,
    path: str = "",
    url: str = "",
    page: int | None = None,
    find: str = "",
    question: str = "",
) -> Plain:
    """Convert a document, in the environment that reads documents.

    Returns:
        The document, or with `page` or `find` the Markdown of one of its pages.

    Raises:
        ValidationError: Not exactly one of path and address was given.
        HttpError: The server responds with an error.
    """
    if bool(path) is bool(url):
        raise ValidationError("std.read_document takes either 'path' or 'url'")
    resource = context.resources[DOCUMENTS]
    source = url or await _bytes(context, folder, path)
    if page is None and not find and not url:
        document = await resource.async_read(source, posixpath.basename(path))
        await _describe_all(context, resource, document, question)
        return {**_data(document), **_whole(path, "")}
    if page is None and not find:
        visit = await resource.async_visit(url)
        _judge(context, visit)
        await _describe_all(context, resource, visit.document, question)
        return {**_data(visit.document), **_whole(visit.address, visit.status)}
    view = await resource.async_page(source, page or 1, find, posixpath.basename(path))
    _judge(context, view.visit)
    text = await _described(context, resource, view, question)
    return {
        **_data(view.visit.document),
        **_whole(view.visit.address if url else path, view.visit.status),
        "markdown": text,
        "parts": [],
        "tables": [],
        "page": view.number,
        "pages": view.pages,
        "found": view.is_found,
    }


def _whole(address: str, status: str) -> dict[str, Plain]:
    return {"address": address, "status": status, "page": 1, "pages": 1, "found": False}


def _judge(context: StepContext, visit: Any) -> None:
    """Refuse an error page: a flow that requests a report does not expect one."""
    if not visit.succeeded:
        status = int(visit.status.split()[0])
        body = str(context.mask(visit.document.markdown))  # mask before cutting
        raise HttpError(
            f"{visit.address}: status {visit.status}",
            data={"status": status, "body": body[:10_000]},
            retryable=status >= 500 or status == 429,
        )


def _data(document: Any) -> dict[str, Plain]:
    data = document.as_data()
    return {name: value for name, value in data.items() if name not in {"pictures", "following"}}


async def _describe_all(context: StepContext, resource: Any, document: Any, question: str) -> None:
    """Describe the pictures of a document, if a model is configured for that."""
    if document.pictures:
        await describe_document(_eyes(context, resource), document, question)


async def _described(context: StepContext, resource: Any, view: Any, question: str) -> str:
    """Return the text of a document's page with descriptions of its pictures."""
    document = view.visit.document
    if not document.pictures:
        return str(view.text)

    text, _ = await described(_eyes(context, resource), document, view.text, question)
    return text


def _eyes(context: StepContext, resource: Any) -> str:
    return in_folder(resource.vision_model, context.execution.workdir)


def _listing(folder: Any, path: str) -> bytes | None:
    """Return a listing of a directory as Markdown, or None if it is not a directory."""
    try:
        entries = folder.glob(path or ".", "*")
    except ToolError:
        return None
    return "\n".join(f"- {entry}" for entry in entries).encode() or None


async def _bytes(context: StepContext, folder: Any, path: str) -> bytes:
    kept = kept_file(context, path)
    if kept is not None:
        return await context.on_thread(lambda: read_kept(kept, LARGEST))
    return await context.on_thread(lambda: folder.read(path, LARGEST))


_PAGE: dict[str, Plain] = {**WHOLE, "minimum": 1}
_FIND: dict[str, Plain] = {
    **TEXT,
    "description": "Text to look for: its page is returned. Case does not count, * is any text.",
}

_QUESTION: dict[str, Plain] = {**TEXT, "description": "What is asked about an image."}

TOOLS: dict[str, Tool] = {
    "read_document": {
        "description": "Reads a PDF, Word, PowerPoint, Excel, HTML, EPUB, mail, notebook, CSV or "
        "text file, below the working directory or on the web, as Markdown: all of it, or one "
        "page.",
        "args": record(
            {
                "path": TEXT,
                "url": TEXT,
                "page": {**_PAGE, "description": "Number of the page, from 1."},
                "find": _FIND,
                "question": _QUESTION,
            },
            [],
        ),
        "returns": record(
            {
                "format": TEXT,
                "title": TEXT,
                "markdown": TEXT,
                "parts": listed(
                    record({"kind": TEXT, "number": WHOLE, "name": TEXT, "start": WHOLE})
                ),
                "tables": listed(listed(listed(TEXT))),
                "notes": listed(TEXT),
                "truncated": FLAG,
                "size": WHOLE,
                "sha256": TEXT,
                "address": TEXT,
                "status": TEXT,
                "page": WHOLE,
                "pages": WHOLE,
                "found": FLAG,
            }
        ),
        "effect": "idempotent",
        "environment": DOCUMENTS,
    },
    "visit_page": {
        "description": "Opens a page of the web, a document or a file, and shows one page of it "
        "as Markdown. Read on with the next page, or look for a text.",
        "args": record(
            {
                "address": {
                    **TEXT,
                    "description": "https://... or a path below the working directory.",
                },
                "page": {**_PAGE, "default": 1},
                "find": _FIND,
                "question": _QUESTION,
            },
            ["address"],
        ),
        "returns": TEXT,
        "effect": "idempotent",
        "environment": DOCUMENTS,
    },
}
