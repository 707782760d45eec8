"""Which environments a compiled step is given, as far as it is known before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from flowengine.kernel.graph.compiled import Plain
    from flowengine.kernel.graph.specs import StepSpec

HOST = "host"
"""The provider without a sandbox."""
_SERVER = "mcp"
"""The kind whose environments are programs themselves; in others, the steps' programs run."""


def of_step(step: StepSpec) -> Iterable[Any]:
    """Return the uses that a step is given, for the functions below."""
    if not step.get("environments"):
        return ()
    uses: Mapping[str, Any] = step["input"][1]["environments"][1]
    return uses.values()


def names(uses: Iterable[Any]) -> list[str]:
    """Return the declared names of environments, whatever they are called where they are used.

    One of another file has two: the name in its own file, and that with the id of the file.

    Args:
        uses: Compiled values. What is mounted in an environment counts.
    """
    keys = [str(spec.get("resource_key", "")) for spec in _specs(uses)]
    return list(dict.fromkeys(name for key in keys for name in (key, key.rpartition(".")[2])))


def places(uses: Iterable[Any]) -> list[Plain]:
    """Return where a call acts: the declared name and the provider of each environment.

    Args:
        uses: Compiled values. What is mounted in an environment counts.
    """
    known = {(str(s.get("resource_key", "")), repr(s.get("provider"))) for s in _specs(uses)}
    return [list(place) for place in sorted(known)]


def are_on_host(uses: Iterable[Any]) -> bool:
    """Return whether programs of a step may run in one of them without a sandbox."""
    return any(HOST in _listed(spec.get("provider")) for spec in _of_programs(uses))


def are_on_host_at_last(uses: Iterable[Any]) -> bool:
    """Return whether a sandbox comes first wherever programs of a step may run without one."""
    return all(spec.get("provider") != HOST for spec in _of_programs(uses))


def servers_on_host(uses: Iterable[Any]) -> dict[str, bool]:
    """Return the servers that may run without a sandbox, and whether a sandbox comes first."""
    return {
        str(spec.get("resource_key", "")).replace("tools.", ""): spec.get("provider") != HOST
        for spec in _specs(uses)
        if spec.get("kind") == _SERVER and HOST in _listed(spec.get("provider"))
    }


def _of_programs(uses: Iterable[Any]) -> Iterator[dict[str, Any]]:
    return (spec for spec in _specs(uses) if spec.get("kind") != _SERVER)


def _listed(provider: Plain) -> list[Plain]:
    return provider if isinstance(provider, list) else [provider]


def _specs(uses: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the constant parts of the specs, those of mounts included."""
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
        yield known
