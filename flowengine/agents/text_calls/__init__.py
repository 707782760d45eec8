"""Tool calls as text, for models without function calling.

`read_reply` turns what an assistant wrote into content, reasoning and calls. It takes an
assistant's reply and nothing else: text from users, tools and pages must never be given to it.
`native_arguments` reads the arguments of a native call, `request_messages` writes a request that
needs no function calling, and `StreamFilter` keeps the syntax of calls from whoever watches a
reply arrive. All of it is pure: plain data in, plain data out.
"""
