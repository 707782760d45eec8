"""Flows and agents of a Python file, which the command line names as `FILE.py:NAME`."""

from __future__ import annotations

import os
from typing import TypeVar

from flowengine.errors import FlowEngineError, UsageError
from flowengine.sdk.python.argument_checks import in_words
from flowengine.sdk.python.imported_modules import FunctionNotFound, import_module_of
from flowengine.sdk.texts.exception_text import describe
from flowengine.sdk.texts.near_words import did_you_mean

_Wanted = TypeVar("_Wanted")


def object_of(word: str, kind: type[_Wanted], noun: str) -> _Wanted:
    """Import a Python file, and return an object of it.

    Args:
        word: `FILE.py:NAME`, or `FILE.py` if it has one object of the kind.
        kind: The class that the object has.
        noun: Its name in messages: `flow`.

    Raises:
        UsageError: The file does not exist or cannot be imported, or has no such object.
    """
    before, has_name, name = word.rpartition(".py:")
    file, name = (f"{before}.py", name) if has_name else (word, "")
    folder, last = os.path.split(os.path.abspath(file))
    module_name = last.removesuffix(".py")
    if not os.path.isfile(file):
        raise UsageError(f"there is no file {file}", hint="name an existing file: FILE.py:NAME")
    if not module_name.isidentifier():
        raise UsageError(f"{last} is not the name of a module", hint="rename it, such as app.py")
    try:
        module = import_module_of(f"{module_name}:{name or noun}", folder)
    except FlowEngineError:
        raise
    except FunctionNotFound as error:
        raise UsageError(f"{file} cannot be imported: {error}") from None
    except Exception as error:
        raise UsageError(f"{file} cannot be imported: {describe(error)}") from error
    fitting = {key: value for key, value in vars(module).items() if isinstance(value, kind)}
    different = {id(value): key for key, value in reversed(fitting.items())}
    if not name and len(different) == 1:
        return next(iter(fitting.values()))
    if name in fitting:
        return fitting[name]
    several = ", ".join(f"{file}:{key}" for key in reversed(different.values()))
    if not name:
        message = f"{file} has several {noun}s" if fitting else f"{file} has no {noun}"
    elif hasattr(module, name):
        message = f"{file}:{name} is {in_words(getattr(module, name))}, not a {noun}"
    else:
        message = f"{file} has no {name!r}"
    close = did_you_mean(name, fitting) if name else None
    hint = f"name one of them: {several}" if several else f"define one at the top of {last}"
    raise UsageError(message, hint=close or hint)
