"""Arguments of command lines: options that several commands share, and how values are read."""

from __future__ import annotations

import os
import re
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from flowengine import flow as language
from flowengine.cli.parsing.declared import Added, arg, flag, many, together
from flowengine.cli.parsing.python_objects import object_of
from flowengine.engines.typed_text import by_type
from flowengine.errors import FlowFileError, InputError, NotFound, UsageError
from flowengine.flow import building
from flowengine.flow.source.diagnostics import render
from flowengine.kernel.notation.times import parse_duration, parse_time
from flowengine.sdk.texts.json_values import read_json
from flowengine.sdk.texts.received import received_text
from flowengine.sdk.texts.sizes import size_text

LARGEST = 64 * 2**20
"""Maximum number of bytes of a file that the command line names."""
_PYTHON = re.compile(r".+\.py(:\w*)?", re.DOTALL)
"""A Python file, or an object of one."""
_DEPLOYED = re.compile(r"[a-z0-9_-]+(@.*)?")
"""The form of a deployed flow's name. A file with such a name takes precedence."""
_LISTED = 50
"""Entries of a list, unless `--limit` sets another number."""


def model_labels(model: str | None) -> dict[str, str]:
    """Return the labels of an execution whose agents use the model of `--model`.

    Args:
        model: The value of the option, or None.
    """
    return {} if model is None else {"model": model}


@contextmanager
def model_named(model: str | None) -> Iterator[None]:
    """Let files pass the check for a model, because `--model` names one.

    Args:
        model: As for `model_labels`.

    Raises:
        InputError: It is not the name of a model.
    """
    if model is None:
        yield
        return
    from flowengine.agents.first_messages import answered_by
    from flowengine.flow.models.agent import is_model_name

    if not is_model_name(model):
        raise InputError(
            f"expected a model such as openai/gpt-4o, not {model!r}",
            field="model",
            hint="write it as provider/model",
        )

    with answered_by(model):
        yield


def assignment(text: str) -> tuple[str, str]:
    """Read `NAME=VALUE`.

    Returns:
        Name and value.

    Raises:
        ArgumentTypeError: It contains no `=`.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def given_input(text: str) -> str:
    """Read one `-i`: `NAME=VALUE`, `@FILE` or `-`.

    Returns:
        The same text.

    Raises:
        ArgumentTypeError: It is none of these.
    """
    if text != "-" and not text.startswith("@") and not all(text.partition("=")[:2]):
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE, @FILE or -")
    return text


def duration(text: str) -> float:
    """Read a duration such as `1h30m`.

    Returns:
        Seconds.

    Raises:
        ArgumentTypeError: It is not valid.
    """
    if text == "0":
        return 0.0  # 0 needs no unit
    if text.isascii() and text.isdigit():
        raise ArgumentTypeError(f"{text!r} is not a duration: give the unit, for example {text}s")
    try:
        return parse_duration(text) / 1000
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def moment(text: str) -> int:
    """Read a point in time: `2026-11-20T09:00:00Z`, or how long ago: `1d`.

    Returns:
        Milliseconds since 1970.

    Raises:
        ArgumentTypeError: It is in another format.
    """
    try:
        return int(time.time() * 1000) - parse_duration(text)
    except ValueError:
        pass
    try:
        return parse_time(text)
    except ValueError:
        example = "write how long ago, such as 1d or 2h30m, or a time such as 2026-11-20T09:00:00Z"
        raise ArgumentTypeError(f"{text!r} is not a valid time: {example}") from None


def user(text: str) -> str:
    """Read a user: `ben` and `user:ben` are the same. A group is left to be refused."""
    return text if text.startswith(("user:", "group:")) else f"user:{text}"


def more(limit: int) -> str:
    """Return the line below a list that was cut off at `--limit`."""
    most = max(2 * limit, _LISTED)
    return f"there are more: --limit {most} lists up to {most}"


def count(text: str) -> int:
    """Read a whole number of 1 or more.

    Returns:
        The number.

    Raises:
        ArgumentTypeError: It is not valid.
    """
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def is_deployed(name: str) -> bool:
    """Return whether a name means a deployed flow, and no file."""
    return _DEPLOYED.fullmatch(name) is not None and not os.path.exists(name)


def names_python(word: str) -> bool:
    """Return whether a word means a Python file, or an object of one: `FILE.py:NAME`."""
    return _PYTHON.fullmatch(word) is not None and not os.path.isdir(word)


def flow_named(word: str) -> building.Flow | str:
    """Return the flow of a Python file that a word names. Other words are returned."""
    if not names_python(word):
        return word
    return object_of(word, building.Flow, "flow")


def assigned(
    schemas: Mapping[str, Any], given: Iterable[tuple[str, str]], noun: str
) -> dict[str, Any]:
    """Read several `NAME=VALUE`, each by the type declared for its name.

    Args:
        schemas: Name → JSON Schema.
        given: Names and texts.
        noun: Their description in messages: `input`.

    Returns:
        Name → value.

    Raises:
        UsageError: A name is given twice.
    """
    values: dict[str, Any] = {}
    for name, text in given:
        if name in values:
            raise UsageError(f"{noun} '{name}' is given twice")

        values[name] = by_type(schemas.get(name, {}), text, f"{noun} '{name}'", name)
    return values


def inputs(schemas: Mapping[str, Any], given: Iterable[str]) -> dict[str, Any]:
    """Read all `-i` of a command line. Single ones take precedence over those of a file.

    Args:
        schemas: Input name → JSON Schema.
        given: The texts behind `-i`.

    Returns:
        Name → value.
    """
    values: dict[str, Any] = {}
    singles = []
    for text in given:
        if text == "-":
            what = "the inputs on standard input"
            values |= _as_map(_json(_bounded(sys.stdin.buffer, "standard input"), what), what)
        elif text.startswith("@"):
            path = text[1:]
            is_yaml = path.endswith((".yaml", ".yml"))
            what = f"the inputs in {path}"
            values |= _as_map(yaml_file(path) if is_yaml else _json(read_file(path), what), what)
        else:
            singles.append(assignment(text))
    return values | assigned(schemas, singles, "input")


def json_argument(text: str, what: str) -> Any:
    """Read JSON from the command line, or from a file given as `@FILE`.

    Args:
        what: Its description in messages.

    Returns:
        Plain data.
    """
    if text.startswith("@"):
        return _json(read_file(text[1:]), f"{what} in {text[1:]}")
    return _json(text, what)


def _json(text: str, what: str) -> Any:
    return read_json(text, what, "")


def read_file(path: str) -> str:
    """Read a text file that the command line names.

    Args:
        path: Where it is, or `-` for standard input.

    Returns:
        Its text.

    Raises:
        NotFound: The file does not exist, or cannot be read.
        InputError: It is not UTF-8.
    """
    if path == "-":
        return _bounded(sys.stdin.buffer, "standard input")
    try:
        with open(path, "rb") as file:
            return _bounded(file, path)
    except OSError as error:
        raise NotFound(f"cannot read {path}: {error.strerror}") from None


def _bounded(file: BinaryIO, name: str) -> str:
    """Return the text of a file, which may be a pipe or a device without an end."""
    data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise InputError(
            f"{name} has more than {size_text(LARGEST)}",
            hint="pass large data as a file: give its path as an input",
        )
    try:
        return received_text(data)
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8: {error}") from None


def yaml_file(path: str) -> Any:
    """Return the data of a YAML file, read like flow files: no duplicate keys.

    Raises:
        FlowFileError: It is not valid.
    """
    source = language.yaml_source.read_text(read_file(path), path)
    if source.problems:
        raise FlowFileError(render(source.problems, source.files), source.problems)
    return source.data


def _as_map(values: Any, what: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise InputError(f"{what} must be a map", hint='for example {"name": "Ada"}')
    return values


# Arguments that several commands share.

WORKDIR = arg(
    "--workdir DIR",
    "working directory of its file tools, also when it is resumed (default: the current directory)",
)
OFFERS = many("--offers LABEL", "what this process offers to steps that need it, such as gpu")
"""For commands that run steps."""
LINGER = together(
    arg(
        "--linger DURATION",
        "how long to stay for timers, such as pauses and retries. When the next one is due "
        "later, the execution is saved and the process ends (default: 1m)",
        type=duration,
    ),
    OFFERS,
)
"""For commands that resume executions."""
DRIVING = together(flag("--no-interactive", "never prompt, even at a terminal"), LINGER)
"""For commands that drive an execution and may ask questions."""
MODEL = arg(
    "--model PROVIDER/MODEL",
    "the model of all agents, which overrides the file and is kept as the label 'model'",
)
"""For commands that start executions. See `model_labels`, `model_named`."""
LIMIT = arg("-n --limit N", f"at most N (default: {_LISTED})", type=count, default=_LISTED)
EXECUTION = arg("execution ID", "its id, or any unambiguous prefix")
NO_RESUME = flag("--no-resume", "record it without resuming the execution")


def on_behalf(help: str = "act on behalf of another user") -> Added:
    """Return `--as`."""
    return arg("--as USER", help, dest="by", type=user)
