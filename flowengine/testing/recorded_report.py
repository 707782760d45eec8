"""The report on an evaluation as an execution, which lists and the page show like its trials."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from flowengine.engines.engine import Engine
from flowengine.errors import NotFound
from flowengine.flow.building import Flow, cel
from flowengine.testing.eval_report import Report, column, table_of
from flowengine.testing.evaluation import Trial, shared


async def record_report(
    engine: Engine, id: str, title: str, trials: Sequence[Trial], report: Report
) -> str:
    """Record the report on an evaluation, unless it is recorded already.

    Args:
        engine: Has the executions of the trials.
        id: Id of the evaluation.
        title: The file of the evaluation.
        trials: Its trials.
        report: The report on them.

    Returns:
        The id of the execution, which follows from the results of the trials. Its outputs are
            `variants`, `comparisons`, `too_low` and `trials`: lists of rows.
    """
    results = {
        "comparisons": [each.row() for each in report.comparisons],
        "too_low": [fall.row() for fall in report.too_low],
        "trials": [_row(trial) for trial in trials],
    }
    rows = {"variants": table_of(report), **results}
    text = json.dumps(results, sort_keys=True)
    own = f"{id}-report-{sha256(text.encode()).hexdigest()[:8]}"
    try:
        engine.store.execution(own)
    except NotFound:
        inputs = {"evaluation": id, "title": title, **rows}
        await shared(engine, _flow(rows), inputs, own, {"eval": id})
    return own


def _flow(rows: Mapping[str, Any]) -> Flow:
    """Return the flow whose outputs are the rows of its inputs."""
    inputs = {"evaluation": str, "title": str, **dict.fromkeys(rows, list)}
    flow = Flow("evaluation", inputs=inputs, title="${{ inputs.title }}: ${{ inputs.evaluation }}")
    flow.step("report", output=True)
    for name in rows:
        flow.output(name, cel.inputs[name])
    return flow


def _row(trial: Trial) -> dict[str, Any]:
    row: dict[str, Any] = {
        "case": trial.case,
        "variant": trial.variant,
        "trial": trial.number,
        "status": trial.status,
        **{column(name): round(score, 4) for name, score in trial.scores.items()},
        "problems": "\n".join(trial.problems),
    }
    if trial.status != "not run":
        row["execution"] = trial.execution
    if trial.judged_by is not None:
        row["judge_execution"] = trial.judged_by
    return row
