"""Rounds of agents: `agent_round` shows their stages."""
