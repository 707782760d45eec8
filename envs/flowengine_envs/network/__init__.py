"""Ways out for programs in sandboxes, over the connections of `flowengine.sdk.web`.

| module | contents |
|---|---|
| `egress` | outgoing connections of sandboxes without a network |
| `proxy` | an HTTP proxy on a Unix socket, for programs without another network |
| `file_names` | safe names for downloaded files |
"""
