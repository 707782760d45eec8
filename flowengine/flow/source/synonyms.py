"""Terms of other tools, and their names in this language.

They are looked up before any guess by spelling: `switch` resembles `with`, but has another meaning.
The terms come from workflow engines, CI systems and programming languages.
"""

from __future__ import annotations

from typing import NamedTuple


class Meant(NamedTuple):
    """The meaning of a foreign term in this language."""

    hint: str
    key: str | None = None
    """The corresponding key, or None if there is none."""


def _words(words: str, hint: str, key: str | None = None) -> dict[str, Meant]:
    return {word: Meant(hint, key) for word in words.split()}


_MAP = "write 'map: {over: \"${{ … }}\", as: item}'"
_STEP = {
    **_words("foreach for_each forEach for each matrix iterate with_items", _MAP, "map"),
    **_words("switch branch choice choose case cases conditions router else elif",
             "write 'next: {first: [{when: \"${{ … }}\", to: a}, {else: b}]}'", "next"),
    **_words("if condition unless run_if only_if", "write 'when: \"${{ … }}\"'", "when"),
    **_words("depends_on dependsOn requires after depends upstream",
             "the step before sets the order: 'next: THIS', or 'next: {all: [a, b]}' and "
                     "'join: all' where they meet", "next"),
    **_words("sleep delay pause timer wait_for_time", "write 'wait: 10s'", "wait"),
    **_words("await receive wait_for wait_signal event listen on_signal",
             "write 'wait: {signal: NAME}'", "wait"),
    **_words("uses tool action activity task", "write 'call: TOOL'", "call"),
    **_words("function func handler callable", "write 'python: module:function'", "python"),
    **_words("name key ref", "write 'id'. 'title' is a label for users", "id"),
    **_words("on_failure on_fail onFailure onError catch except rescue continue_on_error "
             "continue-on-error error_handler", "write 'on_error: [{type: …, next: …}]'",
             "on_error"),
    **_words("args arguments params parameters inputs input vars",
             "write 'with: {name: value}'", "with"),
    **_words("script shell bash sh cmd command exec", "write 'run: …'", "run"),
    **_words("env envs", "write 'run: {script: …, env: {NAME: value}}'"),
    **_words("approve human manual user_task interrupt", "write 'approval: QUESTION'", "approval"),
    **_words("until repeat do_while", "write 'loop: {until: \"${{ … }}\", max: 10}'", "loop"),
    **_words("while", "write 'loop: {while: \"${{ … }}\", max: 10}'", "loop"),
    **_words("retries max_retries max_attempts attempts tries", "write 'retry: 3'", "retry"),
    **_words("timeout_seconds timeoutSeconds timeout-minutes timeout_minutes TimeoutSeconds",
             "write 'timeout: 30s'", "timeout"),
    **_words("goto go_to transition transitions then edges edge to Next",
             "write 'next: STEP'", "next"),
    **_words("outputs result results return returns", "write 'output: …'", "output"),
    **_words("assign set_state update variables", "write 'set: {key: value}'", "set"),
    **_words("subflow sub_flow workflow child child_workflow subworkflow run_flow",
             "write 'flow: NAME'", "flow"),
    **_words("mutex semaphore concurrency", "write 'lock: NAME'", "lock"),
    **_words("throw raise error abort", "write 'fail: {type: …, message: …}'", "fail"),
    **_words("publish send notify", "write 'emit: SIGNAL'", "emit"),
    **_words("signal", "write 'emit: SIGNAL', or 'wait: {signal: SIGNAL}'", "emit"),
    **_words("steps do block sequence tasks", "write 'group: [steps]'", "group"),
    **_words("try", "write 'group: [steps]' with 'on_error: [{type: …, next: …}]'", "group"),
    **_words("fork concurrent", "write 'parallel: [steps]'", "parallel"),
    **_words("branches", "write 'parallel: [steps]', or 'next: {first: […]}' to choose one",
             "parallel"),
    **_words("exit stop", "write 'next: end', or 'fail: {type: …, message: …}'", "next"),
    **_words("type kind", "the key of its action defines a step: run, http, python, call, wait"),
    **_words("undo rollback compensation revert", "write 'compensate: {call: TOOL}'", "compensate"),
    **_words("environment sandbox container image runs_on runs-on", "write 'in: ENVIRONMENT'",
             "in"),
    **_words("always ensure cleanup", "write 'finally: [steps]' on a group or the flow", "finally"),
    **_words("url method headers body query", "'http' contains it: 'http: {url: …, method: …}'",
             "http"),
    **_words("request rest api", "write 'http: {url: …}'", "http"),
    **_words("search websearch google_search tavily_search", "write 'web_search: {provider: …}'",
             "web_search"),
}  # fmt: skip
_FLOW = {
    **_words("name", "write 'id'. 'title' is a label for users", "id"),
    **_words("jobs nodes tasks states stages activities graph", "write 'steps: [...]'", "steps"),
    **_words("params parameters args arguments input variables vars",
             "write 'inputs: {name: {type: string}}'", "inputs"),
    **_words("output result results returns", "write 'outputs: {name: \"${{ … }}\"}'", "outputs"),
    **_words("on triggers trigger", "write 'start: [{signal: NAME}]'", "start"),
    **_words("edges transitions", "write 'next' in each step"),
    **_words("env", "declare 'inputs', or 'secrets: {NAME: {env: NAME}}'"),
    **_words("functions actions", "write 'tools: {NAME: {python: module:function}}'",
             "tools"),
    **_words("on_failure on_fail catch errors error_handler",
             "write 'on_error: [{type: …, next: …}]'", "on_error"),
    **_words("channels context memory", "write 'state: {key: {type: …}}'", "state"),
    **_words("import includes include", "write 'imports: {alias: FILE}'", "imports"),
    **_words("timeout deadline", "write 'limits: {duration: 1h}'", "limits"),
    **_words("always ensure cleanup after finalizer", "write 'finally: [steps]'", "finally"),
    **_words("schedule schedules cron", "write 'start: [{schedule: 0 9 * * 1-5}]'", "start"),
    **_words("workflow pipeline", "write 'id' and 'steps' at the top level of the file"),
    **_words("retry retries", "write 'retry' in each step"),
    **_words("next", "the flow starts with the first of 'steps'. 'next' belongs in a step"),
}  # fmt: skip
_OF_FILES = frozenset({"id", "start", "tools", "imports"})
"""Keys of a file that a flow inside it cannot have."""
_RETRY = {
    **_words("initial_delay initial_interval initialInterval interval IntervalSeconds wait "
             "min_delay sleep pause delay_seconds", "write 'delay: 1s'", "delay"),
    **_words("max_attempts maxAttempts MaxAttempts max times retries count limit tries",
             "write 'attempts: 3', which counts all attempts", "attempts"),
    **_words("factor multiplier rate BackoffRate backoff_factor backoff_rate backoffCoefficient "
             "backoff_coefficient exponential", "write 'backoff: 2'", "backoff"),
    **_words("max_interval maximumInterval MaxDelaySeconds maxDelay cap", "write 'max_delay: 1m'",
             "max_delay"),
    **_words("on only errors error_types types retry_on ErrorEquals retry_if_exception",
             "write 'type: [ErrorType]'", "type"),
    **_words("except ignore non_retryable nonRetryableErrorTypes not_on abort_on",
             "write 'when: \"${{ error.type != 'ErrorType' }}\"'", "when"),
    **_words("if condition", "write 'when: \"${{ … }}\"'", "when"),
}  # fmt: skip
_APPROVAL = {
    **_words("quorum votes approvals min_approvals required_approvals required count min",
             "write 'need: 2'", "need"),
    **_words("approvers reviewers users assignee who owners groups candidates to for",
             "write 'assignees: [\"user:ana\"]'", "assignees"),
    **_words("timeout deadline due expiry ttl", "write 'expires: 48h'", "expires"),
    **_words("options buttons actions decisions", "write 'choices: [approve, reject]'", "choices"),
    **_words("message question prompt text name", "write 'title: …'", "title"),
    **_words("description details markdown", "write 'body: …'", "body"),
    **_words("data payload context value values", "write 'subject: {…}'", "subject"),
    **_words("fields schema inputs input", "write 'form: {properties: {…}}'", "form"),
    **_words("editable", "write 'edit: [FIELD]'", "edit"),
    **_words("reminder reminders", "write 'remind: {every: 8h}'", "remind"),
}  # fmt: skip
_MAP_KEYS = {
    **_words("in items list for each collection foreach of values", "write 'over: \"${{ … }}\"'",
             "over"),
    **_words("parallelism max_concurrency maxConcurrency MaxConcurrency max_parallel max-parallel "
             "workers limit batch_size", "write 'concurrency: 4'", "concurrency"),
    **_words("var item variable loop_var name", "write 'as: NAME'", "as"),
    **_words("on_error fail_fast fail-fast on_failure", "write 'on_item_error: continue'",
             "on_item_error"),
}  # fmt: skip
_LOOP = {
    **_words("times count max_iterations maxIterations limit max_rounds", "write 'max: 10'", "max"),
    **_words("condition if", "write 'while: \"${{ … }}\"', or 'until'", "while"),
    **_words("delay interval sleep wait", "write 'every: 10s'", "every"),
}  # fmt: skip
_WAIT = {
    **_words("seconds duration time sleep delay timeout Seconds", "write 'for: 10s'", "for"),
    **_words("event message name on", "write 'signal: NAME'", "signal"),
    **_words("timestamp at date datetime Timestamp", "write 'until: 2026-11-20T09:00:00Z'",
             "until"),
    **_words("condition if", "write 'when: \"${{ … }}\"'", "when"),
}  # fmt: skip
_NEXT = {
    **_words("if switch choice conditions cases", "write 'first: [{when: …, to: a}, {else: b}]'",
             "first"),
    **_words("parallel split fork both", "write 'all: [a, b]'", "all"),
}  # fmt: skip
_REPLIES = _words(
    "text calls raise crash never after with return reasoning finish usage provider_parts",
    "write a list, with one entry for each request: [{…}]", "in_order",
)  # fmt: skip
_TOOL = {
    **_words("params parameters arguments input inputs schema input_schema inputSchema",
             "write 'args: {type: object, properties: {…}}'", "args"),
    **_words("output outputs result return output_schema outputSchema", "write 'returns: {…}'",
             "returns"),
    **_words("bind defaults", "write 'with: {name: value}'", "with"),
    **_words("in environment sandbox", "write 'environments: [NAME]'", "environments"),
}  # fmt: skip
_AGENT = {
    **_words("in environment sandbox", "write 'environments: [NAME]'", "environments"),
}  # fmt: skip
_ENVIRONMENT = {
    **_words("sandbox runtime backend driver engine isolation",
             "write 'provider: docker', 'namespace' or 'host'", "provider"),
    **_words("type", "write 'kind: shell', 'python', …", "kind"),
    **_words("image container", "write 'config: {image: NAME}'", "config"),
    **_words("options settings with", "write 'config: {…}'", "config"),
    **_words("params parameters arguments inputs", "write 'args: {properties: {…}}'", "args"),
    **_words("network permissions", "write 'policy: {network: none}'", "policy"),
    **_words("resources cpus memory disk", "write 'limits: {memory: 2GiB, cpus: 2}'", "limits"),
    **_words("timeout", "write 'limits: {time: 30s}', for each call", "limits"),
}  # fmt: skip
_OF: dict[str, dict[str, Meant]] = {
    "Agent": _AGENT,
    "Environment": _ENVIRONMENT,
    "Step": _STEP,
    "ParallelStep": _STEP,
    "FlowModel": _FLOW,
    "FlowBody": {word: value for word, value in _FLOW.items() if value.key not in _OF_FILES},
    "Retry": _RETRY,
    "Approval": _APPROVAL,
    "AskFirst": {
        word: value
        for word, value in _APPROVAL.items()
        if value.key not in {"subject", "edit"} and word != "required"
    },
    "AskBeforeCall": {
        word: value
        for word, value in _APPROVAL.items()
        if value.key != "subject" and word != "required"
    },
    "Map": _MAP_KEYS,
    "Loop": _LOOP,
    "Wait": _WAIT,
    "Alternative": _WAIT,
    "Next": _NEXT,
    "Tool": _TOOL,
    "Secret": _words("keyring vault", "not supported: write 'env: NAME' or 'file: PATH'", "env"),
    "Replies": _REPLIES,
}


def synonym(where: str, word: str) -> Meant | None:
    """Return the meaning of a foreign term at a place.

    Args:
        where: The name of the model whose key it would be.
        word: The term.

    Returns:
        Its meaning, or None if the term is unknown.
    """
    return _OF.get(where, {}).get(word)


NAMES = {
    "params": "inputs", "param": "inputs", "parameters": "inputs", "input": "inputs",
    "arguments": "inputs", "variables": "inputs", "vars": "inputs",
    "ctx": "execution", "context": "execution", "workflow": "execution", "flow": "execution",
    "github": "execution", "run": "execution",
    "jobs": "steps", "needs": "steps", "nodes": "steps", "tasks": "steps", "step": "steps",
    "outputs": "steps", "results": "steps",
    "loop": "round", "iteration": "round", "attempt": "error", "each": "item",
}  # fmt: skip
"""The first name of a path in other tools → its name here."""

VALUES = {
    "None": "write null", "nil": "write null", "undefined": "write null", "NULL": "write null",
    "True": "write true", "False": "write false",
    "env": "declare an input or a secret: 'secrets: {NAME: {env: NAME}}'",
    "secret": "write secrets.NAME, alone", "self": "write output, or state.KEY",
}  # fmt: skip
"""Other names at the beginning of expressions elsewhere → the remedy."""

OUTPUTS = frozenset({"result", "results", "outputs", "value", "return", "returned", "response"})
"""Names for the output of a step in other tools."""
