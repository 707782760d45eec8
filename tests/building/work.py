"""Functions called by the flows of these tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from pydantic import BaseModel

from flowengine import StepContext, StepError, step

done: list[Any] = []


class Account(TypedDict):
    name: str
    score: float


@step(effect="idempotent", retry={"attempts": 2, "delay": "1ms"})
def fetch(customer: str) -> Account:
    return {"name": customer.upper(), "score": len(customer) / 10}


def pay(amount: float) -> str:
    done.append(amount)
    return f"paid {amount}"


async def refuse(context: StepContext, reason: str = "no reason") -> str:
    return f"{context.address}: {reason}"


def pages(topic: str) -> list[str]:
    return [f"{topic} {n}" for n in range(3)]


def words(page: str) -> int:
    return len(page.split())


def total(counts: list[int]) -> int:
    return sum(counts)


def say(value: Any = None) -> Any:
    done.append(value)
    return value


def broken() -> None:
    raise StepError("it broke", type="Broke", retryable=False)


def longer(old: str, new: str) -> str:
    return max(old, new, key=len)


class Line(BaseModel):
    article: str
    count: int = 1


class Order(BaseModel):
    customer: str
    lines: list[Line]
    express: bool = False
    kind: Literal["private", "company"] = "private"


@dataclass
class Ticket:
    title: str
    labels: list[str] = field(default_factory=list)
