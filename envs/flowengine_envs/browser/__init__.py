"""Environments of kind `browser`: Chromium in a sandbox, driven through Playwright.

| module | contents |
|---|---|
| `provider` | opens browsers |
| `resource` | a browser as steps, tools and programs use it, with actions as methods |
| `sharing`, `chromium` | processes of Chromium, and the environments that share them |
| `session` | one profile: its tabs and their events, the visible text, and the accessibility tree |
| `actions`, `written_actions` | actions as data, or written as calls |
| `approvals` | actions that require approval, their effects, passwords, uploads |
| `requests` | requests of a page, `file:` pages, downloads, reasons for failures |
| `loading` | loading and scrolling of pages |
| `elements` | finds the element of an action and waits until it is usable |
| `observation`, `observing` | the state of a page after an action, and its text |
| `outline` | the accessibility tree as lines, with rows and sections |
| `markdown`, `markdown_worker` | conversion of HTML to Markdown, in a separate process |
| `browser_server`, `chromium_server.js` | Playwright: server and Chromium in the sandbox, client |
| `long_messages` | truncates long messages of the server |
| `library` | Playwright's names, imported when one is first used: when a browser opens |
| `configuration`, `installation` | settings, and the programs and packages of this machine |
"""
