"""Withdrawal of running work, cleanup after it, and compensation."""
