"""Web requests of step kinds and environments: addresses, redirects, limits of responses.

| module | contents |
|---|---|
| `hosts` | normalized hosts |
| `urls` | parsing of web addresses |
| `responses` | the head of a response, its decompressed body within a limit, errors |
| `redirects` | sends a request and follows its redirects |

A `RequestSender` of `redirects` makes the connections, so the callers decide which servers can be
reached.
"""
