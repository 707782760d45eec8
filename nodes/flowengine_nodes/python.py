"""`python`: calls a function.

An `async` function runs on the engine's loop, one marked with `@flowengine.quick` directly, any
other on a thread. A withdrawn function on a thread cannot be stopped. It continues, and one that
takes a `StepContext` can check `cancelled`. Its result counts if it arrives soon and the step may
have to be compensated. Otherwise it is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

from flowengine.sdk import (
    CallSignature,
    Plain,
    StepContext,
    StepKind,
    ValidationError,
    import_function,
    import_module_of,
    module_source,
)
from flowengine.sdk.python.conversions import conversion
from flowengine.sdk.python.live_signature import innermost, is_context
from flowengine.sdk.python.plain_hints import (
    INJECTED,
    NotObvious,
    is_field,
    known_hints,
    obvious_conversions,
)
from flowengine.sdk.python.signature import signature_of
from flowengine.sdk.python.user_code import UsersCode
from flowengine.sdk.steps.context import LIVE
from flowengine.sdk.values.declared_forms import unkept_class, writing
from flowengine.sdk.values.read_only import plain

_VARARGS, _VARKEYWORDS = 0x04, 0x08
"""Code flags of functions with `*args` and `**kwargs`."""
_COROUTINE = 0x80 | 0x100
"""Code flags of functions that return a coroutine: `async def`, and `types.coroutine`."""


_NAME = r"[\p{L}\p{Nl}_][\p{L}\p{M}\p{N}_]*"
"""A Python name, for `pattern`, where `\\w` covers ASCII letters only."""


class Function(NamedTuple):
    """A function with the properties needed to call it."""

    call: Callable[..., Any]
    context: tuple[str, ...]
    """Parameters that receive the `StepContext`."""
    parameters: tuple[str, ...]
    is_async: bool
    is_quick: bool
    convert: Callable[[Any], Any] | None
    """Converts its arguments to the types of its hints: floats, models, enums."""
    write: Callable[[Any], Any] | None = None
    """Converts its result to plain data, where that depends on the declared type."""
    unkept: type | None = None
    """The class of its result, if instances have no plain form."""
    home: ModuleType | None = None
    """The module that it was imported from, in which tests may replace it."""
    name: str = ""
    """Its name there."""

    @property
    def is_replaced(self) -> bool:
        """Return whether its name in the module is now bound to another object."""
        return getattr(self.home, self.name, self.call) is not self.call

    def given(self, input: Mapping[str, Plain]) -> dict[str, Any]:
        """Return the arguments from the flow."""
        given = {**input["args"], **input["bind"]} if "bind" in input else dict(input["args"])
        return given if self.convert is None else self.convert(given)

    def arguments(self, context: StepContext, input: Mapping[str, Plain]) -> dict[str, Any]:
        """Return all arguments of the call."""
        arguments = self.given(input)
        resources = context.resources
        if "runtime_resources" in self.parameters:
            arguments["runtime_resources"] = resources
        if "context_variables" in self.parameters:
            arguments["context_variables"] = context_variables(context)
        for name in resources:
            if name in self.parameters:
                arguments[name] = resources[name]
        for name in self.context:
            arguments[name] = context
        return arguments


def context_variables(context: StepContext) -> dict[str, Any]:
    """Return the context variables of an agent's call: plain data, and live objects by name."""
    kept = plain(context.state.get("context", {}))
    live = {name: resource for name, resource in context.resources.items() if name != LIVE}
    return {**live, **kept}


class Python(StepKind):
    """Calls a Python function with the arguments of `with` and `bind`."""

    constants = ("function",)
    takes_arguments = True
    object_remedy: ClassVar[str] = (
        "take it as runtime_resources['{}'], with a parameter 'runtime_resources', or give it "
        "another name"
    )
    may_start_agents = True

    def __init__(self) -> None:
        self._functions: dict[tuple[str, str | None], Function] = {}
        self._sources: dict[tuple[str, str | None], str | None] = {}
        """Sources of imported modules at the time of their import, which is the code that runs."""

    @classmethod
    def configuration(cls) -> dict[str, Plain]:
        """Return the JSON Schema of the configuration of `python`."""
        return {
            "type": "object",
            "x-main": "function",
            "properties": {
                "function": {
                    "type": "string",
                    "description": "The function, as `package.module:function`. Modules "
                    "next to the flow file come first.",
                    "examples": ["money:convert"],
                    "pattern": f"^{_NAME}(\\.{_NAME})*:{_NAME}$",
                }
            },
            "required": ["function"],
            "additionalProperties": False,
        }

    @classmethod
    def foreign_of(cls, task: Mapping[str, Plain], effect: str) -> bool:
        """Return whether the function may read foreign data, which a `pure` one does not."""
        return effect != "pure"

    @classmethod
    def signature(cls, configuration: Mapping[str, Plain], folder: str) -> CallSignature:
        """Return the arguments and result of the function, read from its source."""
        derived = signature_of(configuration["function"], folder)
        task = {"folder": folder, "quick": derived.quick}
        return CallSignature(
            derived.args,
            derived.returns,
            task,
            derived.classes,
            derived.paths,
            derived.description,
            derived.takes_resources,
        )

    @classmethod
    def label(cls, task: Mapping[str, Plain]) -> str:
        return str(task.get("function", ""))

    def source(self, task: Mapping[str, Plain]) -> str | None:
        """Return the source of the function's module, in the version that would run."""
        key = (task["function"], task.get("folder"))
        if key in self._sources:
            return self._sources[key]
        module = module_source(*key)
        if module.is_imported:
            self._sources[key] = module.text
        return module.text

    def takes_resources(self, task: Mapping[str, Plain]) -> bool:
        """Return whether the function takes the context, or all resources."""
        function = self._function(task)
        return bool(function.context) or any(name in function.parameters for name in INJECTED)

    def quick(
        self, task: Mapping[str, Plain]
    ) -> Callable[[StepContext, Mapping[str, Plain]], Plain] | None:
        """Return the call of a function that is marked as quick."""
        if not task.get("quick", True):  # the compiler has read it, so nothing is imported here
            return None
        function = self._function(task)
        if not function.is_quick or function.is_async or function.unkept is not None:
            return None
        call = function.call
        if (write := function.write) is not None:
            return lambda context, input: write(call(**function.arguments(context, input)))
        if function.context or any(name in function.parameters for name in INJECTED):
            return lambda context, input: call(**function.arguments(context, input))
        return lambda context, input: call(**function.given(input))

    async def execute(
        self, context: StepContext, task: Mapping[str, Plain], input: Mapping[str, Plain]
    ) -> Plain:
        """Call the function and return its result."""
        key = (task["function"], task.get("folder"))
        function = self._functions.get(key)
        if function is None or function.is_replaced:  # importing may take seconds
            function = await context.on_thread(lambda: self._function(task))
        arguments = function.arguments(context, input)
        if function.unkept is not None and not context.for_model:
            named = f"{function.unkept.__module__}.{function.unkept.__qualname__}"
            raise ValidationError(
                f"{key[0]} was not called, because it returns a {named}, which cannot be kept: "
                "return text, numbers, bytes, lists, maps, a dataclass or a pydantic model",
                retryable=False,
            )
        result = await self.called(context, function, arguments)
        return result if function.write is None else function.write(result)

    async def called(
        self, context: StepContext, function: Function, arguments: dict[str, Any]
    ) -> Any:
        """Call a function, on a thread if it could block, and return its result."""
        with UsersCode():
            if function.is_async or function.is_quick:
                result = function.call(**arguments)
            else:
                result = await self._on_thread(context, function, arguments)
            return await result if hasattr(result, "__await__") else result

    async def _on_thread(
        self, context: StepContext, function: Function, arguments: dict[str, Any]
    ) -> Any:
        import asyncio  # quick functions do not need it

        try:
            return await context.on_thread(lambda: function.call(**arguments), settles=True)
        except asyncio.CancelledError:
            context.log.warning(
                "cancelled, but a Python function cannot be stopped: %s keeps running in its "
                "thread until it returns, and its result is dropped",
                getattr(function.call, "__name__", function.call),
            )
            raise

    def _function(self, task: Mapping[str, Plain]) -> Function:
        key = (task["function"], task.get("folder"))
        function = self._functions.get(key)
        if function is None or function.is_replaced:
            function = look_at(import_function(*key))
            home, name = import_module_of(*key), key[0].partition(":")[2]
            function = self._functions[key] = function._replace(home=home, name=name)
            self.source(task)  # the file may change, but the imported code stays
        return function


def look_at(call: Callable[..., Any]) -> Function:
    """Return the properties of a function that is to be called."""
    inner: Any = call
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    if not hasattr(inner, "__code__"):  # a partial or a callable object
        inner = innermost(inner)
    # A function made by `with_env` finds its environments there.
    takes = ("context_variables",) if hasattr(call, "__environments__") else ()
    result, write, unkept = _result_hint(inner), None, None
    if result is not Any:
        write, unkept = writing(result), unkept_class(result)
    code = getattr(inner, "__code__", None)
    count = code.co_argcount + code.co_kwonlyargcount if code else 0
    parameters = code.co_varnames[:count] if code else ()
    hints = getattr(inner, "__annotations__", {})
    context = tuple(name for name in parameters if is_context(hints.get(name)))
    return Function(
        call=call,
        context=context,
        parameters=(*parameters, *takes),
        is_async=bool(code and code.co_flags & _COROUTINE),
        is_quick=getattr(call, "__flowengine_quick__", False),
        convert=_conversion(call, inner, context),
        write=write,
        unkept=unkept,
    )


def _conversion(
    call: Callable[..., Any], inner: Any, context: tuple[str, ...]
) -> Callable[[Any], Any] | None:
    """Return the conversion of arguments, or None if the function takes plain data."""
    skip = (*context, *INJECTED)
    defaults = getattr(inner, "__defaults__", None) or ()
    named = getattr(inner, "__kwdefaults__", None) or {}
    hints = getattr(inner, "__annotations__", {})
    try:
        if _others(inner) in hints or any(map(is_field, (*defaults, *named.values()))):
            raise NotObvious
        each = obvious_conversions(hints, skip)
    except NotObvious:
        return conversion(call, skip)
    if not each:
        return None
    return lambda given: {
        name: each[name](value) if name in each else value for name, value in given.items()
    }


def _others(inner: Any) -> str:
    """Return the name of `**kwargs`, or an empty text."""
    code = getattr(inner, "__code__", None)
    if code is None or not code.co_flags & _VARKEYWORDS:
        return ""
    before = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & _VARARGS)
    return str(code.co_varnames[before])


def _result_hint(inner: Any) -> Any:
    """Return the type of the result, or `Any` if it is not known or is plain data."""
    hint = getattr(inner, "__annotations__", {}).get("return", Any)
    try:
        obvious_conversions({"result": hint}, ())
    except NotObvious:
        return known_hints(inner).get("return", Any) if isinstance(hint, str) else hint
    return Any
