"""Environments of kind `browser`: Chromium in a sandbox, driven through Playwright.

| module | holds |
|---|---|
| `provider` | opens browsers |
| `resource` | a browser as steps, tools and programs use it |
| `session` | one run of Chromium with one profile: its tabs, and what happens by itself |
| `actions` | what can be done on a page, as data |
| `approvals` | what people approve first: asked about, or stopped |
| `touched`, `passwords` | what an action would touch; which passwords pages hold |
| `files` | pages that are files of the workspace |
| `uploads` | files that are given to pages |
| `loading`, `addresses` | load pages; which addresses are opened |
| `elements` | finds the element that an action names, and waits until it can be used |
| `reasons` | why an action was not done |
| `requests` | what a page requests: its status, what is under way, what failed |
| `scrolling` | scrolls pages and what scrolls inside of them |
| `observation`, `observing` | what there is to see after an action, and how it is seen |
| `observation_text`, `changes` | an observation as models are told of it; what is new in it |
| `finding`, `outline` | elements that are looked for, with their rows and sections |
| `page_text`, `page_tree` | the text that people can see, and the accessibility tree |
| `downloads` | files that pages offer |
| `markdown`, `markdown_worker` | turn HTML into Markdown, in a process of its own |
| `env`, `adopted` | `BrowserEnv`; browsers that somebody else has opened |
| `browser_server`, `chromium_server.js` | Playwright's server and Chromium inside the sandbox |
| `playwright_client` | Playwright in this process |

Nothing here is imported before a browser opens, and `playwright` only by `browser_server` and
`playwright_client`.
"""
