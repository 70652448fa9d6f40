"""What a kernel takes: arguments declared as text or read from C++ source, and values checked and cast to them."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

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
        if self.array:
            return f"a C-contiguous {self.dtype} array"
        return f"{'an' if str(self.dtype).startswith('int') else 'a'} {self.dtype} scalar"


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
        if depth == 0 and letter in "),":
            result.append(" ".join(rest[start:at].split()))
            start = at + 1
            if letter == ")":
                break
        depth += (letter in "(<[") - (letter in ")>]")
    return [] if result in ([""], ["void"]) else result


def _parameter(text: str, types: dict[str, str]) -> Argument | None:
    text = re.sub(r"\s*<\s*|\s+(?=>)", lambda at: at[0].strip(), re.sub(r"\b(std|thrust)::", "", text))
    text = re.sub(r"(\w+)\s*\[\w*\]$", r"* \1", text)
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
        if dtype is not None and "".join(names or "x").isidentifier():
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

_WHOLE = int | np.integer | np.bool_
_REAL = _WHOLE | float | np.floating
_COMPLEX = _REAL | complex | np.complexfloating


def bind(signature: Signature, values: Sequence[Any], kernel: str, array_type: Any, ordinal: int | None) -> list[Any]:
    """``values`` as ``kernel`` takes them: arrays as they are, scalars cast.

    Arrays must be of ``array_type``, and lie on device ``ordinal`` if it is not None. DeviceError for a wrong count,
    and for the first wrong value: with its index and name, what it is and what is wanted.
    """
    if len(values) != len(signature):
        takes = ", ".join(f"{each.name or index}: {each}" for index, each in enumerate(signature))
        raise DeviceError(f"kernel {kernel!r} takes {len(signature)} arguments, not {len(values)}: {takes}")
    result: list[Any] = []
    for argument, value in zip(signature, values, strict=True):
        dtype = argument.dtype
        if not argument.array:
            cast = value if type(value) is dtype.type else _cast(value, dtype)
            if cast is None:
                _refuse(kernel, signature, len(result), value, "")
            result.append(cast)
        elif (
            isinstance(value, array_type)
            and (ordinal is None or value.data.device_id == ordinal)
            and value.dtype == dtype
            and value.flags.c_contiguous
        ):
            result.append(value)
        else:
            _refuse(
                kernel, signature, len(result), value, " in host memory" if ordinal is None else f" on device {ordinal}"
            )
    return result


def _cast(value: Any, dtype: np.dtype[Any]) -> Any:
    """``value`` as a scalar of ``dtype``; None if it does not fit: too large, a fraction, complex, no number."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    taken, low, high = _range(dtype)
    if not isinstance(value, taken):
        return None
    if dtype.kind == "c":
        fits = all(low <= part <= high or not _finite(part) for part in (value.real, value.imag))
    else:
        fits = low <= value <= high or (dtype.kind == "f" and not _finite(value))
    return dtype.type(value) if fits else None


def _finite(value: Any) -> bool:
    return isinstance(value, int) or bool(np.isfinite(value))  # NumPy refuses integers beyond any float


@functools.cache
def _range(dtype: np.dtype[Any]) -> tuple[Any, Any, Any]:
    """The types of values that a scalar of ``dtype`` can be made of, and its least and greatest value."""
    if dtype.kind == "b":
        return bool | np.bool_, 0, 1
    if dtype.kind in "iu":
        return _WHOLE, int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    most = np.finfo(dtype).max.item()
    return (_COMPLEX if dtype.kind == "c" else _REAL), -most, most


def _refuse(kernel: str, signature: Signature, index: int, value: Any, wanted: str) -> NoReturn:
    argument = signature[index]
    name = f" ({argument.name})" if argument.name else ""
    raise DeviceError(f"kernel {kernel!r}, argument {index}{name} is {_described(value)}; wanted {argument}{wanted}")


def _described(value: Any) -> str:
    if isinstance(value, np.generic) or not hasattr(value, "dtype") or not hasattr(value, "flags"):
        return f"the {type(value).__name__} {value!r}"
    contiguous = "C-contiguous" if value.flags.c_contiguous else "strided"
    ordinal = getattr(getattr(value, "device", None), "id", None)
    where = "in host memory" if ordinal is None else f"on device {ordinal}"
    return f"a {contiguous} {value.dtype} array of shape {value.shape} {where}"
