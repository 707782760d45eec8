"""Network access of environments: one place decides, and connects to exactly the checked address.

| module | contents |
|---|---|
| `addresses` | public IP addresses |
| `rules` | rules of a policy: `none`, `any`, `public`, places, patterns |
| `connections` | resolves a name, checks each address, connects to an allowed one |
| `egress` | outgoing connections of sandboxes without a network |
| `proxy` | an HTTP proxy on a Unix socket, for programs without another network |
| `http` | an HTTP client over checked connections |
| `file_names` | safe names for downloaded files |
| `accepted` | the open connections of a server |
"""
