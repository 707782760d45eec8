"""Functions for both kinds of agents: named in a flow file, and passed to an `Agent`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator
from typing_extensions import TypedDict

from flowengine.agents import Agent

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
