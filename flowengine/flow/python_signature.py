"""What a Python function takes and gives, read from its source without importing it.

Type hints become JSON Schemas: `str`, `int`, `float`, `bool`, `None`, `list[...]`,
`dict[str, ...]`, `tuple[...]`, unions, `Literal`, `Annotated`, `TypedDict` and aliases of these, in
the module, in those beside the flow file and in those of the same package. Every other hint means
"anything": the function checks it itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from flowengine.flow.hinted_classes import hinted_classes
from flowengine.kernel.graph import Plain
from flowengine.python_modules import find_module, is_beside

Schema = dict[str, Plain]
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

_HOPS = 16
"""Imports followed, and hints inside hints; more of either is a circle."""
_NAMES: dict[str, Schema] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
}
_LISTS = frozenset(
    {
        "list",
        "List",
        "Sequence",
        "MutableSequence",
        "Iterable",
        "Collection",
    }
)
_DICTS = frozenset({"dict", "Dict", "Mapping", "MutableMapping"})
_TRANSPARENT = frozenset(
    {
        "Annotated",
        "Required",
        "NotRequired",
        "ReadOnly",
        "Final",
        "Awaitable",
        "Coroutine",
    }
)


class SignatureError(Exception):
    """The function or its signature cannot be read.

    Args:
        message: What is wrong.
        hint: What to do.
        path: The module's file, if it was found.
        line: Line in it.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        path: str | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = path
        self.line = line


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
            f"'{function}' names no function", hint="write it as package.module:function"
        )
    reader = _Reader(folder)
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


def _suggestion(name: str, module: _Module) -> str | None:
    from difflib import get_close_matches

    functions = [key for key, node in module.names.items() if isinstance(node, _FunctionNode)]
    close = get_close_matches(name, functions)
    return f"did you mean '{close[0]}'?" if close else None


# Modules


class _Module:
    """A module's source, and what its names are bound to at top level."""

    def __init__(self, name: str, path: str | None, is_package: bool, tree: ast.Module | None):
        self.name = name
        self.path = path
        self.package = name if is_package else name.rpartition(".")[0]
        self.tree = tree
        self.names: dict[str, ast.AST] = {}
        self.open = False
        """Names can come from elsewhere too: `from x import *`, `__getattr__`."""
        for statement in _statements(tree.body if tree else []):
            self._bind(statement)

    def _bind(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if not _is_overload(node):
                    self.names[node.name] = node
                self.open |= node.name == "__getattr__"
            case ast.Assign():
                for name in ast.walk(ast.Tuple(node.targets)):
                    if isinstance(name, ast.Name):
                        self.names[name.id] = node.value
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                self.names[name] = value
            case _ if type(node).__name__ == "TypeAlias":  # `type X = ...`, from Python 3.12 on
                self.names[node.name.id] = node.value  # type: ignore[attr-defined]
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    self.open |= alias.name == "*"
                    self.names[alias.asname or alias.name] = node


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, those under `if`, `try` and `with` too."""
    for statement in body:
        match statement:
            case ast.If() | ast.Try() | ast.With():
                for field in ("body", "handlers", "orelse", "finalbody"):
                    inner = getattr(statement, field, [])
                    for part in inner:
                        nested = part.body if isinstance(part, ast.ExceptHandler) else [part]
                        yield from _statements(nested)
            case _:
                yield statement


class _Found(NamedTuple):
    """What a name is bound to, and where."""

    node: ast.AST
    module: _Module


class _Reader:
    """Reads modules, each once, and follows imports between them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._modules: dict[str, _Module | None] = {}
        self.paths: list[str] = []

    def module(self, name: str) -> _Module | None:
        """Return a module; without a `tree` if it has no Python source; None if there is none."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def find(
        self, module: _Module, name: str, *, near: bool = False, hops: int = _HOPS
    ) -> _Found | None:
        """Return what a top-level name of a module is bound to, through `from ... import`.

        With `near` only imports from the same package or from beside the flow file are followed.
        """
        node = module.names.get(name)
        if not isinstance(node, ast.ImportFrom):
            return None if node is None else _Found(node, module)
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        source_name = _absolute(node, module)
        if hops == 0 or (near and not self._is_near(source_name, module)):
            return _Found(node, module)
        source = self.module(source_name)
        if source is None:
            return _Found(node, module)
        return self.find(source, original, near=near, hops=hops - 1) or _Found(node, module)

    def _is_near(self, name: str, module: _Module) -> bool:
        top = name.partition(".")[0]
        return top == module.name.partition(".")[0] or is_beside(top, self._folder)

    def _read(self, name: str) -> _Module | None:
        spec = find_module(name, self._folder)
        if spec is None:
            return None
        is_package = spec.submodule_search_locations is not None
        path = spec.origin
        if path is None or not path.endswith(".py"):
            return _Module(name, None, is_package, None)
        self.paths.append(path)
        try:
            with open(path, "rb") as file:
                tree = ast.parse(file.read(), path)
        except (SyntaxError, ValueError, OSError) as error:
            line = error.lineno if isinstance(error, SyntaxError) else None
            what = error.msg if isinstance(error, SyntaxError) else str(error)
            raise SignatureError(
                f"module '{name}' cannot be read ({path}{f':{line}' if line else ''}): {what}",
                path=path,
                line=line,
            ) from None
        return _Module(name, path, is_package, tree)


def _absolute(node: ast.ImportFrom, module: _Module) -> str:
    """Return the full name of the module that a `from ... import` names."""
    if node.level == 0:
        return node.module or ""
    package = module.package.split(".")
    base = ".".join(package[: len(package) - node.level + 1])
    return ".".join(part for part in (base, node.module) if part)


def _is_overload(node: ast.stmt) -> bool:
    return any(_last_name(item) == "overload" for item in getattr(node, "decorator_list", []))


def _last_name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=function):
            return _last_name(function)
    return ""


# Functions


def _signature(node: _FunctionNode, module: _Module, reader: _Reader) -> Signature:
    hints = _Hints(reader)
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
            classes[name] = hinted_classes(
                parameter.annotation, module.names, lambda node: _absolute(node, module)
            )
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
        quick=any(_last_name(decorator) == "quick" for decorator in node.decorator_list),
        takes_resources=any(parameter.arg == "runtime_resources" for parameter in parameters),
        paths=reader.paths,
        classes={name: found for name, found in classes.items() if found},
    )


def _is_context(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.rpartition(".")[2] == "StepContext"
    return annotation is not None and _last_name(annotation) == "StepContext"


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


# Type hints


class _Hints:
    """Turns type hints into JSON Schemas; `{}` where a hint says nothing that JSON can."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self._around: set[ast.ClassDef] = set()
        """TypedDicts being read: one inside itself is anything."""

    def schema(self, node: ast.AST | None, module: _Module, depth: int = _HOPS) -> Schema:
        """Return the JSON Schema of a hint."""
        if depth == 0:
            return {}
        match node:
            case ast.Constant(value=None):
                return dict(_NAMES["None"])
            case ast.Constant(value=str(text)):
                return self._quoted(text, module, depth - 1)
            case ast.Name(id=name):
                return self._named(name, module, depth - 1)
            case ast.Attribute(attr=name):
                return self._known(name)
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                return self._union([left, right], module, depth - 1)
            case ast.Subscript(value=generic, slice=ast.Tuple(elts=items)):
                return self._generic(self._original(generic, module), items, module, depth - 1)
            case ast.Subscript(value=generic, slice=item):
                return self._generic(self._original(generic, module), [item], module, depth - 1)
        return {}

    def _quoted(self, text: str, module: _Module, depth: int) -> Schema:
        try:
            return self.schema(ast.parse(text.strip(), mode="eval").body, module, depth)
        except SyntaxError:
            return {}

    def _original(self, generic: ast.AST, module: _Module) -> str:
        """Return the name of a generic as its module has it: of `from typing import List as L`."""
        node = module.names.get(generic.id) if isinstance(generic, ast.Name) else None
        if isinstance(node, ast.ImportFrom) and isinstance(generic, ast.Name):
            for alias in node.names:
                if alias.asname == generic.id:
                    return alias.name
        return _last_name(generic)

    def _known(self, name: str) -> Schema:
        if name in _LISTS or name in {"tuple", "Tuple"}:
            return {"type": "array"}
        if name in _DICTS:
            return {"type": "object"}
        return dict(_NAMES.get(name, {}))

    def _named(self, name: str, module: _Module, depth: int) -> Schema:
        """A name: bound in a module (an alias, a TypedDict), or built in."""
        found = self._reader.find(module, name, near=True)
        if found is None:
            return self._known(name)
        match found.node:
            case ast.ClassDef():
                if found.node in self._around:
                    return {}
                self._around.add(found.node)
                schema = self._typed_dict(found.node, found.module, depth)
                self._around.remove(found.node)
                return schema
            case ast.ImportFrom():
                return self._known(self._original(ast.Name(name), module))
            case ast.expr():
                return self.schema(found.node, found.module, depth)
        return {}

    def _generic(self, name: str, items: list[ast.expr], module: _Module, depth: int) -> Schema:
        if name in _LISTS:
            return self._list(self.schema(items[0], module, depth))
        if name in _DICTS:
            inner = self.schema(items[-1], module, depth)
            return {"type": "object", **({"additionalProperties": inner} if inner else {})}
        if name in _TRANSPARENT:
            return self._annotated(items, module, depth)
        match name:
            case "tuple" | "Tuple":
                return self._tuple(items, module, depth)
            case "Optional":
                return self._union([items[0], ast.Constant(None)], module, depth)
            case "Union":
                return self._union(items, module, depth)
            case "Literal":
                return _literal(items)
        return {}

    def _list(self, inner: Schema) -> Schema:
        return {"type": "array", "items": inner} if inner else {"type": "array"}

    def _tuple(self, items: list[ast.expr], module: _Module, depth: int) -> Schema:
        match items:
            case [item, ast.Constant(value=end)] if end is ...:
                return self._list(self.schema(item, module, depth))
        return {
            "type": "array",
            "prefixItems": [self.schema(item, module, depth) for item in items],
            "minItems": len(items),
            "maxItems": len(items),
        }

    def _annotated(self, items: list[ast.expr], module: _Module, depth: int) -> Schema:
        """The hint inside; a text beside it, as in `Annotated[int, "in cents"]`, describes it."""
        schema = self.schema(items[0], module, depth)
        for extra in items[1:]:
            if isinstance(extra, ast.Constant) and isinstance(extra.value, str):
                schema = {**schema, "description": extra.value}
        return schema

    def _union(self, items: list[ast.expr], module: _Module, depth: int) -> Schema:
        schemas = [self.schema(item, module, depth) for item in items]
        if not all(schemas):
            return {}
        if all(schema.keys() == {"type"} for schema in schemas):
            types: list[Plain] = []
            for schema in schemas:
                types += schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            return {"type": list(dict.fromkeys(types))}
        choices: list[Plain] = []
        for schema in schemas:
            choices += schema["anyOf"] if schema.keys() == {"anyOf"} else [schema]
        return {"anyOf": choices}

    def _typed_dict(self, node: ast.ClassDef, module: _Module, depth: int) -> Schema:
        """A TypedDict with those it inherits from; of any other class nothing is known."""
        schema: Schema = {"type": "object", "properties": {}, "required": []}
        is_typed_dict = False
        for base in node.bases:
            if self._original(base, module) == "TypedDict":
                is_typed_dict = True
            elif isinstance(base, ast.Name):
                inherited = self._named(base.id, module, depth - 1)
                is_typed_dict |= inherited.get("type") == "object"
                schema["properties"].update(inherited.get("properties", {}))
                schema["required"] += inherited.get("required", [])
        if not is_typed_dict:
            return {}
        total = not any(
            item.arg == "total" and isinstance(item.value, ast.Constant) and not item.value.value
            for item in node.keywords
        )
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                name = field.target.id
                schema["properties"][name] = self.schema(field.annotation, module, depth - 1)
                if _is_required(field.annotation, total) and name not in schema["required"]:
                    schema["required"].append(name)
        if not schema["required"]:
            del schema["required"]
        return schema


def _is_required(annotation: ast.expr, total: bool) -> bool:
    name = _last_name(annotation.value) if isinstance(annotation, ast.Subscript) else ""
    return name == "Required" or (total and name != "NotRequired")


def _literal(items: list[ast.expr]) -> Schema:
    values = [item.value for item in items if isinstance(item, ast.Constant)]
    if len(values) != len(items):
        return {}
    if all(isinstance(value, str) for value in values):
        return {"type": "string", "enum": values}
    return {"enum": values}
