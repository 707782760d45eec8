"""What is proven of a flow before it runs.

The graph checks are pure functions over the compiled form: `net` is the form they work on,
`concurrent_tokens` finds tokens that meet, `join_deadlocks` joins that can wait for ever,
`token_game` plays a scope out exactly.
"""
