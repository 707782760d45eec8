"""Web requests of step kinds and environments: one client, which connects to checked addresses.

| module | contents |
|---|---|
| `urls` | normalized hosts, public IP addresses, parsing of web addresses |
| `rules` | rules of a policy: `none`, `any`, `public`, places, patterns |
| `connections` | resolves a name, checks each address, connects to an allowed one |
| `client` | sends a request over such a connection, or through a proxy |
| `responses` | the head of a response, its decompressed body, errors, redirects |

`connections` is the only way out for requests that steps, models and pages decide about. The
proxies of sandboxes and browsers use it as well. Libraries connect for themselves to one server
that a flow or an operator names: models and `web_search` (litellm), MCP over HTTP, Docker, OIDC.
"""
