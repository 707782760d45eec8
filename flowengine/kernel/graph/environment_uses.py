"""The environments of a compiled step that are known before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flowengine.kernel.graph.compiled import Plain
from flowengine.kernel.graph.specs import StepSpec

HOST = "host"
"""The provider without a sandbox."""
_TEMPORARY = (":memory:",)
"""Values of `path` that name no file."""
_PATHS = ("path", "storage_state", "interpreter", "program")
"""Fields of `config` that name files of this host."""
_MODEL, _SCRIPTED = "vision_model", "scripted/"
"""The field that names a model, and how it names a file of this host instead."""
_FUNCTIONS = "converters"
"""The field that names functions, whose source is read from files of this host."""
_SERVER = "mcp"
"""The kind whose environments are programs themselves. In other kinds, the steps' programs run."""


def of_step(step: StepSpec) -> Iterable[Any]:
    """Return the uses of environments in a step, for the functions below."""
    return by_name(step).values()


def by_name(step: StepSpec) -> Mapping[str, Any]:
    """Return the uses of environments in a step by the names that its tool knows."""
    uses: Mapping[str, Any] = step["input"][1]["environments"][1] if "environments" in step else {}
    return uses


def names(uses: Iterable[Any]) -> list[str]:
    """Return the declared names of environments, regardless of their local names.

    An environment from another file has two names: the one in its own file, and the same with the
    id of the file.

    Args:
        uses: Compiled values. Environments mounted in others are included.
    """
    keys = [str(spec.get("resource_key", "")) for spec in _specs(uses)]
    return list(dict.fromkeys(name for key in keys for name in (key, key.rpartition(".")[2])))


def places(uses: Iterable[Any]) -> list[Plain]:
    """Return the places where a call takes effect: name and provider of each environment.

    Args:
        uses: Compiled values. Environments mounted in others are included.
    """
    known = {(str(s.get("resource_key", "")), repr(s.get("provider"))) for s in _specs(uses)}
    return [list(place) for place in sorted(known)]


def scopes(uses: Iterable[Any]) -> list[Any]:
    """Return the scopes of environments, including those mounted in others."""
    return [_known(use.get("scope", "step")) for use, _ in _known_uses(uses)]


def asking(uses: Iterable[Any]) -> list[str]:
    """Return the names of environments, mounted ones included, that may ask before they open."""
    known = [spec for use, spec in _known_uses(uses) if "approval" in use]
    return [str(spec["resource_key"]) for spec in known]


def are_on_host(uses: Iterable[Any]) -> bool:
    """Return whether programs of a step may run in one of them without a sandbox."""
    return any(HOST in _listed(spec.get("provider")) for spec in _of_programs(uses))


def are_on_host_at_last(uses: Iterable[Any]) -> bool:
    """Return whether providers with a sandbox come first wherever one without is permitted."""
    return all(spec.get("provider") != HOST for spec in _of_programs(uses))


def servers_on_host(uses: Iterable[Any]) -> dict[str, bool]:
    """Return the servers that may run without a sandbox, and whether one is preferred."""
    return {
        str(spec.get("resource_key", "")).replace("tools.", ""): spec.get("provider") != HOST
        for spec in _specs(uses)
        if spec.get("kind") == _SERVER and HOST in _listed(spec.get("provider"))
    }


def host_paths(uses: Iterable[Any]) -> list[str | None]:
    """Return the files and directories of this host that specs name, by the fields of their kinds.

    None stands for one that an expression determines.
    """
    return [path for spec in _specs(uses) for path in _host_paths(spec)]


def _host_paths(spec: Mapping[str, Any]) -> Iterator[str | None]:
    config = spec.get("config")
    if not isinstance(config, dict):
        if config is not None:  # an expression
            yield None
        return
    image = config.get("image")
    if isinstance(image, list):  # not a constant, so it may be one to build
        known = _known(image)
        image = known if isinstance(known, dict) else {"build": image}
    build = image.get("build") if isinstance(image, dict) else None
    for named in (*(config.get(field) for field in _PATHS), build):
        path = _known(named)
        if named is not None and path not in _TEMPORARY:
            yield path if isinstance(path, str) else None
    model = _known(config.get(_MODEL))
    if isinstance(model, str) and model.startswith(_SCRIPTED):
        yield model.removeprefix(_SCRIPTED)
    elif model is None and config.get(_MODEL) is not None:
        yield None
    # A server is only told its roots.
    yield from _texts(config.get("roots", []) if spec.get("kind") != _SERVER else [])
    for function in _texts(config.get(_FUNCTIONS, [])):  # in files beside the flow file
        yield function and f"{function.partition(':')[0].replace('.', '/')}.py"


def _texts(value: Any) -> list[Any]:
    """Return the texts of a list. None stands for those of an expression."""
    known = value if _are_texts(value) else _known(value)
    return known if _are_texts(known) else [None]


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _known(value: Any) -> Any:
    """Return a constant of a compiled config, None for an expression."""
    if isinstance(value, list):
        return value[1] if value[0] in ("const", "map") else None
    return value


def _of_programs(uses: Iterable[Any]) -> Iterator[dict[str, Any]]:
    return (spec for spec in _specs(uses) if spec.get("kind") != _SERVER)


def _listed(provider: Plain) -> list[Plain]:
    return provider if isinstance(provider, list) else [provider]


def _specs(uses: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the constant parts of the specs, including those of mounts."""
    return (known for _, known in _known_uses(uses))


def _known_uses(uses: Iterable[Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each use with the constant parts of its spec, including those of mounts."""
    pending = list(uses)
    while pending:
        use = pending.pop()
        if isinstance(use, list):
            tag, content = use
            if tag == "with":
                pending.append(content[1])
                continue
            use = content
        tag, content = use["spec"] if isinstance(use["spec"], list) else ("const", use["spec"])
        known = content if tag == "const" else {k: v[1] for k, v in content.items()}
        mounts = known.get("mounts") or {}
        pending.extend(mounts.values())
        yield use, known
