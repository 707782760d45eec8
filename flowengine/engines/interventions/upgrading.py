"""Moving open executions to another version of their flow (docs/upgrading.md).

Each is looked at under its lease: what its state refers to needs a counterpart, or an entry in the
mapping. Then an `upgraded` event is committed, with the new hash in the index and a snapshot, in
one transaction; before it the execution is on the old side, after it on the new one. What runs
nobody can move: an execution that a living process holds is left alone, and told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowengine.engines.executions.replay import read, walk
from flowengine.engines.flows import as_loaded
from flowengine.engines.running.recovery import recover
from flowengine.errors import Conflict, UsageError
from flowengine.journal.records import ENDED, ExecutionFilter
from flowengine.kernel.moving.obstacles import Obstacle, obstacles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from os import PathLike

    from flowengine.engines.actors import Actor
    from flowengine.engines.executions.execution import Execution
    from flowengine.engines.executions.linked_flows import LinkedFlow
    from flowengine.engines.flows import LoadedFlow
    from flowengine.engines.host import Host
    from flowengine.engines.infos import UpgradeInfo, Verdict
    from flowengine.flow.building import Flow
    from flowengine.journal.records import ExecutionRecord
    from flowengine.kernel.commands import Observation
    from flowengine.kernel.events import Event
    from flowengine.kernel.graph.linked import Flow as Linked

SECTIONS = ("steps", "state", "signals", "inputs", "values")
"""Keys of a mapping; see `flowengine.kernel.moving.pairing`."""
OVER = frozenset({"succeeded", "skipped", "failed", "cancelled"})


class Upgrading:
    """One call that moves executions.

    Args:
        flow: The form to move them to, or the path of its file.
        executions: Ids, or beginnings of them; none: all open ones of the flow that do not run this
            form already.
        mapping: What is called otherwise in it, see `flowengine.kernel.moving.pairing`.
        who: The actor.
        check: Only look what would become of each.

    Attributes:
        infos: What became of each that was looked at until now, oldest first.
    """

    def __init__(
        self,
        host: Host,
        flow: Flow | LoadedFlow | str | PathLike[str],
        executions: Iterable[str],
        mapping: Mapping[str, Any] | None,
        who: Actor,
        *,
        check: bool,
    ) -> None:
        ids = list(dict.fromkeys(map(host.store.find_execution, executions)))
        form = as_loaded(host.store, flow)
        self._host = host
        self._who = who
        self._check = check
        self._linked = host.flows.of(form.compiled, form.form)
        self._records = of_flow(host, form, ids)
        self._mapping = check_mapping(host, self._records, self._linked, mapping or {})
        self.infos: list[UpgradeInfo] = []

    def __iter__(self) -> Iterator[Execution]:
        """Yield each execution that is to be moved, with its lease, to be driven.

        One whose move was not taken is yielded again.
        """
        for record in self._records:
            info, execution = (self.look(record), None) if self._check else self.take(record)
            while execution is not None:
                yield execution
                if self.settle(info):
                    break
                info, execution = self.take(record)
            self.infos.append(info)

    def look(self, record: ExecutionRecord) -> UpgradeInfo:
        """Return what would happen to an execution in its stored state."""
        host = self._host
        execution = host.stored(record.id, 0)
        info = look(host, execution, record, self._linked, self._mapping)
        if info["verdict"] == "continues" and host.holder(record.id) is not None:
            info["verdict"] = "held"
        return info

    def take(self, record: ExecutionRecord) -> tuple[UpgradeInfo, Execution | None]:
        """Take an execution and put the move into its queue, before all that has happened since.

        Args:
            record: What lists show of it.

        Returns:
            What is to be told, and the execution with its lease if it is to be moved.
        """
        host = self._host
        try:
            epoch = host.keeper.acquire(record.id)
        except Conflict:
            info = self.look(record)
            if info["verdict"] == "continues":  # who held it let go this moment
                info["verdict"] = "held"
            return info, None
        execution = host.execution(record.id, host.flows.by_hash(record.hash), epoch)
        try:
            loaded = host.store.load(record.id)
            execution.load(loaded)
            info = look(host, execution, loaded.record, self._linked, self._mapping)
            if info["verdict"] == "continues":
                now = host.clock.now()
                event = upgraded(execution, self._linked, self._mapping, self._who, now)
                recover(execution, host.store.inbox(record.id), now)
                execution.queue.insert(0, event)
                return info, execution
        except BaseException:
            host.keeper.release([(record.id, epoch)])
            raise
        host.keeper.release([(record.id, epoch)])
        return info, None

    def settle(self, info: UpgradeInfo) -> bool:
        """Note the state of an execution that was to be moved; return whether it was."""
        record = self._host.store.execution(info["execution"])
        info["status"] = record.status  # type: ignore[typeddict-item]
        info["moved"] = record.hash == self._linked.hash
        return info["moved"]


def of_flow(host: Host, flow: LoadedFlow, ids: Sequence[str]) -> list[ExecutionRecord]:
    """Return the executions that are to be moved.

    Args:
        flow: The form to move them to.
        ids: Full ids; empty: all open ones of the flow that do not run this form already.

    Returns:
        What lists show of each, oldest first.

    Raises:
        Conflict: One is of another flow.
    """
    found = [host.store.execution(id) for id in ids] or list(_open(host, flow.id))[::-1]
    for record in found:
        if record.flow != flow.id:
            raise Conflict(f"execution {record.id} is of the flow '{record.flow}', not '{flow.id}'")
    return found if ids else [record for record in found if record.hash != flow.form]


def _open(host: Host, flow: str) -> Iterator[ExecutionRecord]:
    after = None
    while True:
        page = host.store.executions(ExecutionFilter(flow), after, 200)
        yield from (record for record in page.items if record.status not in ENDED)
        after = page.next
        if after is None:
            return


def check_mapping(
    host: Host, records: Sequence[ExecutionRecord], linked: LinkedFlow, mapping: Mapping[str, Any]
) -> dict[str, Any]:
    """Check that a mapping names only what there is.

    Args:
        records: What it is for.
        linked: The form to move to.
        mapping: See `flowengine.kernel.moving.pairing`.

    Returns:
        The mapping as plain data.

    Raises:
        UsageError: It names something that neither form has.
    """
    from flowengine.engines.attempts.serialization import to_plain
    from flowengine.sdk import ValidationError

    try:
        plain = {
            name: target for name, target in to_plain(dict(mapping)).items() if target is not None
        }
    except ValidationError as error:
        raise UsageError(f"the mapping is not plain data: {error}") from None
    for section, names in plain.items():
        if section not in SECTIONS:
            known = ", ".join(SECTIONS)
            raise UsageError(f"a mapping has no section '{section}'", hint=f"known: {known}")
        if not isinstance(names, dict):
            raise UsageError(f"'{section}' of a mapping maps old names to new ones")
    olds = [host.flows.by_hash(hash) for hash in dict.fromkeys(record.hash for record in records)]
    for section in SECTIONS[:-1]:
        _check_names(olds, linked, section, plain.get(section, {}))
    for section, values in plain.get("values", {}).items():
        if section not in ("inputs", "state") or not isinstance(values, dict):
            raise UsageError("'values' of a mapping has 'inputs' and 'state', each with values")
        for name in values:
            if name not in _names(linked, section):
                raise UsageError(f"values.{section}: the new flow has no '{name}'")
    return plain


def _check_names(
    olds: Sequence[LinkedFlow], linked: LinkedFlow, section: str, renamed: Mapping[str, Any]
) -> None:
    """Check that both names of each entry of a section are there.

    Raises:
        UsageError: One is not.
    """
    there = _names(linked, section)
    for old, new in renamed.items():
        if olds and not any(old in _names(old_flow, section, qualified=True) for old_flow in olds):
            raise UsageError(f"{section}: no execution to be moved has '{old}'")
        dropped = new is None and section in ("state", "signals")
        if not dropped and (not isinstance(new, str) or new not in there):
            known = ", ".join(sorted(there)) or "none"
            if new is None:
                why = f"{section}: '{old}' cannot be dropped, it needs a new name"
            else:
                why = f"{section}: the new flow has no '{new}'"
            raise UsageError(why, hint=f"it has: {known}")


def _names(linked: LinkedFlow, section: str, *, qualified: bool = False) -> set[str]:
    """Return what a flow, and those inside it, call their steps, state keys, signals or inputs."""
    found: set[str] = set()
    for number, flow in enumerate(linked.graph.flows):
        own = _of_flow(linked, flow, section)
        if number == 0 or not qualified:
            found |= own
        if number and qualified:
            found |= {f"{flow.id}:{name}" for name in own}
            found |= own if section == "signals" else set()
    return found


def _of_flow(linked: LinkedFlow, flow: Linked, section: str) -> set[str]:
    if section == "steps":
        steps = (linked.graph.node(number) for number in range(*flow.steps))
        return {node.id for node in steps if node.body >= 0}
    return set(getattr(flow, section))


def look(
    host: Host,
    execution: Execution,
    record: ExecutionRecord,
    linked: LinkedFlow,
    mapping: Mapping[str, Any],
) -> UpgradeInfo:
    """Return whether an execution can continue with another version of its flow, and why not.

    Args:
        execution: The execution, as stored.
        record: What lists show of it.
        linked: The form to move it to.
        mapping: Checked.
    """
    found: list[Obstacle] = []
    verdict: Verdict = "continues"
    if record.status in ENDED:
        verdict = "ended"
    elif record.hash == linked.hash:
        verdict = "current"
    elif not execution.seq:
        why = f"it has not started; start it with: flowengine resume {record.id}"
        verdict, found = "cannot", [Obstacle("execution", "", why, None, [])]
    else:
        ran = steps_that_ran(host, record)
        found = obstacles(execution.linked.graph, linked.graph, execution.state, mapping, ran)
        if any(obstacle.write is None for obstacle in found):
            verdict = "cannot"
        elif found:
            verdict = "mapping"
    return upgrade_info(record, verdict, found)


def upgrade_info(
    record: ExecutionRecord, verdict: Verdict, found: Sequence[Obstacle] = ()
) -> UpgradeInfo:
    """Return the report about one execution."""
    return {
        "execution": record.id,
        "flow": record.flow,
        "version": record.version or "",
        "status": record.status,  # type: ignore[typeddict-item]
        "verdict": verdict,
        "moved": False,
        "obstacles": [
            {"what": a.what, "name": a.name, "why": a.why, "write": a.write, "fits": a.fits}
            for a in found
        ],
        "write": _written(found),
    }


def _written(found: Sequence[Obstacle]) -> dict[str, Any]:
    """Return all that is to be written into the mapping."""
    whole: dict[str, Any] = {}
    for obstacle in found:
        for section, names in (obstacle.write or {}).items():
            into = whole.setdefault(section, {})
            for name, value in names.items():
                if isinstance(value, dict):
                    into.setdefault(name, {}).update(value)
                else:
                    into[name] = value
    return whole


def steps_that_ran(host: Host, record: ExecutionRecord) -> set[str]:
    """Return the names of the steps of an execution that have ended, as they are called now."""
    ran: set[str] = set()
    seen: list[Observation] = []
    journal = read(host.store, record.id)
    for moment in walk(host.flows, record.hash, journal, seen):
        if moment.event["type"] == "upgraded":
            renamed = moment.event["mapping"].get("steps", {})
            ran = {renamed.get(name, name) for name in ran}
        for observation in seen:
            if observation.status in OVER:
                node = moment.graph.node(observation.step)
                flow = moment.graph.body(node.body).flow if node.body >= 0 else 0
                prefix = f"{moment.graph.flows[flow].id}:" if flow else ""
                ran.add(f"{prefix}{node.id}")
        seen.clear()
    return ran


def upgraded(
    execution: Execution,
    linked: LinkedFlow,
    mapping: Mapping[str, Any],
    who: Actor,
    now: int,
) -> Event:
    """Return the event that moves an execution to another version of its flow.

    Args:
        execution: As it stands.
        linked: The version; it has been checked.
        mapping: Checked.
        who: The actor.
        now: The time (ms).
    """
    event: Any = {
        "type": "upgraded",
        "at": now,
        "before": execution.linked.hash,
        "after": linked.hash,
        "mapping": dict(mapping),
        "version": linked.compiled.get("version", ""),
        "evaluator": linked.compiled.get("evaluator", ""),
        **who.fields(),
    }
    return event  # type: ignore[no-any-return]
