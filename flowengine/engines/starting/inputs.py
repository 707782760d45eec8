"""The inputs of a new execution: their validation, and what lists show of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from flowengine.errors import Hint, InputError
from flowengine.kernel import Graph
from flowengine.kernel.errors import StepFailure
from flowengine.kernel.expressions.names import before_start, computed_inputs, evaluate
from flowengine.kernel.graph.compiled import EvaluationError, telling
from flowengine.sdk.python.argument_checks import check_input_names
from flowengine.sdk.texts.visible_text import one_line
from flowengine.sdk.values.validation import as_plain, shared


def check_inputs(
    graph: Graph, given: Mapping[str, Any], execution: dict[str, Any], now: int, folder: str
) -> dict[str, Any]:
    """Return the inputs of a flow, with defaults for those left out.

    Args:
        graph: The flow.
        given: The inputs passed by the caller.
        execution: The variable `execution` of computed defaults.
        now: When it starts (ms).
        folder: Base directory of relative paths (`format: path`).

    Returns:
        Every declared input, in the order of declaration.

    Raises:
        InputError: An input is unknown, missing, or does not match its schema.
    """
    schemas = graph.flow.get("inputs", {})
    check_input_names(given, schemas)
    for name, schema in schemas.items():
        if name not in given and "default" not in schema:
            text = schema.get("description") or schema.get("title")
            more = f"  ({text})" if text else ""
            remedy = f"give it in 'inputs'{more}"
            hint = Hint(remedy, cli=f"give it: -i {name}=VALUE{more}", http=remedy)
            raise InputError(f"input '{name}' is missing", field=name, hint=hint)
    inputs = with_defaults(graph, given, execution, now)
    for name, schema in schemas.items():
        try:
            inputs[name] = shared(schema, folder).check(inputs[name], f"input '{name}'")
        except InputError as error:
            error.field = f"{name}.{error.field}".rstrip(".")
            raise
    return {name: inputs[name] for name in schemas}


def with_defaults(
    graph: Graph, given: Mapping[str, Any], execution: dict[str, Any], now: int
) -> dict[str, Any]:
    """Return the given inputs and the defaults of the others, starting with constant defaults.

    Args:
        graph: The flow.
        given: The inputs passed by the caller, not checked. Values of Python get their plain form.
            Inputs without a value or default are left out.
        execution: The variable `execution` of computed defaults.
        now: When it starts (ms).

    Raises:
        InputError: A computed default has no value, or an input has no plain form.
    """
    computed = [name for name, _ in graph.flow.get("defaults", ())]
    inputs = {name: _plain(name, value) for name, value in given.items()}
    for name, schema in graph.flow.get("inputs", {}).items():
        if name not in given and name not in computed and "default" in schema:
            inputs[name] = schema["default"]
    if not computed:
        return inputs

    try:
        return computed_inputs(graph, inputs, execution, now)
    except EvaluationError as error:
        names = " or ".join(name for name in computed if name not in given)
        raise InputError(
            f"a default has no value: {error.message}",
            field=names,
            hint=f"give {names} yourself",
            plain=f"a default has no value: give {names} yourself",
            flow=graph.flow["id"],
        ) from None


def _plain(name: str, value: Any) -> Any:
    try:
        return as_plain(value, f"input '{name}'")
    except InputError as error:
        error.field = f"{name}.{error.field}".rstrip(".")
        raise


def fill_defaults(schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a map with defaults for the properties that it leaves out."""
    defaults = {
        name: value["default"]
        for name, value in schema.get("properties", {}).items()
        if name not in given and isinstance(value, dict) and "default" in value
    }
    return {**given, **defaults}


# The title and the key inputs by which users recognize an execution in lists.

_LONGEST_TITLE = 200
_MOST = 3
"""Key inputs of an execution."""
_HIDDEN = "***"


def recognized_by(
    graph: Graph, inputs: Mapping[str, Any], execution: dict[str, Any], now: int
) -> tuple[str, dict[str, Any]]:
    """Return the title of a new execution, and its key inputs if the flow's title names none.

    Without expressions in the flow's title, or if one of them has no value, the key inputs are the
    first few that are short and not left at their default.

    Args:
        graph: Its flow.
        inputs: Its inputs, as checked.
        execution: The variable `execution` of expressions.
        now: When it starts (ms).
    """
    flow = graph.flow
    schemas = flow.get("inputs", {})
    hidden = {name for name, schema in schemas.items() if _is_hidden(schema)}
    title, key_inputs = "", dict[str, Any]()
    if "titled" in flow:
        given = {**inputs, **dict.fromkeys(hidden, _HIDDEN)}
        try:
            text = evaluate(before_start(graph, given, execution, now), flow["titled"])
            title = one_line(text if isinstance(text, str) else "", _LONGEST_TITLE)
        except (EvaluationError, StepFailure):
            title = ""  # a start does not fail because of its title
    if not title:
        title = one_line(flow.get("title", ""), _LONGEST_TITLE)
        own = {
            name: value
            for name, value in inputs.items()
            if name not in hidden and not _is_default(value, schemas.get(name))
        }
        arguments = own.pop("_args", None)  # of an agent that another one has started
        own = {**arguments, **own} if isinstance(arguments, dict) else own
        key_inputs = dict(islice(telling(own), _MOST))
    if flow.get("secrets"):
        from flowengine.secrets import Secrets

        title, key_inputs = Secrets(flow["secrets"]).mask([title, key_inputs])
    return title, key_inputs


def _is_hidden(schema: Any) -> bool:
    return isinstance(schema, dict) and (
        schema.get("writeOnly") is True or schema.get("format") == "password"
    )


def _is_default(value: Any, schema: Any) -> bool:
    return isinstance(schema, dict) and "default" in schema and bool(schema["default"] == value)
