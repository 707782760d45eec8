"""What environments may reach: one place decides, and connects to exactly what it decided on.

| module | holds |
|---|---|
| `addresses` | which IP addresses are public; hosts in any spelling |
| `rules` | what a policy allows: `none`, `any`, `public`, places, patterns |
| `connections` | resolves a name, judges each address, connects to one that was judged |
| `proxy` | an HTTP proxy on a Unix socket, for programs that have no other network |
| `urls` | addresses of pages as people and pages write them |
"""
