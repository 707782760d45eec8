"""Checking one expression: names, types, and the record that evaluates it."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

from flowengine.flow.expressions import names as naming
from flowengine.flow.expressions import overloads, types
from flowengine.flow.expressions.functions import FUNCTIONS, KINDS
from flowengine.flow.expressions.names import Segment
from flowengine.flow.expressions.overloads import (
    NAMESPACES,
    STANDARD,
    STANDARD_METHODS,
    TIME_PARTS,
)
from flowengine.flow.expressions.paths import NoValue
from flowengine.flow.expressions.scope import Tree
from flowengine.flow.expressions.syntax import (
    Binary,
    CallNode,
    Entries,
    Index,
    Items,
    Literal,
    Name,
    Node,
    Select,
    Ternary,
    Unary,
    parse,
)
from flowengine.flow.expressions.texts import regular_expression
from flowengine.flow.expressions.tokens import ExpressionSyntaxError
from flowengine.flow.expressions.types import (
    ELSEWHERE,
    MACROS,
    METHODS,
    SIGNATURES,
    TYPE_NAMES,
    Argument,
    CheckedExpression,
    DeclaredNames,
    ExpressionProblem,
    FunctionTypes,
    Path,
    Want,
    article,
    kind,
)
from flowengine.flow.source.synonyms import NAMES, VALUES
from flowengine.sdk.values.schema_types import ANY, Schema, items_of, resolve

MOST_KNOWN = 4096
"""Number of valid expressions that are remembered."""
FUNCTION_NAMES = SIGNATURES.keys() | STANDARD | {"has"}
MAX_LEVELS = 32
"""Operators that are each an operand of the next one."""
_JOINS = {"&&": "and", "||": "or"}
_DECLARED = frozenset(["path", "get", "default", "call", "loop", "if"])
"""Nodes whose values may be of another type than declared."""
MAX_SUMS = 100
"""Plus signs in one expression. This limits the length of texts that they can build."""


class TypedPart(NamedTuple):
    """A part of an expression: how to evaluate it, and the type of its value."""

    node: Tree
    schema: Schema = ANY

    @property
    def items(self) -> Schema:
        """The schema of its items, if it is a list."""
        schema, root = resolve(types.without_null(self.schema), self.schema)
        inner, root = items_of(schema, root)
        return types.self_contained(inner, root)


UNKNOWN = TypedPart(["const", None])
"""Placeholder for an invalid part, so that no further errors follow from it."""


class _Uncertain(NamedTuple):
    """A path that leads through a value which may be null."""

    value: str
    problem: ExpressionProblem


def check(source: str, names: DeclaredNames, want: Want = "any") -> CheckedExpression:
    """Check an expression against the names of its place.

    Args:
        source: The expression, without `${{ }}`.
        names: The visible names.
        want: The type that its place accepts.

    Returns:
        The record for its evaluation, its type, the paths that it names, and its problems.
    """
    key = _key(source, names, want)
    known = _known.get(key)
    if known is not None:
        return known
    try:
        tree = parse(source)
    except ExpressionSyntaxError as error:
        problem = ExpressionProblem("E302", error.offset, error.length, error.message, error.hint)
        return CheckedExpression({"node": UNKNOWN.node, "at": [0, 0, source]}, {}, [], [problem])
    checked = _Check(source, tree, names).result(want)
    if not checked.problems:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[key] = checked
    return checked


_known: dict[bytes, CheckedExpression] = {}
"""Valid expressions, by `_key`. The flows of agents share most of theirs, and a flow that is
compiled again shares nearly all of them. Entries are never changed."""


def _key(source: str, names: DeclaredNames, want: Want) -> bytes:
    """Return the input that the check of a valid expression depends on.

    Messages about problems depend on further names, which the expression does not contain.
    """
    roots = names.schema.get("properties", {})
    seen = [(root, schema) for root, schema in roots.items() if root in source]
    rest = {word: part for word, part in names.schema.items() if word != "properties"}
    given = repr((source, want, seen, rest, names.hidden, names.uncertain))
    return sha256(given.encode(errors="surrogatepass")).digest()


class _Check:
    """The check of one expression."""

    def __init__(self, source: str, tree: Node, names: DeclaredNames) -> None:
        self.source = source
        self.tree = tree
        self.names = self.roots = names
        self.local: dict[str, str] = {}
        """Names of the items of the enclosing loops, and those in the record, which are unique."""
        self.problems: list[ExpressionProblem] = []
        self.references: dict[Path, None] = {}
        self.tested: set[str] = set()
        self.uncertain: list[_Uncertain] = []
        self.depth = 0

    def result(self, want: Want) -> CheckedExpression:
        sums = self.source.count("+")
        typed = self.value(self.tree)
        if sums > MAX_SUMS and not self.problems:
            self.report("E302", self.tree, f"more than {MAX_SUMS} '+' in one expression",
                        "put the parts into a list and join() them")  # fmt: skip
        self._check_want(typed, want)
        for value, problem in self.uncertain:
            if value not in self.tested and not self._knows_of(value):
                self.problems.append(problem)
        record: dict[str, Any] = {"node": typed.node, "at": [0, 0, self.source]}
        if want == "bool":
            record["bool"] = True
        problems = sorted(self.problems, key=lambda problem: (problem.offset, problem.code))
        path = self._whole_path(typed)
        schema = typed.schema if path is not None else _plain(typed.schema)
        return CheckedExpression(record, schema, list(self.references), problems, path)

    def _knows_of(self, value: str) -> bool:
        """Return whether the expression tests how the step of an uncertain value has ended."""
        beside = tuple(value.split(".")[:-1])
        named = {(*beside, "status"), (*beside, "outcome")}
        return not self.names.uncertain[value].always and bool(named & self.references.keys())

    def _whole_path(self, typed: TypedPart) -> Path | None:
        """Return the path, if the expression is exactly one path of constant text keys."""
        if (
            isinstance(self.tree, CallNode)
            or typed.node[0] != "path"
            or not all(isinstance(key, str) for key in typed.node[2])
        ):
            return None
        return (typed.node[1], *typed.node[2])

    def report(
        self, code: str, node: Node, message: str, hint: str | None = None, end: int | None = None
    ) -> None:
        """Add a problem at the specific place of a tree: its operator, its name, its whole path."""
        start, stop = node.start, node.end if end is None else end
        if isinstance(node, (Binary, Ternary)):
            start, stop = node.at, node.at + len(node.op if isinstance(node, Binary) else "?")
        elif isinstance(node, CallNode):
            start, stop = node.at, node.at + len(node.name)
        elif isinstance(node, Unary):
            stop = start + len(node.op)
        problem = ExpressionProblem(code, start, max(stop - start, 1), message, hint)
        if problem not in self.problems:
            self.problems.append(problem)

    def _check_want(self, typed: TypedPart, want: Want) -> None:
        """Check the type of the whole expression against its place."""
        if types.SECRET in typed.schema:
            return
        word = kind(typed.schema)
        whole = self.tree
        span = Name("", whole.start, self._end_of_line(whole))
        if want == "bool" and word not in {None, "boolean"}:
            hint = overloads.CONDITION_HINTS.get(word)
            self.report("E303", span, f"{overloads.CONDITION}{article(typed.schema)}", hint)
        elif want == "text" and word in {"array", "object", "null", "bytes"}:
            hint = {"null": "write default(…, '')", "bytes": "write string(…)"}.get(
                word, "write json(…)"
            )
            self.report("E307", span, f"{overloads.TEXT_PART}{article(typed.schema)}", hint)

    def _end_of_line(self, node: Node) -> int:
        """Return the end of a tree, or of its first line."""
        line = self.source.find("\n", node.start)
        return node.end if line < 0 else min(node.end, line)

    # Values

    def value(self, node: Node, lenient: bool = False) -> TypedPart:
        """Return the cheapest evaluation of a tree."""
        if isinstance(node, Literal) and not isinstance(node.value, bytes):
            return TypedPart(["const", node.value], _of_constant(node.value))
        if isinstance(node, (Name, Select, Index)):
            return self._path(node, lenient)
        if isinstance(node, CallNode):
            return self._call(node)
        if isinstance(node, Ternary):
            test = self._condition(node.condition)
            yes, no = self.value(node.yes), self.value(node.no)
            branches = [one.schema for one in (yes, no) if kind(one.schema) != "null"]
            schema = types.common(branches) if branches else types.NULL
            if len(branches) == 1:
                schema = types.or_null(schema)
            return TypedPart(["if", test.node, yes.node, no.node], schema)
        if isinstance(node, Items):
            parts = [self.value(item) for item in node.items]
            inner = types.common([part.schema for part in parts]) if parts else ANY
            return TypedPart(["list", [part.node for part in parts]], types.list_of(inner))
        if isinstance(node, Entries):
            return self._entries(node)
        if _null_test(node):
            return self._null_test(node)
        return self._outer(node)

    def _condition(self, node: Node) -> TypedPart:
        """Return a part that must be true or false."""
        typed = self.value(node)
        word = kind(typed.schema)
        if word not in {None, "boolean"}:
            message = f"{overloads.CONDITION}{article(typed.schema)}"
            self.report("E303", node, message, overloads.CONDITION_HINTS.get(word))
        return typed

    def _entries(self, node: Entries) -> TypedPart:
        entries: dict[str, Tree] = {}
        computed: list[list[Any]] = []
        properties: dict[str, Schema] = {}
        for key, value in node.entries:
            typed = self.value(value)
            if not isinstance(key, Literal):
                computed.append([[self._argument_of(key, "the key of a map").node], typed.node])
            elif not isinstance(key.value, str):
                self.report("E311", key, "the keys of a map are texts", f"write '{key.text}'")
            elif key.value in entries:
                self.report("E302", key, f"the key '{key.value}' appears twice")
            else:
                entries[key.value] = typed.node
                properties[key.value] = typed.schema
        schema = types.MAP
        if not computed:
            schema = {"type": "object", "properties": properties, "required": sorted(properties),
                      "additionalProperties": False}  # fmt: skip
        pairs = [[key, entries[key]] for key in sorted(entries)]
        return TypedPart(["map", [*pairs, *computed]], schema)

    def _argument_of(self, node: Node, what: str) -> TypedPart:
        """Return a part that must be text."""
        typed = self.value(node)
        if kind(typed.schema) not in {None, "string"}:
            self.report("E311", node, f"{what} must be text, not {article(typed.schema)}")
        return typed

    def _null_test(self, node: Any) -> TypedPart:
        operand = node.right if _is_null(node.left) else node.left
        typed = self.value(operand)
        self.tested.add(_dotted(typed.node))
        return TypedPart(["null", typed.node, node.op == "=="], types.BOOL)

    # Paths

    def _path(self, node: Node, lenient: bool) -> TypedPart:
        """Return the value of a name and the path after it."""
        base, rest = _chain(node)
        segments = [self._segment(part) for part in rest]
        keys = [one.key if one.key is not None else [tree] for one, tree in segments]
        pure = [one for one, _ in segments]
        if not isinstance(base, Name):
            return self._inside(base, pure, keys, rest, lenient)
        if not self._visible(base):
            if base.name in TYPE_NAMES:
                return self._outer(base)
            roots = self.names.schema.get("properties", {})
            hint = naming.suggestion(base.name, roots)
            if (here := NAMES.get(base.name)) in roots:
                hint = f"did you mean '{'steps.x.output' if here == 'steps' else here}'?"
            if base.name in FUNCTION_NAMES:
                hint = f"'{base.name}' is a function: write {base.name}(…)"
            elif base.name in VALUES:
                hint = VALUES[base.name]
            elif hint is None and roots:
                hint = f"visible here: {', '.join(sorted(roots))}. A text is written in quotes"
            self.report("E301", base, f"'{base.name}' is not declared", hint)
            return UNKNOWN
        names, local = (self.roots, {}) if base.dotted else (self.names, self.local)
        if (
            base.name == "steps"
            and base.name not in local
            and not (pure and isinstance(pure[0].key, str))
        ):
            self.report("E301", node, "'steps' alone is not a value", "name a step: steps.x.output")
            return UNKNOWN
        followed = naming.follow(names, base.name, pure)
        if base.name not in local:
            self.references.setdefault(naming.reference(base.name, pure))
        ends = [base.end, *[part.end for part in rest]]
        if followed.trouble:
            note = followed.trouble.note
            self.report(note.code, node, note.message, note.hint, ends[followed.trouble.keys])
            return UNKNOWN
        if followed.uncertain:
            self._lead_through(followed.uncertain, node, lenient)
        if types.SECRET in followed.schema and node is not self.tree:
            self.report("E403", node, "a secret cannot be used in an expression, only alone")
            return UNKNOWN
        schema = types.self_contained(followed.schema, followed.root)
        return TypedPart(["path", local.get(base.name, base.name), keys], schema)

    def _visible(self, base: Name) -> bool:
        names = self.roots if base.dotted else self.names
        return base.name in names.schema.get("properties", {}) or base.name in names.hidden

    def _lead_through(self, value: str, node: Node, lenient: bool) -> None:
        """Record that a path leads through a value that may be null."""
        if lenient:
            return
        note = self.names.uncertain[value]
        length = max(self._end_of_line(node) - node.start, 1)
        problem = ExpressionProblem(
            note.code, node.start, length, note.message, note.hint, warning=True
        )
        self.uncertain.append(_Uncertain(value, problem))

    def _segment(self, part: Node) -> tuple[Segment, Tree]:
        """Return one key of a path, and how to evaluate it if it is computed."""
        if isinstance(part, Select):
            return Segment(part.field, ANY), []
        index = part.key if isinstance(part, Index) else part
        constant = index.value if isinstance(index, Literal) else None
        if isinstance(constant, str) or (isinstance(constant, int) and constant is not True):
            return Segment(constant, ANY), []
        typed = self.value(index)
        return Segment(None, typed.schema), typed.node

    def _inside(
        self, base: Node, segments: list[Segment], keys: list[Any], rest: list[Node], lenient: bool
    ) -> TypedPart:
        """Return a path into a value without a name: `f(x).y`, `[1, 2][0]`."""
        typed = self.value(base, lenient)
        inner = DeclaredNames({"properties": {"…": typed.schema}})
        followed = naming.follow(inner, "…", segments)
        if followed.trouble:
            part = rest[followed.trouble.keys - 1]
            note = followed.trouble.note
            self.report(note.code, Name("", base.start, part.end), note.message, note.hint)
            return UNKNOWN
        schema = types.self_contained(followed.schema, followed.root)
        return TypedPart(["get", typed.node, keys], schema)

    # Calls

    def _call(self, node: CallNode) -> TypedPart:
        if self._in_namespace(node):
            return self._outer(node)
        if node.name == "has" and node.target is None:
            if len(node.args) != 1 or not isinstance(node.args[0], (Select, Index)):
                self.report("E302", node, "has() takes one path", "write has(inputs.name)")
                return UNKNOWN
            typed = self.value(node.args[0], lenient=True)
            dotted = _dotted(typed.node)
            self.tested.update(one for one in self.names.uncertain if dotted.startswith(f"{one}."))
            return TypedPart(["has", typed.node], types.BOOL)
        if node.target is not None and node.name in MACROS:
            return self._macro(node, node.target)
        if node.name in TIME_PARTS and node.target is not None and len(node.args) == 1:
            zone = self._argument_of(node.args[0], "a time zone")
            time = self.value(node.target)
            part: Tree = ["const", node.name]
            return TypedPart(["call", "time_part", [time.node, part, zone.node]], types.INT)
        signature = SIGNATURES.get(node.name)
        if signature is None:
            return self._outer(node) if self._exists(node) else UNKNOWN
        if node.target is None and node.name in METHODS and node.name != "size":
            self.report("E302", node, f"{node.name}() is called on its first argument",
                        f"write x.{node.name}(…)")  # fmt: skip
            return UNKNOWN
        if node.target is not None and node.name not in METHODS:
            self.report("E302", node, f"{node.name}() is not called on a value",
                        f"write {node.name}(…) with all its arguments in the brackets")  # fmt: skip
            return UNKNOWN
        return self._own_function(node, signature)

    def _in_namespace(self, node: CallNode) -> bool:
        """Return whether this is a function such as `math.abs`."""
        space = node.target
        if not isinstance(space, Name) or space.name not in NAMESPACES or self._visible(space):
            return False
        return node.name in NAMESPACES[space.name]

    def _exists(self, node: CallNode) -> bool:
        """Check that a CEL function exists."""
        if node.name in STANDARD:
            return True
        space = node.target.name if isinstance(node.target, Name) else ""
        known = NAMESPACES.get(space, FUNCTION_NAMES)
        hint = naming.suggestion(node.name, sorted(known))
        if node.name in MACROS:
            self.report("E302", node, f"{node.name}() is called on a list",
                        f"write l.{node.name}(x, …)")  # fmt: skip
            return False
        if node.name in ELSEWHERE:
            hint = f"write {ELSEWHERE[node.name]}"
        self.report("E301", node, f"there is no function '{node.name}'", hint)
        for part in (*node.args, *([node.target] if node.target and not space else [])):
            self.value(part)
        return False

    def _own_function(self, node: CallNode, signature: FunctionTypes) -> TypedPart:
        arguments = [*([node.target] if node.target else []), *node.args]
        least = len(signature.takes) - signature.optional
        if len(arguments) < least or (
            len(arguments) > len(signature.takes) and not signature.variadic
        ):
            expected = f"at least {least}" if signature.variadic or signature.optional else least
            message = f"{node.name}() takes {expected} arguments, not {len(arguments)}"
            self.report("E311", node, message)
            return UNKNOWN
        lenient = node.name == "default"
        typed = [self.value(argument, lenient) for argument in arguments]
        for count, (argument, one) in enumerate(zip(arguments, typed, strict=True)):
            takes = signature.takes[min(count, len(signature.takes) - 1)]
            word = kind(one.schema)
            if takes and word is not None and word not in takes:
                expected = " or ".join(types.WORDS[name] for name in sorted(takes))
                message = f"{node.name}() takes {expected}, not {article(one.schema)}"
                self.report("E311", Name("", argument.start, argument.end), message)
        described = [
            Argument(types.without_null(one.schema) if lenient else one.schema, one.items)
            for one in typed
        ]
        nodes = [one.node for one in typed]
        tree: Tree = ["default", nodes] if lenient else ["call", node.name, nodes]
        if node.name in {"duration", "timestamp"}:
            self._check_constant(FUNCTIONS[node.name], nodes[0], arguments[0])
        return TypedPart(tree, signature.gives(described))

    def _check_constant(self, read: Callable[[str], object], argument: Tree, node: Node) -> None:
        if argument[0] != "const" or not isinstance(argument[1], str):
            return
        try:
            read(argument[1])
        except NoValue as error:
            self.report("E311", Name("", node.start, node.end), str(error))

    def _macro(self, node: CallNode, target: Node) -> TypedPart:
        over = self.value(target)
        word = kind(types.without_null(over.schema))
        if word == "object":
            self.report("E312", node,
                        f"{node.name}() cannot iterate over a map: its keys have no order",
                        f"write keys(…).{node.name}(…) or entries(…).{node.name}(…)")  # fmt: skip
        elif word not in {None, "array"}:
            self.report(
                "E311", node, f"{node.name}() iterates over a list, not {article(over.schema)}"
            )
        most = 3 if node.name == "map" else 2
        item = node.args[0] if 2 <= len(node.args) <= most else None
        if not isinstance(item, Name) or item.dotted:
            self.report("E302", node, f"{node.name}() takes a name for the item and an expression",
                        f"write .{node.name}(x, …)")  # fmt: skip
            return UNKNOWN
        name = unique = item.name
        while unique in self.roots.schema.get("properties", {}) or unique in self.local.values():
            unique += "'"
        outer = self.names, self.local
        properties = {**self.names.schema.get("properties", {}), name: over.items}
        hidden = {
            dotted: note
            for dotted, note in self.names.hidden.items()
            if dotted.split(".")[0] != name
        }
        self.names = self.names._replace(
            schema={**self.names.schema, "properties": properties}, hidden=hidden
        )
        self.local = {**self.local, name: unique}
        if node.name == "map":
            tests = [self._condition(test) for test in node.args[1:-1]]
            bodies = [*tests, self.value(node.args[-1])]
            schema = types.list_of(bodies[-1].schema)
        else:
            bodies = [self._condition(node.args[1])]
            schema = over.schema if node.name == "filter" else types.BOOL
        self.names, self.local = outer
        nodes = [body.node for body in bodies]
        return TypedPart(["loop", node.name, over.node, unique, nodes], schema)

    # Operators

    def _outer(self, node: Node) -> TypedPart:
        """Return an operator or standard function that is not the operand of another one."""
        typed = self._operand(node)
        if kind(typed.schema) == "type":
            self.report("E311", node, "a type is not a value")
            return UNKNOWN
        return typed

    def _operand(self, node: Node) -> TypedPart:
        """Return a part whose value an operator takes: with its declared type, and of any kind."""
        self.depth += 1
        if self.depth > MAX_LEVELS:
            message = f"the expression has more than {MAX_LEVELS} levels, or operators in a row"
            hint = "compute parts of it in separate steps, or join() a list of texts"
            first = node
            while isinstance(first, Binary):
                first = first.left
            if all(problem.message != message for problem in self.problems):
                self.report("E302", first, message, hint)
            typed = UNKNOWN
        elif isinstance(node, Literal):
            typed = _constant(node)
        elif isinstance(node, Name) and (node.name in TYPE_NAMES and not self._visible(node)):
            typed = TypedPart(["op", "@type", [["const", node.name]]], types.TYPE)
        elif isinstance(node, Ternary):
            typed = self._inner_ternary(node)
        elif isinstance(node, Items):
            parts = [self._operand(item) for item in node.items]
            inner = types.common([part.schema for part in parts]) if parts else ANY
            typed = TypedPart(["list", [part.node for part in parts]], types.list_of(inner))
        elif isinstance(node, Unary):
            typed = self._applied(node, node.op, [node.operand])
        elif isinstance(node, Binary) and node.op in _JOINS:
            typed = self._joined(node)
        elif isinstance(node, Binary) and not _null_test(node):
            typed = self._applied(node, node.op, [node.left, node.right])
        elif isinstance(node, CallNode) and self._is_standard(node):
            typed = self._standard_call(node)
        else:
            typed = _of_declared_type(self.value(node))
        self.depth -= 1
        return typed

    def _inner_ternary(self, node: Ternary) -> TypedPart:
        """Return a choice whose value an operator takes. Both values must have the same type."""
        test = self._condition(node.condition)
        yes, no = self._operand(node.yes), self._operand(node.no)
        kinds = [kind(yes.schema), kind(no.schema)]
        if None not in kinds and "null" not in kinds and kinds[0] != kinds[1]:
            both = f"{article(yes.schema)} and {article(no.schema)}"
            self.report("E311", node, f"the values of '?:' have different types: {both}",
                        "write dyn(…) around one of them")  # fmt: skip
            return UNKNOWN
        return TypedPart(
            ["if", test.node, yes.node, no.node], types.common([yes.schema, no.schema])
        )

    def _is_standard(self, node: CallNode) -> bool:
        """Return whether this calls a standard function of CEL with its standard meaning."""
        if node.name in TIME_PARTS:
            return node.target is None or len(node.args) != 1
        return self._in_namespace(node) or node.name in STANDARD

    def _standard_call(self, node: CallNode) -> TypedPart:
        if self._in_namespace(node) and isinstance(node.target, Name):
            return self._applied(node, f"{node.target.name}.{node.name}", node.args)
        method = node.name in STANDARD_METHODS
        if node.target is None and method and node.name != "matches":
            self.report("E302", node, f"{node.name}() is called on its first argument",
                        f"write x.{node.name}(…)")  # fmt: skip
            return UNKNOWN
        if node.target is not None and not method:
            self.report("E302", node, f"{node.name}() is not called on a value",
                        f"write {node.name}(…) with all its arguments in the brackets")  # fmt: skip
            return UNKNOWN
        return self._applied(node, node.name, [*([node.target] if node.target else []), *node.args])

    def _joined(self, node: Binary) -> TypedPart:
        """Return `a && b && c` or `a || b || c` as one node, however many there are."""
        joins = [node]
        while isinstance(joins[-1].left, Binary) and joins[-1].left.op == node.op:
            joins.append(joins[-1].left)
        left = self._operand(joins[-1].left)
        nodes = [left.node]
        for join in reversed(joins):
            right = self._operand(join.right)
            if overloads.result(node.op, [(left.schema, {}), (right.schema, {})]) is None:
                message, hint = overloads.refusal(node.op, [left.schema, right.schema])
                self.report("E311", join, message, hint)
                left = UNKNOWN
            else:
                left = TypedPart([_JOINS[node.op], nodes], types.BOOL)
            nodes.append(right.node)
        return left

    def _applied(self, node: Node, name: str, operands: list[Node]) -> TypedPart:
        """Return an operator or function with its operands, after checking their types."""
        typed = [self._operand(operand) for operand in operands]
        schema = overloads.result(name, [(one.schema, one.items) for one in typed])
        if schema is None:
            message, hint = overloads.refusal(name, [one.schema for one in typed])
            self.report("E311", node, message, hint)
            return UNKNOWN
        if name in {"==", "!=", "in"}:
            self._check_enum(typed[0], operands[1])
            self._check_enum(typed[1], operands[0])
        if name == "matches":
            self._check_constant(regular_expression, typed[1].node, operands[1])
        nodes = [one.node for one in typed]
        if name == "!":
            return TypedPart(["not", nodes[0]], schema)
        return TypedPart(nodes[0] if name == "dyn" else ["op", name, nodes], schema)

    def _check_enum(self, side: TypedPart, other: Node) -> None:
        """Refuse the comparison of an enum with a text that is not among its values."""
        schema = types.without_null(side.schema)
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if not isinstance(values, list):
            return
        for literal in other.items if isinstance(other, Items) else [other]:
            if isinstance(literal, Literal) and literal.value not in values:
                texts = [value for value in values if isinstance(value, str)]
                hint = naming.suggestion(str(literal.value), texts)
                shown = ", ".join(repr(value) for value in values)
                message = f"this can never be {literal.text}: it is one of {shown}"
                self.report("E311", literal, message, hint)


def _constant(node: Literal) -> TypedPart:
    """Return a constant. JSON has no bytes and no unsigned integers."""
    if isinstance(node.value, bytes):
        return TypedPart(["op", "@bytes", [["const", node.value.hex()]]], types.BYTES)
    if node.text[-1:] in "uU" and isinstance(node.value, int) and node.value is not True:
        return TypedPart(["op", "uint", [["const", node.value]]], types.UINT)
    return TypedPart(["const", node.value], _of_constant(node.value))


def _of_declared_type(typed: TypedPart) -> TypedPart:
    """Return an operand whose type is checked when it is evaluated."""
    word = kind(typed.schema)
    if word == "null":
        return typed._replace(schema=ANY)
    if typed.node[0] not in _DECLARED or word not in KINDS:
        return typed
    items = kind(typed.items) if word == "array" else None
    wanted = [word, items] if items in KINDS.keys() - {"array", "object"} else [word]
    return typed._replace(node=["as", typed.node, *wanted])


def _chain(node: Node) -> tuple[Node, list[Node]]:
    """Split a path into its base and the following selections."""
    rest: list[Node] = []
    while isinstance(node, (Select, Index)):
        rest.append(node)
        node = node.base
    return node, rest[::-1]


def _dotted(node: Tree) -> str:
    """Return a path in the notation of `DeclaredNames.uncertain`."""
    return ".".join(map(str, [node[1], *node[2]])) if node[0] == "path" else ""


def _is_null(node: Node) -> bool:
    return isinstance(node, Literal) and node.value is None


def _null_test(node: Node) -> bool:
    """Return whether this compares a value with null."""
    return (
        isinstance(node, Binary)
        and node.op in {"==", "!="}
        and (_is_null(node.left) or _is_null(node.right))
    )


def _of_constant(value: Any) -> Schema:
    if value is None:
        return types.NULL
    schemas = {bool: types.BOOL, int: types.INT, float: types.DOUBLE, str: types.TEXT}
    return schemas.get(type(value), types.BYTES)


def _plain(schema: Any) -> Any:
    """Return the JSON Schema of a value after it has left the expression."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict) or not isinstance(schema.get(types.CEL, {}), str):
        return {k: _plain(v) for k, v in schema.items()} if isinstance(schema, dict) else schema
    if kind(schema) == "uint":
        return types.INT
    if kind(schema) == "timestamp":
        return {"type": "string", "format": "date-time"}
    return types.TEXT if kind(schema) == "duration" else ANY
