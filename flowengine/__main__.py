"""`python -m flowengine`: the command line."""

from flowengine.cli import script

script()
