"""Upgrades: moving an execution to another form of its flow."""
