"""Names of span attributes.

Those that begin with `gen_ai` are of the semantic conventions for generative AI (OpenTelemetry,
repository semantic-conventions-genai, November 2026). They are written down here because the
constants in the Python package are deprecated. The conventions have no names for costs, waits,
approvals and environments: these begin with `flowengine`.
"""

from __future__ import annotations

OPERATION = "gen_ai.operation.name"
WORKFLOW = "gen_ai.workflow.name"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
TOOL = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
TOKENS = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
"""Key of the usage of a model call → attribute."""
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

COST = "flowengine.cost_usd"
EXECUTION = "flowengine.execution.id"
VERSION = "flowengine.flow.version"
STATUS = "flowengine.status"
ADDRESS = "flowengine.step.address"
KIND = "flowengine.step.kind"
OUTCOME = "flowengine.step.outcome"
ATTEMPT = "flowengine.attempt"
ENVIRONMENT = "flowengine.environment.name"
ENVIRONMENT_KIND = "flowengine.environment.kind"
ENVIRONMENT_SCOPE = "flowengine.environment.scope"
ENVIRONMENT_PROVIDER = "flowengine.environment.provider"
INPUT = "flowengine.input"
OUTPUT = "flowengine.output"

ERROR = "error.type"

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Environment variable that includes messages, arguments and results in spans."""
