"""Documents as Markdown: PDF, Word, PowerPoint, Excel, HTML, EPUB, notebooks, mail, text, images.

`converters.convert` turns the bytes of one file into a `Document`. Files are hostile until proven
otherwise, so the environment `documents` calls it in a sandboxed process (`worker`).

| module | holds |
|---|---|
| `document` | what a file becomes, the limits, the errors |
| `formats` | which format a file has: by its content, then by its name |
| `converters` | the table of formats, and the way from bytes to a document |
| `markdown` | inline formatting, blocks, tables |
| `archives` | ZIP files and XML whose size is checked before they are read |
| `pages` | a long text in pages, and search in it |
"""
