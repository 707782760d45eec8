"""Benchmarks: what the engine costs, as ratios against a limit measured in the same run."""
