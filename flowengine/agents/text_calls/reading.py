"""A parser for replies as text, which finds content, reasoning, calls and faults."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from flowengine.agents.text_calls.arguments import bind
from flowengine.agents.text_calls.marked_form import (
    CallFault,
    Ended,
    MarkedForm,
    ModelCall,
    ParsedReply,
    ReadCall,
    ToolOffer,
    read_call,
    skipped,
)

FENCE = r"(?<![^\n])[ \t]*(?P<ticks>`{3,}|~{3,})"
INDENT = 1_000
"""Maximum characters of a line that are read before a place."""
AROUND = 300
"""Maximum characters of a line that are read around a place, to detect inline code."""
_LONGEST_FENCE = 100
_TICKS = re.compile("`+")
_SPAN_END = re.compile(rf"[^`\n]{{0,{AROUND}}}`")
_NAMES = "tool_calls?|function_calls?|tool_use|tool_code"
WRAPPERS = ("<tool_call>", "<tool_calls>", "<function_call>", "<function_calls>", "<tool_use>")
"""Tags that models put around calls. Empty ones do not count as content."""
_ENDS = re.compile(rf"(?:\s*</(?:{_NAMES})>)+")
_EMPTY = rf"(?:\s|</?(?:{_NAMES})>|(?:`{{3,}}|~{{3,}})[\w-]*(?![^\n]))*"
_NOTHING = re.compile(_EMPTY)
_NOTHING_YET = re.compile(rf"{_EMPTY}(?:</?[\w:]{{0,20}}|(?:`{{1,}}|~{{1,}})[\w-]*(?![^\n]))?")


def begins_line(text: str, at: int, first: int) -> bool:
    """Return whether only blanks and wrappers of calls precede a place in its line.

    Args:
        text: The reply.
        at: The place.
        first: End of the last part that was cut out. It counts as the beginning of a line.
    """
    line = max(first, at - INDENT)
    line = max(line, text.rfind("\n", line, at) + 1)
    begins = line == first or text[line - 1] == "\n"
    return begins and not text[line : unwrapped(text, at, line)].strip()


def in_code(text: str, start: int, end: int, first: int) -> bool:
    """Return whether a tag is in inline code, between backticks in one line.

    Args:
        text: The reply.
        start: Start of the tag.
        end: End of the tag.
        first: As for `begins_line`.
    """
    line = max(first, start - AROUND)
    line = max(line, text.rfind("\n", line, start) + 1)
    if text.find("`", line, start) < 0 or len(_TICKS.findall(text, line, start)) % 2 == 0:
        return False
    return bool(_SPAN_END.match(text, end))


def closing_of(ticks: str, before: str = r"^[ \t]*") -> re.Pattern[str]:
    """Return a pattern for the line that closes a code fence.

    Args:
        ticks: The ticks that opened it.
        before: Pattern for the text before the closing ticks.
    """
    length = min(len(ticks), _LONGEST_FENCE)
    closing = rf"{re.escape(ticks[0])}{{{length},}}[ \t]*(?:\n|\Z)"
    return re.compile(before + closing, re.MULTILINE)


def unwrapped(text: str, end: int, first: int = 0) -> int:
    """Return the start of the blanks and opening wrappers at the end of a text.

    Args:
        text: The text.
        end: Its end.
        first: Its start.
    """
    while end > first:
        rest = text[max(first, end - INDENT) : end].rstrip()
        end = max(first, end - INDENT) + len(rest)
        wrapper = next((wrapper for wrapper in WRAPPERS if rest.endswith(wrapper)), "")
        if wrapper:
            end -= len(wrapper)
        elif rest:
            break
    return end


def without_wrappers(text: str, *, before: bool, after: bool) -> str:
    """Return text next to calls, without the wrappers of these calls.

    Args:
        text: The text.
        before: Whether calls precede it.
        after: Whether calls follow it.
    """
    if before and (ends := _ENDS.match(text)):
        text = text[ends.end() :]
    end = unwrapped(text, len(text)) if after else len(text)
    return text[:end] if text[end:].strip() else text


def says_nothing(text: str, *, more: bool = False) -> bool:
    """Return whether a text contains only blanks, empty fences and empty wrappers of calls.

    Args:
        text: The text.
        more: Whether the rest of a tag may still arrive.
    """
    return bool((_NOTHING_YET if more else _NOTHING).fullmatch(text))


# Tags with which models mark their reasoning.

PAIRS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<budget:thinking>": "</budget:thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "\u25c1think\u25b7": "\u25c1/think\u25b7",
}
_ALIKE = ("<think>", "<thinking>", "<budget:thinking>")
"""Any of their closing tags closes any of them, as in the library for providers."""
OPENING = re.compile("|".join(map(re.escape, PAIRS)))
"""Opens reasoning."""
STRAY = re.compile("|".join(map(re.escape, PAIRS.values())))
"""Closes reasoning. If the opening tag is missing, a chat template wrote it."""
TAG = re.compile(f"{OPENING.pattern}|{STRAY.pattern}")
CLOSINGS = {
    opening: re.compile(
        "|".join(re.escape(PAIRS[mark]) for mark in (_ALIKE if opening in _ALIKE else (opening,)))
    )
    for opening in PAIRS
}


MAX_CALLS = 1_000
NOT_MADE = f"The calls after the first {MAX_CALLS:,} were not made."
MAX_FAULTS = 20
"""Maximum faults in a reply. At this number, or at `MAX_CALLS` calls, reading stops."""
_MISPLACED = CallFault(
    "Nothing was called: a call stands inside a line, a quotation or a code fence. Write calls "
    "on separate lines, outside of code fences. If you meant to call nothing, leave it out.",
)


def read_reply(
    text: str,
    tools: Iterable[ToolOffer],
    form: MarkedForm | None,
    *,
    ended: Ended = "stop",
    thought: bool | None = None,
) -> ParsedReply:
    """Read an assistant's reply.

    A call counts only in the form shown to the model: with the mark of the conversation, on
    separate lines, outside of code fences. A fence around the whole reply is tolerated.

    Args:
        text: The reply.
        tools: Tools that can be called in this form.
        form: The form, with the mark of the conversation. None: text calls are not used.
        ended: Why the reply ended.
        thought: Whether reasoning that arrived separately has content. None: none arrived.

    Returns:
        The content and the valid calls. Text in reasoning, and text cut off by the length limit, is
        never a call.
    """
    if form is None and not TAG.search(text):  # the usual case
        text = text if thought is None else text.lstrip()
        return ParsedReply("" if says_nothing(text) else text)
    scan = _Scan(text, form, complete=ended == "stop", thought=thought)
    scan.run()
    reading = _bound(scan.items(), {tool.name: tool for tool in tools}, ended)
    return replace(
        reading,
        content=scan.content(),
        reasoning="\n".join(scan.reasoning).strip(),
        repairs=(*scan.repairs, *reading.repairs),
    )


@lru_cache(maxsize=64)
def events_of(form: MarkedForm | None) -> re.Pattern[str]:
    """Return a pattern for the start or end of anything that is not content."""
    calls = rf"(?P<call>{form.opening})|(?P<result>{form.result})|" if form else ""
    return re.compile(
        f"(?P<opens>{OPENING.pattern})|(?P<closes>{STRAY.pattern})|{calls}(?P<fence>{FENCE})"
    )


@dataclass(slots=True)
class _Cut:
    """A part of the reply that is not content."""

    start: int
    end: int
    calls: list[ReadCall] = field(default_factory=list)
    fenced: bool = False


class _Scan:
    """Scans a reply once, from left to right."""

    def __init__(
        self, text: str, form: MarkedForm | None, *, complete: bool, thought: bool | None
    ) -> None:
        self.text = text
        self.complete = complete
        """Whether the model ended the reply itself."""
        self.form = form
        self.cuts: list[_Cut] = []
        self.reasoning: list[str] = []
        self.repairs: list[str] = []
        self.calls = self.faults = 0
        self.misplaced = False
        """Whether a call is in an invalid place. The model then shows calls without intending them.
        """
        self.begin = 0
        """Start of the content, after reasoning that a chat template opened."""
        self.apart = thought is not None
        self.opened = bool(thought)
        """Whether reasoning was found. A further closing tag is then redundant."""
        self.named = 0
        """Number of opening tags mentioned in a sentence, whose closing tags are ignored."""
        self.has_text = False
        """Whether there is content before the last cut."""
        self.unclosed: set[str] = set()
        """Opening tags whose closing tags do not follow."""

    def run(self) -> None:
        events, at = events_of(self.form), 0
        while match := events.search(self.text, at):
            at = self._process(match)
            if self.calls > MAX_CALLS or self.faults >= MAX_FAULTS:
                self._cut(at, len(self.text))
                break

    def items(self) -> list[ModelCall | CallFault]:
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
        """Return the remaining content, without blanks next to removed parts at its ends."""
        text, at, before = self.text, self.begin, False
        content: list[str] = []
        for cut in self.cuts:
            gap = without_wrappers(text[at : cut.start], before=before, after=bool(cut.calls))
            if gap.strip() or not (before and cut.calls):
                content.append(gap)
            at, before = cut.end, bool(cut.calls)
        content.append(without_wrappers(text[at:], before=before, after=False))
        left = "".join(content)
        if says_nothing(left):
            return ""
        if self.apart or self.begin or (self.cuts and not text[: self.cuts[0].start].strip()):
            left = left.lstrip()
        return left.rstrip() if self.cuts and not content[-1].strip() else left

    def _cut(self, start: int, end: int, *calls: ReadCall, fenced: bool = False) -> int:
        self._has_text_before(start)
        self.cuts.append(_Cut(start, end, list(calls), fenced))
        self.calls += len(calls)
        self.faults += sum(isinstance(call.item, CallFault) for call in calls)
        return end

    def _has_text_before(self, at: int) -> bool:
        """Return whether anything except calls and reasoning precedes a place."""
        self.has_text = self.has_text or bool(self.text[self._last : at].strip())
        return self.has_text

    @property
    def _last(self) -> int:
        """The end of the last part that is not content."""
        return self.cuts[-1].end if self.cuts else self.begin

    def _process(self, match: re.Match[str]) -> int:
        """Process a match, and return where to continue."""
        if match["fence"]:
            return self._fence(match)
        start, text = match.start(), self.text
        is_code = in_code(text, start, match.end(), self._last)
        if match["opens"]:
            return match.end() if is_code else self._think(match)
        if match["closes"]:
            return match.end() if is_code else self._stop_thinking(match)
        assert self.form is not None
        if is_code or not begins_line(text, start, self._last):
            shown = not is_code or self.form.head.match(text, start)
            self.misplaced = self.misplaced or bool(match["call"] and shown)
            return match.end()
        if match["call"]:
            call = read_call(text, start, self.form, complete=self.complete)
            return self._cut(start, call.end, call)
        if not self.calls:
            return match.end()
        self.repairs.append("a result that the model made up was left out")
        return self._cut(start, len(text))

    def _fence(self, match: re.Match[str]) -> int:
        text = self.text
        line = text.find("\n", match.end())
        inside = len(text) if line < 0 else line + 1
        if self.form and not self._has_text_before(match.start()):
            end, calls = self._calls_at(inside, self.form)
            over = skipped(text, end)
            closed = closing_of(match["ticks"], "").match(text, over)
            if calls and (closed or over == len(text)):
                end = closed.end() if closed else len(text)
                return self._cut(match.start(), end, *calls, fenced=True)
        self.has_text = True
        close = closing_of(match["ticks"]).search(text, inside)
        end = close.end() if close else self._end_of_thought(inside)
        if self.form and text.find(self.form.opening, inside, end) >= 0:
            self.misplaced = True
        return end

    def _end_of_thought(self, at: int) -> int:
        """Return the end of reasoning that contains an unclosed fence."""
        stray = None if self.opened else STRAY.search(self.text, at)
        is_own = stray and not OPENING.search(self.text, at, stray.start())
        return stray.start() if stray and is_own else len(self.text)

    def _calls_at(self, at: int, form: MarkedForm) -> tuple[int, list[ReadCall]]:
        """Read consecutive calls."""
        calls: list[ReadCall] = []
        while len(calls) <= MAX_CALLS:
            start = skipped(self.text, at)
            if not self.text.startswith(form.opening, start):
                break
            calls.append(read_call(self.text, start, form, complete=self.complete))
            at = calls[-1].end
        return at, calls

    def _think(self, match: re.Match[str]) -> int:
        start, tag = match.start(), match[0]
        if self.form is None and not begins_line(self.text, start, self._last):
            self.named += 1
            return match.end()
        close = None if tag in self.unclosed else CLOSINGS[tag].search(self.text, match.end())
        if close:
            return self._set_apart(match.end(), close.start(), start, close.end())
        self.unclosed.add(tag)
        if self.form is None and self._has_text_before(start):
            return match.end()
        begin, calls = self._last_calls(match.end())
        self._set_apart(match.end(), begin, start, begin)
        if calls:
            self.repairs.append("reasoning without an end was closed before the calls")
        return self._cut(begin, len(self.text), *calls)

    def _set_apart(self, begin: int, end: int, start: int, over: int) -> int:
        """Cut out reasoning, with the tags around it."""
        thought = self.text[begin:end]
        self.opened = self.opened or bool(thought.strip())
        self.reasoning.append(thought)
        return self._cut(start, over)

    def _last_calls(self, at: int) -> tuple[int, list[ReadCall]]:
        """Return the calls at the end of unclosed reasoning, and where they start.

        A model that stops right after a call has made that call, and forgot to close its reasoning.
        The text before the call is only reasoning.
        """
        text, over = self.text, len(self.text)
        while self.form and self.complete:
            start = text.find(self.form.opening, at)
            if start < 0:
                break
            at, calls = self._calls_at(start, self.form)
            whole = not any(isinstance(call.item, CallFault) for call in calls)
            if whole and skipped(text, at) == over and begins_line(text, start, self._last):
                return start, calls
        return over, []

    def _stop_thinking(self, match: re.Match[str]) -> int:
        """Process the end of reasoning. Without an opening tag, all text before it is reasoning."""
        if self.named:
            self.named -= 1
            return match.end()
        if self.opened:
            return self._cut(match.start(), match.end())
        self.opened = True
        self.cuts.clear()
        self.repairs.clear()
        self.calls = self.faults = 0
        self.misplaced = self.has_text = False
        self.reasoning = [TAG.sub("", self.text[: match.start()])]
        self.begin = match.end()
        return self.begin


def _bound(
    items: list[ModelCall | CallFault], tools: dict[str, ToolOffer], ended: Ended
) -> ParsedReply:
    calls: list[ModelCall] = []
    faults: list[CallFault] = []
    repairs: list[str] = []
    for item in items:
        if len(faults) == MAX_FAULTS:
            break
        if len(calls) + len(faults) == MAX_CALLS:
            faults.append(CallFault(NOT_MADE))
            break
        made, mended = (item, ()) if isinstance(item, CallFault) else bind(item, tools, ended=ended)
        repairs += mended
        if isinstance(made, ModelCall):
            calls.append(made)
        else:
            faults.append(made)
    return ParsedReply(calls=tuple(calls), faults=tuple(faults), repairs=tuple(repairs))
