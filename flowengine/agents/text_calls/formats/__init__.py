"""The formats in which models write calls, one family a module; `FORMATS` has their order."""

from __future__ import annotations

from flowengine.agents.text_calls.formats.bare_json import BARE_JSON
from flowengine.agents.text_calls.formats.base import Format
from flowengine.agents.text_calls.formats.deepseek import DEEPSEEK, DEEPSEEK_R1, DSML
from flowengine.agents.text_calls.formats.fenced import FENCED
from flowengine.agents.text_calls.formats.functools import FUNCTOOLS
from flowengine.agents.text_calls.formats.glm import GLM
from flowengine.agents.text_calls.formats.granite import GRANITE
from flowengine.agents.text_calls.formats.harmony import HARMONY
from flowengine.agents.text_calls.formats.hermes import HERMES
from flowengine.agents.text_calls.formats.kimi import KIMI
from flowengine.agents.text_calls.formats.llama import LLAMA_JSON, PYTHONIC
from flowengine.agents.text_calls.formats.mistral import MISTRAL, MISTRAL_LIST
from flowengine.agents.text_calls.formats.react import REACT
from flowengine.agents.text_calls.formats.tool_code import TOOL_CODE
from flowengine.agents.text_calls.formats.xml import INVOKE, XML

__all__ = ["FORMATS", "Format", "by_name"]

FORMATS: tuple[Format, ...] = (
    XML,
    HERMES,
    GLM,
    INVOKE,
    DEEPSEEK,
    DEEPSEEK_R1,
    DSML,
    MISTRAL,
    MISTRAL_LIST,
    KIMI,
    HARMONY,
    LLAMA_JSON,
    FUNCTOOLS,
    GRANITE,
    TOOL_CODE,
    FENCED,
    BARE_JSON,
    PYTHONIC,
    REACT,
)
"""All formats in the order in which they are tried. Yours: `(mine, *FORMATS)`."""


def by_name(name: str, formats: tuple[Format, ...] = FORMATS) -> Format:
    """Return the format of a name.

    Args:
        name: As it stands in settings.
        formats: Those there are.

    Raises:
        ValueError: There is none; the message lists those there are.
    """
    for one in formats:
        if one.name == name:
            return one
    raise ValueError(f"no text format '{name}'; there are {', '.join(f.name for f in formats)}")
