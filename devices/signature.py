"""What a kernel takes: arguments declared as text or read from C++ source, and values checked and cast to them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from plait.errors import DeviceError, PlanError

_DECLARED = re.compile(r"\s*(const\s+)?([^\s\[\]]+)\s*(\[\s*\])?(?:\s+([A-Za-z_]\w*))?\s*")
_NOISE = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_QUALIFIERS = frozenset({"__restrict__", "__restrict", "restrict", "volatile", "__grid_constant__"})


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: an array (a pointer in the source) or a scalar, of one dtype.

    ``writes`` is true for an array that the kernel may change.
    """

    dtype: np.dtype[Any]
    array: bool
    writes: bool = False
    name: str = ""

    def __str__(self) -> str:
        return f"a C-contiguous {self.dtype} array" if self.array else f"a {self.dtype} scalar"


Signature = tuple[Argument, ...]


def declared(texts: Sequence[str], kernel: str) -> Signature:
    """The arguments that ``signature=`` says: ``"float32[]"``, ``"const float32[] x"``, ``"int32 n"``; or PlanError."""
    if isinstance(texts, str):
        raise PlanError(f"kernel {kernel!r}: signature is a sequence of texts, one for each argument, not {texts!r}")
    result = []
    for index, text in enumerate(texts):
        found = _DECLARED.fullmatch(text)
        try:
            const, dtype, array, name = found.groups() if found else (None, "", None, None)
            argument = Argument(np.dtype(dtype or "?!"), array is not None, array is not None and not const, name or "")
        except TypeError:
            raise PlanError(
                f"kernel {kernel!r}: signature[{index}] is {text!r}; it must be like 'float32[]' (an array that the "
                "kernel may change), 'const float32[]' (one that it only reads) or 'int32' (a scalar)"
            ) from None
        if not argument.array and argument.dtype.kind not in "biufc":
            raise PlanError(f"kernel {kernel!r}: signature[{index}]: a scalar cannot be {argument.dtype}")
        result.append(argument)
    return tuple(result)


def same_types(left: Signature, right: Signature) -> bool:
    """Whether two signatures take the same arrays and scalars, whatever their names."""
    return [(each.dtype, each.array) for each in left] == [(each.dtype, each.array) for each in right]


# Reading C++ parameter lists


def from_source(text: str, name: str) -> Signature | str:
    """The arguments of the ``__global__`` function ``name`` (``scale<float>`` for a template), or, in words, why they
    cannot be read: only basic C types, pointers to them, and a template's type parameters can.
    """
    base, _, given = name.partition("<")
    found = re.search(
        r"(?:template\s*<(?P<template>[^<>{};]*)>\s*)?(?:extern\s*\"C\"\s*|static\s+|inline\s+)*"
        rf"__global__[^;{{}}]*?\b{re.escape(base.rpartition('::')[2].strip())}\s*\((?P<rest>.*)",
        _NOISE.sub(" ", text),
        re.DOTALL,
    )
    if found is None:
        return f"it has no __global__ function called {name!r}"
    types = dict(_C_TYPES)
    values = given.rpartition(">")[0].split(",")
    for parameter, value in zip((found["template"] or "").split(","), values, strict=False):
        if parameter.split()[:1] in (["typename"], ["class"]) and _c_key(value.split()) in types:
            types[parameter.split()[-1]] = types[_c_key(value.split())]
    arguments = []
    for parameter in _parameters(found["rest"]):
        argument = _parameter(parameter, types)
        if argument is None:
            return f"its parameter {parameter!r} is neither of a basic type nor a pointer to one"
        arguments.append(argument)
    return tuple(arguments)


def _parameters(rest: str) -> list[str]:
    """The parameters in ``rest``, which begins behind the list's opening parenthesis."""
    depth, start, result = 0, 0, []
    for at, letter in enumerate(rest):
        if letter == ")" and depth == 0 or letter == "," and depth == 0:
            result.append(" ".join(rest[start:at].split()))
            start = at + 1
            if letter == ")":
                break
        depth += (letter in "(<[") - (letter in ")>]")
    return [] if result in ([""], ["void"]) else result


def _parameter(text: str, types: dict[str, str]) -> Argument | None:
    text = re.sub(r"\s*([<>])\s*", r"\1", re.sub(r"\b(std|thrust)::", "", text))
    text, brackets = re.subn(r"(\w+)\s*\[\w*\]$", r"* \1", text)
    left, *pointed = text.split("*")
    if len(pointed) > 1:
        return None
    words = [word for word in left.split() if word not in _QUALIFIERS]
    const = "const" in words
    words = [word for word in words if word != "const"]
    if pointed:
        names = [word for word in pointed[0].split() if word not in _QUALIFIERS | {"const"}]
        dtype = types.get(_c_key(words))
        if dtype is None or len(names) > 1:
            return None
        return Argument(np.dtype(dtype), True, not const, names[0] if names else "")
    for names, type_words in (([], words), (words[-1:], words[:-1])):
        dtype = types.get(_c_key(type_words))
        if dtype is not None:
            return Argument(np.dtype(dtype), False, False, names[0] if names else "")
    return None


def _c_key(words: Sequence[str]) -> str:
    """One spelling for the many of C: ``long unsigned int`` and ``unsigned long`` are the same."""
    rest = [word for word in words if word not in ("int", "signed")]
    if "char" in words:
        return " ".join(sorted(rest))
    return " ".join(sorted(rest)) if rest and rest != ["unsigned"] else " ".join([*rest, *(["int"] if words else [])])


_C_TYPES = {
    **{"bool": "?", "char": "i1", "char unsigned": "u1", "short": "h", "short unsigned": "H"},
    **{"int": "i", "unsigned int": "I", "long": "l", "long unsigned": "L", "long long": "q", "long long unsigned": "Q"},
    **{"float": "f4", "double": "f8", "half": "f2", "__half": "f2", "size_t": "P", "ptrdiff_t": "p"},
    **{"complex<float>": "c8", "complex<double>": "c16"},
    **{f"{sign}int{8 * size}_t": f"{sign[:1] or 'i'}{size}" for sign in ("", "u") for size in (1, 2, 4, 8)},
}


# Checking values


def bind(
    signature: Signature, values: Sequence[Any], kernel: str, wanted: str, here: Callable[[Any], bool]
) -> list[Any]:
    """``values`` as ``kernel`` takes them: arrays as they are, scalars cast.

    ``here(array)`` says whether an array lies ``wanted`` ("in host memory", "on cuda:0"). DeviceError for a wrong
    count, and for the first wrong value: with its index and name, what it is and what is wanted.
    """
    if len(values) != len(signature):
        takes = ", ".join(f"{each.name or index}: {each}" for index, each in enumerate(signature))
        raise DeviceError(f"kernel {kernel!r} takes {len(signature)} arguments, not {len(values)}: {takes}")
    result = []
    for index, (argument, value) in enumerate(zip(signature, values, strict=True)):
        if argument.array:
            if not (here(value) and value.dtype == argument.dtype and value.flags.c_contiguous):
                _refuse(kernel, index, argument, value, wanted)
        elif type(value) is not argument.dtype.type:
            value = _cast(kernel, index, argument, value)
        result.append(value)
    return result


def _cast(kernel: str, index: int, argument: Argument, value: Any) -> Any:
    """``value`` as a scalar of the argument's dtype; what does not fit (too large, a fraction, complex) is refused."""
    dtype = argument.dtype
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    try:
        if dtype.kind == "b":
            if isinstance(value, bool | np.bool_):
                return dtype.type(value)
        elif dtype.kind in "iu":
            number, range_ = operator.index(value), np.iinfo(dtype)
            if range_.min <= number <= range_.max:
                return dtype.type(number)
        elif isinstance(value, int | float | np.number | np.bool_ | (complex if dtype.kind == "c" else int)):
            with np.errstate(over="ignore"):
                found = dtype.type(value)
            if np.isfinite(found) or not np.isfinite(value):
                return found
    except (TypeError, OverflowError):
        pass
    _refuse(kernel, index, argument, value, "")


def _refuse(kernel: str, index: int, argument: Argument, value: Any, wanted: str) -> Any:
    name = f" ({argument.name})" if argument.name else ""
    place = f" {wanted}" if argument.array else ""
    raise DeviceError(f"kernel {kernel!r}, argument {index}{name} is {_described(value)}; wanted {argument}{place}")


def _described(value: Any) -> str:
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if not shape and not hasattr(value, "flags") or dtype is None:
        return f"the {type(value).__name__} {value!r}"
    contiguous = "C-contiguous" if value.flags.c_contiguous else "strided"
    data = getattr(value, "data", None)
    ordinal = getattr(data, "device_id", None)
    where = "in host memory" if ordinal is None else f"on device {ordinal}"
    return f"a {contiguous} {dtype} array of shape {shape} {where}"
