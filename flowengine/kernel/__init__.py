"""The pure kernel: a flow's graph, an execution's state, and `advance` between them.

It reads no clock, no randomness, no file and no network; time and ids come inside events. The same
graph and the same events give the same state and the same commands on every machine.

`advance` applies an event to the state and answers with commands. What the event sets off goes
through the agenda, piece by piece, until nothing is left to do.

Rooms, from the bottom up: each imports only from those before it in this table.

| room | what is in it |
|---|---|
| `notation/` | times, ids and addresses as text |
| `graph/` | the compiled flow |
| `events`, `commands`, `errors`, `causes` | the words in which the kernel is spoken to |
| `state/` | the state of an execution: its records, their states and moves, what is left to do |
| `view` | reading an execution: addresses, what is around a step, budgets |
| `transition` | one event being applied: the context that all following folders share |
| `expressions/` | what expressions see |
| `limits/` | what keeps a unit waiting: locks, budgets; its place in a map meanwhile |
| `held_failures`, `flow_state/` | failures held back; what steps write to state |
| `waiting/` | waits for time, signals, conditions and people, and whose they are |
| `tokens/` | where tokens go, how they meet at joins, how one enters a step; the items of a map |
| `messages/` | signals, and the tokens that triggers begin |
| `ending/` | withdrawing what is at work; what it leaves: cleaning up after it, undoing it |
| `steps/` | a step at work: scopes, attempts, retries, loops, maps, what follows when they end |
| `flows`, `recovery/`, `moving/` | a flow as a whole; a crash, a retry, a changed flow |
| `decisions` | what a decision about a wait does |
| `agenda`, `timers`, `advance` | what is done in which order |

From outside, import `advance`, `new_state`, `pending` (the waits and timers in force) and `running`
(the attempts that run) from here, besides the words, the compiled flow, the records and `view`. The
contract "The kernel's doors" in `pyproject.toml` has the list; the rest is internal.
"""

from flowengine.kernel.advance import ENDED, advance, pending, running
from flowengine.kernel.graph.linked import Graph
from flowengine.kernel.state.initial import new_state

__all__ = ["ENDED", "Graph", "advance", "new_state", "pending", "running"]
