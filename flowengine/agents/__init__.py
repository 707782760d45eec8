"""Agents, their tools and their handoffs as steps of the graph.

So far this package holds one room: `text_calls`, which reads and writes the tool calls of models
that have no function calling of their own.
"""
