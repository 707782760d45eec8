"""Compilation of the values of a flow file: constants, expressions, templates, secrets.

See docs/language.md: Expressions.

Every expression of the flow has a number. The names that it uses are recorded, so that the state
keeps only values that an expression uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from flowengine.flow.compile.types import (
    TEXT,
    Schema,
    VisibleNames,
    closed,
    common,
    differs,
    list_of,
    of_constant,
    words,
)
from flowengine.flow.expressions.checker import check
from flowengine.flow.expressions.names_in import names_in
from flowengine.flow.expressions.template import Piece, TemplateError, split_text
from flowengine.flow.expressions.types import (
    CheckedExpression,
    DeclaredNames,
    Note,
    Want,
)
from flowengine.flow.models import Loc
from flowengine.flow.source.diagnostics import DiagnosticReporter
from flowengine.kernel.graph.compiled import Plain, Value
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.values.schema_types import kinds, resolve
from flowengine.util.plain_data import leaves

_SECRET = re.compile(r"secrets\.([A-Za-z][A-Za-z0-9_]*)")
_PATH = re.compile(r"\s*((?:inputs|steps|state)(?:\.\w+)+)()\s*")
"""A text that consists of exactly one path into declarations of a flow."""
_BRACES = re.compile(r"(?<!\$)\{\{([^{}]+)\}\}|\$\{([^{}]+)\}(?!\})")
"""Expressions in the notation of other tools: `{{ x }}` and `${x}`."""
_FILTER = re.compile(r"\s*(?<!\|)\|(?!\|)\s*")
FIELDS = ["output", "status", "outcome", "error", "activations", "rounds", "attempts", "items",
          "agent", "started_at", "ended_at"]  # fmt: skip
"""The fields of a step that expressions can use."""


class TypedValue(NamedTuple):
    """A compiled value and the JSON Schema of its result."""

    value: Value
    schema: Schema
    doubt: Note | None = None
    """Why it may be null, if it is exactly the path of a value that may be null."""

    @property
    def constant(self) -> bool:
        """Whether it contains no expression."""
        return bool(self.value[0] == "const")


NULL = TypedValue(["const", None], {"type": "null"})


_VALUE = re.compile(r"(?:state\.agent|call|inputs\._\w+|execution\.labels)(?:\.\w+)*")
"""An expression of a generated flow that only names a value."""


class Expressions:
    """The expressions of a flow.

    Args:
        secrets: The declared secrets: name → name in the compiled flow.
        beside: The expressions of the flow that uses the declarations of another file.
        in_other_file: Whether the file is not the compiled one. Errors at run time then name the
            file.
        generated: Whether the flow is in no file, so that no error of it has a place there.
    """

    def __init__(
        self,
        report: DiagnosticReporter,
        secrets: Mapping[str, str],
        beside: Expressions | None = None,
        in_other_file: bool = False,
        generated: bool = False,
    ) -> None:
        self.report = report
        self.secrets = secrets
        self.in_other_file = in_other_file
        self.generated = generated
        self.records: list[Plain] = [] if beside is None else beside.records
        self.named: dict[str, dict[str, None]] = {}
        """Step id → its fields that an expression uses."""
        self.readers: dict[str, set[int]] = {}
        """Step id → the numbers of the expressions that use it."""
        self.joins: dict[int, None] = {}
        """Steps that use `join.output` or `join.outputs`."""
        self.used: dict[str, set[str]] = {"state": set(), "secrets": set(), "inputs": set()}
        """Keys of these roots that are used anywhere."""

    def value(
        self, data: Any, loc: Loc, view: VisibleNames, *, secrets: bool = False
    ) -> TypedValue:
        """Compile a value that may contain expressions anywhere.

        Args:
            data: As written in the file.
            loc: Its place.
            view: The names that its expressions see.
            secrets: Whether it may name secrets.

        Returns:
            The compiled value.
        """
        if isinstance(data, str):
            return self._text(data, loc, view, secrets)
        if isinstance(data, dict):
            values = {k: self.value(v, (*loc, k), view, secrets=secrets) for k, v in data.items()}
            return map_of(values)
        if isinstance(data, list):
            items = (self.value(v, (*loc, i), view, secrets=secrets) for i, v in enumerate(data))
            return list_of_values([*items])
        return constant(data)

    def of_type(self, data: Any, loc: Loc, view: VisibleNames, wanted: Schema) -> Value:
        """Compile a value that must be of a type."""
        typed = self.value(data, loc, view)
        if differs(typed.schema, wanted):
            message = f"expected {words(wanted)}, got {words(typed.schema)}"
            self.report.at("E103", message, loc)
        return typed.value

    def arguments(self, schema: Schema | None, loc: Loc) -> None:
        """Refuse a declared `args` that no arguments can fit."""
        known = None if schema is None else kinds(resolve(schema, schema)[0])
        if known is not None and "object" not in known:
            got = words({"type": sorted(known)})
            message = f"arguments have names, so 'args' describes a map, not {got}"
            hint = "write {type: object, properties: {NAME: SCHEMA}}"
            self.report.at("E103", message, (*loc, "args"), hint)

    def condition(self, text: str, loc: Loc, view: VisibleNames) -> int:
        """Compile a condition and return its number."""
        for part in self._split(text, loc):
            if isinstance(part, Piece):
                return self._expression(part, loc, view, "bool")[0]
        return -1

    @contextmanager
    def noting_state(self) -> Iterator[set[str]]:
        """Collect the state keys that values compiled in the block name, or `*` for any."""
        before, named = self.used["state"], set[str]()
        self.used["state"] = named
        try:
            yield named
        finally:
            self.used["state"] = before | named

    def add(self, source: str, view: VisibleNames, loc: Loc) -> int:
        """Compile an expression that is not in the file, and return its number."""
        return self._expression(Piece(source, 0), loc, view, "any")[0]

    def _split(self, text: str, loc: Loc) -> tuple[str | Piece, ...]:
        if "${{" not in text:
            return (text,) if text else ()
        try:
            return split_text(text)
        except TemplateError as error:
            self.report.inside(
                error.code, error.message, loc, error.offset, error.length, error.hint
            )
            return ()

    def _text(self, text: str, loc: Loc, view: VisibleNames, secrets: bool) -> TypedValue:
        self._warn_of_literal(text, loc, view)
        parts = self._split(text, loc)
        if not any(isinstance(part, Piece) for part in parts):
            return constant("".join(part for part in parts if isinstance(part, str)))
        compiled: list[Any] = []
        names_secret = False
        for part in parts:
            if isinstance(part, str):
                compiled.append(part)
                continue
            secret = _SECRET.fullmatch(part.source) if secrets else None
            if secret is not None:
                names_secret = True
                name = secret[1]
                self.used["secrets"].add(name)
                if name not in self.secrets:
                    hint = (
                        did_you_mean(name, self.secrets)
                        or f"declare it: 'secrets: {{{name}: {{env: {name}}}}}'"
                    )
                    message = f"there is no secret {name!r}"
                    self.report.inside("E401", message, loc, part.offset, len(part.source), hint)
                compiled.append([self.secrets.get(name, name)])
            elif len(parts) == 1:
                number, checked, names = self._expression(part, loc, view, "any")
                if self.generated and _VALUE.fullmatch(part.source.strip()):
                    self.records.pop()
                    return TypedValue(["path", part.source.strip().split(".")], checked.schema)
                doubt = names.uncertain.get(".".join(checked.path)) if checked.path else None
                return TypedValue(["expr", number], checked.schema, doubt)
            else:
                compiled.append(self._expression(part, loc, view, "text")[0])
        return TypedValue(["secret" if names_secret else "text", compiled], TEXT)

    def _warn_of_literal(self, text: str, loc: Loc, view: VisibleNames) -> None:
        """Warn of text that would be an expression in another tool, or here with `${{ }}`."""
        path = _PATH.fullmatch(text)
        braces = [path] if path else list(_BRACES.finditer(text))
        for match in braces:
            source, *filters = _FILTER.split((match[1] or match[2]).strip())
            root = source.partition(".")[0]
            checked = check(source, view.names(source)) if root in {*view.roots, "steps"} else None
            if checked is not None and checked.references and not checked.problems:
                message = f"this is text, not an expression: {match[0]!r} is not evaluated"
                offset, length = match.start(), len(match[0])
                hint = f"write '${{{{ {source} }}}}'"
                if filters:
                    hint += ". CEL has functions in place of filters, as in '${{ size(x) }}'"
                self.report.inside("W307", message, loc, offset, length, hint)

    def _expression(
        self, piece: Piece, loc: Loc, view: VisibleNames, want: Want
    ) -> tuple[int, CheckedExpression, DeclaredNames]:
        names = view.names(piece.source)
        checked = check(piece.source, names, want)
        for problem in checked.problems:
            code, message, hint = problem.code, problem.message, problem.hint
            offset = piece.offset + problem.offset
            self.report.inside(code, message, loc, offset, problem.length, hint)
        for reference in checked.references:
            self._note(reference, view)
        place = self.report.source.inside(loc, piece.offset)
        record = checked.placed(place.line, place.column)
        if self.in_other_file:
            record["at"].append(place.file)
        self.records.append(record)
        return len(self.records) - 1, checked, names

    def _note(self, reference: tuple[str, ...], view: VisibleNames) -> None:
        """Record the steps, joins and declarations that an expression names."""
        root, *rest = reference
        if root == "steps" and rest:
            self._note_step(rest[0], rest[1:2] or FIELDS)
        elif root == "steps":
            for step in view.all_steps():
                self._note_step(step, FIELDS)
        elif root == "join" and (not rest or rest[0] != "from") and view.step >= 0:
            self.joins[view.step] = None
        elif root in self.used:
            self.used[root].update(rest[:1] or ["*"])

    def _note_step(self, step: str, fields: Iterable[str]) -> None:
        """Record that the compiled expression names fields of a step."""
        self.named.setdefault(step, {}).update(dict.fromkeys(fields))
        self.readers.setdefault(step, set()).add(len(self.records))


def constant(data: Any) -> TypedValue:
    """Return a constant as a compiled value."""
    return TypedValue(["const", data], of_constant(data))


def parts_of(typed: TypedValue) -> dict[str, TypedValue] | None:
    """Return the parts of a map that is written out, or None for any other value."""
    kind, value = typed.value
    if kind == "const" and isinstance(value, dict):
        return {key: constant(part) for key, part in value.items()}
    if kind != "map":
        return None
    types = typed.schema["properties"]
    return {key: TypedValue(part, types[key]) for key, part in value.items()}


def list_of_values(parts: Sequence[TypedValue]) -> TypedValue:
    """Return the list of compiled values."""
    if all(part.constant for part in parts):
        return constant([part.value[1] for part in parts])
    schema = list_of(common([part.schema for part in parts]))
    return TypedValue(["list", [part.value for part in parts]], schema)


def map_of(parts: Mapping[str, TypedValue], schema: Schema | None = None) -> TypedValue:
    """Return values by name as one value.

    Args:
        parts: Name → value.
        schema: The type of the value, if it is not a constant. Default: that of these parts only.
    """
    if all(part.constant for part in parts.values()):
        return constant({key: part.value[1] for key, part in parts.items()})
    schema = schema or closed({key: part.schema for key, part in parts.items()})
    return TypedValue(["map", {key: part.value for key, part in parts.items()}], schema)


def together(parts: Mapping[str, TypedValue]) -> TypedValue:
    """Return values by name as one value of an open type."""
    return map_of(parts, {"type": "object"})


# Addresses with expressions: the origin of the host of a request.

NO_HOST = (
    "write the server into 'url', up to the first '/', or use 'std: http' in an environment of "
    "kind 'http' whose 'policy.network' lists the servers"
)
"""Remedy if a model would choose the server."""
_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
_HOST_ENDS = re.compile(r"[/?#]")
Name = tuple[str, str | None]
"""`args.url` is `("args", "url")`. Without a second part, it stands for all of `args`."""


def host_argument(address: str, args: Schema | None, bound: Container[str]) -> str | None:
    """Return the expression by which a caller's arguments determine the server of an address.

    Arguments that the flow fixes do not count, and arguments whose schema lists all values do not
    count either.

    Args:
        address: The address, with expressions.
        args: Schema of the arguments.
        bound: Names of the arguments that the flow fixes.

    Returns:
        None if the flow alone determines it, because the host ends before the first argument.
    """
    known = (args or {}).get("properties", {})

    def fixed(name: Name) -> bool:
        root, key = name
        return root != "args" or key in bound or is_listed(known.get(key))

    return deciding(address, fixed)


def is_listed(schema: Schema | None) -> bool:
    """Return whether a schema allows only listed values."""
    return schema is not None and ("enum" in schema or "const" in schema)


def deciding(address: str, is_fixed: Callable[[Name], bool]) -> str | None:
    """Return the first expression in the host of an address with a name that is not fixed."""
    for source in _host_expressions(address):
        if not all(map(is_fixed, names_in(source))):
            return source
    return None


def is_constant(value: object, is_fixed: Callable[[Name], bool]) -> bool:
    """Return whether all names in a value with expressions are fixed."""
    texts = (leaf for leaf in leaves(value) if isinstance(leaf, str))
    pieces = (part for text in texts for part in _parts(text) if isinstance(part, Piece))
    return all(is_fixed(name) for piece in pieces for name in names_in(piece.source))


def _host_expressions(address: str) -> Iterator[str]:
    """Yield the expressions of an address that are inside its host."""
    begun = False
    for part in _parts(address):
        if isinstance(part, Piece):
            yield part.source
            begun = True
            continue
        scheme = None if begun else _SCHEME.match(part)
        begun = begun or scheme is not None
        if begun and _HOST_ENDS.search(part, 0 if scheme is None else scheme.end()):
            return


def _parts(text: str) -> tuple[str | Piece, ...]:
    with suppress(TemplateError):  # reported elsewhere
        return split_text(text)
    return ()
