"""The protocol between the engine and programs inside a sandbox.

Modules that are sent inside need only the standard library: `frames`, `parts`, `plain`,
`code_answers`, `bootstrap`, `words`, `masking`. `channel` and `call_limits` belong to the
engine.
"""
