"""The pure kernel: the graph of a flow, the state of an execution, and `advance`, which changes it.

The kernel reads no clock, randomness, file or network. Times and ids arrive inside events. The same
graph and the same events produce the same state and the same commands on every machine.

`advance` applies an event to the state and returns commands. The effects of the event become
entries of the agenda, which are processed until the agenda is empty.

The packages, from the bottom up. Each imports only from those above it in this table.

| package | contents |
|---|---|
| `notation/` | times, ids and addresses as text |
| `graph/` | the compiled flow |
| `events`, `commands`, `errors` | the vocabulary of the kernel's interface |
| `transition` | the processing of one event: the context shared by all modules below |
| `state/` | the state of an execution: records, their states and moves, agenda entries |
| `view` | reading an execution: addresses, the surroundings of a step, budgets |
| `expressions/` | the names that expressions can read |
| `limits/` | limits that delay a unit: locks, budgets, its place in a map while it waits |
| `held_failures`, `flow_state` | failures that are held back, and writes of steps to state |
| `waiting/` | waits for times, signals, conditions and human decisions, and their owners |
| `tokens/` | the routing of tokens, joins, activations, and the items of a map |
| `messages` | signals, and the tokens that triggers create |
| `ending/` | withdrawal of running work, cleanup after it, and compensation |
| `steps/` | running steps: scopes, attempts, retries, loops, maps, and the effects of their end |
| `flows`, `recovery`, `moving/` | whole flows, crash recovery, retries, upgrades |
| `agenda` | the entries of the agenda and how they are processed |
| `event_effects` | the effects of all events, of decisions about waits, and of timers |
| `advance` | the order of processing |

Code outside the kernel imports `advance`, `new_state`, `pending` (open waits and set timers) and
`running` (running attempts) from here. It may also import the interface's vocabulary, the compiled
flow, the records and `view`. The contract "The kernel's doors" in `pyproject.toml` has the full
list. Everything else is internal.
"""

from flowengine.kernel.advance import ENDED, advance, pending, running
from flowengine.kernel.graph.linked import Graph
from flowengine.kernel.state.moves import new_state

__all__ = ["ENDED", "Graph", "advance", "new_state", "pending", "running"]
