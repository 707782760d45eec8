"""The tasks of a flow, prepared once: run attempts, and check arguments and results."""

from __future__ import annotations

import io
from collections.abc import Mapping
from os import PathLike
from typing import Any

from flowengine import registry
from flowengine.engines.attempts.context import AttemptContext
from flowengine.engines.attempts.environments import Environments, NotAgain, none_here
from flowengine.engines.attempts.failures import evidence_of, failure_of
from flowengine.engines.attempts.outcome import AttemptFailed, Patience, QuickCall, Ran
from flowengine.engines.attempts.printed import Printed
from flowengine.engines.attempts.runtime_resources import missing
from flowengine.engines.attempts.serialization import StoredValue, copy, keep
from flowengine.kernel.commands import Run
from flowengine.kernel.graph.compiled import OPENING, Plain
from flowengine.kernel.graph.specs import StepSpec
from flowengine.sdk import EnvironmentLost, LimitExceeded, StepError, ValidationError
from flowengine.sdk.processes import scratch_folder
from flowengine.sdk.steps.context import Artifacts, ExecutionContext, File, StepContext
from flowengine.sdk.steps.step_kind import Need, StepKind
from flowengine.sdk.texts.sizes import size_text
from flowengine.sdk.texts.untrusted import quotes
from flowengine.sdk.values.argument_schemas import described_arguments
from flowengine.sdk.values.plain_values import place_of_fault
from flowengine.sdk.values.validation import Validator, shared
from flowengine.secrets import Secrets, has_secret
from flowengine.util.loops import is_interrupt


def check_size(value: Plain, most: int, context: StepContext) -> None:
    """Refuse a result that exceeds its tool's limit. The result is kept as a file.

    Args:
        value: The result, secrets masked.
        most: Maximum number of bytes: for text in UTF-8, for anything else as JSON.
        context: The attempt that has ended.

    Raises:
        LimitExceeded: The result is too large. The error's data names the file.
    """
    data, name = _content(value)
    if len(data) <= most:
        return
    file = context.execution.artifacts.put(data, name)
    raise LimitExceeded(
        f"the call was made, but its result has {size_text(len(data))} and limits.output of "
        f"the tool is {size_text(most)}. The result is kept as the file {file['sha256']}",
        data={"limit": "output", "value": most, "size": len(data), "file": {**file}},
        retryable=False,
    )


def _content(value: Plain) -> tuple[bytes, str]:
    if isinstance(value, bytes):
        return value, "result.bin"
    if isinstance(value, str):
        return value.encode(), "result.txt"
    import json
    from base64 import b64encode

    text = json.dumps(value, ensure_ascii=False, default=lambda data: b64encode(data).decode())
    return text.encode(), "result.json"


class Task:
    """A step that runs a task.

    Args:
        step: The step.
        secrets: Secrets of its flow.
    """

    def __init__(self, step: StepSpec, secrets: Secrets) -> None:
        self.secrets = secrets
        self._timed = "timeout" in step
        self._kind_name = step["kind"]
        self._constants: Mapping[str, Plain] = step.get("task", {})
        self._environments = step.get("environments", False)
        self._adapter = step.get("adapter")
        self._source: Any = self._adapter and self._adapter["task"].get("source")
        """The source of untrusted text in results and errors shown to a model. None: there is
        none."""
        # An adapter limits the size of its results by itself.
        limits: Mapping[str, int] = step.get("limits", {}) if self._adapter is None else {}
        self._largest = limits.get("output")
        """Maximum size of a result in bytes. None: unlimited."""
        given = step.get("input")
        if self._environments:
            given = given[1]["input"]  # type: ignore[index] # those have one
        self._has_secrets = has_secret(given)
        self._masks = bool(secrets.names)
        """Whether the flow has secrets."""
        self._is_fixed = "args" not in step and (given is None or given[0] == "const")
        """Whether all attempts have the same input."""
        self._kind: StepKind | None = None
        self._args: Validator | None = None
        self._returns: Validator | None = None
        self._configuration: Validator | None = None
        self._configured_keys: frozenset[str] = frozenset()
        self._fixed_fits = False
        """Whether the flow's own values for the keys of the kind have been checked."""

    def quick_call(self) -> QuickCall | None:
        """Return a function that runs the step synchronously, or None."""
        if self._has_secrets or self._environments:
            return None
        try:
            kind = self._ready()
            if type(kind).needs is not StepKind.needs:
                return None
            work = kind.quick(self._constants)
        except BaseException as error:
            if is_interrupt(error):
                raise
            cause = error

            def fail(execution: ExecutionContext, run: Run) -> StoredValue:
                raise self._failed(cause) from cause

            return fail
        if work is None:
            return None
        fits = False

        def call(execution: ExecutionContext, run: Run) -> StoredValue:
            nonlocal fits
            context = None
            try:
                if not fits:
                    self._check(run.args, run.input)
                    fits = self._is_fixed and (self._args is None or self._args.proof is not None)
                seen = self._screened(execution) if self._masks else execution
                for_model = self._adapter is not None
                context = AttemptContext(seen, run, self.secrets, self._timed, for_model=for_model)
                return self._result(work(context, copy(run.input)), context, run.input)
            except BaseException as error:
                if is_interrupt(error):
                    raise
                failed = self._failed(error)
                failed.log = None if context is None else context.logged
                raise failed from error

        return call

    async def attempt(
        self,
        execution: ExecutionContext,
        run: Run,
        environments: Environments | None = None,
        printed: Printed | None = None,
        patience: Patience | None = None,
    ) -> StoredValue:
        """Run one attempt to its end, as in `TaskRunner`."""
        seen = self._screened(execution) if self._masks else execution
        for_model = self._adapter is not None
        context = AttemptContext(seen, run, self.secrets, self._timed, printed, patience, for_model)
        try:
            kind = None if self._kind_name == OPENING else (self._kind or self._ready())
            if kind is not None and execution.missing and await self._takes_all(kind, context):
                raise self._failed(missing(execution), "no")
            if kind and execution.environments and await self._takes_all(kind, context):
                declared = run.environments if self._environments else {}
                context.run = run._replace(environments={**declared, **execution.environments})
            elif kind is not None and not self._environments:
                return await self._execute(kind, context, run.input)
            if environments is None:
                raise none_here()
            return await self._execute_in(environments, kind, context)
        except BaseException as error:
            raised = self._converted(error, context)
            if isinstance(raised, AttemptFailed):
                raised.openings, raised.log = context.openings, context.logged
            if raised is error:
                raise
            raise raised from error
        finally:
            if printed is not None:
                printed.close()

    async def needs(
        self, execution: ExecutionContext, run: Run, printed: Printed | None = None
    ) -> Mapping[str, Need]:
        """Return the amounts that an attempt may use, before it begins, as in `TaskRunner`."""
        context = AttemptContext(execution, run, self.secrets, self._timed, printed)
        try:
            kind = self._ready()
            return await kind.needs(context, self._constants, self._checked(run.args, run.input))
        except BaseException as error:
            raised = self._converted(error, context)
            if raised is error:
                raise
            raise raised from error
        finally:
            if printed is not None:
                printed.close()

    def _screened(self, execution: ExecutionContext) -> ExecutionContext:
        """Return an execution whose files are checked for the secrets of the flow."""
        return execution._replace(artifacts=ScreenedFiles(execution.artifacts, self.secrets))

    async def _takes_all(self, kind: StepKind, context: AttemptContext) -> bool:
        """Return whether the step uses all available resources."""
        if type(kind).takes_resources is StepKind.takes_resources:
            return False
        return await context.on_thread(lambda: kind.takes_resources(self._constants))

    async def _execute_in(
        self, environments: Environments, kind: StepKind | None, context: AttemptContext
    ) -> StoredValue:
        """Run an attempt with its environments, and report the loss of one separately."""
        run = context.run
        try:
            later = self._constants.get("background", ()) if kind is None else ()
            had = await environments.have(context.execution, run, self.secrets.references, later)
        except NotAgain as error:
            raise self._failed(error.why, "no") from error.why
        openings = [each.opening for each in had.values() if each.opening is not None]
        context.environments, context.openings = had, openings
        try:
            if kind is None:  # the step only opens its environments
                return StoredValue(None, None, openings)
            kept = await self._execute(kind, context, run.input)
            return kept._replace(openings=openings) if openings else kept
        except EnvironmentLost as error:
            raise self._failed(error, "maybe", context.output) from error
        finally:
            await environments.give_back(context.execution.id, had.values())

    async def _execute(self, kind: StepKind, context: AttemptContext, given: Plain) -> StoredValue:
        input = self._checked(context.run.args, given)
        try:
            value = await kind.execute(context, self._constants, input)
        except Exception as error:
            if self._source is not None and isinstance(error, StepError):
                quotes(error, self._source)
            raise
        return self._result(value, context, input)

    def _checked(self, args: Plain, given: Plain) -> Any:
        """Return the input of an attempt: a copy, with secrets resolved."""
        input = copy(given)
        if self._has_secrets:
            input = self.secrets.reveal(input)
        if self._args is not None:
            self._check(args, input)
        if self._configuration is not None:
            self._check_configuration(input)
        return input

    def _ready(self) -> StepKind:
        if self._kind is None:
            schema = self._constants.get("schema")
            # The result of an adapter has a different format.
            returns = self._constants.get("returns") if self._adapter is None else None
            self._args = None if schema is None else shared(schema)
            self._returns = None if returns is None else shared(returns)
            kind = registry.kind(self._kind_name)
            configuration = kind.configuration()
            self._configured_keys = frozenset(configuration.get("properties", ()))
            # Constants were checked with the file, the configuration of a session with the session.
            is_fixed = self._configured_keys <= {*kind.constants}
            if not is_fixed and kind.session is None:
                self._configuration = shared(configuration)
            self._kind = kind
        return self._kind

    def _check(self, args: Plain, input: Plain) -> None:
        """Check the arguments of a call, including fixed ones that the schema describes."""
        schema = self._args
        if schema is None:
            return
        if args is None and "bind" not in input:
            args = input.get("args", {})
        else:
            args = _arguments(args, input, self._constants["schema"])
        if schema.proof is None or not schema.proof(args):
            schema.check(args, "arguments")

    def _check_configuration(self, input: Mapping[str, Plain]) -> None:
        """Check the computed values for the keys of a kind. Null counts as left out."""
        assert self._configuration is not None
        known = self._configured_keys
        if self._ready().takes_arguments:
            input = input.get("configuration", {})
        is_fixed = known.isdisjoint(input)
        if is_fixed and self._fixed_fits:
            return
        given = {
            key: value
            for part in (self._constants, input)
            for key, value in part.items()
            if key in known and value is not None
        }
        self._configuration.check(given, self._kind_name)
        self._fixed_fits = self._fixed_fits or is_fixed

    def _result(self, value: Any, context: AttemptContext, input: Plain) -> StoredValue:
        if self._adapter is not None:
            called = (self._kind_name, self._constants, input)
            value = registry.adapted(self._adapter, context, called, value)
        try:
            kept = keep(value)
        except ValidationError as error:
            place = place_of_fault(value)
            at = f"result{place}: " if place else ""
            raise ValidationError(f"the result cannot be kept: {at}{error.message}") from None
        schema = self._returns
        if schema is not None and (schema.proof is None or not schema.proof(kept.value)):
            try:
                value = schema.check(kept.value, "the result")
            except ValidationError as error:
                raise ValidationError(f"the result cannot be kept: {error.message}") from None
            kept = kept if value is kept.value else StoredValue(value)
        if self._masks:
            masked = self.secrets.mask(kept.value)
            kept = kept if masked is kept.value else StoredValue(masked)
        if self._largest is not None:
            check_size(kept.value, self._largest, context)
        return kept if context.lines is None else kept._replace(log=context.logged)

    def _failed(
        self, error: BaseException, ran: Ran | None = None, printed: Printed | None = None
    ) -> AttemptFailed:
        mask = self.secrets.mask
        evidence = evidence_of(error, mask)
        if printed is not None:
            evidence = {**printed.evidence(), **evidence}
        return AttemptFailed(failure_of(error, mask), ran, evidence)

    def _converted(self, error: BaseException, context: AttemptContext) -> BaseException:
        """Return the exception that ends an attempt, given the one that was raised in it.

        A withdrawal is still passed to the function.
        """
        if isinstance(error, AttemptFailed):
            return error
        if _is_withdrawal(error):
            context.withdraw()
            return error
        return self._failed(error, printed=context.output)


def _is_withdrawal(error: BaseException) -> bool:
    """Return whether the engine or the user ends the attempt, rather than the attempt itself."""
    import asyncio

    if not isinstance(error, asyncio.CancelledError):
        return is_interrupt(error)
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _arguments(args: Plain, input: Plain, schema: Plain) -> Plain:
    """Return the arguments that a schema describes."""
    bound = input.get("bind") if type(input) is dict else None
    if args is None:
        args = input.get("args", {})
    if not bound:
        return args
    described = schema.get("properties", {})
    if not bound.keys() <= described.keys():
        described = described_arguments(schema)
    return {**args, **{name: value for name, value in bound.items() if name in described}}


# File storage for the steps of a flow with secrets, which refuses or masks files with secrets.


class ScreenedFiles:
    """Checks each file for secrets before storing it. Implements `Artifacts`.

    Args:
        files: Stores the files.
        secrets: Secrets of the flow.
    """

    def __init__(self, files: Artifacts, secrets: Secrets) -> None:
        self._files = files
        self._secrets = secrets

    def put(self, source: bytes | PathLike[str], name: str) -> File:
        """Keep bytes or a copy of a file, its secrets masked if the flow declares that.

        Args:
            source: The bytes, or the path of the file.
            name: The name of the file.

        Returns:
            The file as data.

        Raises:
            ValidationError: It contains a secret that is not declared with `files: mask`.
        """
        with scratch_folder() as folder:
            copy = folder / "masked"
            with (
                io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as given,
                copy.open("wb") as target,
            ):
                masked = self._secrets.mask_file(given, target, name)
            return self._files.put(copy if masked else source, name)

    def path(self, sha256: str) -> str:
        """Return the path of a kept file."""
        return self._files.path(sha256)
