"""The pure kernel: a flow's graph, an execution's state, and `advance` between them.

It reads no clock, no randomness, no file and no network; time and ids come inside events. The same
graph and the same events give the same state and the same commands on every machine.

`advance` applies an event to the state and answers with commands. What the event sets off goes
through the agenda, piece by piece, until nothing is left to do.

Rooms, each of which imports only from those above it:

| room | what is in it |
|---|---|
| `notation/` | times, ids and addresses as text |
| `graph/` | the compiled flow |
| `events`, `commands`, `errors`, `causes` | the words in which the kernel is spoken to |
| `state/` | the state of an execution: its records, their states and moves, what is left to do |
| `view` | reading an execution: addresses, what is around a step, budgets |
| `machine` | one `advance` at work: what all rooms below share |
| `expressions/` | what expressions see |
| `limits/` | what holds a unit back: locks, budgets, places in a map |
| `held_failures`, `flow_state/` | failures held back; what steps write to state |
| `waiting/` | waits for time, signals, conditions and people, and whose they are |
| `tokens/` | where tokens go, how they meet at joins, how one enters a step; the items of a map |
| `messages/` | signals, and the tokens that triggers begin |
| `ending/` | withdrawing what is at work; what it leaves: cleaning up after it, undoing it |
| `steps/` | a step at work: scopes, attempts, retries, loops, maps, what follows when they end |
| `flows`, `recovery/`, `moving/` | a flow as a whole; a crash, a retry, a changed flow |
| `decisions` | what a decision about a wait does |
| `agenda`, `timers`, `advance` | what is done in which order |

Who is outside imports the words, the compiled flow, the records and `view`; a contract in
`pyproject.toml` lists these doors. The rest is nobody else's.
"""

from flowengine.kernel.advance import ENDED, advance, pending, running
from flowengine.kernel.graph.linked import Graph
from flowengine.kernel.state.initial import new_state

__all__ = ["ENDED", "Graph", "advance", "new_state", "pending", "running"]
