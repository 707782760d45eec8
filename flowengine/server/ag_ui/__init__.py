"""Agents of deployed flows for front ends that speak AG-UI 1.0.

Only `runs` imports the package of the protocol, at the first request that needs it.
"""
