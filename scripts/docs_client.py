"""An extension of griffe, which reads the source for the reference: the methods of the client."""

from __future__ import annotations

from typing import Any

import griffe


class ClientMethods(griffe.Extension):
    """Document `name = operation(requests.build)` as a method like the function `build`."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Replace the operations in the classes of the client."""
        if pkg.name != "flowengine":
            return
        for of in pkg["client.client"].classes.values():
            for made in list(of.attributes.values()):
                match made.value:
                    case griffe.ExprCall(function=griffe.ExprName("operation"), arguments=[build]):
                        build = pkg["client.requests"][str(build).removeprefix("requests.")]
                        of.set_member(made.name, _method(made.name, build))


def _method(name: str, build: griffe.Function) -> griffe.Function:
    """Return the method that sends the request that a function builds: an `ApiRequest[Result]`."""
    self_ = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    request = build.returns
    return griffe.Function(
        name,
        parameters=griffe.Parameters(self_, *build.parameters),
        returns=request.slice if isinstance(request, griffe.ExprSubscript) else request,
        docstring=build.docstring,
    )
