"""Test doubles and simulators for users and for our own tests."""
