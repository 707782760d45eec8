"""Where the signature of a function is read: in its source, or from the function itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.errors import UsageError
from flowengine.python_modules import MAIN, FunctionNotFound, import_function, name_of_program
from flowengine.sdk.step_kind import SignatureError

if TYPE_CHECKING:
    from flowengine.sdk.python_functions.signature import Signature


def signature_of(function: str, folder: str) -> Signature:
    """Read the signature of a function without running its module.

    A program in no file, such as a notebook, is running already. Its functions are read themselves.

    Args:
        function: `package.module:function`.
        folder: Directory of the flow file: modules there come first.

    Returns:
        Its arguments and result.

    Raises:
        SignatureError: The function does not exist, or its signature cannot be read.
    """
    if not function.startswith(f"{MAIN}:") or name_of_program() is not None:
        from flowengine.sdk.python_functions.signature import derive

        return derive(function, folder)
    from flowengine.sdk.python_functions.live_signature import read_function

    try:
        return read_function(import_function(function, folder))
    except FunctionNotFound as error:
        raise SignatureError(str(error)) from None
    except UsageError as error:
        raise SignatureError(error.message, hint=error.hint) from None
