"""Tests of the code."""

from calc import add  # type: ignore[import-not-found] # it lies beside this file

assert add(2, 3) == 5, f"2 + 3 gave {add(2, 3)}"
