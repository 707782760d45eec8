"""Modules without a topic of the engine, which every part may import."""
