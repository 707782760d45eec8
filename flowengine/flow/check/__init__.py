"""Static checks of a flow before it runs.

The graph checks are pure functions over the compiled form. `net` is their representation of a
scope, `concurrent_tokens` finds tokens that meet, `join_deadlocks` finds joins that can wait
forever, and `token_game` explores a scope exactly.
"""
