"""Agents, their tools and their handoffs as steps of the graph."""
