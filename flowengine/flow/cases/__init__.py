"""Test case files for flows, and the search for them and for flow files."""
