"""`flowengine eval`: run cases with variants of a flow, and judge the results."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from secrets import token_hex
from time import gmtime, strftime
from typing import Any

from flowengine.agents.first_messages import answered_by
from flowengine.cli.case_recording import add_case
from flowengine.cli.parsing import arguments as read
from flowengine.cli.parsing.declared import arg, command, exits, section
from flowengine.cli.session import CliSession
from flowengine.cli.terminal.output import err, out, out_json, out_table, paint
from flowengine.cli.views.case_results import write_trials
from flowengine.cli.views.outcome import EXIT_CODES
from flowengine.errors import NotFound, UsageError
from flowengine.flow.cases import parsed
from flowengine.flow.evaluations import EvalPlan, load_evaluation
from flowengine.flow.models.evaluations import EvalFile
from flowengine.sdk.texts.untrusted import all_unmarked
from flowengine.sdk.texts.visible_text import printable
from flowengine.testing.eval_report import Report, report_on, table_of
from flowengine.testing.evaluation import Evaluation, Trial
from flowengine.testing.recorded_report import record_report
from flowengine.util.blocking import run_on_new_loop

_COLOURS = {"passed": "green", "failed": "red", "error": "red"}


@command(
    "evaluate a flow: cases, models or versions to compare, judges, required scores",
    """\
flowengine eval support.eval.yaml
flowengine eval support.eval.yaml --id monday --junit results.xml
flowengine eval support.eval.yaml --against monday
flowengine eval support.eval.yaml --from 01k8xq7mf4jb --name 'a late order'""",
    exits("0 if the required scores are reached, 1 if not, 3 for an invalid file, 4 if any waits"),
    arg("file FILE", "the evaluation, such as NAME.eval.yaml"),
    arg(
        "--from ID",
        "instead of running it: add the inputs and outputs of an execution to FILE as a case",
        dest="execution",
    ),
    section("with --from", arg("--name NAME", "name of the case that is added")),
    section(
        "without --from",
        arg(
            "--id ID",
            "id of the evaluation: the same id continues it, and shows it again once it has ended",
        ),
        arg("--against ID", "compare each variant with an earlier evaluation"),
        arg("--case NAME", "only cases whose name contains this"),
        arg("--junit FILE", "also write the trials as JUnit XML", type=Path),
        read.WORKDIR,
        read.LINGER,
    ),
)
def eval_command(arguments: Namespace) -> int:
    """Run the evaluation.

    Returns:
        0 if every variant reaches the required scores, 1 if not, 4 if a trial waits.

    Raises:
        NotFound: No earlier evaluation has the id of `--against`.
    """
    from dataclasses import asdict

    plan = load_evaluation(arguments.file)
    if arguments.execution is not None:
        return _add_case(arguments, plan)
    id = arguments.id or f"eval-{strftime('%Y%m%d-%H%M%S', gmtime())}-{token_hex(2)}"
    first, path = plan.variants[0]
    with answered_by(first.model), CliSession(arguments, make=path) as session:
        flows: Any = {"only": arguments.case, "named": read.flow_named}
        evaluation = Evaluation(session.engine, plan, id, **flows)
        before, earlier = arguments.against, []
        if before is not None:
            old = Evaluation(session.engine, plan, before, **flows)
            if not (earlier := run_on_new_loop(old.judge_again())):
                raise NotFound(f"no trial of these cases belongs to '{before}'")
        again = session.command("eval", arguments.file, "--id", id)
        outdated = evaluation.outdated()
        if not arguments.quiet:
            err(f"evaluation {id}")
        if outdated:
            those = "1 trial" if outdated == 1 else f"{outdated} trials"
            err(
                f"{paint('warning:', 'yellow')} {those} of '{id}' ran before the flow changed. "
                "To run the changed flow, choose another --id"
            )
        try:
            trials = run_on_new_loop(evaluation.run(lambda trial: _report(arguments, trial)))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"to continue: {again}") from None
        report = report_on(trials, plan.model.require, earlier, before or "")
        recording = record_report(session.engine, id, Path(plan.path).name, trials, report)
        recorded = run_on_new_loop(recording)
    if arguments.junit is not None:
        write_trials(arguments.junit, arguments.file, trials)
    if arguments.json:
        data = [asdict(trial) for trial in trials]
        out_json({"evaluation": id, "report": recorded, **asdict(report), "trials": data})
    else:
        _show(arguments, trials, report)
        if not arguments.quiet:
            err(f"the report is execution {recorded}")
    if _count(trials, "waiting"):
        if not arguments.quiet:
            err(f"to continue once nothing waits: {again}")
        return EXIT_CODES["waiting"]
    return EXIT_CODES["failed"] if report.too_low or _count(trials, "not run") else 0


def _add_case(arguments: Namespace, plan: EvalPlan) -> int:
    """Add the inputs and outputs of an execution to the file, as a case.

    Its outputs are the reference answer of the judge, or are expected exactly if there is none. A
    single output is the answer itself.

    Raises:
        UsageError: The execution has not succeeded.
    """
    with CliSession(arguments) as session:
        info = session.engine.executions.show(arguments.execution)
        short = session.short(info["execution"])
    if info["outputs"] is None:
        raise UsageError(f"execution {short} is {info['status']}: it has no outputs")
    name = arguments.name or f"recorded from {short}"
    outputs: dict[str, Any] = {"expect": {"outputs": info["outputs"]}}
    if plan.judge is not None:
        values = list(info["outputs"].values())
        outputs = {"expected": values[0] if len(values) == 1 else info["outputs"]}
    case = all_unmarked({"name": name, "inputs": info["inputs"], **outputs})
    path = arguments.file
    case = add_case(path, case, "eval", lambda text: parsed(EvalFile, text, path))
    if arguments.json:
        out_json({"file": path, "case": case})
    elif not arguments.quiet:
        err(f"written to {path}: {case['name']}")
    return 0


def _report(arguments: Namespace, trial: Trial) -> None:
    """Report a trial that has its result, with the reasons if it has not passed."""
    if arguments.json or (trial.passed and not arguments.verbose):
        return
    word = paint(trial.status, _COLOURS.get(trial.status, "yellow"))
    err(printable(f"{word}  {trial.variant}: {trial.case} ({trial.number})  {trial.execution}"))
    for problem in trial.problems:
        for line in problem.split("\n"):
            err(f"  {printable(line)}")


def _show(arguments: Namespace, trials: list[Trial], report: Report) -> None:
    rows = table_of(report)
    if rows:
        out_table([[*row.values()] for row in rows], *(printable(name.upper()) for name in rows[0]))
    for each in report.comparisons:
        pair = each.row()
        numbers = ", ".join(f"{pair[name]} {name}" for name in ("better", "worse", "the same"))
        score = f"{pair['score']} {pair['difference']}, {numbers}"
        out(printable(f"{pair['variant']} against {pair['against']}: {score}"))
    for fall in report.too_low:
        missed = fall.row()
        score = f"{missed['score']} must be at least {missed['least']}: {missed['reached']}"
        out(printable(f"{paint('too low', 'red')}  {missed['variant']}: {score}"))
    if arguments.quiet:
        return
    cost = sum(trial.cost_usd + trial.judge_cost_usd for trial in trials)
    judges = sum(trial.judge_cost_usd for trial in trials)
    left = {status: _count(trials, status) for status in ("waiting", "not run")}
    counts = [
        "1 trial" if len(trials) == 1 else f"{len(trials)} trials",
        *(f"{left[key]} {key}" for key in left if left[key]),
    ]
    share = f", of which ${judges:.4f} for the judge" if judges else ""
    err(f"{', '.join(counts)}, ${cost:.4f}{share}")


def _count(trials: list[Trial], status: str) -> int:
    return sum(trial.status == status for trial in trials)
