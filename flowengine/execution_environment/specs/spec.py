"""Specs: their form, their validation, and their identity.

A spec is validated as a whole, and all faults are reported at once. The result is a private copy
with all defaults. All its content is part of its identity. Two specs share a
resource only if they have the same digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from flowengine.errors import FlowEngineError
from flowengine.execution_environment.errors import Fault, SpecInvalid
from flowengine.execution_environment.specs import providers
from flowengine.kernel.graph.compiled import Plain, SecretText
from flowengine.kernel.notation.addresses import shown_owner
from flowengine.sdk.environments import AXES, ISOLATIONS, Provider, Scope, Spec
from flowengine.sdk.environments.models import (
    REFERENCE,
    Config,
    Duration,
    OnWait,
    Reference,
    ResourceLimits,
)
from flowengine.sdk.errors import EnvironmentStartFailed
from flowengine.sdk.texts.near_words import did_you_mean
from flowengine.sdk.texts.validation_messages import model_faults
from flowengine.util.plain_data import with_leaves


def faults_of(
    error: ValidationError, model: type[BaseModel], data: Any, part: str = ""
) -> Iterator[Fault]:
    """Yield the faults, one entry per location.

    Args:
        error: Error of validating against `model`.
        model: The model.
        data: The validated data.
        part: Path of the validated data in the spec.
    """
    for fault in model_faults(error, model, data):
        message, value = fault.said, fault.value
        if fault.kind == "extra_forbidden":
            message = f"is unknown{nearest(fault.path[-1], fault.meant)}"
        elif fault.kind == "missing":
            message = "is missing"
        elif fault.meant and isinstance(value, str) and len(value) <= 30:
            message = f"is '{value}'{nearest(value, fault.meant)}"
        yield Fault(".".join(map(str, [*filter(None, [part]), *fault.path])), message)


def nearest(word: object, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` or the known names, to be appended to a message."""
    names = sorted(known)
    if (near := did_you_mean(str(word), names)) is not None:
        return f"; {near}"
    return f"; known: {', '.join(names)}" if names else ""


Text = Annotated[str, Field(max_length=500)]
_HOUR = 3600.0


class EnvironmentSpec(Config):
    """Spec of an environment. Only `kind` is required."""

    kind: Text
    """Kind of environment: `python`, `sqlite`, ..."""
    scope: Scope = "execution"
    """The scope in which it is shared."""
    owner_id: Text = ""
    """The call, execution, session, ... that it belongs to. It is never shared between owners."""
    resource_key: Text | None = Field(None, min_length=1)
    """Name under which users look up the resource. Default: the kind."""
    provider: Text | Annotated[list[Text], Field(min_length=1)] | None = None
    """The sandbox it runs in, or several in order of preference. Default: the kind's."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Settings of the kind."""
    policy: dict[str, Any] = Field(default_factory=dict)
    """Its permissions."""
    limits: ResourceLimits = ResourceLimits()
    """Its resource limits."""
    needs: dict[str, Any] = Field(default_factory=dict)
    """Guarantees that must be enforced here: `isolation: container`, or an axis: `network: true`.
    """
    on_wait: OnWait | None = None
    """Whether it stays open while the execution waits: `release`, `keep` for an hour, or for some
    seconds. Default: `keep` if live state matters."""
    idle: Duration | None = None
    """Seconds that it stays open without a holder. Default: the last release closes it."""
    max_age: Duration | None = None
    """Age in seconds after which it accepts no new holders."""
    registry: Literal["disk", "none"] = "disk"
    """`none`: open it even if it cannot be recorded, so that it would not be found after a crash.
    """
    mounts: dict[str, Text] = Field(default_factory=dict)
    """Directories of other environments: directory inside → id of a spec."""
    secrets: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Sources of secrets: name → `{env: VARIABLE}` or `{file: PATH}`. Default: the environment
    variable of the same name."""
    folder: str | None = None
    """Base of relative paths in the configuration. Default: the current directory."""
    args: dict[str, Any] = Field(default_factory=dict)
    """Its arguments, which only distinguish instances."""
    user: Text = ""
    """The user for whom it acts, `user:NAME`, if its kind acts for users. Users never share it."""

    _id: str = ""
    _providers: tuple[str, ...] = ()
    _on_wait: OnWait = "release"
    _given: Mapping[str, Plain] = {}
    """The configuration as written, with secrets as `SecretText`."""
    _parts: tuple[BaseModel, ...] = ()

    @property
    def id(self) -> str:
        """The same for equal specs, in every process."""
        return self._id

    @property
    def key(self) -> str:
        """The name under which users look up the resource."""
        return self.resource_key or self.kind

    @property
    def named(self) -> dict[str, str]:
        """What it is and whose, for records and descriptions."""
        return {
            "spec_id": self.id,
            "kind": self.kind,
            "scope": self.scope,
            "owner_id": self.owner_id,
            "resource_key": self.key,
        }

    @property
    def providers(self) -> tuple[str, ...]:
        """The sandboxes that it may run in, in order of preference."""
        return self._providers

    @property
    def is_kept(self) -> bool:
        """Whether it stays open while its owner waits."""
        return self._on_wait != "release"

    @property
    def kept_for(self) -> float:
        """Seconds that it then stays open."""
        return self._on_wait if isinstance(self._on_wait, float) else _HOUR

    @property
    def sources(self) -> dict[str, dict[str, str]]:
        """The sources of the secrets that the configuration refers to."""
        used = sorted({part[0] for text in _secrets(self._given) for part in text.parts
                       if not isinstance(part, str)})  # fmt: skip
        return {each: self.secrets.get(each, {"env": each}) for each in used}

    def __str__(self) -> str:
        whose = f"{self.scope} {shown_owner(self.owner_id)}".rstrip()
        return f"environment '{self.key}' ({self.kind}, {whose})"

    def data(self) -> dict[str, Any]:
        """Return the spec as plain data, with its id, and with secrets as references."""
        data = self.model_dump(mode="json")
        data |= {
            "id": self.id,
            "resource_key": self.key,
            "provider": self.providers[0] if len(self.providers) == 1 else list(self.providers),
            "on_wait": self._on_wait,
        }
        return data

    def for_provider(self, name: str) -> Spec:
        """Return a new copy for a provider, which may change it.

        Args:
            name: The sandbox to try.

        Returns:
            The spec in the form of the SDK.
        """
        config, rules = (part.model_copy(deep=True) for part in self._parts)
        return Spec(
            self.id,
            self.kind,
            self.scope,
            self.owner_id,
            self.key,
            name,
            config,
            rules,
            self.limits,
            dict(self.needs),
            self.folder or ".",
            self.user,
            self.sources,
        )

    def revealed(self, reveal: Callable[[Any], Any]) -> BaseModel | None:
        """Return the configuration with its secrets. None: it has none, so nothing changes.

        Args:
            reveal: Replaces secrets in plain data.

        Raises:
            EnvironmentStartFailed: It is invalid with the secrets.
        """
        if not any(_secrets(self._given)):
            return None
        model, config = type(self._parts[0]), reveal(dict(self._given))
        try:
            return model.model_validate(config, context={"revealed": True})
        except ValidationError as error:
            message = "; ".join(map(str, faults_of(error, model, config, "config")))
            raise EnvironmentStartFailed(
                f"{self}: with its secrets the configuration is not valid: {message}"
            ) from None


def check_spec(given: Mapping[str, Any]) -> EnvironmentSpec:
    """Validate a spec and fill in its defaults.

    Args:
        given: The spec as written, which is not kept.

    Returns:
        The complete spec.

    Raises:
        SpecInvalid: It is invalid. The error contains all faults.
    """
    if not isinstance(given, Mapping):
        raise SpecInvalid("?", [Fault("", "must be a mapping such as {'kind': 'python'}")])
    apart = {"id", "config", "approval"}
    written = {str(key): value for key, value in given.items() if key not in apart}
    config = with_leaves(given.get("config", {}), _secret, str)
    written["config"] = with_leaves(config, _shown, SecretText)
    name = str(written.get("resource_key") or written.get("kind") or "?")
    faults: list[Fault] = []
    spec: EnvironmentSpec | None = None
    try:
        spec = EnvironmentSpec.model_validate(written)
    except ValidationError as error:
        faults += faults_of(error, EnvironmentSpec, written)
    provider = _provider(written.get("kind"), faults)
    names = _choices(provider, written, faults)
    parts: list[BaseModel] = []
    if provider is not None:
        usable = {provider.kind, *providers.sandboxes()}
        models = providers.models_of(provider, tuple(each for each in names if each in usable))
        for part, model in zip(_PARTS, models, strict=True):
            if not isinstance(data := written.get(part, {}), dict):
                continue  # already reported
            try:
                parts.append(model.model_validate(data))
            except ValidationError as error:
                faults += faults_of(error, model, data, part)
    _check_needs(written.get("needs"), faults)
    if "approval" in given:
        faults.append(Fault("approval", _ASKS))
    if faults or spec is None or provider is None:
        raise SpecInvalid(name, faults)
    dumped = [part.model_dump(mode="json") for part in parts]
    spec = spec.model_copy(update=dict(zip(_PARTS, dumped, strict=True)))
    spec._providers, spec._given, spec._parts = names, config, tuple(parts)
    spec._on_wait = spec.on_wait or ("keep" if provider.live else "release")
    data = spec.data() | {"secrets": spec.sources}
    if not spec.user:
        del data["user"]  # specs without a user keep the ids that they had before there were users
    text = json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    spec._id = f"env_{hashlib.sha256(text.encode()).hexdigest()[:26]}"
    return spec


_ASKS = (
    "is only for environments of a flow file, whose calls wait for an approver. Declare it there, "
    "or leave 'approval' out, since a program that opens an environment consents to it"
)
_PARTS = ("config", "policy")
"""The parts of a spec whose models the provider defines."""


def _shown(secret: SecretText) -> Reference:
    parts = secret.parts
    return Reference("".join([p if isinstance(p, str) else f"secret:{p[0]}" for p in parts]))


def _secret(text: str) -> SecretText | str:
    return SecretText([[match[1]]]) if (match := REFERENCE.match(text)) else text


def _secrets(value: Any) -> Iterator[SecretText]:
    """Yield the texts in plain data that are, or contain, secrets."""
    if isinstance(value, SecretText):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _secrets(item)


def _provider(kind: Any, faults: list[Fault]) -> Provider[Any] | None:
    if not isinstance(kind, str):
        return None  # already reported
    if kind not in providers.kinds():
        hint = "search needs no environment: use a tool, 'web_search'" if kind == "search" else None
        faults.append(
            Fault("kind", hint or f"there is no kind '{kind}'{nearest(kind, providers.kinds())}")
        )
        return None
    try:
        return providers.find_provider(kind)
    except FlowEngineError as error:
        faults.append(Fault("kind", error.with_hint))
        return None


def _choices(
    provider: Provider[Any] | None, written: Mapping[str, Any], faults: list[Fault]
) -> tuple[str, ...]:
    """Return the permitted sandboxes, in order."""
    if provider is None:
        return ()
    given, config = written.get("provider"), written["config"]
    default = provider.default_sandbox(config if isinstance(config, dict) else {})
    if given is None:
        return (default or provider.kind,)
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return ()  # already reported
    known = [provider.kind] if default is None else providers.sandboxes_of(provider)
    faults += [
        Fault("provider", f"there is no '{name}' for this kind{nearest(name, known)}")
        for name in names
        if name not in known
    ]
    return tuple(names)


def _check_needs(given: Any, faults: list[Fault]) -> None:
    if not isinstance(given, Mapping):
        return
    for axis, wanted in given.items():
        if axis == "isolation":
            meant = f"is {', '.join(ISOLATIONS)}{nearest(wanted, ISOLATIONS)}"
            fault = "" if wanted in ISOLATIONS else meant
        elif axis not in AXES:
            fault = f"is unknown{nearest(axis, ['isolation', *AXES])}"
        else:
            fault = "" if wanted is True else "must be true"
        if fault:
            faults.append(Fault(f"needs.{axis}", fault))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a spec."""
    schema = EnvironmentSpec.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "environment-1.schema.json",
        **schema,
        "title": "An environment",
    }
