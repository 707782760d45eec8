"""Where programs run: `namespace` and `host`, both as processes of this machine."""
