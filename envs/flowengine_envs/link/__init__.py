"""What the engine and the programs inside a sandbox exchange, and how.

Modules that are sent inside need nothing but the standard library: `frames`, `parts`, `plain`,
`code_answers`, `bootstrap`, `words`, `terminal_text`. `channel` and `call_limits` are the engine's.
"""
