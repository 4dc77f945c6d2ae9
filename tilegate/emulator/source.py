"""What the text of a generated kernel says about how it is called: parameters, shared memory, the grid of a launch."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilegate.emulator.toolchain import EmulatorError

_BYTES = {
    "half_t": 2,
    "half": 2,
    "_Float16": 2,
    "bfloat16_t": 2,
    "hip_bfloat16": 2,
    "float": 4,
    "double": 8,
    "bool": 1,
    "char": 1,
    "signed char": 1,
    "unsigned char": 1,
    "uchar": 1,
    "int8_t": 1,
    "uint8_t": 1,
    "fp8_e4_t": 1,
    "fp8_e5_t": 1,
    "short": 2,
    "unsigned short": 2,
    "ushort": 2,
    "int16_t": 2,
    "uint16_t": 2,
    "int": 4,
    "unsigned int": 4,
    "uint": 4,
    "int32_t": 4,
    "uint32_t": 4,
    "long": 8,
    "unsigned long": 8,
    "long long": 8,
    "int64_t": 8,
    "uint64_t": 8,
}
_DYNAMIC_LDS = re.compile(r"extern\s+__shared__[^;]*?(\w+)\s*\[\s*\]\s*;")
_STATIC_LDS = re.compile(r"(?<!extern )\b__shared__\b")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        name, type: as in the source, the type without its pointer ("half_t").
        pointer: whether it is an array.
        bytes: size of an element, or of the value.
    """

    name: str
    type: str
    pointer: bool
    bytes: int


def parameters_of(source: str, name: str) -> tuple[Parameter, ...]:
    """Read the parameters of the kernel `name` in their order.

    Raises:
        EmulatorError: there is no such kernel, or a parameter has a type that is not known here.
    """
    found = re.search(rf"__global__[^;{{]*?\b{re.escape(name)}\s*\(([^)]*)\)\s*\{{", source)
    if found is None:
        raise EmulatorError(f"the source defines no kernel {name!r}")
    return tuple(_parameter(text) for text in found[1].split(",") if text.strip())


def launch_bounds(source: str, name: str) -> int | None:
    """Return how many work-items a workgroup of the kernel may have, as __launch_bounds__ says, None if it says nothing."""
    found = re.search(rf"__launch_bounds__\(\s*(\d+)[^;{{]*?\b{re.escape(name)}\s*\(", source)
    return int(found[1]) if found else None


def _parameter(text: str) -> Parameter:
    plain = re.sub(r"\b(__restrict__|const|__grid_constant__)\b", " ", text)
    declared = re.fullmatch(r"\s*([\w\s]+?)\s*(\*?)\s*(\w+)\s*", plain)
    type = " ".join(declared[1].split()) if declared else ""
    if declared is None or type not in _BYTES:
        raise EmulatorError(f"a parameter of a type that the emulator does not know: {text.strip()!r}")
    return Parameter(declared[3], type, bool(declared[2]), _BYTES[type])


def dynamic_lds_names(source: str) -> tuple[str, ...]:
    """Return what the source calls its dynamic shared memory."""
    return tuple(dict.fromkeys(_DYNAMIC_LDS.findall(source)))


def mark_static_lds(source: str) -> str:
    """Mark arrays of fixed size in shared memory with a word of the emulator's headers; nothing else changes."""
    return _STATIC_LDS.sub("TG_STATIC_LDS", source)


_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {
    "max": max,
    "min": min,
    "T.max": max,
    "T.min": min,
    "T.ceildiv": lambda a, b: -(-a // b),
    "T.truncdiv": operator.floordiv,  # of extents, which are positive
    "T.floordiv": operator.floordiv,
    "T.Cast": lambda _, value: value,
    "T.int64": int,
    "T.int32": int,
}


def grid_of(extents: Sequence[int | str], scalars: Mapping[str, int]) -> tuple[int, int, int]:
    """Evaluate the grid of a launch: numbers, or expressions such as "(seqlen_q + 127) // 128".

    Args:
        extents: up to three, of x, y and z.
        scalars: the kernel's integer arguments by name.

    Raises:
        EmulatorError: an expression has something in it that is not known here.
    """
    values = [_extent(extent, scalars) for extent in extents]
    if len(values) > 3 or any(value < 0 for value in values):
        raise EmulatorError(f"the grid {list(extents)} is {values}, expected up to three extents of at least 0")
    x, y, z = values + [1] * (3 - len(values))
    return x, y, z


def _extent(extent: int | str, scalars: Mapping[str, int]) -> int:
    if isinstance(extent, int):
        return extent
    try:
        return _evaluate(ast.parse(extent, mode="eval").body, scalars)
    except (SyntaxError, KeyError, TypeError, ZeroDivisionError, ValueError) as error:
        raise EmulatorError(f"the extent {extent!r} of the grid cannot be evaluated: {error!r}") from None


def _evaluate(node: ast.AST, scalars: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Constant(value=str()):  # the type that a cast names
            return 0
        case ast.Name(id=name):
            return int(scalars[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, scalars)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate(left, scalars), _evaluate(right, scalars))
        case ast.Call(func=function, args=arguments, keywords=[]):
            return _FUNCTIONS[ast.unparse(function)](*(_evaluate(argument, scalars) for argument in arguments))
    raise ValueError(ast.unparse(node))
