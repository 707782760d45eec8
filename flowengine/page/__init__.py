"""The page of the server: lists, one execution, and an inbox in which approvers decide.

It is rendered on the server and works without JavaScript.
"""
