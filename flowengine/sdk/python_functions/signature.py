"""What a Python function takes and gives, read from its source without importing it.

A hint that no JSON Schema can say means "anything": the function checks it itself.
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from flowengine.sdk.python_functions.hinted_classes import hinted_classes
from flowengine.sdk.python_functions.modules import Module, Reader, last_name
from flowengine.sdk.python_functions.type_hints import Schema, TypeHints
from flowengine.sdk.step_kind import SignatureError

_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Signature(NamedTuple):
    """A function as a flow sees it."""

    description: str
    """First paragraph of the docstring, or empty."""
    args: Schema | None
    """JSON Schema of an object: a property per parameter, closed unless it takes `**kwargs`. None:
    the parameters are not in any source (a C function, a partial): `args` has to be declared."""
    returns: Schema | None
    """JSON Schema of the result; None: not said."""
    is_async: bool
    quick: bool
    """Marked with `@flowengine.quick`."""
    takes_resources: bool
    """It has a parameter `runtime_resources`."""
    paths: list[str]
    """Files that were read, absolute; the first is the module's."""
    classes: dict[str, list[str]] = {}  # noqa: RUF012 - of a tuple; nothing is added to it
    """Parameters whose hint names imported classes → their full names."""


def derive(function: str, folder: str) -> Signature:
    """Read the signature of a function from its module's source.

    Args:
        function: `package.module:function`.
        folder: Folder of the flow file: modules there come first.

    Returns:
        What it takes and gives.

    Raises:
        SignatureError: There is no such module or function, it has a syntax error, or a parameter
            cannot be given by name.
    """
    module_name, colon, name = function.partition(":")
    parts = [*module_name.split("."), name]
    if not colon or not all(part.isidentifier() for part in parts):
        raise SignatureError(
            f"'{function}' does not name a function", hint="write it as package.module:function"
        )
    reader = Reader(folder)
    module = reader.module(module_name)
    if module is None:
        raise SignatureError(
            f"there is no module '{module_name}'",
            hint="modules are looked for in the flow file's folder, then where Python finds them",
        )
    if module.tree is None:
        return Signature("", None, None, False, False, False, reader.paths)
    found = reader.find(module, name)
    if found is None and not module.open:
        raise SignatureError(
            f"module '{module_name}' has no function '{name}'",
            hint=_suggestion(name, module),
            path=module.path,
        )
    if found is None or not isinstance(found.node, _FunctionNode):
        return Signature("", None, None, False, False, False, reader.paths)
    return _signature(found.node, found.module, reader)


def _suggestion(name: str, module: Module) -> str | None:
    from difflib import get_close_matches

    functions = [key for key, node in module.names.items() if isinstance(node, _FunctionNode)]
    close = get_close_matches(name, functions)
    return f"did you mean '{close[0]}'?" if close else None


def _signature(node: _FunctionNode, module: Module, reader: Reader) -> Signature:
    hints = TypeHints(reader)
    description, told = _docstring(ast.get_docstring(node) or "")
    arguments = node.args
    if arguments.posonlyargs:
        raise SignatureError(
            f"parameter '{arguments.posonlyargs[0].arg}' of {module.name}:{node.name} can only be "
            "given by position; a flow gives arguments by name",
            hint="remove the '/' from its parameters",
            path=module.path,
            line=node.lineno,
        )
    properties: Schema = {}
    required = []
    classes = {}
    first_default = len(arguments.args) - len(arguments.defaults)
    defaults = [*[None] * first_default, *arguments.defaults, *arguments.kw_defaults]
    parameters = [*arguments.args, *arguments.kwonlyargs]
    for parameter, default in zip(parameters, defaults, strict=True):
        name = parameter.arg
        if name == "runtime_resources" or _is_context(parameter.annotation):
            continue
        schema = hints.schema(parameter.annotation, module)
        properties[name] = _with_default(schema, default, told.get(name))
        if default is None:
            required.append(name)
        if schema.keys() <= {"description"}:
            classes[name] = hinted_classes(parameter.annotation, module)
    args: Schema = {"type": "object", "properties": properties}
    if required:
        args["required"] = required
    if arguments.kwarg is None:
        args["additionalProperties"] = False
    return Signature(
        description=description,
        args=args,
        returns=None if node.returns is None else hints.schema(node.returns, module),
        is_async=isinstance(node, ast.AsyncFunctionDef),
        quick=any(last_name(decorator) == "quick" for decorator in node.decorator_list),
        takes_resources=any(parameter.arg == "runtime_resources" for parameter in parameters),
        paths=reader.paths,
        classes={name: found for name, found in classes.items() if found},
    )


def _is_context(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.rpartition(".")[2] == "StepContext"
    return annotation is not None and last_name(annotation) == "StepContext"


def _with_default(schema: Schema, default: ast.expr | None, description: str | None) -> Schema:
    schema = dict(schema)
    if description and "description" not in schema:
        schema["description"] = description
    if default is None:
        return schema
    try:
        value = ast.literal_eval(default)
    except ValueError:  # computed when the module is imported
        return schema
    if value is None and isinstance(schema.get("type"), str) and schema["type"] != "null":
        schema["type"] = [schema["type"], "null"]  # `x: str = None` means it
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    if value is None or isinstance(value, bool | int | float | str | list | dict):
        schema["default"] = value
    return schema


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the first paragraph, and what is said about each parameter (Google or Sphinx)."""
    import re

    description = " ".join(text.strip().partition("\n\n")[0].split())
    told = {
        name: " ".join(said.split())
        for name, said in re.findall(
            r"^:param (?:[^:\n]* )?(\w+):((?:.|\n(?!\s*:|\n))*)", text, re.M
        )
    }
    section = re.search(r"^Args:[ \t]*\n((?:(?:[ \t]+.*)?\n?)*?)(?=^\S|\Z)", text, re.M)
    if section:
        name = indent = ""
        for line in section[1].splitlines():
            start = re.match(r"([ \t]+)(\w+)(?: ?\([^)]*\))?:[ \t]*(.*)", line)
            if start and (not indent or start[1] == indent):
                indent, name = start[1], start[2]
                told[name] = start[3].strip()
            elif name and line.strip():
                told[name] = f"{told[name]} {line.strip()}".strip()
    return description, told
