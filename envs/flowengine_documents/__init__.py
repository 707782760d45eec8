"""Documents as Markdown: PDF, Word, PowerPoint, Excel, HTML, EPUB, notebooks, mail, text, images.

`converters.convert` turns the bytes of one file into a `Document`. Files are hostile: the caller
converts each in a separate process, in a sandbox. The library knows nothing of flows and
environments.

| module | content |
|---|---|
| `document` | the result of a conversion, the limits, the errors |
| `formats` | detection of a file's format by its content, then by its name |
| `converters` | the table of formats, and the conversion of bytes to a document |
| `markdown` | inline formatting, blocks, tables |
| `archives` | ZIP files and XML, whose size is checked before they are read |
| `encodings`, `terminal_text` | bytes as text, and what a terminal would show of it |
| `pages` | pagination of a long text, and search in it |
"""
