"""Environments of kind `browser`: Chromium in a sandbox, driven through Playwright.

| module | holds |
|---|---|
| `provider` | opens browsers |
| `resource` | a browser as steps, tools and programs use it |
| `session` | one run of Chromium with one profile: its tabs, and what happens by itself |
| `actions` | what can be done on a page, as data |
| `elements` | finds the element that an action names |
| `observation` | what there is to see after an action |
| `page_text`, `page_tree` | the text that people can see, and the accessibility tree |
| `downloads` | files that pages offer |
| `markdown`, `markdown_worker` | turn HTML into Markdown, in a process of its own |
| `driver`, `first_process` | Playwright's driver and Chromium inside the sandbox |

Nothing here is imported before a browser opens, and `playwright` only by `driver` and `session`.
"""
