"""The commands, one file each. `flowengine.cli.program` finds and runs them."""
