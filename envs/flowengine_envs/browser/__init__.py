"""Environments of kind `browser`: Chromium in a sandbox, driven through Playwright.

| module | contents |
|---|---|
| `provider` | opens browsers |
| `resource` | a browser as steps, tools and programs use it |
| `sharing`, `chromium` | processes of Chromium, and the environments that share them |
| `session` | one profile: its tabs and their events |
| `actions`, `written_actions` | actions as data, or written as calls |
| `verbs` | actions as methods |
| `approvals` | actions that require approval, and requests stopped without it |
| `touched`, `passwords` | effects of an action on a page, and passwords in pages |
| `files` | pages that are files of the workspace |
| `uploads` | files uploaded to pages |
| `loading`, `addresses` | loading of pages, and allowed addresses |
| `elements` | finds the element of an action and waits until it is usable |
| `reasons` | reasons for failed actions |
| `requests` | a page's requests: status, pending and failed ones |
| `scrolling` | scrolls pages and areas in them |
| `observation`, `observing` | the state of a page after an action, and its creation |
| `observation_text`, `changes` | an observation as text for models, and changes in it |
| `finding`, `outline` | search for elements, with their rows and sections |
| `page_text`, `page_tree` | the visible text, and the accessibility tree |
| `challenges` | recognizes bot checks |
| `downloads` | files that pages offer |
| `markdown`, `markdown_worker` | conversion of HTML to Markdown, in a separate process |
| `browser_server`, `chromium_server.js` | Playwright's server and Chromium in the sandbox |
| `long_messages` | truncates long messages of the server |
| `playwright_client`, `faults` | Playwright in this process, and its errors |
| `configuration`, `installation` | settings, and the programs and packages of this machine |

Nothing here is imported before a browser opens, and only `browser_server` and `playwright_client`
import `playwright`.
"""
