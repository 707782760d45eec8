"""`std` tools that use a browser: a script of actions for flows, single actions for agents."""

from __future__ import annotations

from typing import Any

from flowengine.sdk import NeedsApproval, Plain, StepContext, Tool, ToolError
from flowengine.sdk.tools import browser_tools
from flowengine.sdk.tools.browser_tools import BROWSER
from flowengine.sdk.tools.schemas import FLAG, TEXT, WHOLE, listed, record


async def call(context: StepContext, tool: str, args: dict[str, Any]) -> Any:
    """Call one of these tools.

    `browse` opens an address, performs actions in order, and returns the resulting page. If an
    action requires approval, the step waits after performing the previous ones. The state that it
    then needs is kept with the approval.

    Args:
        context: The attempt.
        tool: Its name.
        args: Its arguments.

    Raises:
        NeedsApproval: An action requires approval. This action and later ones were not
            performed.
        ToolError: An action failed. Later ones were not performed.
    """
    browser = context.resources[BROWSER]
    approved = (context.approval or {}).get("found")
    if tool != "browse":
        return await browser_tools.call(browser, tool, args, approved, picture=context.for_model)
    url, screenshot = args.get("url"), args.get("screenshot", False)
    steps: list[dict[str, Any]] = [{"action": "navigate", "url": url}] if url else []
    steps += args.get("actions") or []
    if screenshot or not steps:
        steps.append({"action": "screenshot", "full_page": args.get("full_page", False)})
    approved = approved or {}
    before = approved.get("before") or {}
    done = before.get("done", 0)
    downloads: list[Plain] = [*before.get("downloads", ())]
    dialogs: list[Plain] = [*before.get("dialogs", ())]
    if done and before["browser"] != browser.opening:
        raise ToolError(
            f"the browser was opened again since action {done + 1} was approved, so the "
            "effects of the actions before it are lost: nothing was done",
            retryable=False,
        )
    for number, step in enumerate(steps[done:], done):
        seen = await browser.async_step(step, approved if number == done else None)
        data = seen.as_data()
        downloads += data["downloads"]
        dialogs += data["dialogs"]
        if seen.needs_approval is not None:
            so_far = {"done": number, "downloads": downloads, "dialogs": dialogs}
            raise NeedsApproval(seen.needs_approval, {**so_far, "browser": browser.opening})
        if seen.error:
            place = f"action {number + 1} ({step.get('action')})"
            shown = {name: data[name] for name in ("url", "title", "status", "content")}
            raise ToolError(f"{place}: {seen.error}", data=shown, retryable=False)
    image = context.execution.artifacts.put(seen.screenshot, "page.png") if screenshot else None
    shown = {name: data[name] for name in _PAGE if name in data}
    return {**shown, "downloads": downloads, "dialogs": dialogs, "screenshot": image}


_PAGE: dict[str, Plain] = {
    "content": TEXT,
    "url": TEXT,
    "title": TEXT,
    "status": {"type": ["integer", "null"]},
    "ax_tree": TEXT,
    "truncated": FLAG,
    "hidden_text_removed": WHOLE,
    "tabs": listed(record({"index": WHOLE, "url": TEXT, "title": TEXT, "active": FLAG})),
    "invalid": listed(TEXT),
    "failed_requests": listed(TEXT),
    "blocked": listed(TEXT),
    "notes": listed(TEXT),
    "challenge": FLAG,
    "value": {},
}


TOOLS: dict[str, Tool] = {
    "browse": {
        "description": "Opens a page of the web in a browser that runs its scripts, does actions "
        "on it, and returns it as Markdown.",
        "args": record(
            {
                "url": TEXT,
                "actions": {
                    **listed(
                        {
                            "type": "object",
                            "properties": {"action": TEXT},
                            "required": ["action"],
                        }
                    ),
                    "description": "Such as {action: click, selector: '#more'}, in order.",
                },
                "screenshot": {**FLAG, "description": "Whether to keep a picture of the page."},
                "full_page": {**FLAG, "description": "Whether the picture is of all of it."},
            },
            [],
        ),
        "returns": record(
            {
                **_PAGE,
                "downloads": listed(
                    record({"path": TEXT, "size": WHOLE, "url": TEXT, "error": TEXT})
                ),
                "dialogs": listed(record({"kind": TEXT, "message": TEXT, "accepted": FLAG})),
                "screenshot": {"type": ["object", "null"]},
            }
        ),
        "effect": "once",
        "environment": BROWSER,
        "apart": True,
    },
    **browser_tools.TOOLS,
}
