"""A server whose tools request input, made with the protocol's official library.

`asking_server.py FOLDER`, or `asking_server.py FOLDER http` on a free port, which it prints. It
speaks both generations of the protocol. Each call that does something adds a line to
`FOLDER/done.txt`.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
from mcp.types import (
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, Field

FOLDER = Path(*sys.argv[1:2])
PAGE = "https://pay.example.com/session?id=7"
server = MCPServer("asking")


class Seat(BaseModel):
    """Where to sit."""

    row: int = Field(title="Row", ge=1, le=30)
    side: Literal["window", "aisle"] = "aisle"


class Meal(BaseModel):
    """What to eat."""

    meal: str = Field(description="Any dish.")


def did(what: str) -> None:
    with (FOLDER / "done.txt").open("a") as file:
        file.write(f"{what}\n")


async def seat_of(name: str) -> Elicit[Seat]:
    return Elicit(f"Where does {name} sit?", Seat)


async def meal_of(seat: Annotated[Seat, Resolve(seat_of)]) -> Elicit[Meal]:
    return Elicit(f"What is eaten in row {seat.row}?", Meal)


@server.tool()
async def book(
    name: str, seat: Annotated[Seat, Resolve(seat_of)], meal: Annotated[Meal, Resolve(meal_of)]
) -> str:
    """Book a seat, after two questions."""
    did(f"book {name}")
    return f"{name}: row {seat.row}, {seat.side}, {meal.meal}"


@server.tool()
async def several(name: str, ctx: Context) -> Any:
    """Request two inputs at once, and an opened page, as in revision 2026-07-28."""
    given: Any = ctx.input_responses
    if given is None:
        asked: dict[str, Any] = {
            "row": ElicitRequest(
                params=ElicitRequestFormParams(
                    message=f"Which row for {name}?",
                    requested_schema={
                        "type": "object",
                        "properties": {"row": {"type": "integer"}},
                        "required": ["row"],
                    },
                )
            ),
            "paid": ElicitRequest(
                params=ElicitRequestURLParams(message="Pay for it.", url=PAGE, mode="url")
            ),
        }
        return InputRequiredResult(input_requests=asked, request_state=f"state of {name}")
    did(f"several {name}")
    row = given["row"].content["row"] if given["row"].content else None
    return f"{row} {given['row'].action} {given['paid'].action} {ctx.request_state}"


async def reply_of() -> Sample:
    text = TextContent(type="text", text="hi")
    return Sample([SamplingMessage(role="user", content=text)], max_tokens=5)


@server.tool()
async def sample(reply: Annotated[CreateMessageResult, Resolve(reply_of)]) -> str:
    """Request a text from a model."""
    return str(reply)


def main() -> None:
    if sys.argv[2:] != ["http"]:
        server.run()
        return
    import uvicorn

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    print(listening.getsockname()[1], flush=True)  # noqa: T201
    app = server.streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])


if __name__ == "__main__":
    main()
