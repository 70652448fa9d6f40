"""Python's operators on what is recorded: there is no value yet, so each is an error that says how to record it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from plait.errors import GraphError

_Kind = TypeVar("_Kind", bound=type)

# Method, what is written, and the functions of ``operator`` and of NumPy that do it. ``==`` compares handles.
_BINARY = (
    ("add", "+", "add", "add"),
    ("sub", "-", "sub", "subtract"),
    ("mul", "*", "mul", "multiply"),
    ("truediv", "/", "truediv", "divide"),
    ("floordiv", "//", "floordiv", "floor_divide"),
    ("mod", "%", "mod", "remainder"),
    ("pow", "**", "pow", "power"),
    ("matmul", "@", "matmul", "matmul"),
    ("and", "&", "and_", "bitwise_and"),
    ("or", "|", "or_", "bitwise_or"),
    ("xor", "^", "xor", "bitwise_xor"),
    ("lshift", "<<", "lshift", "left_shift"),
    ("rshift", ">>", "rshift", "right_shift"),
)
_COMPARED = (
    ("lt", "<", "lt", "less"),
    ("le", "<=", "le", "less_equal"),
    ("gt", ">", "gt", "greater"),
    ("ge", ">=", "ge", "greater_equal"),
)
_UNARY = (
    ("neg", "-", "neg", "negative"),
    ("pos", "+", "pos", "positive"),
    ("invert", "~", "invert", "invert"),
    ("abs", "abs", "abs", "absolute"),
)


def refuses_operators(kind: _Kind) -> _Kind:
    """Give a class of handles methods that raise GraphError for every operator of arithmetic and order."""
    for name, sign, function, numpy in (*_BINARY, *_COMPARED):
        setattr(kind, f"__{name}__", _refusal(sign, function, numpy, 2))
    for name, sign, function, numpy in _BINARY:
        setattr(kind, f"__r{name}__", _refusal(sign, function, numpy, 2, swapped=True))
    for name, sign, function, numpy in _UNARY:
        setattr(kind, f"__{name}__", _refusal(sign, function, numpy, 1))
    return kind


def _refusal(sign: str, function: str, numpy: str, arity: int, swapped: bool = False) -> Callable[..., NoReturn]:
    def refuse(self: Any, *others: Any) -> NoReturn:
        operands = [_text(self), *map(_text, others[: arity - 1])]
        given = ", ".join(reversed(operands) if swapped else operands)
        raise GraphError(
            f"{self.name!r} has no value while recording, so {sign!r} cannot be applied to it: record it as an item, "
            f"g.call(operator.{function}, {given}) or g.call(np.{numpy}, {given})"
        )

    return refuse


def _text(operand: Any) -> str:
    """How an operand may be written in a call."""
    name = getattr(operand, "name", None)
    if isinstance(name, str):
        return name if name.replace("[", "").replace("]", "").isidentifier() else "x"
    text = repr(operand)
    return text if isinstance(operand, int | float | complex) and len(text) < 20 else "y"
