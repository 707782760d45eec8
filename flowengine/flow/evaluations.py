"""Evaluation files: their reading, with the place of every error."""

from __future__ import annotations

import os
from typing import NamedTuple

from flowengine.errors import FlowFileError
from flowengine.flow.loading.load import read_file
from flowengine.flow.models.evaluations import EvalFile, Variant
from flowengine.flow.source.diagnostics import DiagnosticReporter, Diagnostics
from flowengine.flow.source.yaml_source import Source, read

EVAL_SUFFIX = ".eval.yaml"
"""The suffix of evaluation files."""


class EvalPlan(NamedTuple):
    """An evaluation file, with the paths of the flows that it names."""

    path: str
    """As the user wrote it."""
    source: Source
    model: EvalFile
    variants: list[tuple[Variant, str]]
    """Each with the path of its flow. The first is the baseline."""
    judge: str | None


def load_evaluation(path: str) -> EvalPlan:
    """Read an evaluation file.

    Args:
        path: Path of the file.

    Returns:
        The evaluation. Its flows are not read yet.

    Raises:
        FlowFileError: The file has errors. The exception contains all of them.
        NotFound: The file does not exist.
    """
    source = read(path)
    diagnostics = Diagnostics()
    # a link may lead to any file, so its content is not quoted
    if source.text and not (source.says("cases") or source.says("data")):
        message = f"{path} is not an evaluation: 'cases:' or 'data:' is missing"
        raise FlowFileError(message, [])
    report = DiagnosticReporter(source, diagnostics)
    model = read_file(EvalFile, source, report, "cases")
    if model is None or diagnostics.errors:
        diagnostics.refuse(source.files)
    own = f"{path.removesuffix(EVAL_SUFFIX)}.yaml" if path.endswith(EVAL_SUFFIX) else None
    main = own if model.flow is None else beside(path, model.flow)
    variants = []
    for variant in model.variants or [Variant(name="flow")]:
        flow = main if variant.flow is None else beside(path, variant.flow)
        loc = ("flow",) if variant.flow is None else (*variant.loc, "flow")
        if flow is None or not _is_there(flow):
            hint = "give the path of the flow file, relative to this file"
            report.at("E401", f"there is no flow file {flow or 'named'}", loc, hint)
        else:
            variants.append((variant, flow))
    judge = None if model.judge is None else beside(path, model.judge)
    if judge is not None and not _is_there(judge):
        report.at("E401", f"there is no flow file {judge}", ("judge",))
    for noun, entries in (("variant", model.variants), ("case", model.cases)):
        seen = set()
        for entry in entries:
            if entry.name in seen:
                report.at("E105", f"duplicate {noun} name {entry.name!r}", (*entry.loc, "name"))
            seen.add(entry.name)
    if diagnostics.errors:
        diagnostics.refuse(source.files)
    return EvalPlan(path, source, model, variants, judge)


def _is_there(flow: str) -> bool:
    """Return whether the file of a flow exists: `FILE`, or `FILE.py:NAME`."""
    file, _, name = flow.rpartition(".py:")
    return os.path.isfile(f"{file}.py" if file and name.isidentifier() else flow)


def beside(path: str, named: str) -> str:
    """Return the path of a file that another file names."""
    return os.path.normpath(os.path.join(os.path.dirname(path), named))
