"""The compiled flow as a networkx graph, for analysis and for other programs.

No edge of a flow leaves its scope. Each scope - the flow, a group, a `finally` - therefore has a
separate `start` and `end`, and an `enter` edge leads to its `start`. A subflow is contained once,
even if several steps run it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from flowengine.kernel.graph.compiled import END, END_ALL
from flowengine.kernel.graph.specs import CompiledFlow, HandlerSpec, SplitSpec, StepSpec

if TYPE_CHECKING:
    import networkx

Step = int
Body = int


def networkx_graph(flow: CompiledFlow) -> networkx.MultiDiGraph[str]:
    """Return the graph of a flow.

    Args:
        flow: In plain form.

    Returns:
        Nodes and edges as `LoadedFlow.to_networkx` describes them.
    """
    return _Writer(flow).write()


class _Writer:
    def __init__(self, flow: CompiledFlow) -> None:
        from networkx import MultiDiGraph

        self.flow = flow
        self.steps = flow["steps"]
        self.graph: networkx.MultiDiGraph[str] = MultiDiGraph()
        attributes = {
            "id": flow["id"],
            "version": flow["version"],
            "title": flow.get("title"),
        }
        self.graph.graph.update({key: text for key, text in attributes.items() if text is not None})
        self.prefixes = list(_prefixes(flow))
        """By number of the flow: the prefix of its ids."""

    def write(self) -> networkx.MultiDiGraph[str]:
        self.body(0, self.prefixes[0], "", self.flow.get("on_error", []))
        for number, flow in enumerate(self.flow.get("flows", ()), 1):
            self.body(flow["body"], self.prefixes[number], "", flow.get("on_error", []))
        return self.graph

    def body(
        self, number: Body, scope: str, inside: str, handlers: Iterable[HandlerSpec] = ()
    ) -> None:
        """Write a scope.

        Args:
            number: The number of its body.
            scope: The prefix of its start and end.
            inside: The node that contains it, empty for a flow.
            handlers: The handlers of a whole flow.
        """
        body = self.flow["bodies"][number]
        start, end = f"{scope}/start", f"{scope}/end"
        self.graph.add_node(start, type="start", scope=inside, flow=self.flow_id(number))
        for step in body["steps"]:
            self.node(step, inside)
        self.graph.add_node(end, type="end", scope=inside, flow=self.flow_id(number))
        for step in body["start"]:
            self.graph.add_edge(start, self.id(step), type="next")
        for step in body["steps"]:
            self.edges(step, end)
            if "trigger" in self.steps[step]:
                self.graph.add_edge(start, self.id(step), type="trigger", **self.trigger(step))
        self.handlers(start, handlers, end)
        if "final" in body:
            final = f"{scope}/finally"
            self.graph.add_node(final, type="finally", scope=inside, flow=self.flow_id(number))
            self.graph.add_edge(end, final, type="finally")
            self.enter(body["final"], final)

    def node(self, number: Step, inside: str) -> None:
        """Write a step and its compensation."""
        step, name = self.steps[number], self.id(number)
        body = step["body"]
        own = {"step": step["id"], "scope": inside, "flow": self.flow_id(body)}
        self.graph.add_node(name, type="step", **own, **self.attributes(step, body))
        if "compensate" in step:
            how = self.attributes(self.steps[step["compensate"]], body)
            self.graph.add_node(f"{name}/undo", type="undo", **own, **how)

    def edges(self, number: Step, end: str) -> None:
        """Write the outgoing edges of a step, and its inner steps."""
        step, name = self.steps[number], self.id(number)
        self.next(name, step, end)
        self.handlers(name, step.get("on_error", []), end)
        for target in step.get("cancel", {}).get("targets", []):
            self.graph.add_edge(name, self.id(target), type="cancel")
        if "exchange" in step:
            self.calls(step, name)
        elif "child" in step:
            self.enter(number, name)
        if (detached := _detached(step)) is not None:
            self.graph.add_edge(name, f"{self.prefixes[detached]}/start", type="begin")
        if "compensate" in step:
            undo, how = f"{name}/undo", step["compensate"]
            self.graph.add_edge(name, undo, type="undo")
            if "child" in self.steps[how]:
                self.enter(how, undo)

    def calls(self, step: StepSpec, name: str) -> None:
        """Write the steps that a step calls, and edges to them."""
        for called in step["exchange"]["callees"].values():
            self.node(called, self.graph.nodes[name]["scope"])
            self.graph.add_edge(name, self.id(called), type="call")
            if "child" in self.steps[called]:
                self.enter(called, self.id(called))

    def enter(self, number: Step, name: str) -> None:
        """Write the inside of a node, or an edge to the flow that it runs."""
        child = self.steps[number]["child"]
        if self.steps[number]["action"] == "flow":
            prefix = self.prefixes[self.flow_number(child)]
            self.graph.add_edge(name, f"{prefix}/start", type="enter")
            return
        self.graph.add_edge(name, f"{name}/start", type="enter")
        self.body(child, name, name)

    def next(self, name: str, step: StepSpec, end: str) -> None:
        if step["action"] == "fail" or step.get("cancel", {}).get("execution"):
            return
        straight: SplitSpec = {"kind": "one", "to": END}
        for target, attributes in self.ways(step.get("split", straight)):
            self.edge(name, target, end, type="next", **attributes)

    def ways(self, split: SplitSpec) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield each target of a split, with the attributes of its edge."""
        if split["kind"] == "one":
            yield split["to"], {}
        for outcome, target in split.get("outcomes", {}).items():
            yield target, {"outcome": outcome}
        if "otherwise" in split:
            yield split["otherwise"], {"otherwise": True}
        for entry in split.get("entries", ()):
            if entry.get("otherwise"):
                yield entry["to"], {"otherwise": True}
            else:
                yield entry["to"], self.condition(entry)

    def handlers(self, name: str, handlers: Iterable[HandlerSpec], end: str) -> None:
        for handler in handlers:
            if handler.get("do") == "next":
                attributes = self.condition(handler)
                if "types" in handler:
                    attributes["errors"] = " ".join(handler["types"])
                if handler.get("compensate"):
                    attributes["compensate"] = True
                self.edge(name, handler["to"], end, type="error", **attributes)

    def edge(self, source: str, target: int, end: str, **attributes: Any) -> None:
        if target == END_ALL:
            attributes["end_all"] = True
        self.graph.add_edge(source, self.id(target) if target >= 0 else end, **attributes)

    def trigger(self, number: Step) -> dict[str, Any]:
        trigger = self.steps[number]["trigger"]
        if "state" in trigger:
            return {"state": trigger["state"]}
        match = {"when": self.expression(trigger["match"])} if "match" in trigger else {}
        together = {"all": True} if trigger.get("all") else {}
        return {"signals": " ".join(trigger["signals"]), **together, **match}

    def attributes(self, step: StepSpec, body: Body) -> dict[str, Any]:
        """Return the attributes of the node of a step or compensation, besides its place."""
        spec: Any = step
        attributes = {"kind": step.get("kind", step["action"]), **self.condition(spec)}
        attributes |= {key: spec[key] for key in ("title", "tool", "effect") if key in spec}
        attributes |= {key: spec[key]["kind"] for key in ("join", "split") if key in spec}
        attributes |= {key: True for key in ("map", "loop", "lock") if key in spec}
        attributes |= {key: self.text(spec[key]) for key in ("timeout", "deadline") if key in spec}
        if "needs" in spec:
            attributes["needs"] = " ".join(spec["needs"])
        if "need" in spec.get("join", {}):
            attributes["need"] = self.text(spec["join"]["need"])
        if "retry" in spec:
            attributes["attempts"] = spec["retry"]["attempts"]
        if step["action"] == "flow":
            attributes["runs"] = self.name_of(self.flow_number(step["child"]))
        if (detached := _detached(step)) is not None:
            attributes["runs"] = self.name_of(detached)
        # steps of other flows may be in other files
        if "at" in spec and self.flow_number(body) == 0:
            attributes["line"], attributes["column"] = spec["at"]
        return attributes

    def condition(self, part: Any) -> dict[str, Any]:
        return {"when": self.expression(part["when"])} if "when" in part else {}

    def expression(self, number: int) -> str:
        """Return an expression as written in the file."""
        text: str = self.flow["expressions"][number]["at"][2]
        return text

    def text(self, value: Any) -> str:
        """Return a duration or a number as written in the file."""
        kind, what = value
        if kind == "with":
            return self.text(what[1])
        if kind == "const":
            return str(what)
        parts = what if kind == "text" else [what]
        return "".join(
            f"${{{{ {self.expression(part)} }}}}" if isinstance(part, int) else part
            for part in parts
        )

    def id(self, number: Step) -> str:
        step = self.steps[number]
        return f"{self.prefixes[self.flow_number(step['body'])]}{step['id']}"

    def flow_number(self, body: Body) -> int:
        """Return the number of the flow that a body belongs to, 0 for the main one."""
        return self.flow["bodies"][body].get("flow", 0)

    def flow_id(self, body: Body) -> str:
        return self.name_of(self.flow_number(body))

    def name_of(self, number: int) -> str:
        return self.flow["flows"][number - 1]["id"] if number else self.flow["id"]


def _detached(step: StepSpec) -> int | None:
    """Return the number of the flow that a step starts as a separate execution."""
    if step["action"] != "task" or step.get("kind") != "flow":
        return None
    number: int = step["task"]["flow"]
    return number


def _prefixes(flow: CompiledFlow) -> Iterator[str]:
    """Yield the prefix of the ids of each flow, empty for the main one."""
    yield ""
    seen: Counter[str] = Counter()
    for other in flow.get("flows", ()):
        seen[other["id"]] += 1
        count = seen[other["id"]]
        yield f"{other['id']}:" if count == 1 else f"{other['id']}#{count}:"
