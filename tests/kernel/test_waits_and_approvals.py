"""Waits, approvals, crashes and compensation not covered by the language tests."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.kernel import ENDED, Graph
from flowengine.testing.explorer import explore
from flowengine.testing.simulator import Fails, Simulator
from tests.testing.graphs import graph, output_of, step, v, x

APPROVE = {"id": "approve", "counts_as": "approve"}
REJECT = {"id": "reject", "counts_as": "reject"}


def begin(flow: Graph, script: Any = None) -> Simulator:
    return Simulator(flow, script, order="first").start()


def approval(**asked: Any) -> Graph:
    given = {"title": "t", "choices": [APPROVE, REJECT], **asked}
    return graph(
        step("ask", action="approval", input=v(given), raises={"reject": "Rejected"}),
        outputs={"ask": v(output_of("ask")), "how": v(x(lambda n: n["steps"]["ask"]["outcome"]))},
    )


class TestWait:
    @pytest.mark.parametrize("key", ["after", "until"])
    @pytest.mark.parametrize("value", ["soon", 5, None, "2026-01-01"])
    def test_what_is_no_time_is_refused(self, key: str, value: Any) -> None:
        wait = {"mode": "first", "alternatives": [{"id": "ok", key: v(value)}]}
        error = begin(graph(step("w", action="wait", wait=wait))).state["error"]

        assert error is not None
        assert error["type"] == "ValidationError"

    def test_condition_on_state_sees_what_an_event_leaves_not_what_comes_between(self) -> None:
        """A value that an event sets and changes back is never visible (S17)."""
        wait = {"mode": "first", "alternatives": [{"id": "ok", "when": x(
            lambda n: n["state"]["n"] == 1)}]}  # fmt: skip
        flow = graph(
            step("s", action="none", next={"all": ["w", "t"]}),
            step("w", action="wait", wait=wait, next="end"),
            step("t", next="q"),
            step("q", action="none", set=[["n", v(1)]], next="r"),
            step("r", action="none", set=[["n", v(2)]], next="u"),
            step("u", set=[["n", v(1)]], next="end"),
            state={"n": {"default": 0}},
        )
        played = begin(flow)
        played.finish("t")

        assert "w" in [wait["address"] for wait in played.waits()]
        played.finish("u")
        assert played.status == "succeeded"

    def test_conditions_on_state_are_looked_at_by_age_and_after_what_the_one_before_did(
        self,
    ) -> None:
        """Two wait for a single permit. The older one takes it before the younger is evaluated."""

        def waiting(name: str) -> Any:
            wait = {"mode": "first", "alternatives": [{"id": "ok", "when": x(
                lambda n: n["state"]["free"] > 0)}]}  # fmt: skip
            return step(name, action="wait", wait=wait, set=[["free", v(-1)]], next="end")

        flow = graph(
            step("s", action="none", next={"all": ["b", "a", "t"]}),
            waiting("a"), waiting("b"),
            step("t", set=[["free", v(1)]], next="u"), step("u", set=[["free", v(1)]], next="end"),
            state={"free": {"default": 0, "reducer": "add"}},
        )  # fmt: skip
        played = begin(flow)
        played.finish("t")

        assert [wait["address"] for wait in played.waits()] == ["a"]
        played.finish("u")
        assert played.status == "succeeded"

    def test_only_the_conditions_that_name_what_has_changed_are_looked_at(self) -> None:
        looked: list[str] = []

        def waiting(name: str, key: str) -> Any:
            def holds(n: Any) -> bool:
                looked.append(name)
                return bool(n["state"][key])

            alternative = {"id": "ok", "when": x(holds), "watches": [key]}
            wait = {"mode": "first", "alternatives": [alternative]}
            return step(name, action="wait", wait=wait, next="end")

        flow = graph(
            step("s", action="none", next={"all": ["a", "b", "t"]}),
            waiting("a", "one"), waiting("b", "two"),
            step("t", set=[["two", v(True)]], next="u"), step("u", set=[["one", v(True)]]),
            state={"one": {"default": False}, "two": {"default": False}},
        )  # fmt: skip

        assert begin(flow).run().status == "succeeded"
        assert looked == ["a", "b", "b", "a"]


class TestApproval:
    def test_late_decision_changes_nothing(self) -> None:
        played = begin(approval())
        wait = played.waits()[0]["id"]
        played.decide("ask", "approve")
        before = played.state.copy()

        played.apply({"type": "decided", "at": played.now, "wait": wait, "choice": "reject"})

        before["events"] += 1
        assert played.state == before


class TestCrash:
    @pytest.mark.parametrize("effect", ["pure", "idempotent"])
    def test_what_may_be_repeated_runs_again_with_the_same_input(self, effect: str) -> None:
        flow = graph(
            step("s", action="none", next={"all": ["a", "b"]}),
            step("a", effect=effect, input=v(x(lambda n: n["state"]["k"])), next="end"),
            step("b", set=[["k", v(1)]]),
            state={"k": {"default": 0}},
        )
        played = begin(flow)
        played.finish("b")

        played.crash()

        (run,) = played.running.values()
        assert (run.address, run.input, run.attempt) == ("a", 0, 2)

    @pytest.mark.parametrize(
        ("choice", "status", "runs"), [("retry", "succeeded", 2), ("result", "succeeded", 1),
                                       ("fail", "failed", 1)]
    )  # fmt: skip
    def test_once_step_becomes_a_question(self, choice: str, status: str, runs: int) -> None:
        played = begin(graph(step("a", effect="once"), outputs={"a": v(output_of("a"))}), {"a": 1})
        played.crash()
        assert played.status == "stalled"
        assert played.waits()[0]["kind"] == "question"

        played.decide("a", choice, value=7)
        played.run()

        assert played.status == status
        assert played.started.count("a") == runs
        if choice == "result":
            assert played.state["outputs"] == {"a": 7}

    def test_crash_does_not_count_as_a_try(self) -> None:
        played = begin(graph(step("a", retry={"attempts": 2})))
        for _ in range(5):
            played.crash()
        played.script["a"] = "done"

        played.run()

        assert played.status == "succeeded"

    def test_on_crash_fail(self) -> None:
        played = begin(graph(step("a", effect="once", on_crash="fail")))

        played.crash()

        assert played.state["error"]["type"] == "Uncertain"  # type: ignore[index]

    def test_retry_event_runs_what_failed_again_whatever_its_effect(self) -> None:
        played = begin(graph(step("a", effect="once"), step("b")))
        unit, attempt = next(iter(played.running))

        played.running.clear()
        played.apply({"type": "retry", "at": played.now, "unit": unit, "by": "user:test"})

        assert (unit, attempt + 1) in played.running


class TestUndo:
    @staticmethod
    def saga(**second: Any) -> Graph:
        return graph(
            step("g", parallel=[step("flight", undo="release_flight", effect="idempotent"),
                                step("hotel", undo="release_hotel", **second),
                                step("pay")],
                 on_error=[{"compensate": True, "do": "next", "to": "told"}], next="end"),
            step("told"),
        )  # fmt: skip

    @staticmethod
    def refuse(_run: Any) -> Any:
        raise Fails("Refused", retryable=False)

    def test_nothing_stays_reserved(self) -> None:
        """One reservation fails while the request of the other is in flight, in every order."""
        reserved: set[str] = set()

        def reserve(run: Any) -> None:
            reserved.add(run.address)

        def release(run: Any) -> None:
            reserved.discard(run.address.removesuffix("/compensate"))

        script = {"flight": reserve, "hotel": reserve, "pay": self.refuse,
                  "release_flight": release, "release_hotel": release}  # fmt: skip

        def holds(played: Simulator) -> None:
            if not played.schedule:
                reserved.clear()  # another order starts
            if played.status in ENDED:
                assert not reserved

        found = explore(self.saga(effect="idempotent"), script, holds=holds)

        assert found.complete
        assert len(found.runs) == 5
        assert {(one.status, one.started[-1]) for one in found.runs} == {("succeeded", "told")}


class TestCancel:
    def test_withdrawn_as_succeeded_goes_on(self) -> None:
        flow = graph(
            step("s", action="none", next={"all": ["m", "c"]}),
            step("m", map={"over": v(3), "names": ["item", "index", "key"]}, next="z"),
            step("c", next="d"),
            step("d", action="cancel", cancel={"targets": ["m"], "outcome": "succeeded"},
                 next="end"),
            step("z", input=v(output_of("m"))),
        )  # fmt: skip
        played = begin(flow, {"m": "done"})
        played.finish("m[1]")

        played.finish("c")

        assert [r.input for r in played.running.values()] == [[None, "done", None]]
