"""`web_search`: queries a search service for pages.

litellm implements the interfaces of the common services. A key that the flow does not set is taken
from the environment variable in the service's documentation, such as `TAVILY_API_KEY`. Proxies are
taken from the usual variables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from flowengine.agents.models.failures import ModelError, as_ours
from flowengine.agents.models.library import library
from flowengine.sdk import (
    CallSignature,
    Plain,
    StepContext,
    StepError,
    StepKind,
    Synonym,
    ToolError,
)
from flowengine.sdk.environments.resources import background
from flowengine.sdk.tools.schemas import TEXT, listed, record
from flowengine_nodes.mcp import search_text

PROVIDERS = (
    *("agentcore", "apiserpent", "bing_grounding", "brave", "dataforseo", "duckduckgo", "exa_ai"),
    *("fastcrw", "firecrawl", "google_pse", "linkup", "nimble", "parallel_ai", "perplexity"),
    *("searchapi", "searxng", "serper", "tavily", "tinyfish", "you_com"),
)
"""The services that litellm supports. It loads too slowly to be queried during a check."""
SECONDS = 60.0
"""Maximum time without a response, if the step sets no `timeout`."""
RESULTS = 10
LONGEST = 2_000
"""Maximum characters of an excerpt. `std.visit_page` reads whole pages."""
_LONGEST_LINE = 500
_OURS = (
    *("query", "search_provider", "max_results", "search_domain_filter", "api_key"),
    *("api_base", "timeout", "extra_headers"),
)
_PAGE = record({"title": TEXT, "url": TEXT, "snippet": TEXT, "date": {"type": ["string", "null"]}})
_ARGS = record(
    {
        "query": {**TEXT, "minLength": 1, "description": "The text to search for."},
        "domains": {
            **listed(TEXT),
            "description": "Search only these domains. Default: all.",
        },
    },
    ["query"],
)


class WebSearch(StepKind):
    """Returns `{results: [{title, url, snippet, date}, …]}`, the best first."""

    effect = "idempotent"
    foreign = True
    constants = ("provider",)
    secrets = ("api_key",)
    takes_arguments = True
    synonyms = (
        Synonym("backend engine service", "write 'provider: tavily'", "provider"),
        Synonym("country region locale language", "write 'options: {country: DE}'", "options"),
        Synonym("api_base base_url endpoint", "write 'url: …'", "url"),
        Synonym("limit max_results num_results top_k", "write 'count: 5'", "count"),
        Synonym("key token apikey", "write 'api_key: ${{ secrets.… }}'", "api_key"),
    )

    @classmethod
    def address(cls, configuration: Mapping[str, Plain]) -> str | None:
        """Return the address of the server."""
        url = configuration.get("url")
        return url if isinstance(url, str) else None

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration of `web_search`."""
        return {
            **record(
                {
                    "provider": {
                        "enum": [*PROVIDERS],
                        "description": "The search service.",
                        "examples": ["tavily"],
                    },
                    "api_key": {
                        **TEXT,
                        "description": "The key of the service. Default: its environment "
                        "variable, such as TAVILY_API_KEY.",
                        "examples": ["${{ secrets.SEARCH_KEY }}"],
                    },
                    "url": {
                        **TEXT,
                        "description": "The address of the service, such as that of your "
                        "SearXNG. Default: the provider's address.",
                        "examples": ["http://localhost:8080"],
                    },
                    "count": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": 20,
                        "default": RESULTS,
                        "description": "Maximum number of pages.",
                        "examples": [5],
                    },
                    "options": {
                        "type": "object",
                        "description": "Further parameters of the service.",
                        "propertyNames": {"not": {"enum": [*_OURS]}},
                        "default": {},
                        "examples": [{"topic": "news"}, {"country": "DE"}],
                    },
                },
                ["provider"],
            ),
            "x-main": "provider",
        }

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return the arguments and result of a search."""
        return CallSignature(
            _ARGS,
            record({"results": listed(_PAGE)}),
            description="Search the web. Returns titles, addresses and excerpts of pages.",
        )

    @classmethod
    def label(cls, task: Mapping[str, Plain]) -> str:
        return str(task.get("provider", ""))

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Search and return the pages found.

        Args:
            context: The attempt.
            task: `provider`.
            input: `args`, and those that the flow fixes. `configuration` contains all other
                settings.

        Returns:
            `{results: [{title, url, snippet, date}, …]}`.

        Raises:
            ToolError: The service is unknown, refuses the request, or sent an invalid response.
            Timeout: It did not respond in time.
        """
        provider, settings = str(task["provider"]), input.get("configuration", {})
        args = {**input["args"], **input.get("bind", {})}
        asked = {
            **settings.get("options", {}),
            "query": args["query"],
            "search_provider": provider,
            "max_results": settings.get("count", RESULTS),
            "search_domain_filter": args.get("domains") or None,
            "api_key": settings.get("api_key"),
            "api_base": settings.get("url"),
            "num_retries": 0,
        }
        asked = {name: value for name, value in asked.items() if value is not None}
        try:
            litellm = await library()
            # Its connections belong to the loop that opened them, and outlive this step.
            answer = await background().wait(_asked(litellm, asked, timed=context.timed))
        except StepError as error:
            raise _as_of_a_tool(error) from None
        except Exception as error:
            failure = as_ours(error, provider, settings)
            raise _as_of_a_tool(failure) from failure.__cause__
        return {"results": [_page(result) for result in answer.results[: asked["max_results"]]]}

    def text_for_model(
        self, task: Mapping[str, Plain], input: Mapping[str, Plain], output: Plain, room: int
    ) -> str | None:
        """Return the pages as a list."""
        return search_text(output)


async def _asked(litellm: Any, asked: Mapping[str, Any], *, timed: bool) -> Any:
    async with asyncio.timeout(None if timed else SECONDS):
        return await litellm.asearch(**asked)


def _as_of_a_tool(failure: StepError) -> StepError:
    """Return a failure reported as a model provider's as one of a search service."""
    if not isinstance(failure, ModelError):
        return failure
    return ToolError(
        failure.message,
        data=failure.data,
        retryable=failure.retryable,
        retry_after=failure.retry_after,
    )


def _page(answer: Any) -> dict[str, Plain]:
    """Return a page found, with each text cut to its maximum length."""
    date = answer.date
    return {
        "title": _cut(answer.title, _LONGEST_LINE),
        "url": _cut(answer.url, LONGEST),
        "snippet": _cut(answer.snippet, LONGEST),
        "date": None if date is None else _cut(date, _LONGEST_LINE),
    }


def _cut(text: Any, limit: int) -> str:
    text = str(text or "")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
