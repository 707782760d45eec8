"""The checks of the graph, scope by scope (docs/language.md: Order, Checking)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations

from flowengine.flow.check import net as nets
from flowengine.flow.check import termination, token_game
from flowengine.flow.check.concurrent_tokens import Effort, Meeting, Pairs, outrun
from flowengine.flow.check.concurrent_writes import locks_over, writers
from flowengine.flow.check.join_deadlocks import JoinDeadlock, Ways, broken_promises
from flowengine.flow.check.net import Cancels, EdgeId, Place, Step
from flowengine.flow.check.released_environments import Finding
from flowengine.kernel.graph import linked
from flowengine.kernel.graph.compiled import END, START
from flowengine.kernel.graph.specs import CompiledFlow, StepSpec

CLASH_LIMIT = 5_000
"""Positions of the full game to explore before a meeting is taken as found."""
LONGEST_EXAMPLE = 20
"""Moves of an example run that a message shows."""
JOIN_HINT = (
    "use 'join: all' to wait for both, 'active' for those that arrive, 'each' to run for each"
)


def check_graph(
    flow: CompiledFlow,
    gaps: Collection[int] = frozenset(),
    unknown_joins: Collection[Step] = frozenset(),
) -> Iterator[Finding]:
    """Yield the errors and warnings in the graph of a flow.

    Args:
        flow: The compiled flow, with splits, joins, handlers and sources.
        gaps: Bodies with a missing step or way, which is already reported. In these, only findings
            are reported that hold however the gap is filled.
        unknown_joins: Steps in these bodies whose join is unknown.

    Yields:
        Findings, in no order.
    """
    cancels, effort = nets.cancellations(flow), Effort()
    for body, spec in enumerate(flow["bodies"]):
        if spec["owner"] >= 0 and "exchange" in flow["steps"][spec["owner"]]:
            continue  # only calls begin its steps
        if body in gaps:
            yield from _Body(flow, body, cancels, effort).meetings(unknown_joins)
        elif not _is_unreachable(flow, body, gaps):
            yield from _Body(flow, body, cancels, effort).check()


def _is_unreachable(flow: CompiledFlow, body: int, gaps: Collection[int]) -> bool:
    """Return whether a body belongs to a group that no token reaches."""
    owner = flow["bodies"][body]["owner"]
    if owner < 0 or flow["steps"][owner]["body"] in gaps:
        return False
    return not flow["steps"][owner].get("sources")


class _Body:
    """One scope."""

    def __init__(self, flow: CompiledFlow, body: int, cancels: Cancels, effort: Effort) -> None:
        self.flow = flow
        self.effort = effort
        self.body = body
        self.cancels = cancels
        self.full = nets.build(flow, body, cancels)
        self.writers = writers(flow, body)
        self.groups = self._cancelled_groups()
        self.waits = [n.step for n in self.full.nodes if _waits_for_ever(flow["steps"][n.step])]
        self.net = nets.compress(self.full, [*self.writers, *self.groups, *self.waits])
        self.ways = Ways(flow, self.net)
        self._full_game: token_game.GameVerdict | None = None
        self._stall_game: token_game.GameVerdict | None = None
        self._example_game: token_game.GameVerdict | None = None

    def check(self) -> Iterator[Finding]:
        yield from self._unreachable()
        for cycle in termination.endless(self.full):
            names = [self.full.name(self.flow, place) for place in cycle]
            way = " → ".join([*names, names[0]])
            message = f"no path leads from {names[0]!r} to an end: {way}"
            hint = "let a step of the cycle lead to another step or to 'end'"
            yield Finding("E406", self.full.nodes[cycle[0]].step, message, hint)
        if not self._splits():
            yield from self._starving()
            yield from self._counting()
            yield from self._lonely(set())
            return
        pairs = Pairs(self.net, self.effort.pairs())
        self.effort.spend(pairs=pairs.count)
        if pairs.gave_up:
            first = self.full.nodes[0].step
            message = "this scope has too many parallel paths to be checked"
            yield Finding("E202", first, message, "put each parallel part into a separate group")
            return
        yield from self._clashes(pairs)
        yield from self._crowded(pairs)
        yield from self._surplus(pairs)
        yield from self._starving()
        yield from self._counting()
        yield from self._replaced(pairs)
        if self.groups:
            beside = {self.net.nodes[p].step for places in pairs.together() for p in places}
            yield from self._lonely(beside)
        yield from self._outlived()

    def meetings(self, unknown_joins: Collection[Step]) -> Iterator[Finding]:
        """Yield certain meetings of tokens, even though a step or way is missing.

        Further ways cannot keep two tokens apart. Joins can, so ways through them are ignored.
        """
        if not self._splits():
            return
        pairs = Pairs(self.net, self.effort.pairs())
        self.effort.spend(pairs=pairs.count)
        doubtful = {
            place
            for place, node in enumerate(self.net.nodes)
            if node.join is not None or node.step in unknown_joins
        }
        if not pairs.gave_up:
            yield from self._clashes(pairs, doubtful)

    # Reaching and ending

    def _unreachable(self) -> Iterator[Finding]:
        reached = {node.step for node in self.full.nodes}
        steps = [s for s in self.flow["bodies"][self.body]["steps"] if s not in reached]
        if not steps:
            return
        place = {step: index for index, step in enumerate(steps)}
        ahead = [
            [place[t] for t in nets.targets(self.flow["steps"][step]) if t in place]
            for step in steps
        ]
        components = linked.components(ahead)
        of = {p: number for number, component in enumerate(components) for p in component}
        led_to = {of[t] for p, to in enumerate(ahead) for t in to if of[t] != of[p]}
        for number, component in enumerate(components):
            if number not in led_to:
                step = steps[min(component)]
                message = f"no branch ever reaches {self.flow['steps'][step]['id']!r}"
                hint = "lead to it with another step's 'next', or remove it"
                yield Finding("E204", step, message, hint)

    def _splits(self) -> bool:
        """Return whether there can be two tokens at once."""
        net = self.net
        several = len(net.starts) + 2 * len(net.triggers) > 1
        return several or any(
            node.many or any(len(move.edges()) > 1 for move in node.moves) for node in net.nodes
        )

    # Meetings

    def _played_for_stalls(self) -> token_game.GameVerdict:
        if self._stall_game is None:
            self._stall_game = self._play(self.net)
        return self._stall_game

    def _play(
        self, net: nets.Net, *, full: bool = False, limit: int = token_game.LIMIT
    ) -> token_game.GameVerdict:
        verdict = token_game.play(net, full=full, limit=limit, most=self.effort.work())
        self.effort.spend(work=verdict.work)
        return verdict

    def _clashes(
        self, pairs: Pairs, doubtful: Collection[Place] | None = None
    ) -> Iterator[Finding]:
        """Yield the places where tokens meet without a join.

        Args:
            pairs: Tokens that are live at the same time.
            doubtful: For a scope with gaps: places whose role is unknown.
        """
        suspected = dict.fromkeys([*pairs.clashes, *(outrun(self.net) if doubtful is None else ())])
        reported: list[Place] = []
        for place in sorted(suspected):
            if self._full_game is None:
                self._full_game = self._play(self.net, full=True, limit=CLASH_LIMIT)
            verdict = self._full_game
            if verdict.complete and place not in verdict.clashes:
                continue
            if place not in pairs.clashes:
                yield self._outrun(place)
                continue
            origin, *ways = pairs.origin(pairs.clashes[place])
            if any(all(place in way[:-1] for way in ways) for place in reported):
                continue  # they met before, and that is reported there
            if doubtful and any(one in doubtful for way in ways for one in [place, *way]):
                continue
            reported.append(place)
            yield self._clash(place, origin, (ways[0], ways[1]))

    def _clash(self, place: Place, origin: Place, ways: tuple[list[Place], list[Place]]) -> Finding:
        first, second = self.ways.two(origin, ways)
        who = "the start of the scope" if origin < 0 else repr(self.ways.name(origin))
        message = (
            f"two branches can meet at {self.ways.name(place)!r}, which has no 'join': "
            f"{who} sends one by {first} and one by {second}"
        )
        related = () if origin < 0 else ((self.net.nodes[origin].step, "the split"),)
        return Finding("E202", self.net.nodes[place].step, message, JOIN_HINT, ("id",), related)

    def _outrun(self, place: Place) -> Finding:
        message = (
            f"two branches can meet at {self.ways.name(place)!r}, which has no 'join': it lies on "
            "a cycle that can come round before a counting join on it has finished its round"
        )
        return Finding("E202", self.net.nodes[place].step, message, JOIN_HINT)

    def _crowded(self, pairs: Pairs) -> Iterator[Finding]:
        reported: set[Place] = set()
        for edge, meeting in sorted(pairs.crowded.items()):
            if meeting.place in reported:
                continue
            reported.add(meeting.place)
            first, second, origin = self._meeting(pairs, meeting)
            message = (
                f"two branches can arrive over the same edge {self._edge(edge)}, and late ones are "
                f"ignored there: {origin} sends one by {first} and one by {second}"
            )
            hint = "use 'late: queue' for rounds by edge, or join them before"
            step = self.net.nodes[meeting.place].step
            yield Finding("E212", step, message, hint, ("join",))

    def _meeting(self, pairs: Pairs, meeting: Meeting) -> tuple[str, str, str]:
        origin, one, two = pairs.origin(meeting)
        first, second = self.ways.two(origin, (one, two))
        who = "the start of the scope" if origin < 0 else repr(self.ways.name(origin))
        return first, second, who

    # Joins that wait

    def _surplus(self, pairs: Pairs) -> Iterator[Finding]:
        for edge, meeting in sorted(pairs.surplus.items()):
            if edge in self.net.triggers:
                continue  # messages without a counterpart do not keep anything open
            verdict = self._played_for_stalls()
            if verdict.complete and meeting.place not in verdict.stalls:
                continue
            first, second, origin = self._meeting(pairs, meeting)
            name = self.ways.name(meeting.place)
            message = (
                f"'join: all' of {name!r} can get two branches over {self._edge(edge)} and one "
                f"over the others: {origin} sends one by {first} and one by {second}"
                f"{self._for_example(self.net.nodes[meeting.place].step)}"
            )
            hint = f"join the two before {name!r}"
            yield Finding("E207", self.net.nodes[meeting.place].step, message, hint, ("join",))

    def _starving(self) -> Iterator[Finding]:
        reported: set[Place] = set()
        for broken in broken_promises(self.net):
            if broken.place in reported:
                continue
            verdict = self._played_for_stalls()
            if verdict.complete and broken.place not in verdict.stalls:
                continue
            reported.add(broken.place)
            yield self._starves(broken)

    def _starves(self, broken: JoinDeadlock) -> Finding:
        node = self.net.nodes[broken.place]
        name = self.ways.name(broken.place)
        missing = self._edge(broken.missing[0])
        message = (
            f"'join: all' of {name!r} can wait forever: a branch that arrived over "
            f"{self._edge(broken.edge)} waits for one over {missing}, which might never come"
            f"{self._for_example(node.step)}"
        )
        hint = "use 'join: active': it waits only for branches that can still come"
        if any(n.step in self.cancels.hit for n in self.net.nodes):
            hint += ". A cancelled step sends no branch"
        return Finding("E207", node.step, message, hint, ("join",))

    def _for_example(self, step: Step) -> str:
        """Return an example run in which a join waits forever, or a note that none was computed."""
        if self._example_game is None:
            self._example_game = self._play(self.full)
        verdict = self._example_game
        examples = [e for p, e in verdict.examples.items() if self.full.nodes[p].step == step]
        if not examples:
            return ". The scope is too large to explore fully, so this is the cautious answer"
        if len(examples[0]) > LONGEST_EXAMPLE:
            return ""
        moves = [self._move(moved) for moved in examples[0]]
        return f"; for example: {'; '.join(moves)}" if moves else ""

    def _move(self, moved: token_game.Moved) -> str:
        targets = [self.full.edges[edge].target for edge in moved.edges if edge >= 0]
        names = [self.full.name(self.flow, place) for place in targets] or ["end"]
        return f"{self.full.name(self.flow, moved.place)} → {', '.join(names)}"

    def _edge(self, edge: EdgeId) -> str:
        source, _, target, _ = self.net.edges[edge]
        name = self.ways.name(target)
        if source == START:
            return f"start → {name}"
        return f"{self.flow['steps'][source]['id'] if source >= 0 else 'trigger'} → {name}"

    # Counting joins

    def _counting(self) -> Iterator[Finding]:
        counting = [p for p, node in enumerate(self.net.nodes) if node.join == "count"]
        if not counting:
            return
        for place in counting:
            yield from self._null_answers(self.net.nodes[place].step)
        verdict = self._played_for_stalls()
        if not verdict.complete:
            yield from self._undecided(counting)
            return
        for place in counting:
            node, name = self.net.nodes[place], self.ways.name(place)
            if place not in verdict.fired and node.need is not None and not self._any_number(place):
                message = f"{name!r} needs {node.need} arrivals, but that many can never arrive"
                hint = "lower 'need'"
                yield Finding("E103", node.step, message, hint, ("join",))
            elif place in verdict.too_few:
                yield self._too_few(place)

    def _undecided(self, counting: list[Place]) -> Iterator[Finding]:
        """Warn of counting joins of a scope that is too large for the game.

        They are treated as if they waited for all of their edges. The cheap analysis then shows
        which tokens might be missing.
        """
        as_all = list(self.net.nodes)
        for place in counting:
            as_all[place] = as_all[place]._replace(join="all")
        missing: dict[Place, set[EdgeId]] = {}
        for broken in broken_promises(self.net._replace(nodes=as_all)):
            missing.setdefault(broken.place, set()).update(broken.missing)
        for place in counting:
            node, ways = self.net.nodes[place], len(self.net.incoming[place])
            least = ways - len(missing.get(place, ()))
            if node.too_few is None and node.need is not None and least < node.need:
                message = (
                    f"whether {self.ways.name(place)!r} gets the {node.need} branches that it "
                    "needs is not known: the scope is too large to explore fully"
                )
                hint = "add 'on_error: [{type: TooFew, ...}]', or put parts into groups"
                yield Finding("W209", node.step, message, hint, ("join",))

    def _any_number(self, place: Place) -> bool:
        """Return whether more tokens can reach a join than the game plays."""
        reach = linked.reach(nets.successors(self.net))
        spawners = [p for p, node in enumerate(self.net.nodes) if node.many == nets.ANY_NUMBER]
        triggered = [self.net.edges[edge].target for edge in self.net.triggers]
        return place in triggered or any(reach[p] >> place & 1 for p in [*spawners, *triggered])

    def _too_few(self, place: Place) -> Finding:
        name = self.ways.name(place)
        # The edges that a join of all would miss are those that might never be taken.
        as_all = list(self.net.nodes)
        as_all[place] = self.net.nodes[place]._replace(join="all")
        broken = broken_promises(self.net._replace(nodes=as_all))
        edges = dict.fromkeys(e for hole in broken if hole.place == place for e in hole.missing)
        ways = " and ".join(self._edge(edge) for edge in edges or self.net.incoming[place])
        message = (
            f"{name!r} may get fewer branches than it needs, since {ways} might not be taken: "
            "TooFew is then raised, and no handler catches it"
        )
        hint = "add 'on_error: [{type: TooFew, ...}]', or lower 'need'"
        return Finding("W209", self.net.nodes[place].step, message, hint, ("join",))

    def _null_answers(self, step: Step) -> Iterator[Finding]:
        """Warn of sources of a counting join that continue without a result."""
        name = self.flow["steps"][step]["id"]
        for source in self.flow["steps"][step].get("sources", []):
            if source < 0:
                continue
            spec = self.flow["steps"][source]
            goes_on = any(h.get("do") == "continue" for h in spec.get("on_error", []))
            if not goes_on and "when" not in spec:
                continue
            key = "on_error" if goes_on else "when"
            why = "has failed" if goes_on else "is skipped"
            message = f"if {spec['id']!r} {why}, its null counts as an answer at {name!r}"
            hint = "write 'on_error: [{next: end}]'" if goes_on else "branch before it with 'next'"
            yield Finding("W208", source, message, hint, (key,))

    # Concurrent steps

    def _replaced(self, pairs: Pairs) -> Iterator[Finding]:
        if not self.writers:
            return
        reported: set[tuple[Step, str]] = set()
        for places in pairs.together():
            one, two = (self.net.nodes[place].step for place in places)
            both = self.writers.get(one, {}).keys() & self.writers.get(two, {}).keys()
            for key in sorted(both):
                writers = self.writers[one][key][0], self.writers[two][key][0]
                apart = set.intersection(*(locks_over(self.flow, step) for step in writers))
                if (two, key) not in reported and not apart:
                    reported.add((two, key))
                    yield self._replaces(one, two, key)

    def _replaces(self, one: Step, two: Step, key: str) -> Finding:
        first, second = (self.flow["steps"][step]["id"] for step in (one, two))
        whom = f"{first!r} and {second!r}" if one != two else f"{first!r} twice"
        message = f"state.{key} may be replaced by {whom} at the same time: StateConflict"
        writer, where = self.writers[two][key]
        return Finding("W306", writer, message, "give it a reducer, or join first", where)

    def _cancelled_groups(self) -> dict[Step, list[Step]]:
        """Return the groups of this body that a step inside cancels, with those steps."""
        groups: dict[Step, list[Step]] = {}
        here = set(self.flow["bodies"][self.body]["steps"])
        for step in self.cancels.ends:
            cancel = self.flow["steps"][step].get("cancel", {})
            around = set(nets.enclosing(self.flow, step))
            if cancel.get("outcome", "cancelled") != "cancelled":
                continue
            for target in cancel.get("targets", []):
                if target in around and target in here:
                    groups.setdefault(target, []).append(step)
        return groups

    def _lonely(self, beside: set[Step]) -> Iterator[Finding]:
        for group, cancelling in self.groups.items():
            if group in beside:
                continue
            name = self.flow["steps"][group]["id"]
            for step in cancelling:
                message = (
                    f"this ends {name!r} and its branch, and no other is live there, so "
                    f"the steps after {name!r} never run"
                )
                hint = "use 'as: succeeded' to continue, or 'as: failed' to raise Cancelled"
                yield Finding("W413", step, message, hint, ("cancel",))

    def _outlived(self) -> Iterator[Finding]:
        """Warn of waits that continue after the parallel branches have ended."""
        if not self.waits:
            return
        reach = linked.reach(nets.successors(self.net))
        joins = sum(1 << p for p, n in enumerate(self.net.nodes) if n.join not in {None, "each"})
        outlived: set[Step] = set()
        for node in self.net.nodes:
            for move in node.moves:
                for pair in combinations(dict.fromkeys(move.edges()), 2):
                    for one, other in (pair, pair[::-1]):
                        outlived |= self._waits_alone(one, other, reach, joins)
        for step in sorted(outlived):
            name = self.flow["steps"][step]["id"]
            message = (
                f"{name!r} has no timeout and still waits when the branches parallel to it "
                "have ended"
            )
            hint = "let the other branch lead to 'end_all', or give the wait a 'timeout'"
            yield Finding("W412", step, message, hint, ("wait",))

    def _waits_alone(self, one: EdgeId, other: EdgeId, reach: list[int], joins: int) -> set[Step]:
        """Return the waits on one way, if the other ends with `end` and never meets it."""
        here, beside = self._on_way(one, reach), self._on_way(other, reach)
        if here & beside & joins:
            return set()
        ended = other == END or any(
            END in move.edges() for place in _places(beside) for move in self.net.nodes[place].moves
        )
        if not ended:
            return set()
        return {
            self.net.nodes[p].step for p in _places(here) if self.net.nodes[p].step in self.waits
        }

    def _on_way(self, edge: EdgeId, reach: list[int]) -> int:
        if edge < 0:
            return 0
        target = self.net.edges[edge].target
        return reach[target] | 1 << target


def _places(bits: int) -> Iterator[Place]:
    place = 0
    while bits >> place:
        if bits >> place & 1:
            yield place
        place += 1


def _waits_for_ever(spec: StepSpec) -> bool:
    """Return whether a step waits for something that time alone does not bring."""
    wait = spec.get("wait")
    if wait is None or "timeout" in spec or "deadline" in spec:
        return False
    timed = [
        "after" in alternative or "until" in alternative for alternative in wait["alternatives"]
    ]
    return not (any(timed) if wait["mode"] == "first" else all(timed))
