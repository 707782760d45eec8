"""The environment `documents`: files read by `flowengine_documents`, in processes in a sandbox.

| module | content |
|---|---|
| `provider`, `reader` | the kind, and its resource, which reads addresses |
| `conversion`, `worker`, `converting` | the conversion of a file: here, and in its process |
| `downloads`, `visits` | files from servers, and what an address leads to, page by page |
"""
