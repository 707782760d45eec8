"""Waits, approvals, questions: what opens them, what ends them, what follows."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.kernel import ENDED, Graph
from flowengine.kernel.commands import CloseWait, Notify, OpenWait
from flowengine.testing.explorer import explore
from flowengine.testing.graphs import graph, output_of, step, v, x
from flowengine.testing.simulator import Fails, Simulator

APPROVE = {"id": "approve", "counts_as": "approve"}
REJECT = {"id": "reject", "counts_as": "reject"}
RAISES = {"reject": "Rejected", "expired": "Expired"}


def begin(flow: Graph, script: Any = None, **inputs: Any) -> Simulator:
    return Simulator(flow, script, order="first").start(inputs)


def waiting(*alternatives: dict[str, Any], mode: str = "first", **more: Any) -> Graph:
    wait = {"mode": mode, "alternatives": list(alternatives)}
    return graph(
        step("w", action="wait", wait=wait, **more),
        outputs={"w": v(output_of("w")), "how": v(x(lambda n: n["steps"]["w"]["outcome"]))},
        signals={"a": {}, "b": {}},
    )


def approval(**asked: Any) -> Graph:
    given = {"title": "t", "choices": [APPROVE, REJECT], **asked}
    return graph(
        step("ask", action="approval", input=v(given), raises=RAISES),
        outputs={"ask": v(output_of("ask")), "how": v(x(lambda n: n["steps"]["ask"]["outcome"]))},
    )


class TestWait:
    def test_time(self) -> None:
        played = begin(waiting({"id": "ok", "after": v("15m")}))
        assert played.status == "waiting"
        before = played.now

        played.run()

        assert played.now - before == 15 * 60_000
        assert played.status == "succeeded"

    def test_time_past_ends_at_once_and_opens_nothing(self) -> None:
        played = begin(waiting({"id": "ok", "until": v("1970-01-01T00:00:00Z")}))

        assert played.status == "succeeded"
        assert not any(isinstance(c, (OpenWait, CloseWait)) for c in played.commands)

    @pytest.mark.parametrize("key", ["after", "until"])
    @pytest.mark.parametrize("value", ["soon", 5, None, "2026-01-01"])
    def test_what_is_no_time_is_refused(self, key: str, value: Any) -> None:
        error = begin(waiting({"id": "ok", key: v(value)})).state["error"]

        assert error is not None
        assert error["type"] == "ValidationError"

    def test_message_sent_before_is_taken_once_oldest_first(self) -> None:
        flow = graph(
            step("t", action="task"),
            step("w", action="wait", wait={"mode": "first", "alternatives": [
                {"id": "ok", "signal": "a"}]}),
            step("u", action="wait", wait={"mode": "first", "alternatives": [
                {"id": "ok", "signal": "a"}]}),
            outputs={"w": v(output_of("w")), "u": v(output_of("u"))}, signals={"a": {}},
        )  # fmt: skip
        played = begin(flow)
        played.send("a", 1)
        played.send("a", 2)

        played.run()

        assert played.state["outputs"]["w"]["data"] == 1  # type: ignore[index]
        assert played.state["outputs"]["u"]["data"] == 2  # type: ignore[index]

    def test_match_and_key_choose_the_message(self) -> None:
        match = x(lambda n: n["signal"]["data"] > 5)
        played = begin(waiting({"id": "ok", "signal": "a", "match": match, "key": v("k")}))
        played.send("a", 9, key="other")
        played.send("a", 1, key="k")
        assert played.status == "waiting"

        played.send("a", 7, key="k")

        assert played.state["outputs"]["w"]["data"] == 7  # type: ignore[index]

    def test_condition_on_state_sees_what_an_event_leaves_not_what_comes_between(self) -> None:
        """A value that an event sets and changes back was never there (S17)."""
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
        """Two wait for the one permit; the older takes it before the younger looks."""

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

    def test_decisive_order_of_messages_is_that_of_their_sending(self) -> None:
        flow = graph(
            step("t"),
            step("w", action="wait", wait={"mode": "first", "alternatives": [
                {"id": "x", "signal": "a"}, {"id": "y", "signal": "b"}]}),
            outputs={"how": v(x(lambda n: n["steps"]["w"]["outcome"]))},
            signals={"a": {}, "b": {}},
        )  # fmt: skip
        played = begin(flow)
        played.send("b")
        played.send("a")

        assert played.run().state["outputs"] == {"how": "y"}


class TestApproval:
    def test_choice_is_the_outcome_and_edits_are_told_from_what_was_asked(self) -> None:
        played = begin(approval(subject={"amount": 1, "account": "travel"}))

        played.decide("ask", "approve", edits={"amount": 2}, form={"x": 1}, comment="fine")

        out = played.state["outputs"]["ask"]  # type: ignore[index]
        assert (out["choice"], out["approved"], out["edited"]) == ("approve", True, True)
        assert out["subject"] == {"amount": 2, "account": "travel"}
        assert out["original"] == {"amount": 1, "account": "travel"}
        assert (out["form"], out["comment"], out["by"]) == ({"x": 1}, "fine", "user:test")

    def test_rejection_raises_unless_it_is_routed(self) -> None:
        played = begin(approval())
        played.decide("ask", "reject", comment="too late")

        error = played.state["error"]

        assert error is not None
        assert error["type"] == "Rejected"
        assert "user:test" in error["message"]
        assert "too late" in error["message"]

    def test_expiry_is_told_apart_from_a_no(self) -> None:
        assert begin(approval(expires="2d")).run().state["error"]["type"] == "Expired"  # type: ignore[index]

    def test_choice_on_expiry_is_taken_by_the_system(self) -> None:
        out = begin(approval(expires="2d", on_expire="approve")).run().state["outputs"]

        assert out is not None
        assert out["how"] == "approve"
        assert (out["ask"]["by"], out["ask"]["via"]) == ("system", "expiry")

    def test_quorum_needs_votes_and_the_first_no_closes(self) -> None:
        played = begin(approval(need=2))
        played.decide("ask", "approve", by="user:a")
        assert played.status == "waiting"
        played.decide("ask", "approve", by="user:b")
        assert played.status == "succeeded"
        votes = played.state["outputs"]["ask"]["votes"]  # type: ignore[index]
        assert [vote["by"] for vote in votes] == ["user:a", "user:b"]

        other = begin(approval(need=2))
        other.decide("ask", "approve", by="user:a")
        other.decide("ask", "reject", by="user:b")
        assert other.status == "failed"

    def test_reminders_and_escalation(self) -> None:
        flow = approval(
            assignees=["user:a"], remind={"every": "8h"}, expires="30h",
            escalate=[{"after": "10h", "to": ["user:b"]},
                      {"after": "20h", "to": ["user:c"], "replace": True}],
        )  # fmt: skip

        played = begin(flow).run()

        told = [(c.why, c.to) for c in played.commands if isinstance(c, Notify)]
        assert told == [
            ("opened", ["user:a"]),
            ("reminded", ["user:a"]),
            ("escalated", ["user:a", "user:b"]),
            ("reminded", ["user:a", "user:b"]),
            ("escalated", ["user:c"]),
            ("reminded", ["user:c"]),
        ]

    def test_late_decision_changes_nothing(self) -> None:
        played = begin(approval())
        wait = played.waits()[0]["id"]
        played.decide("ask", "approve")
        before = played.state.copy()

        played.apply({"type": "decided", "at": played.now, "wait": wait, "choice": "reject"})

        before["events"] += 1
        assert played.state == before

    def test_each_item_waits_for_itself(self) -> None:
        ask = step("ask", action="approval", input=v({"title": "t", "choices": [APPROVE]}))
        names = ["item", "index", "key"]
        flow = graph(
            step("m", map={"over": v(20), "names": names}, group=[ask, step("after")]),
            outputs={"m": v(output_of("m"))},
        )
        played = begin(flow)
        addresses = [w["address"] for w in played.waits()]
        played.random.shuffle(addresses)

        for count, address in enumerate(addresses):
            assert len(played.waits()) == 20 - count
            played.decide(address, "approve")
            played.run()

        assert played.status == "succeeded"


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
        """One reservation fails while the other's request is on the way, in every order."""
        reserved: set[str] = set()

        def reserve(run: Any) -> None:
            reserved.add(run.address)

        def release(run: Any) -> None:
            reserved.discard(run.address.removesuffix("/compensate"))

        script = {"flight": reserve, "hotel": reserve, "pay": self.refuse,
                  "release_flight": release, "release_hotel": release}  # fmt: skip

        def holds(played: Simulator) -> None:
            if not played.schedule:
                reserved.clear()  # another order begins
            if played.status in ENDED:
                assert not reserved

        found = explore(self.saga(effect="idempotent"), script, holds=holds)

        assert found.complete
        assert len(found.runs) == 5
        assert {(one.status, one.started[-1]) for one in found.runs} == {("succeeded", "told")}

    def test_once_attempt_that_was_cut_off_is_asked_about(self) -> None:
        simulator = begin(self.saga(effect="once"), {"pay": self.refuse})

        simulator.finish("g/flight")
        simulator.finish("g/pay")

        assert simulator.status == "stalled"
        assert [w["address"] for w in simulator.waits()] == ["g/hotel"]
        simulator.decide("g/hotel", "result", value="room 7")
        simulator.run()
        undone = [a for a in simulator.started if a.endswith("compensate")]
        assert undone == ["g/hotel/compensate", "g/flight/compensate"]

    def test_late_result_settles_what_was_cut_off(self) -> None:
        simulator = begin(self.saga(effect="once"), {"pay": self.refuse})
        hotel = next(run for run in simulator.running.values() if run.address == "g/hotel")
        simulator.finish("g/pay")

        simulator.apply({"type": "succeeded", "at": simulator.now, "unit": hotel.unit,
                         "attempt": hotel.attempt, "value": "room 7"})  # fmt: skip
        simulator.run()

        assert "g/hotel/compensate" in simulator.started

    def test_failing_compensation_does_not_hide_the_others(self) -> None:
        simulator = begin(
            graph(step("g", group=[step("a", undo="undo_a"), step("b", undo="undo_b"), step("c")],
                       on_error=[{"compensate": True, "do": "raise"}])),
            {"c": self.refuse, "undo_b": self.refuse},
        )  # fmt: skip

        error = simulator.run().state["error"]

        assert simulator.started[-2:] == ["g/b/compensate", "g/a/compensate"]
        assert error is not None
        assert error["type"] == "CompensationFailed"
        assert error["cause"]["type"] == "Refused"  # type: ignore[index]

    def test_crash_in_the_middle_of_undoing_goes_on(self) -> None:
        simulator = begin(self.saga(effect="idempotent"), {"pay": self.refuse})
        for address in ("g/flight", "g/hotel", "g/pay"):
            simulator.finish(address)
        assert [r.address for r in simulator.running.values()] == ["g/hotel/compensate"]

        simulator.crash()
        simulator.run()

        assert simulator.status == "succeeded"
        assert simulator.started.count("g/flight/compensate") == 1


class TestCancel:
    def test_cancelled_step_ends_its_token(self) -> None:
        flow = graph(
            step("s", action="none", next={"all": ["a", "c"]}),
            step("a", next="b"),
            step("b", next="end"),
            step("c", action="cancel", cancel={"targets": ["a"]}),
            outputs={"hit": v(output_of("c"))},
        )

        played = begin(flow)

        assert played.state["outputs"] == {"hit": {"cancelled": ["a"]}}

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

    def test_only_a_handler_that_names_it_hears_of_it(self) -> None:
        flow = graph(
            step("s", action="none", next={"all": ["a", "c"]}),
            step("a", on_error=[{"types": ["Cancelled"], "do": "next", "to": "z"}], next="end"),
            step("c", action="cancel", cancel={"targets": ["a"]}, next="end"),
            step("z"),
        )

        assert begin(flow).started == ["a", "z"]

    @pytest.mark.parametrize("asks", ["step", "operator"])
    def test_cancelling_the_execution_leaves_nothing_open(self, asks: str) -> None:
        ask = step("ask", action="approval", input=v({"title": "t", "choices": [APPROVE]}))
        flow = graph(
            step("s", action="none", next={"all": ["g", "c"]}),
            step("g", parallel=[step("a"), ask, step("w", action="wait", wait={
                "mode": "first", "alternatives": [{"id": "ok", "after": v("1d")}]})], next="end"),
            step("c"),
            step("d", action="cancel", cancel={"targets": [], "execution": True}),
        )  # fmt: skip
        played = begin(flow)
        if asks == "step":
            played.finish("c")
        else:
            played.apply({"type": "cancel", "at": played.now, "reason": "enough",
                          "by": "user:test", "now": False})  # fmt: skip

        assert played.status == "cancelled"
        assert "g/a cancelled" in played.story()
