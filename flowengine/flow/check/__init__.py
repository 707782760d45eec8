"""What is proven of a flow before it runs.

The graph checks are pure functions over the compiled form: `net` is the form they work on, `pairs`
finds tokens that meet, `promises` joins that can wait for ever, `game` plays a scope out exactly.
"""
