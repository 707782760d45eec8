"""From a source to a validated model, with every error at its place.

Three passes: *expand* writes out the short forms and looks at the keys, *validate* lets the models
look at the values, and *locate* tells each part of the model where it stands.

What is wrong is reported and left out, and the rest is looked at all the same: the model of a
broken file lacks what is in `FlowModel.unread`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flowengine.flow.loading.long_form import Expander
from flowengine.flow.loading.validation import Validator, locate
from flowengine.flow.models import FlowModel, GeneratedBody, Loc
from flowengine.flow.models.types import OPEN, in_generated, shown
from flowengine.flow.source.diagnostics import Below, Diagnostics, Origin
from flowengine.flow.source.faults import Faults

VERSION = 1
"""Of the language."""


def load_source(source: Origin, diagnostics: Diagnostics) -> FlowModel | None:
    """Return the model of a flow file.

    Args:
        diagnostics: Gets everything that is wrong (`E1xx`, `E5xx`).

    Returns:
        The model; of a file with errors one without what is wrong; None if nothing is left to look
        at.
    """
    faults = Faults(source, diagnostics)
    if not source.readable:
        return None
    if not isinstance(source.data, dict):
        faults.add("E103", f"a flow file must be a mapping, this is {shown(source.data)}", ())
        return None
    data = dict(source.data)
    if not _readable_version(data, faults):
        return None
    _refuse_keys_with_expressions(data, (), faults)
    expander = Expander(faults)
    expanded = expander.part(FlowModel, data, ())
    _check_ids(expanded, faults)
    model = Validator(expander, FlowModel).validate(expanded)
    if model is not None:
        locate(model, ())
        model._unread = frozenset(faults.unread)
    return model


def load_generated(
    data: dict[str, Any], source: Origin, loc: Loc, diagnostics: Diagnostics
) -> GeneratedBody | None:
    """Return the model of a flow that was generated.

    Args:
        data: An entry of `flows`, in long form.
        source: The file of what it was made from.
        loc: Its place there, below that of what it was made from.
        diagnostics: Gets everything that is wrong, at that place.

    Returns:
        The model; None if something is wrong.
    """
    faults = Faults(Below(source, loc), diagnostics)
    token = in_generated.set(True)
    try:
        expander = Expander(faults)
        expanded = expander.part(GeneratedBody, data, ())
        _check_ids(expanded, faults)
        body = Validator(expander, GeneratedBody).validate(expanded)
    finally:
        in_generated.reset(token)
    if body is None or faults.unread:
        return None
    locate(body, loc)
    return body


def _readable_version(data: dict[str, Any], faults: Faults) -> bool:
    """Return whether this release reads the file's language; one not said is taken for this."""
    version, place = data.get("flowengine", VERSION), ("flowengine",)
    number = isinstance(version, int) and not isinstance(version, bool)
    if number and version != VERSION:
        message = f"language version {version} is not supported; this release reads version 1"
        newer = "a newer release of flowengine may read it" if version > VERSION else "write 1"
        faults.add("E501", message, place, newer)
        return False
    if "flowengine" not in data:
        hint = "write 'flowengine: 1' in the first line"
        faults.add("E104", "the file does not say its language version", (), hint)
    elif not number:
        message = f"expected the language version 1, got {shown(version)}"
        faults.add("E103", message, place, "write 1")
    data["flowengine"] = VERSION
    return True


def _refuse_keys_with_expressions(data: Any, loc: Loc, faults: Faults) -> None:
    if isinstance(data, list):
        for index, item in enumerate(data):
            _refuse_keys_with_expressions(item, (*loc, index), faults)
    elif isinstance(data, dict):
        for key, value in data.items():
            if OPEN.search(key):
                message = "a key cannot contain an expression"
                faults.add("E306", message, (*loc, key), "compute the map in a tool", key=True)
            _refuse_keys_with_expressions(value, (*loc, key), faults)


def _check_ids(flow: dict[str, Any], faults: Faults) -> None:
    """Report ids that two steps of a flow have."""
    _check_ids_of(flow, (), faults)
    flows = flow.get("flows")
    for name, body in flows.items() if isinstance(flows, dict) else ():
        if isinstance(body, dict):
            _check_ids_of(body, ("flows", name), faults)


def _check_ids_of(flow: dict[str, Any], loc: Loc, faults: Faults) -> None:
    first: dict[str, Loc] = {}
    for place, step in _steps(flow, loc):
        name = step.get("id")
        if not isinstance(name, str):
            continue
        if name in first:
            line = faults.position((*first[name], "id")).line
            hint = f"the step in line {line} has this id, too; ids are unique in a flow"
            faults.add("E105", f"duplicate step id {name!r}", (*place, "id"), hint)
            faults.leave_out(place)
        first.setdefault(name, place)


def _steps(scope: Any, loc: Loc) -> Iterator[tuple[Loc, dict[str, Any]]]:
    """Yield all steps of a scope, those inside groups too, with their places."""
    for key in ("steps", "group", "parallel", "finally"):
        inner = scope.get(key)
        for index, step in enumerate(inner if isinstance(inner, list) else ()):
            if isinstance(step, dict):
                place = (*loc, key, index)
                yield place, step
                yield from _steps(step, place)
