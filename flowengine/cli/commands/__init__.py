"""The commands, one file each; see `flowengine.cli.program`."""
