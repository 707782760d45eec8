"""Tool calls as text, for models without function calling.

`read_reply` splits a reply into content, reasoning and calls. A call counts only in the form shown
to the model, with a secret mark. Text that the model quotes from users, tools and pages is
therefore never a call. `bind` reads the arguments of a native call, and `unread_call` finds calls
in another form, so that the model can be corrected. `request_messages` writes a request without
function calling. `StreamFilter` removes reasoning and call syntax from the text shown while a reply
arrives. All functions take and return plain data.
"""
