"""Check that every name of CuPy that devices/gpu uses is in the CuPy that this Python has.

A chain of attributes counts if it starts at a call of ``cupy()`` or ``runtime()``, at a variable or an attribute of
``self`` that holds such a chain, or at ``getattr`` of one with a constant name and no default. It ends where something
is called or indexed, and a function's parameter is not followed. What only one build of CuPy has is marked on its line:
``# only on cuda`` or ``# only on hip``.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# What the functions of devices/gpu/driver.py return.
STARTS: dict[str, tuple[str, ...]] = {"cupy": (), "runtime": ("cuda", "runtime")}
MARKER = re.compile(r"#.*\bonly on (cuda|hip)\b")
Chain = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """A chain of attributes below the module, and where it is used; ``only_on`` is its line's marker."""

    file: Path
    line: int
    chain: Chain
    only_on: str | None


def uses(file: Path) -> Iterator[Use]:
    """Every use of CuPy in a file; a chain's own beginnings are not told apart from it."""
    text = file.read_text(encoding="utf-8")
    markers = {number: found[1] for number, line in enumerate(text.splitlines(), 1) if (found := MARKER.search(line))}
    finder = _Finder()
    finder.visit(ast.parse(text, str(file)))
    for node, chain in finder.found:
        line = node.end_lineno or node.lineno
        only_on = next((markers[near] for near in range(node.lineno, line + 1) if near in markers), None)
        yield Use(file, line, chain, only_on)


class _Finder(ast.NodeVisitor):
    """Follows scopes, so that a name means CuPy only where it was made to."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.expr, Chain]] = []
        self._scopes: list[dict[str, Chain | None]] = [{}]

    def visit_Module(self, node: ast.Module) -> None:
        self._enter(node, {})

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        given = node.args
        everything = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        self._enter(node, {parameter.arg: None for parameter in everything if parameter is not None})

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_Lambda = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """What any method gives an attribute of ``self``, all methods may use."""
        self._enter(node, _assigned(ast.walk(node), self._scopes, of_self=True))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._use(node)

    def visit_Call(self, node: ast.Call) -> None:
        if self._chain(node) is not None:  # getattr with a constant name, or a start
            self._use(node)
        else:
            self.generic_visit(node)

    def _use(self, node: ast.expr) -> None:
        chain = self._chain(node)
        if chain is None:
            self.generic_visit(node)
        elif chain:
            self.found.append((node, chain))

    def _enter(self, node: ast.AST, known: Mapping[str, Chain | None]) -> None:
        self._scopes.append(dict(known))
        # Twice: an alias may be made of one that a walk meets later.
        for _ in range(2):
            self._scopes[-1] |= _assigned(_own(node), self._scopes, of_self=False)
        self.generic_visit(node)
        self._scopes.pop()

    def _chain(self, node: ast.expr) -> Chain | None:
        return _resolve(node, self._scopes)


def _resolve(node: ast.expr, scopes: list[dict[str, Chain | None]]) -> Chain | None:
    """The chain that an expression is, or None if it is nothing of CuPy's."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(value=ast.Name(id="driver"), attr=name), args=[]):
            return STARTS.get(name)
        case ast.Call(func=ast.Name(id="getattr"), args=[inner, ast.Constant(value=str(name))]):
            found = _resolve(inner, scopes)
            return None if found is None else (*found, name)
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if (
            kept := _look_up(f"self.{name}", scopes)
        ) is not None:
            return kept
        case ast.Attribute(value=inner, attr=name):
            found = _resolve(inner, scopes)
            return None if found is None else (*found, name)
        case ast.Name(id=name):
            return _look_up(name, scopes)
    return None


def _look_up(name: str, scopes: list[dict[str, Chain | None]]) -> Chain | None:
    return next((scope[name] for scope in reversed(scopes) if name in scope), None)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a scope, without the scopes inside it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from _own(child)


def _assigned(
    nodes: Iterator[ast.AST], scopes: list[dict[str, Chain | None]], *, of_self: bool
) -> dict[str, Chain | None]:
    """The names, or ``self``'s attributes, that get a value, and the chain that it is."""
    known: dict[str, Chain | None] = {}
    for node in nodes:
        for target, value in _pairs(node):
            match target:
                case ast.Name(id=name) if not of_self:
                    _learn(known, name, _resolve(value, [*scopes, known]))
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if of_self:
                    _learn(known, f"self.{name}", _resolve(value, scopes))
    return known


def _learn(known: dict[str, Chain | None], name: str, chain: Chain | None) -> None:
    """CuPy counts if it is any of the values that a name gets: ``None`` first, say, and CuPy later."""
    if chain is not None or name not in known:
        known[name] = chain


def _pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    yield from zip(target.elts, value.elts, strict=False)
                else:
                    yield target, value
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            yield target, value


def missing(chain: Chain, module: Any) -> str | None:
    """The first part of the chain that CuPy lacks, written out; None if all is there."""
    found = module
    for number, name in enumerate(chain, 1):
        if not hasattr(found, name):
            return ".".join(("cupy", *chain[:number]))
        found = getattr(found, name)
    return None


def main(arguments: list[str]) -> int:
    """Check the given files, or all of devices/gpu; status 1 if CuPy lacks a name."""
    files = [Path(name) for name in arguments] or sorted((ROOT / "devices/gpu").rglob("*.py"))
    cupy = importlib.import_module("cupy")
    build = "hip" if cupy.cuda.runtime.is_hip else "cuda"
    found = [use for file in files for use in uses(file)]
    here = [use for use in found if use.only_on in (None, build)]
    bad = 0
    for use in here:
        lacking = missing(use.chain, cupy)
        if lacking:
            bad += 1
            file = use.file.relative_to(ROOT) if use.file.is_relative_to(ROOT) else use.file
            print(f"{file}:{use.line}: CuPy {cupy.__version__} for {build} has no {lacking}")
    names = len({use.chain for use in here})
    print(f"{len(here)} uses of {names} names in {len(files)} files, {bad} not in CuPy {cupy.__version__} for {build}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
