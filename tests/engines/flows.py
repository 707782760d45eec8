"""Flows for crash tests: each covers other parts of the language, and all are deterministic."""

from __future__ import annotations

CHAIN = """
state:
  sum: {type: integer, default: 0, reducer: add}
steps:
  - id: once_a
    python: effects:act
    with: {value: 1}
  - id: b
    python: effects:act_on_thread
    effect: idempotent
    with: {value: "${{ steps.once_a.output }}"}
    set: {sum: "${{ output }}"}
  - id: c
    python: effects:add
    effect: pure
    with: {a: "${{ steps.b.output }}", b: 10}
    set: {sum: "${{ output }}"}
  - id: once_d
    python: effects:act
    with: {value: "${{ state.sum }}"}
outputs:
  sum: ${{ state.sum }}
  last: ${{ steps.once_d.output }}
"""

ITEMS = """
state:
  seen: {type: array, items: {type: integer}, default: [], reducer: append}
steps:
  - id: each
    map: {over: "${{ [3, 1, 4, 1, 5] }}", concurrency: 2}
    group:
      - id: once_look
        python: effects:act
        with: {value: "${{ item }}"}
      - id: sign
        approval:
          title: Item ${{ index }}
          subject: {amount: "${{ steps.once_look.output }}"}
          edit: [amount]
      - id: book
        python: effects:act
        effect: idempotent
        with: {value: "${{ steps.sign.output.subject.amount }}"}
        set: {seen: "${{ output }}"}
    output: ${{ steps.book.output }}
outputs:
  all: ${{ steps.each.output }}
  count: ${{ size(state.seen) }}
"""

RETRIES = """
steps:
  - id: both
    parallel:
      - id: flaky
        python: effects:fail_until
        effect: idempotent
        with: {attempt: 2}
        retry: {attempts: 50, delay: 5ms, jitter: none}
      - id: slow
        python: effects:nap
        effect: idempotent
        with: {seconds: 0.02}
        timeout: 30s
  - id: rounds
    loop: {until: "${{ output >= 14 }}", max: 10, every: 5ms}
    python: effects:add
    effect: pure
    with: {a: 10, b: "${{ round.number }}"}
outputs:
  both: ${{ steps.both.output.slow }}
  rounds: ${{ steps.rounds.output }}
"""

SAGA = """
tools:
  undo: {python: "effects:act", effect: idempotent}
steps:
  - id: trip
    group:
      - id: reserve
        parallel:
          - id: once_flight
            python: effects:act
            with: {value: 1}
            compensate: {call: undo, with: {value: "${{ output }}"}}
          - id: hotel
            python: effects:act
            effect: idempotent
            with: {value: 2}
            compensate: {call: undo, with: {value: "${{ output }}"}}
      - id: pay
        python: effects:refuse
        effect: idempotent
    on_error:
      - {type: OutOfStock, compensate: true, next: sorry}
    next: end
  - id: sorry
    python: effects:act
    effect: idempotent
    with: {value: 40}
outputs:
  sorry: ${{ steps.sorry.output }}
"""

WAITS = """
signals:
  paid: {data: {type: object, properties: {n: {type: integer}}, required: [n]}}
steps:
  - id: pause
    wait: 15ms
  - id: pay
    wait: {signal: paid}
  - id: once_send
    python: effects:act
    with: {value: "${{ steps.pay.output.data.n }}"}
  - id: ask
    approval:
      title: Sure?
      form: {properties: {why: {type: string}}, required: [why]}
outputs:
  n: ${{ steps.once_send.output }}
  why: ${{ steps.ask.output.form.why }}
"""

HANDLED = """
steps:
  - id: pick
    next: {all: [left, right]}
  - id: left
    python: effects:refuse
    effect: idempotent
    on_error: [{type: OutOfStock, output: 3}]
    next: meet
  - id: right
    python: effects:nap
    effect: idempotent
    with: {seconds: 0.01}
    next: meet
  - id: meet
    join: all
    python: effects:act
    effect: idempotent
    with: {value: "${{ steps.left.output }}"}
  - id: race
    wait:
      first:
        - {id: soon, for: 10ms}
        - {id: late, for: 1h}
    next: {outcome: {soon: done, late: end}}
  - id: done
    output: ${{ steps.meet.output + 1 }}
outputs:
  done: ${{ steps.done.output }}
"""

BROKEN = """
steps:
  - id: once_first
    python: effects:act
    with: {value: 1}
  - id: stop
    python: effects:refuse
    effect: idempotent
"""

ALL = {
    "chain": CHAIN,
    "items": ITEMS,
    "retries": RETRIES,
    "saga": SAGA,
    "waits": WAITS,
    "handled": HANDLED,
    "broken": BROKEN,
}
