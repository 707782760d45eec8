"""`mcp`: calls a tool of an MCP server, in the session of an environment."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from flowengine.sdk import Plain, StepContext, StepKind, ToolError
from flowengine.sdk.steps.progress import progress_text
from flowengine.sdk.tools.schemas import TEXT, listed
from flowengine_nodes.file_tools import TAB, lines_of, without_end

_TEXTS = listed(TEXT)
_SERVER: dict[str, Plain] = {
    "command": {
        "description": "The program to start, or the program with its arguments.",
        "examples": [["npx", "some-server"]],
    },
    "args": {
        "type": "array",
        "description": "Arguments of the program.",
        "examples": [["--verbose"]],
    },
    "env": {
        "type": "object",
        "description": "Environment variables of the program, besides PATH, HOME and LANG.",
        "examples": [{"TOKEN": "${{ secrets.TOKEN }}"}],
    },
    "cwd": {
        **TEXT,
        "description": "Its working directory. Default: the working directory.",
        "examples": ["data"],
    },
    "url": {
        **TEXT,
        "description": "The address of a server with streamable HTTP.",
        "examples": ["https://mcp.example.com"],
    },
    "headers": {
        "type": "object",
        "description": "Headers of every request to it.",
        "examples": [{"Authorization": "Bearer ${{ secrets.TOKEN }}"}],
    },
    "auth": {
        "anyOf": [
            {"const": "oauth"},
            {
                "type": "object",
                "properties": {
                    "client_id": {
                        **TEXT,
                        "description": "The id of a registered client, or the address of its "
                        "client metadata document.",
                    },
                    "client_secret": {**TEXT, "description": "Its secret, by reference."},
                    "scope": {**_TEXTS, "description": "The scopes to request."},
                    "grant": {
                        "enum": ["authorization_code", "client_credentials"],
                        "description": "`client_credentials`: the client acts for itself.",
                        "default": "authorization_code",
                    },
                    "issuer": {**TEXT, "description": "The only authorization server to use."},
                },
                "additionalProperties": False,
            },
        ],
        "description": "Access tokens of OAuth 2.1 for its requests. Users log in once.",
        "examples": ["oauth", {"scope": ["tickets:read"]}],
    },
    "roots": {
        "type": "array",
        "description": "Folders that the server receives when it requests its roots.",
        "examples": [["data"]],
    },
    "mode": {
        "enum": ["auto", "legacy"],
        "description": "Protocol revisions to try. `legacy`: those with a handshake.",
        "default": "auto",
        "examples": ["legacy"],
    },
    "resources": {
        "type": "boolean",
        "description": "Adds the tools `list_resources` and `read_resource` for its resources.",
        "default": False,
        "examples": [True],
    },
    "prompts": {
        "type": "boolean",
        "description": "Adds the tools `list_prompts` and `get_prompt` for its prompts.",
        "default": False,
        "examples": [True],
    },
    "servers": {
        "type": "object",
        "description": "Several servers by name. Their tools are called `name.tool`.",
        "examples": [{"units": {"command": ["units-server"]}}],
    },
    "mounts": {
        "type": "object",
        "additionalProperties": TEXT,
        "description": "Directories in a server's sandbox: environment of kind `files` → "
        "directory inside.",
        "examples": [{"docs": "/docs"}],
    },
    "provider": {
        "anyOf": [TEXT, {**_TEXTS, "minItems": 1}],
        "description": "The sandbox that the server runs in, or several in order of "
        "preference. `host` means none. Default: `namespace` for commands "
        "that download their program, such as `npx` and `uvx`, otherwise "
        "`host`.",
        "examples": ["namespace", "docker", "host"],
    },
    "policy": {
        "type": "object",
        "description": "The permissions of the server in its sandbox.",
        "examples": [{"network": ["api.example.com:443"]}],
    },
    "in": {
        "anyOf": [TEXT, {"type": "object", "minProperties": 1, "maxProperties": 1}],
        "description": "A declared environment of kind `mcp`, instead of a separate server.",
        "examples": ["units"],
    },
    "include": {
        **_TEXTS,
        "minItems": 1,
        "description": "The tools that can be called, as names or globs. Default: all.",
        "examples": [["get_*"]],
    },
    "exclude": {
        **_TEXTS,
        "description": "The tools that cannot be called, as names or globs.",
        "default": [],
        "examples": [["delete_*"]],
    },
}
"""Keys of a server, or of several."""


class Mcp(StepKind):
    """Calls a tool once. The flow declares whether it may be repeated, not the server."""

    places = ("tool",)
    takes_arguments = True
    session = "mcp"
    foreign = True

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration of `mcp`: one server, or several."""
        return {
            "type": "object",
            "properties": _SERVER,
            "oneOf": [{"required": [key]} for key in ("command", "url", "servers", "in")],
            "additionalProperties": False,
        }

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Call the tool that the step names and return its result.

        Args:
            context: The attempt.
            task: `server`, the environment, and `tool`, its name there.
            input: `args`, and the values that the flow fixes. `offered`, if the tool was offered to
                a model.

        Returns:
            The result as data if the tool returns data, else its text, with other parts if there
            are any.

        Raises:
            NeedsInput: The server requests input from a person, after which the call is made again.
            ToolChanged: The tool has changed since it was offered.
            ToolError: The tool reports a failure. The data is its result.
        """
        session = context.resources[task["server"]]
        args = {**input["args"], **input.get("bind", {})}
        offered = input.get("offered") or {}
        tool = offered.get("tool") or task["tool"]
        asked = context.approval
        approved = None if asked is None or offered else session.approved(asked.get("source"))
        by = f"Server '{str(task['server']).removeprefix('tools.')}'"
        answer = await session.async_call_tool(
            tool,
            args,
            digest=offered.get("digest"),
            approved=approved,
            traceparent=context.traceparent,
            progress=partial(_progress, context),
            inputs=session.inputs(context.inputs, by, tool, args),
        )
        if answer.is_error:
            data = {"content": answer.content, "structured": answer.structured}
            raise ToolError(
                f"{tool}: {answer.text or 'the tool failed'}", data=data, retryable=False
            )
        if answer.structured is not None:
            return answer.structured
        if all(part.get("type") == "text" for part in answer.content):
            return answer.text
        return [_kept(context, part, number) for number, part in enumerate(answer.content)]

    def text_for_model(
        self, task: Mapping[str, Plain], input: Mapping[str, Plain], output: Plain, room: int
    ) -> str | None:
        """Return the text of a result that consists of text only."""
        if isinstance(output, Mapping):
            # The protocol requires objects: servers put other results under this name.
            text = output.get("result") if {*output} == {"result"} else None
            return text if isinstance(text, str) else None
        if not isinstance(output, list):
            return None
        parts = [_plain(item["text"] if item.get("type") == "text" else item) for item in output]
        return "\n\n".join(parts)


def _progress(context: StepContext, done: float, total: float | None, message: str | None) -> None:
    """Log what a server reports about a call, and pass it on to those who follow the step."""
    told: dict[str, Plain] = {"done": done, "total": total, "message": message}
    context.log.info("progress: %s", progress_text(told))
    context.part("progress", **told)


def _kept(context: StepContext, part: Mapping[str, Any], number: int) -> dict[str, Plain]:
    """Return a part of a result, with its bytes as a file."""
    name, holder = ("blob", part["resource"]) if "resource" in part else ("data", part)
    part = {key: value for key, value in part.items() if key != "file"}  # only kept here
    if not isinstance(holder.get(name), str):
        return part
    try:
        data = base64.b64decode(holder[name], validate=True)
    except ValueError as error:
        raise ToolError(f"a part of the answer is not base64: {error}", retryable=False) from None
    file = context.execution.artifacts.put(data, f"part_{number + 1}")
    rest = {key: value for key, value in holder.items() if key != name}
    return {**rest, "type": part["type"], "file": file}


# Results of tools as text for models: files with line numbers, commands with their exit code.

Data = Mapping[str, Any]
Reading = Callable[[Data, Data, int], str]
"""Arguments, output, and maximum number of characters → text."""

_NOTE = 200
"""Characters reserved for the note about omitted lines."""


def tool_text(tool: str, input: Data, output: Any, room: int) -> str | None:
    """Return the output of a `std` tool as text, or None to show it as JSON.

    Args:
        tool: Its name.
        input: Input of the step: `args`, and `bind` if the flow fixes any.
        output: The result of the tool, or the one in a test case.
        room: Characters that the model is shown.
    """
    reading = _READINGS.get(tool)
    if reading is None:
        return None
    given = {**input.get("args", {}), **input.get("bind", {})}
    return reading(given, output, room)


def _fitting(lines: Iterable[str], room: int) -> list[str]:
    """Return as many lines as fit, and at least the first one."""
    texts: list[str] = []
    left = room - _NOTE
    for line in lines:
        left -= len(line) + 1
        if left < 0 and texts:
            break
        texts.append(line)
    return texts


# Files


def _read_file(args: Data, output: Data, room: int) -> str:
    lines = lines_of(output["text"])
    first = args.get("first_line", 1)
    total = output.get("lines", len(lines))
    if not lines:
        return f"[no such lines: the file has {total}]" if first > 1 else "[the file is empty]"
    numbered = (
        f"{number}{TAB}{item}" for number, item in enumerate(map(without_end, lines), first)
    )
    shown = _fitting(numbered, room)
    last = first + len(shown) - 1
    if last < total:
        shown.append(f"[lines {first} to {last} of {total}. To continue: first_line={last + 1}]")
    return "\n".join(shown)


def _glob(args: Data, output: Data, room: int) -> str:
    files = output["files"]
    shown = _fitting(files, room)
    more = len(files) - len(shown)
    note = [f"[{more} more files: use a narrower pattern]"] if more else []
    return "\n".join([*shown, *note]) or "[no file matches]"


def _search_files(args: Data, output: Data, room: int) -> str:
    lines = [f"{match['path']}:{match['line']}: {match['text']}" for match in output["matches"]]
    shown = _fitting(lines, room)
    if not lines:
        part = " in the part that was searched: search fewer files" if output["truncated"] else ""
        return f"[nothing was found{part}]"
    if len(shown) < len(lines) or output["truncated"]:
        shown.append("[there is more: search for a longer text, or in fewer files]")
    return "\n".join(shown)


def _write_file(args: Data, output: Data, room: int) -> str:
    return f"Wrote {output['path']} ({output['size']} bytes)."


def _edit_file(args: Data, output: Data, room: int) -> str:
    times, line = output["replaced"], output["line"]
    if times == 1:
        return f"Replaced the text in line {line} of {output['path']}."
    return f"Replaced the text {times} times in {output['path']}, first in line {line}."


# Commands


def command_text(output: Data) -> str:
    """Return the outcome of a command or code: its output, its value, its exit code.

    The exit code comes last, so that no output can follow it and pose as it.
    """
    parts = [output.get("stdout", "").rstrip("\n")]
    if output.get("stderr"):
        parts += ["[stderr]", output["stderr"].rstrip("\n")]
    if output.get("value") is not None:
        parts.append(f"[value] {_plain(output['value'])}")
    parts += [
        f"[all of {stream} is kept: {_file(output[f'{stream}_file'])}]"
        for stream in ("stdout", "stderr")
        if f"{stream}_file" in output
    ]
    parts += [f"[file {name}: {_files(value)}]" for name, value in output.get("files", {}).items()]
    return "\n".join([*filter(None, parts), f"[exit code {output['exit_code']}]"])


def _plain(value: Plain) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _files(given: Plain) -> str:
    return ", ".join(map(_file, given)) if isinstance(given, list) else _file(given)


def _file(given: Plain) -> str:
    """Return the name of a kept file. Inside a sandbox it is a path."""
    if not isinstance(given, Mapping):
        return str(given)
    return f"{given['size']} bytes, {given['path']}"


def _command(args: Data, output: Data, room: int) -> str:
    return command_text(output)


def _query(args: Data, output: Data, room: int) -> str:
    rows = [json.dumps(row, ensure_ascii=False) for row in output["rows"]]
    shown = _fitting(rows, room)
    if not rows:
        return "[no rows]"
    if len(shown) < len(rows) or output.get("truncated"):
        shown.append(f"[these are the first {len(shown)} rows: select fewer, or with LIMIT]")
    return "\n".join(shown)


_READS = {"line": "a line", "secret": "a secret", "keys": "keys"}


def _terminal(args: Data, output: Data, room: int) -> str:
    """Return the state of a command at a terminal."""
    code, waits = output.get("exit_code"), output.get("waiting_for")
    head = [output["status"].replace("_", " ")]
    head += [] if code is None else [f"exit code {code}"]
    head += [] if waits is None else [f"it reads {_READS[waits]}"]
    head.append(f"in {output['cwd']}")
    lines = [output["output"].rstrip("\n")]
    if output.get("shell_restarted"):
        lines.insert(0, "[the shell was started again: its variables and jobs are gone]")
    for key in ("prompt", "screen", "background"):
        if output.get(key):
            lines += [f"[{key}]", output[key].rstrip("\n")]
    if output.get("processes"):
        lines += ["[processes]", *output["processes"]]
    return "\n".join(filter(None, [*lines, f"[{', '.join(head)}]"]))


# Documents and web pages

_TOLD = ("content-type", "location", "link", "etag", "last-modified", "retry-after")
"""Headers that a model is shown. A flow receives all."""


def headers_and_body(headers: Mapping[str, str], body: Plain) -> str:
    """Return the relevant headers, an empty line, and the body.

    Args:
        headers: The headers, with names in lower case.
        body: Text, data, or the file in which any other body is kept.
    """
    lines = [f"{name}: {headers[name]}" for name in _TOLD if name in headers]
    if isinstance(body, Mapping) and {*body} == {"path", "name", "size", "sha256"}:
        return "\n".join([*lines, f"kept as file: {json.dumps(body, ensure_ascii=False)}"])
    return "\n".join([*lines, *(["", _plain(body)] if body not in (None, "") else [])])


def search_text(output: Data) -> str:
    """Return the pages found: title, date, address and excerpt of each."""
    pages = []
    for number, item in enumerate(output["results"], 1):
        date = f" ({item['date']})" if item.get("date") else ""
        pages.append(f"{number}. {item['title']}{date}\n{item['url']}\n{item['snippet']}")
    return "\n\n".join(pages) or "[no pages were found]"


def _read_document(args: Data, output: Data, room: int) -> str:
    head = [f"{name}: {output[name]}" for name in ("title", "format", "status") if output.get(name)]
    if output.get("pages", 1) > 1:
        head.append(f"page: {output['page']} of {output['pages']}")
    head += [f"note: {item}" for item in output.get("notes", ())]
    if args.get("find") and not output.get("found"):
        head.append(f"not found: {args['find']}")
    return "\n".join([*head, "", output["markdown"]])


_READINGS: Mapping[str, Reading] = {
    "glob": _glob,
    "read_file": _read_file,
    "search_files": _search_files,
    "write_file": _write_file,
    "edit_file": _edit_file,
    "read_document": _read_document,
    "query_database": _query,
    **dict.fromkeys(("run_command", "run_python", "run_javascript"), _command),
    **dict.fromkeys(("shell_run", "shell_wait", "shell_type", "shell_interrupt"), _terminal),
}
