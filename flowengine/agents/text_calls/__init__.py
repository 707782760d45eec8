"""Tool calls as text, for models without function calling.

`read_reply` turns what an assistant wrote into content, reasoning and calls. A call counts only in
the form that the model was shown, with a mark that nobody else knows: text that the model quotes
from users, tools and pages is never a call. `bind` reads the arguments of a native call,
`unread_call` finds a call in another form, so that the model can be told. `request_messages` writes
a request that needs no function calling, and `StreamFilter` keeps reasoning and the syntax of calls
apart from the text that is shown while a reply arrives. All of it is plain data in, plain data out.
"""
