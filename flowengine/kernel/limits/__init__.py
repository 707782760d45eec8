"""Limits that delay a unit although its step may begin: locks, budgets, places in a map."""
