"""A reply as text, taken apart into content, reasoning, calls and faults."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from flowengine.agents.text_calls.arguments import bind
from flowengine.agents.text_calls.marked_calls import SHOWN, Found, read_call
from flowengine.agents.text_calls.marked_form import MarkedForm
from flowengine.agents.text_calls.reasoning import CLOSINGS, OPENING, STRAY
from flowengine.agents.text_calls.records import Call, Ended, Fault, RawCall, Reading, Tool
from flowengine.agents.text_calls.source import Source

MAX_CALLS = 1_000
NOT_MADE = f"The calls after the first {MAX_CALLS:,} were not made."
MAX_FAULTS = 20
"""A reply that has so many calls, or so many faults, is not read any further."""
FENCE = r"(?<![^\n])[ \t]*(?P<ticks>`{3,}|~{3,})"
_LONGEST_FENCE = 100
_INDENT = 1_000
_MISPLACED = Fault(
    "misplaced",
    "Nothing was called: a call stands inside of a line, a quotation or a code fence. Write calls "
    "on lines of their own, outside of code fences. If you meant to call nothing, leave it out.",
)
_OTHER_FORM = Fault(
    "form",
    "Your reply looks like a call in another form, and was not made. Write calls exactly as shown. "
    "If it is your answer, say it in a sentence.",
)
_LIKE_A_CALL = re.compile(
    r"""\s*(?:```tool_code\n|\[?(?P<python>[\w.-]{1,128})\(|(?:```[\w -]{0,20}\n\s*)?(?:"""
    r"""<[^\s>]{0,20}(?:call|function|invoke|tool|python_tag|channel|start)"""
    r"""|\[TOOL_CALLS\]|(?:functools)?\[\s*\{\s*["'](?:name|tool|function)["']\s*:"""
    r"""|\{\s*["'](?:name|tool|function|tool_calls?|function_call)["']\s*:"""
    r"""|Action:))"""
)
"""How replies begin that are calls in the forms that models were trained on."""
_LOOKED_AT = 500


def read_reply(
    text: str, tools: Iterable[Tool], form: MarkedForm, *, ended: Ended = "stop"
) -> Reading:
    """Read an assistant's reply.

    A call counts where the model was shown to write it: with the mark of the conversation, on lines
    of its own, outside of code fences. A fence around the whole reply is forgiven.

    Args:
        text: The reply.
        tools: Those on offer.
        form: With the mark of the conversation.
        ended: Why the reply ended.

    Returns:
        What it says, and the calls that can be made. Nothing that stands in reasoning, and nothing
        that the limit of length cut off, is a call.
    """
    by_name = {tool.name: tool for tool in tools}
    scan = _Scan(Source(text, ended), form)
    scan.run()
    items = scan.items()
    content = scan.content()
    if not items and _is_other_form(content, by_name):
        items = [replace(_OTHER_FORM, written=content.strip()[:SHOWN])]
    reading = _bound(items, by_name, ended)
    reasoning = "\n".join(scan.reasoning).strip()
    if reading.calls or reading.faults or reasoning:
        content = content.strip()
    return replace(
        reading, content=content, reasoning=reasoning, repairs=(*scan.repairs, *reading.repairs)
    )


def content_of(text: str, form: MarkedForm, ended: Ended) -> str:
    """Return the content of a reply, with the blanks at its ends."""
    scan = _Scan(Source(text, ended), form)
    scan.run()
    return scan.content()


@lru_cache(maxsize=64)
def events_of(form: MarkedForm) -> re.Pattern[str]:
    """Return what may begin or end something in a reply that is not content."""
    return re.compile(
        f"(?P<opens>{OPENING.pattern})|(?P<closes>{STRAY.pattern})|(?P<call>{form.opening})"
        f"|(?P<result>{form.result})|(?P<fence>{FENCE})"
    )


def closing_of(ticks: str, before: str = r"^[ \t]*") -> re.Pattern[str]:
    """Return the line that closes a code fence.

    Args:
        ticks: Those that opened it.
        before: What stands before the ticks that close it.
    """
    length = min(len(ticks), _LONGEST_FENCE)
    closing = rf"{re.escape(ticks[0])}{{{length},}}[ \t]*(?:\n|\Z)"
    return re.compile(before + closing, re.MULTILINE)


@dataclass(slots=True)
class _Cut:
    """A part of the reply that is no content."""

    start: int
    end: int
    calls: list[Found] = field(default_factory=list)
    fenced: bool = False


class _Scan:
    """Goes through a reply once, from left to right."""

    def __init__(self, source: Source, form: MarkedForm) -> None:
        self.source = source
        self.form = form
        self.cuts: list[_Cut] = []
        self.reasoning: list[str] = []
        self.repairs: list[str] = []
        self.calls = self.faults = 0
        self.misplaced = False
        """Whether a call stands where none can: then the model shows calls, and means none."""
        self.begin = 0
        """Where the content begins: behind reasoning that a chat template opened."""
        self.opened = False
        self.said = False
        """Whether there is content in front of the last cut."""

    def run(self) -> None:
        source, events, at = self.source, events_of(self.form), 0
        while match := source.search(events, at):
            at = self._take(match)
            if self.calls > MAX_CALLS or self.faults >= MAX_FAULTS:
                self._cut(at, len(source.text))
                break

    def items(self) -> list[RawCall | Fault]:
        """Return calls and faults in the order of the reply."""
        fenced = any(cut.fenced for cut in self.cuts)
        if self.misplaced or (fenced and self.content().strip()):
            return [_MISPLACED]
        calls = [call for cut in self.cuts for call in cut.calls]
        self.repairs += [repair for call in calls for repair in call.repairs]
        if fenced:
            self.repairs.append("the code fence around the calls was left out")
        return [call.item for call in calls]

    def content(self) -> str:
        """Return what is left, with the blanks at its ends."""
        text, at, before = self.source.text, self.begin, False
        content: list[str] = []
        for cut in self.cuts:
            gap = text[at : cut.start]
            if gap.strip() or not (before and cut.calls):
                content.append(gap)
            at, before = cut.end, bool(cut.calls)
        content.append(text[at:])
        return "".join(content)

    def _cut(self, start: int, end: int, *calls: Found, fenced: bool = False) -> int:
        self.said = self._has_said(start)
        self.cuts.append(_Cut(start, end, list(calls), fenced))
        self.calls += len(calls)
        self.faults += sum(isinstance(call.item, Fault) for call in calls)
        return end

    def _has_said(self, at: int) -> bool:
        """Say whether anything but calls and reasoning stands before a place."""
        return self.said or bool(self.source.text[self._last : at].strip())

    @property
    def _last(self) -> int:
        """Where the last part that is no content ended."""
        return self.cuts[-1].end if self.cuts else self.begin

    def _take(self, match: re.Match[str]) -> int:
        """Take what begins at a match, and return where to go on."""
        start, text = match.start(), self.source.text
        if match["fence"]:
            return self._fence(match)
        if start and text[start - 1] == "`":  # inline code
            whole = match["call"] and self.form.head.match(text, start)
            self.misplaced = self.misplaced or bool(whole)
            return match.end()
        if match["opens"]:
            return self._think(match)
        if match["closes"]:
            return self._stop_thinking(match)
        if not self._begins_line(start):
            self.misplaced = self.misplaced or bool(match["call"])
            return match.end()
        if match["call"]:
            call = read_call(self.source, start, self.form)
            return self._cut(start, call.end, call)
        if not self.calls:
            return match.end()
        self.repairs.append("a result that the model made up was left out")
        return self._cut(start, len(text))

    def _begins_line(self, at: int) -> bool:
        """Nothing but blanks stands before it in its line, or between it and what was cut out."""
        first = max(self._last, at - _INDENT)
        first = max(first, self.source.text.rfind("\n", first, at) + 1)
        begins = first == self._last or self.source.text[first - 1] == "\n"
        return begins and not self.source.text[first:at].strip()

    def _fence(self, match: re.Match[str]) -> int:
        source = self.source
        line = source.text.find("\n", match.end())
        inside = len(source.text) if line < 0 else line + 1
        if not self._has_said(match.start()):
            end, calls = self._calls_at(inside)
            closed = closing_of(match["ticks"], "").match(source.text, source.skip(end))
            if calls and (closed or source.is_over(end)):
                end = closed.end() if closed else len(source.text)
                return self._cut(match.start(), end, *calls, fenced=True)
        self.said = True
        close = source.search(closing_of(match["ticks"]), inside)
        end = close.end() if close else len(source.text)
        call = source.search(self.form.opens, inside)
        self.misplaced = self.misplaced or bool(call and call.start() < end)
        return end

    def _calls_at(self, at: int) -> tuple[int, list[Found]]:
        """Read calls, one below the other."""
        calls: list[Found] = []
        while len(calls) <= MAX_CALLS and self.form.opens.match(
            self.source.text, self.source.skip(at)
        ):
            calls.append(read_call(self.source, self.source.skip(at), self.form))
            at = calls[-1].end
        return at, calls

    def _think(self, match: re.Match[str]) -> int:
        self.opened = True
        source = self.source
        close = source.search(CLOSINGS[match[0]], match.end())
        if close:
            self.reasoning.append(source.text[match.end() : close.start()])
            return self._cut(match.start(), close.end())
        start, calls = self._last_calls(match.end())
        self.reasoning.append(source.text[match.end() : start])
        if calls:
            self.repairs.append("reasoning without an end was closed before the calls")
        self._cut(match.start(), start)
        return self._cut(start, len(source.text), *calls)

    def _last_calls(self, at: int) -> tuple[int, list[Found]]:
        """Return the calls with which reasoning that has no end stops, and where they begin.

        A model that stops right after a call has made that call, and forgot to close its reasoning.
        What stands in front of it is thought only.
        """
        source, over = self.source, len(self.source.text)
        while source.complete and (opens := source.search(self.form.opens, at)):
            end, calls = self._calls_at(opens.start())
            whole = not any(isinstance(call.item, Fault) for call in calls)
            if whole and source.is_over(end) and self._begins_line(opens.start()):
                return opens.start(), calls
            at = end
        return over, []

    def _stop_thinking(self, match: re.Match[str]) -> int:
        """Take the end of reasoning; all before it is reasoning, if nothing else opened it."""
        if self.opened:
            return self._cut(match.start(), match.end())
        self.opened = True
        self.cuts.clear()
        self.repairs.clear()
        self.calls = self.faults = 0
        self.misplaced = self.said = False
        self.reasoning = [self.source.text[: match.start()]]
        self.begin = match.end()
        return self.begin


def _is_other_form(content: str, tools: Mapping[str, Tool]) -> bool:
    """Say whether a reply begins as a call of a tool does, in another form than was shown."""
    match = _LIKE_A_CALL.match(content)
    if match is None or match["python"]:
        return match is not None and match["python"] in tools
    beginning = content.lstrip()[:_LOOKED_AT]
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", beginning) for name in tools)


def _bound(items: list[RawCall | Fault], tools: dict[str, Tool], ended: Ended) -> Reading:
    calls: list[Call] = []
    faults: list[Fault] = []
    repairs: list[str] = []
    for item in items:
        place = len(calls) + len(faults)
        if len(faults) == MAX_FAULTS:
            break
        if place == MAX_CALLS:
            faults.append(Fault("unreadable", NOT_MADE, place=place))
            break
        made: Call | Fault
        if isinstance(item, RawCall):
            made, mended = bind(item, tools, ended=ended, place=place)
            repairs += mended
        else:
            made = replace(item, place=place)
        if isinstance(made, Call):
            calls.append(made)
        else:
            faults.append(made)
    return Reading(calls=tuple(calls), faults=tuple(faults), repairs=tuple(repairs))
