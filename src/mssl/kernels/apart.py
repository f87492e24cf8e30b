# mypy: allow-untyped-defs, allow-untyped-calls
"""Calls between compiled functions by address, so that each function is compiled once.

numba copies the code of all that a kernel calls into the kernel and optimises the whole again, at every level of calls:
loops within loops then take a minute to compile. A function that is kept apart is called by a symbol of the process
instead, like a function of C. Its signature is given beforehand, since a caller from the cache is not typed again.
"""

from typing import Any, NamedTuple

import llvmlite.binding
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


class _Function(NamedTuple):
    symbol: str
    kernel: Any
    signature: Any


_functions: dict[str, _Function] = {}  # in the order of definition: callees before their callers
_known: set[str] = set()  # symbols


def _make_known(function: _Function) -> None:
    """Compile the function, or read it from the cache, and tell the linker where it is."""
    if function.symbol in _known:
        return
    arguments = function.signature.args
    function.kernel.compile(arguments)
    compiled = function.kernel.overloads[arguments]
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    llvmlite.binding.add_symbol(function.symbol, address)
    _known.add(function.symbol)


def make_known() -> None:
    """Make all functions that are kept apart known, before a kernel that calls them comes from the cache."""
    for function in list(_functions.values()):
        _make_known(function)


def apart(kernel, signature):
    """What compiled functions call in place of a kernel that is not to become part of them.

    Parameters
    ----------
    kernel : numba dispatcher
        The compiled function.
    signature : numba signature
        Its types, with what it returns.
    """
    name = f"{kernel.py_func.__module__}.{kernel.py_func.__name__}".replace(".", "_")
    function = _functions.setdefault(name, _Function(name, kernel, signature))
    wanted = signature.args

    def generate(context, builder, call, packed):
        given = zip(cgutils.unpack_tuple(builder, packed[0]), call.args[0].types, wanted, strict=True)
        values = [context.cast(builder, value, own, to) for value, own, to in given]
        kind = context.call_conv.get_function_type(signature.return_type, wanted)
        pointer = cgutils.get_or_insert_function(builder.module, kind, function.symbol)
        status, answer = context.call_conv.call_function(builder, pointer, signature.return_type, wanted, values)
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return answer

    @intrinsic
    def by_address(context, *arguments):
        _make_known(function)
        return signature.return_type(types.StarArgTuple(arguments)), generate

    return by_address
