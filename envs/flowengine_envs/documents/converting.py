"""Conversion of a file to a document for a model: without invisible characters."""

from functools import partial

from flowengine.sdk.texts.visible_text import visible
from flowengine_documents import converters

convert = partial(converters.convert, visible=visible)
"""Converts a file, as `flowengine_documents.converters.convert` does."""
