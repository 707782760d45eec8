"""Conversion of a source to a validated model, with the place of every error.

There are two passes. *Expand* writes out the short forms and checks the keys, and *validate* reads
the models from the values, with the place of each part.

Invalid parts are reported and left out, and the rest is checked nevertheless. The model of a broken
file lists the omitted places in `FlowModel.unread`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from flowengine.flow.loading.long_form import Expander, shapes
from flowengine.flow.models import FlowModel, GeneratedBody, Loc, Part
from flowengine.flow.models.reading import Reading
from flowengine.flow.models.types import OPEN, in_generated, shown
from flowengine.flow.source.diagnostics import (
    DiagnosticReporter,
    Diagnostics,
    Fault,
    MovedSource,
    Origin,
)

PASSES = 20
"""Maximum number of passes that leave out invalid parts and validate the rest again."""


Top = TypeVar("Top", bound=Part)
"""The model of a whole file."""


def read_file(top: type[Top], source: Origin, report: DiagnosticReporter, first: str) -> Top | None:
    """Return the model of a file besides flow files, or None if nothing is left to check.

    Args:
        top: The model.
        source: The file.
        report: Receives all errors.
        first: The key that the file begins with.
    """
    if not source.readable:
        return None
    if not isinstance(source.data, dict):
        message = f"{top.NOUN} is a mapping, this is {shown(source.data)}"
        report.at("E103", message, (), f"start with '{first}:'")
        return None
    return _FileReader(top, report).read(dict(source.data))


class _FileReader(Generic[Top]):
    """Reads one file.

    Args:
        top: The model of the file.
        report: Receives the errors.
    """

    def __init__(self, top: type[Top], report: DiagnosticReporter) -> None:
        self.top = top
        self.report = report
        self.expander = Expander(report)

    def read(self, written: dict[str, Any], base: Loc = ()) -> Top | None:
        """Return the model of the data, or of its valid part.

        Args:
            written: The file as written.
            base: The place of the data in its file.

        Returns:
            The model, or None if the invalid parts cannot be left out.
        """
        data = self.expander.part(self.top, written, ())
        _check_ids(data, self.report)
        for round_ in range(PASSES):
            reading = Reading(base)
            model = reading.part(self.top, data)
            if not reading.refusals:
                return model
            for refusal in reading.refusals:
                if round_ == 0:
                    self._report(refusal)
                if not self._leave_out(data, refusal):
                    return None
        return None

    def _report(self, refusal: Fault) -> None:
        loc, code, message, hint, key, missing = refusal
        if missing:
            if loc in self.report.unread or str(loc[-1]) in self.expander.meant.get(loc[:-1], ()):
                return  # it exists, and its error is already reported
            loc, key = loc[:-1], True
        self.report.at(code, message, loc, hint, key=key)

    def _part_at(self, loc: Loc) -> type[Part] | None:
        """Return the model that is expected at a place."""
        owner = self.expander.parts.get(loc[:-1])
        shape = shapes(owner).get(str(loc[-1])) if owner and loc else None
        if shape is not None:
            return shape.part
        return self._part_at(loc[:-1]) if loc and isinstance(loc[-1], int) else None

    def _leave_out(self, data: Any, refusal: Fault) -> bool:
        """Remove an invalid part from the data. Return False if nothing would be left."""
        loc = refusal.loc
        if refusal.missing:
            owner, part = _get(data, loc[:-1]), self.expander.parts.get(loc[:-1])
            if part is not None and loc[-1] == part.NAMED:
                owner[part.NAMED] = _stand_in(loc)
                return True
            loc = loc[:-1]
        while loc:
            owner = _get(data, loc[:-1])
            if isinstance(owner, dict):
                self.report.unread.add(loc)
                owner.pop(loc[-1], None)
                return True
            part = self._part_at(loc)
            if isinstance(owner, list) and part is not None and part.NAMED is not None:
                self.report.unread.add(loc)
                owner[int(loc[-1])] = {part.NAMED: _stand_in(loc)}
                return True
            loc = loc[:-1]
        return False


def _stand_in(loc: Loc) -> str:
    """Return a unique id for an entry without one."""
    return "_".join(["unnamed", *(str(one) for one in loc if isinstance(one, int))])


def _get(data: Any, loc: Loc) -> Any:
    for step in loc:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


MOST_UNREAD = 200
"""Maximum number of invalid parts of a file whose rest is checked."""
VERSION = 1
"""Version of the language."""


def load_source(source: Origin, diagnostics: Diagnostics) -> FlowModel | None:
    """Return the model of a flow file.

    Args:
        source: The file.
        diagnostics: Receives all errors (`E1xx`, `E5xx`).

    Returns:
        The model. For a file with errors it omits the invalid parts. None if nothing is left to
        check.
    """
    report = DiagnosticReporter(source, diagnostics)
    if not source.readable:
        return None
    if not isinstance(source.data, dict):
        report.at("E103", f"a flow file must be a mapping, this is {shown(source.data)}", ())
        return None
    data = dict(source.data)
    if not _readable_version(data, report):
        return None
    _refuse_keys_with_expressions(data, (), report)
    model = _FileReader(FlowModel, report).read(data)
    if len(report.unread) > MOST_UNREAD:
        return None
    if model is not None:
        model._unread = frozenset(report.unread)
        model._around_unread = frozenset(
            loc[:end] for loc in report.unread for end in range(len(loc) + 1)
        )
    return model


def load_generated(
    data: dict[str, Any], source: Origin, loc: Loc, diagnostics: Diagnostics
) -> GeneratedBody | None:
    """Return the model of a generated flow.

    Args:
        data: An entry of `flows`, in long form.
        source: The file of the declaration that it was made from.
        loc: Its place there, below that of the declaration.
        diagnostics: Receives all errors, at that place.

    Returns:
        The model, or None if there are errors.
    """
    report = DiagnosticReporter(MovedSource(source, {(): loc}), diagnostics)
    token = in_generated.set(True)
    try:
        body = _FileReader(GeneratedBody, report).read(data, loc)
    finally:
        in_generated.reset(token)
    return None if report.unread else body


def _readable_version(data: dict[str, Any], report: DiagnosticReporter) -> bool:
    """Return whether this release supports the file's language version.

    A missing one counts as supported.
    """
    version, place = data.get("flowengine", VERSION), ("flowengine",)
    number = isinstance(version, int) and not isinstance(version, bool)
    if number and version != VERSION:
        message = f"language version {version} is not supported. This release supports version 1"
        newer = "a newer release of flowengine may read it" if version > VERSION else "write 1"
        report.at("E501", message, place, newer)
        return False
    if "flowengine" not in data:
        hint = "write 'flowengine: 1' in the first line"
        report.at("E104", "the file does not declare its language version", (), hint)
    elif not number:
        message = f"expected the language version 1, got {shown(version)}"
        report.at("E103", message, place, "write 1")
    data["flowengine"] = VERSION
    return True


def _refuse_keys_with_expressions(data: Any, loc: Loc, report: DiagnosticReporter) -> None:
    if isinstance(data, list):
        for index, item in enumerate(data):
            _refuse_keys_with_expressions(item, (*loc, index), report)
    elif isinstance(data, dict):
        for key, value in data.items():
            if OPEN.search(key):
                message = "a key cannot contain an expression"
                report.at("E306", message, (*loc, key), "compute the map in a tool", key=True)
            _refuse_keys_with_expressions(value, (*loc, key), report)


def _check_ids(flow: dict[str, Any], report: DiagnosticReporter) -> None:
    """Report ids that are shared by two steps of a flow."""
    inner = flow.get("flows")
    flows = inner.items() if isinstance(inner, dict) else ()
    bodies = [(("flows", name), body) for name, body in flows if isinstance(body, dict)]
    for loc, body in [((), flow), *bodies]:
        first: dict[str, Loc] = {}
        for place, step in steps_below(body, loc):
            name = step.get("id")
            if isinstance(name, str) and name in first:
                line = report.source.position((*first[name], "id")).line
                hint = f"the step in line {line} has the same id. Ids are unique in a flow"
                report.at("E105", f"duplicate step id {name!r}", (*place, "id"), hint)
                report.unread.add(place)
            elif isinstance(name, str):
                first[name] = place


def steps_below(scope: Any, loc: Loc) -> Iterator[tuple[Loc, dict[str, Any]]]:
    """Yield all steps of a scope, including those inside groups, with their places."""
    for key in ("steps", "group", "parallel", "finally"):
        inner = scope.get(key)
        for index, step in enumerate(inner if isinstance(inner, list) else ()):
            if isinstance(step, dict):
                place = (*loc, key, index)
                yield place, step
                yield from steps_below(step, place)
