"""Runs an evaluation: each trial is an execution, and so is its judgment.

The ids of the executions follow from that of the evaluation, the variant, the case and the number
of the trial. An evaluation that is run again under its id therefore continues, and repeats nothing.
Trials are not items of one flow that maps over the cases: the label `model` chooses the model of a
whole execution, `expect` compares whole executions, and cost, time, files and forks belong to one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from flowengine.agents.actions import usage_of
from flowengine.agents.first_messages import answered_by
from flowengine.engines.engine import Engine
from flowengine.engines.flows import LoadedFlow
from flowengine.engines.results import ExecutionResult
from flowengine.errors import Conflict, InputError, NotFound
from flowengine.flow.building.flow import Flow
from flowengine.flow.evaluations import EvalPlan
from flowengine.flow.models.evaluations import EvalCase, Variant
from flowengine.kernel.commands import Observation
from flowengine.sdk.texts.json_values import plain
from flowengine.sdk.texts.untrusted import all_unmarked
from flowengine.testing.eval_cases import cases_of
from flowengine.testing.expectations import Happened, agent_calls, unmet

_LOOK = 0.2
"""Seconds between attempts to take over an execution that another process runs."""
GIVEN: Mapping[str, tuple[str, ...]] = {
    "case": ("string",), "inputs": ("object",), "outputs": ("object", "null"), "expected": (),
    "status": ("string",), "error": ("object", "null"), "calls": ("array",), "usage": ("object",),
    "seconds": ("number",),
}  # fmt: skip
"""Names of the inputs that the flow of a judge can declare → types of the values. Empty: any."""


@dataclass
class Trial:
    """One run of a case by a variant."""

    variant: str
    case: str
    number: int
    """From 1, of the repetitions of the case."""
    execution: str
    status: str = "not run"
    """`passed`, `failed`, `error` if it or its judge did not end as expected, `waiting`, or `not
    run` because the budget was used up."""
    problems: list[str] = field(default_factory=list)
    """Why it has not passed."""
    scores: dict[str, float] = field(default_factory=dict)
    """The verdicts of the judge, by name. False is 0, true is 1."""
    reasons: dict[str, str] = field(default_factory=dict)
    """The reasons that the judge states, by name."""
    outputs: Any = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    """The calls that its models have requested: `{name, arguments}`."""
    tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0
    judged_by: str | None = None
    """The execution of the judge."""
    judge_tokens: int = 0
    judge_cost_usd: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it meets every expectation and no verdict is false."""
        return self.status == "passed"


class Evaluation:
    """An evaluation, with its flows loaded.

    Args:
        engine: Runs the executions.
        plan: The evaluation file.
        id: Id of the evaluation, with which the ids of its executions begin.
        only: Only cases whose name contains this text.
        named: Returns the flow that a path in the file names. Default: that of a flow file.

    Raises:
        InputError: The judge or the data file does not fit the evaluation.
        NotFound: No case has such a name.
    """

    def __init__(
        self,
        engine: Engine,
        plan: EvalPlan,
        id: str,
        only: str | None = None,
        named: Callable[[str], Flow | str] = lambda path: path,
    ) -> None:
        self.engine = engine
        self.plan = plan
        self.id = id
        self.flows: dict[str, LoadedFlow] = {}
        for variant, path in plan.variants:
            with answered_by(variant.model):
                self.flows[variant.name] = engine.load(named(path))
        first = next(iter(self.flows.values()))
        cases = cases_of(plan, first.compiled.get("inputs", {}))
        self.cases = [case for case in cases if only is None or only in case.name]
        if not self.cases:
            which = "" if only is None else f" with '{only}' in its name"
            raise NotFound(f"{plan.path} has no case{which}")
        self.judge = None if plan.judge is None else engine.load(named(plan.judge))
        if self.judge is not None:
            _check_inputs(self.judge)
        scores = {"passed", *(self.judge.compiled.get("outputs", {}) if self.judge else ())}
        if unknown := plan.model.require.keys() - scores:
            raise InputError(
                f"{plan.path} requires the score '{min(unknown)}', which nothing gives",
                hint=f"it has: {', '.join(sorted(scores))}",
            )

    def trials(self) -> list[tuple[Variant, EvalCase, Trial]]:
        """Return the trials in the order in which they begin: all variants of a case together."""
        found = []
        for number in range(1, self.plan.model.repeat + 1):
            for case in self.cases:
                for variant, _ in self.plan.variants:
                    digest = sha256("\0".join((variant.name, case.name, str(number))).encode())
                    execution = f"{self.id}-{digest.hexdigest()[:12]}"
                    trial = Trial(variant.name, case.name, number, execution)
                    found.append((variant, case, trial))
        return found

    async def run(self, tell: Callable[[Trial], None]) -> list[Trial]:
        """Run all trials and judge them.

        Args:
            tell: Called when a trial has its result.

        Returns:
            The trials.

        Raises:
            Conflict: It was begun with other flows or inputs. Trials at work have ended.
        """
        trials, refused = self.trials(), list[Conflict]()
        places = asyncio.Semaphore(self.plan.model.concurrency)

        async def one(variant: Variant, case: EvalCase, trial: Trial) -> None:
            async with places:
                if refused:
                    return
                try:
                    if self._recorded(trial) is not None or not self._is_spent(trials):
                        await _settled(trial, self._run_trial(variant, case, trial))
                    tell(trial)
                except Conflict as error:
                    refused.append(error)

        await asyncio.gather(*(one(*entry) for entry in trials))
        if refused:
            raise refused[0]
        return [trial for *_, trial in trials]

    async def judge_again(self) -> list[Trial]:
        """Judge the trials that are in the store, without running any.

        Returns:
            These trials. A judgment that the same judge has made before is not repeated.
        """
        trials = []
        for _, case, trial in self.trials():
            if (result := self._recorded(trial)) is not None:
                await _settled(trial, self._judge(case, trial, result))
                trials.append(trial)
        return trials

    def outdated(self) -> int:
        """Return how many trials ran another version of their flow, whose results are kept."""
        count = 0
        for variant, _, trial in self.trials():
            with suppress(NotFound):
                record = self.engine.store.execution(trial.execution)
                count += record.hash != self.flows[variant.name].form
        return count

    def _recorded(self, trial: Trial) -> ExecutionResult | None:
        try:
            return self.engine.executions.result(trial.execution)
        except NotFound:
            return None

    def _is_spent(self, trials: list[tuple[Variant, EvalCase, Trial]]) -> bool:
        budget = self.plan.model.budget
        if budget is None:
            return False
        cost = sum(trial.cost_usd + trial.judge_cost_usd for *_, trial in trials)
        tokens = sum(trial.tokens + trial.judge_tokens for *_, trial in trials)
        limits = ((budget.cost_usd, cost), (budget.tokens, tokens))
        return any(limit is not None and used >= limit for limit, used in limits)

    async def _run_trial(self, variant: Variant, case: EvalCase, trial: Trial) -> None:
        labels = {"eval": self.id, "variant": variant.name, "case": case.name}
        labels["trial"] = str(trial.number)
        if variant.model is not None:
            labels["model"] = variant.model
        with answered_by(variant.model):
            result = await shared(
                self.engine, self.flows[variant.name], case.inputs, trial.execution, labels
            )
        await self._judge(case, trial, result)

    async def _judge(self, case: EvalCase, trial: Trial, result: ExecutionResult) -> None:
        """Compare a trial with its case, and have the judge run if it has ended.

        The id of the judgment follows from the judge and its inputs, so a changed judge judges
        again.
        """
        self._read_trial(case, trial, result)
        if self.judge is None or trial.status not in {"passed", "failed"}:
            return
        known = {
            "case": case.name,
            "inputs": case.inputs,
            "outputs": trial.outputs,
            "expected": case.expected,
            "status": result.status,
            "error": result.error and all_unmarked(dict(result.error)),
            "calls": trial.calls,
            "usage": {"tokens": trial.tokens, "cost_usd": trial.cost_usd},
            "seconds": trial.seconds,
        }
        wanted = self.judge.compiled.get("inputs", {})
        given = {name: value for name, value in known.items() if name in wanted}
        text = json.dumps([self.judge.form, given], sort_keys=True, default=plain)
        trial.judged_by = f"{trial.execution}-judge-{sha256(text.encode()).hexdigest()[:8]}"
        labels = {"eval": self.id, "variant": trial.variant, "case": case.name}
        labels["judges"] = trial.execution
        judged = await shared(self.engine, self.judge, given, trial.judged_by, labels)
        self._read_judgment(trial, judged)

    def _observations(self, execution: str) -> list[Observation]:
        updates = self.engine.executions.past_updates(execution)
        return [update.step for update, _ in updates if update.step is not None]

    def _read_trial(self, case: EvalCase, trial: Trial, result: ExecutionResult) -> None:
        """Compare the execution of a trial with its case."""
        engine, id = self.engine, trial.execution
        flow = engine.executions.flow_of(id).compiled
        happened = Happened(engine.executions._read(id), self._observations(id), flow)
        trial.outputs = all_unmarked(result.outputs)
        trial.calls = list(agent_calls(happened))
        trial.tokens, trial.cost_usd = _used(happened.observations)
        record = engine.store.execution(id)
        trial.seconds = ((record.ended_at or record.created_at) - record.created_at) / 1000
        if not result.ended and case.expected_status != result.status:
            trial.status = "waiting"
            trial.problems += [f"waits for {wait['address']}" for wait in result.waits]
            return
        trial.problems += [problem.message for problem in unmet(case, happened)]
        trial.status = "failed" if trial.problems else "passed"
        if result.status not in {"succeeded", case.expected_status}:
            trial.status = "error"

    def _read_judgment(self, trial: Trial, judged: ExecutionResult) -> None:
        """Add the verdicts of a judge to a trial."""
        observations = self._observations(judged.execution)
        trial.judge_tokens, trial.judge_cost_usd = _used(observations)
        if not judged.ended:
            trial.status = "waiting"
            trial.problems += [f"its judge waits for {wait['address']}" for wait in judged.waits]
            return
        if judged.outputs is None:
            error = judged.error
            trial.status = "error"
            message = f": {error['message']}" if error else ""
            trial.problems.append(f"its judge has {judged.status}{message}")
            return
        for name, value in all_unmarked(judged.outputs).items():
            self._add_verdict(trial, name, value)

    def _add_verdict(self, trial: Trial, name: str, value: Any) -> None:
        """Add one output of a judge. `null` is not a verdict.

        Raises:
            InputError: It is not a verdict.
        """
        if value is None:
            return
        verdict: Mapping[str, Any] = value if isinstance(value, dict) else {}
        passed = verdict.get("passed", value if isinstance(value, bool) else None)
        score = verdict.get("score", value if passed is None else float(passed is True))
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        if not (is_number and 0 <= score <= 1 and isinstance(passed, bool | None)):
            raise InputError(
                f"the output '{name}' of the judge must be true, false, a number from 0 to 1 or "
                "{passed, score, reason}"
            )
        trial.scores[name] = float(score)
        if reason := verdict.get("reason"):
            trial.reasons[name] = str(reason)
        if passed is False:
            reason = f": {reason}" if reason else ""
            trial.problems.append(f"{name}{reason}")
            if trial.status == "passed":
                trial.status = "failed"


async def shared(
    engine: Engine,
    flow: LoadedFlow | Flow,
    inputs: Mapping[str, Any],
    id: str,
    labels: Mapping[str, str],
) -> ExecutionResult:
    """Run an execution, or wait for another process that runs the evaluation with the same id.

    Returns:
        Its result.

    Raises:
        Conflict: The evaluation was begun with other flows or inputs.
    """
    while True:
        try:
            return await engine.run_async(flow, inputs, id=id, labels=labels)
        except Conflict as error:
            if error.standing is None:
                raise
        await asyncio.sleep(_LOOK)


async def _settled(trial: Trial, work: Awaitable[None]) -> None:
    """Await the result of a trial. Invalid inputs or verdicts are its result."""
    try:
        await work
    except InputError as error:
        trial.status = "error"
        trial.problems.append(error.message)


def _used(observations: list[Observation]) -> tuple[int, float]:
    """Return the tokens of all model calls and their known cost."""
    usage, _ = usage_of(seen.output for seen in observations if seen.status == "succeeded")
    return usage.input_tokens + usage.output_tokens, usage.cost_usd


def _check_inputs(judge: LoadedFlow) -> None:
    """Check that the inputs of a judge are known.

    Raises:
        InputError: The flow has another input, which has no default, or one of another type.
    """
    for name, schema in judge.compiled.get("inputs", {}).items():
        wanted = schema.get("type", ()) if isinstance(schema, dict) else ()
        types, given = {wanted} if isinstance(wanted, str) else {*wanted}, GIVEN.get(name, ())
        if types and given and types.isdisjoint(given):
            raise InputError(
                f"the input '{name}' of the judge '{judge.id}' has the type {' or '.join(types)}: "
                f"evaluations provide {given[0]}"
            )
        if name not in GIVEN and "default" not in schema:
            raise InputError(
                f"the judge '{judge.id}' has the input '{name}', which evaluations do not provide",
                hint=f"they provide: {', '.join(GIVEN)}",
            )
