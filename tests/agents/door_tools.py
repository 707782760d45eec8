"""Functions for both kinds of agents: named in a flow file, and passed to an `Agent`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator
from typing_extensions import TypedDict

from flowengine import Agent

second = Agent(name="second", model="scripted/test", instructions="You end it.")
expert = Agent(
    name="expert", model="scripted/test", description="Knows sums.", instructions="You know."
)


def even(n: int) -> int:
    """Refuse odd numbers."""
    if n % 2:
        raise ValueError("it is odd")
    return n


class Even(TypedDict):
    n: Annotated[int, AfterValidator(even)]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def boom(why: str) -> str:
    """Fail."""
    raise ZeroDivisionError(f"division by zero: {why}")


def transfer_to_second() -> Agent:
    """Hands the conversation over to second."""
    return second


def polite(prompt: str) -> None:
    """Refuse a prompt."""
    if "damn" in prompt:
        raise ValueError("mind your words")


def short(answer: str, prompt: str) -> None:
    """Refuse an answer."""
    if len(answer) > len(prompt):
        raise ValueError("too long")


def shorten(messages: list[dict[str, Any]], summary: str) -> str:
    """Summarize what is left out."""
    return f"{summary}{len(messages)} messages"


def page(n: int) -> str:
    """Read a page."""
    return "x" * 4000


def count(db, word: str) -> int:  # type: ignore[no-untyped-def]
    """Keep a word, and count all of them."""
    db.execute("create table if not exists words (word text)")
    db.execute("insert into words values (?)", [word])
    found: int = db.query("select count(*) as n from words")[0]["n"]
    return found


def doubled(arguments: dict[str, Any]) -> dict[str, Any]:
    """Double the numbers of a call."""
    return {"arguments": {name: 2 * value for name, value in arguments.items()}}


def withheld(result: int) -> dict[str, Any]:
    """Withhold the result of a call."""
    return {"refuse": f"{result} is secret"}


def hurried(turn: int) -> dict[str, Any] | None:
    """Ask for an answer in the second turn."""
    return {"say": "Hurry.", "tools": []} if turn == 2 else None


def no_calls(calls: list[Any]) -> dict[str, Any] | None:
    """Refuse replies with calls."""
    return {"refuse": "no calls"} if calls else None
