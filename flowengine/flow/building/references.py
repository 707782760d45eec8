"""Names of Python functions in flows: `module:function`, by which another process can find them."""

from __future__ import annotations

import os
import sys
from typing import Any

from flowengine.errors import UsageError
from flowengine.python_modules import MAIN, name_of_program, public_name

DURABLE = "an execution may continue in another process, which has to find the function by its name"


def reference(function: Any) -> str:
    """Return the name of a function.

    Args:
        function: A function at the top level of a module.

    Returns:
        `package.module:function`.

    Raises:
        UsageError: Another process could not find it.
    """
    function = getattr(function, "function", None) or function
    name = getattr(function, "__qualname__", None)
    module = getattr(function, "__module__", None)
    where = _where(function)
    if name is None or module is None:
        raise UsageError(
            f"{function!r} has no name", hint=f"define a function that calls it, because {DURABLE}"
        )
    if "<lambda>" in name:
        raise UsageError(
            f"a lambda{where} cannot be a step",
            hint=f"write it as a function at the top level of a module, because {DURABLE}",
        )
    if "<locals>" in name:
        outer, _, inner = name.replace(".<locals>", "").rpartition(".")
        raise UsageError(
            f"'{inner}'{where} is defined inside '{outer}'",
            hint=f"move it to the top level of its module, because {DURABLE}",
        )
    if "." in name:
        raise UsageError(
            f"'{name}'{where} is a method",
            hint=f"define a function that calls it, because {DURABLE}",
        )
    return f"{module_name(module)}:{name}"


def module_name(module: str) -> str:
    """Return the name under which a module is imported.

    Args:
        module: As in `__name__`. `__main__` is the running program.

    Returns:
        The name. For a program in a file, it is that of the file. `__main__` remains if no other
        process can import the program. Where one has to, `check_importable` refuses it.
    """
    return public_name(module) if module != MAIN else name_of_program() or MAIN


def folder_of(module: str, file: str) -> str:
    """Return the directory from which a module is imported by its full name.

    Args:
        module: As in `__name__`.
        file: The module's file.

    Returns:
        For `shop.flows` the directory that contains `shop`. For code without a file, the current
        directory.
    """
    if not os.path.exists(file):
        return os.getcwd()
    spec = sys.modules["__main__"].__spec__ if module == "__main__" else None
    name = (
        "" if module == "__main__" and spec is None else public_name(spec.name if spec else module)
    )
    folder = os.path.dirname(os.path.abspath(file))
    levels = name.count(".") + (os.path.basename(file) == "__init__.py")
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder


def _where(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
