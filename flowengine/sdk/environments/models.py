"""Models for the configuration, policy and limits of an environment.

Loads pydantic: import it inside `Provider.config_model` and `policy_model`, not at the top of a
module.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from flowengine.kernel.notation.times import TooLong, parse_duration

REFERENCE = re.compile(r"secret:([A-Za-z_][A-Za-z0-9_]*)\Z")
"""`secret:NAME`: text that stands for a secret."""

_UNITS = {
    "": 1,
    **{"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    **{"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "B": 1},
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s?([kMGT]B|[KMGT]iB|B|)\Z", re.ASCII)


def parse_size(value: Any) -> Any:
    """Return the bytes of a size such as `512MiB`. A number is already in bytes.

    Args:
        value: Text or a number.

    Returns:
        Bytes, or the value itself if it is not text.

    Raises:
        PydanticCustomError: The text is not a size.
    """
    if not isinstance(value, str):
        return value
    match = _SIZE.match(value)
    if match is None:
        raise PydanticCustomError("size", "is not a valid size: write for example 512MiB or 2GB")
    size = float(match[1]) * _UNITS[match[2]]
    if size == float("inf"):
        raise PydanticCustomError("size", "is too large for a size")
    return int(size)


def parse_seconds(value: Any) -> Any:
    """Return the seconds of a duration such as `1m30s`. A number is already in seconds.

    Args:
        value: Text or a number.

    Returns:
        Seconds, or the value itself if it is not text.

    Raises:
        PydanticCustomError: The text is not a duration.
    """
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value) / 1000
    except TooLong:
        raise PydanticCustomError("duration", "is longer than a hundred years") from None
    except ValueError:
        raise PydanticCustomError(
            "duration", "is not a valid duration: write for example 90s, 15m or 1h30m"
        ) from None


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("number", "must be a number")
    return value


def _schema(number: str, pattern: str, example: str) -> WithJsonSchema:
    """Return the schema of a number that may also be written as text with a unit."""
    return WithJsonSchema(
        {
            "anyOf": [
                {"type": number, "exclusiveMinimum": 0},
                {"type": "string", "pattern": pattern},
            ],
            "examples": [example],
        }
    )


Size = Annotated[
    int,
    BeforeValidator(parse_size),
    BeforeValidator(_number),
    Field(gt=0),
    _schema("integer", r"^\d+(\.\d+)?\s?([kMGT]B|[KMGT]iB|B)?$", "512MiB"),
]
"""Bytes, written as a number or as text: `2GiB`."""
Duration = Annotated[
    float,
    BeforeValidator(parse_seconds),
    BeforeValidator(_number),
    Field(gt=0, allow_inf_nan=False),
    _schema("number", r"^(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?$", "90s"),
]
"""Seconds, written as a number or as text: `90s`."""


def _on_wait(value: Any) -> Any:
    return value if value in ("keep", "release") else parse_seconds(_number(value))


OnWait = Annotated[Literal["keep", "release"] | Duration, BeforeValidator(_on_wait)]
"""What becomes of an environment while its owner waits."""


class Reference(str):
    """Text that contains references to secrets, made by the manager."""

    __slots__ = ()


def has_reference(text: str) -> bool:
    """Return whether a text of a spec names a secret, which is unknown before opening."""
    return "secret:" in text


class Secret:
    """A field that holds a secret. A spec may contain only its reference, never the value.

    While the environment is being opened, `reveal()` returns the value. Text, `repr` and JSON never
    contain it.

    Args:
        text: The reference, or the value that it was resolved to.
        revealed: Whether it was resolved.
    """

    __slots__ = ("_revealed", "_text")

    def __init__(self, text: str, *, revealed: bool) -> None:
        self._text = text
        self._revealed = revealed

    def reveal(self) -> str:
        """Return the value.

        Raises:
            ValueError: The environment is not being opened, so there is only the reference.
        """
        if not self._revealed:
            raise ValueError(f"{self._text} is not resolved here")
        return self._text

    def __repr__(self) -> str:
        return "***" if self._revealed else self._text

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Secret)
            and other._text == self._text
            and other._revealed == self._revealed
        )

    def __hash__(self) -> int:
        return hash((self._text, self._revealed))

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            cls._validated,
            serialization=core_schema.plain_serializer_function_ser_schema(cls._written),
        )

    @staticmethod
    def _written(value: Any) -> Any:
        """Return a secret in a form that may be shown, and other values unchanged."""
        return repr(value) if isinstance(value, Secret) else value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "pattern": "^secret:[A-Za-z_][A-Za-z0-9_]*$"}

    @classmethod
    def _validated(cls, value: Any, info: ValidationInfo) -> Secret:
        if isinstance(value, Secret):
            return value
        if isinstance(value, str):
            if info.context and info.context.get("revealed"):
                return cls(value, revealed=True)
            if isinstance(value, Reference) or REFERENCE.match(value):
                return cls(str(value), revealed=False)
        raise PydanticCustomError(
            "secret", "must be a reference to a secret, secret:NAME, and not its value"
        )


class Config(BaseModel):
    """Base of the `config:` models of kinds.

    Unknown fields are errors, and objects are immutable.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


_PLACE = re.compile(
    r"(?:(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_-]|\.(?!\.))*|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?",
    re.ASCII,
)


def _place(value: str) -> str:
    """Refuse a text that is not a network destination."""
    match = _PLACE.fullmatch(value)
    if match is not None and (match[1] is None or 0 < int(match[1]) < 65536):
        return value
    if "*" in value:
        raise PydanticCustomError(
            "place", "is not a pattern: write *.example.org or *.example.org:8443"
        )
    raise PydanticCustomError(
        "place", "is not a destination: write host:port, such as db.example.org:5432"
    )


NetworkPlace = Annotated[str, AfterValidator(_place)]


class EnvironmentPolicy(Config):
    """Permissions of programs in an environment. Kinds derive from it and add further rules.

    Omitted rules have the provider's default. Rules that are set must be enforced, otherwise the
    environment is refused.
    """

    network: Literal["none", "any", "public"] | list[NetworkPlace] | None = None
    """`none`, `any`, `public` (every host with a public address), or a list of allowed
    destinations: `host:port`, `host`, `*.host` and `public`."""
    deny_network: list[NetworkPlace] | None = None
    """Destinations that are forbidden even if `network` allows them: `host`, `host:port`,
    `*.host`."""
    writable: list[str] | None = None
    """Directories inside that may be written in addition to the workspace."""


class ResourceLimits(Config):
    """Limits, with one vocabulary for all kinds. Omitted limits have the provider's default."""

    cpus: Annotated[float, BeforeValidator(_number), Field(gt=0)] | None = None
    """Processors, also fractions."""
    memory: Size | None = None
    """Bytes of all processes together."""
    processes: Annotated[int, BeforeValidator(_number), Field(gt=0)] | None = None
    """Processes and threads at once."""
    disk: Size | None = None
    """Bytes of the workspace and of scratch space."""
    time: Duration | None = None
    """Seconds of one call."""
    total_time: Duration | None = None
    """Seconds of all calls together."""
    output: Size | None = None
    """Bytes that are kept of the output of one call."""
    best_effort: bool = False
    """Open it even if some of these limits cannot be enforced. The handle lists them."""


# Parsing of a tool's `limits` in Python programs.
