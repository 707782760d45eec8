"""Expressions: `${{ }}` in texts, checked against declared types, evaluated without side effects.

There are two sides. *Checking* (`split_text`, `check`) belongs to compiling a flow. *Evaluating*
(`CelEvaluator`) belongs to running one: it works on the records that `check` made. The language is
CEL, and both sides are this project's own. Tests compare them with CEL's conformance suite and with
Google's implementation.
"""
