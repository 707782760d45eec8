"""Texts: received from outside, written for people, for models, and as JSON."""
