"""Find the graph that a file defines, and read what the command line gives for its inputs."""

from __future__ import annotations

import inspect
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from plait.errors import GraphError
from plait.graph import Graph


def load_graph(spec: str, given: Mapping[str, Any]) -> tuple[Graph, dict[str, Any]]:
    """The graph that ``FILE[:NAME]`` names, and the inputs that are left for its run.

    NAME is a Graph, a networkx.DiGraph, or a function that returns one, whose parameters are filled from the inputs.
    Without a NAME it is ``graph``, else the only graph in the file. GraphError says what the file has.
    """
    path, _, name = spec.rpartition(":") if ":" in spec and not Path(spec).exists() else (spec, "", "")
    if not Path(path).is_file():
        raise GraphError(f"there is no file {path!r}")
    sys.path.insert(0, str(Path(path).resolve().parent))
    namespace = runpy.run_path(path, run_name="__plait__")
    found = _pick(path, name, namespace)
    left = dict(given)
    if not isinstance(found, Graph | nx.DiGraph):
        found = _build(path, name or "graph", found, left)
    return found if isinstance(found, Graph) else Graph.from_networkx(found, Path(path).stem), left


def _pick(path: str, name: str, namespace: Mapping[str, Any]) -> Any:
    if name:
        if name not in namespace:
            raise GraphError(f"{path} defines no {name!r}")
        return namespace[name]
    if isinstance(namespace.get("graph"), Graph | nx.DiGraph) or inspect.isfunction(namespace.get("graph")):
        return namespace["graph"]
    graphs = {key: value for key, value in namespace.items() if isinstance(value, Graph | nx.DiGraph)}
    if len(graphs) != 1:
        known = ", ".join(graphs) or "none"
        raise GraphError(f"{path} defines no 'graph', and its graphs are: {known}; say which by {path}:NAME")
    return next(iter(graphs.values()))


def _build(path: str, name: str, function: Callable[..., Any], left: dict[str, Any]) -> Any:
    if not callable(function):
        raise GraphError(f"{path}:{name} is neither a graph nor a function that returns one")
    arguments = {}
    for key, parameter in inspect.signature(function).parameters.items():
        if key in left:
            arguments[key] = _as_annotated(left.pop(key), parameter.annotation)
        elif parameter.default is inspect.Parameter.empty:
            raise GraphError(f"{path}:{name} needs --input {key}=VALUE")
    built = function(**arguments)
    if not isinstance(built, Graph | nx.DiGraph):
        raise GraphError(f"{path}:{name}() returned {type(built).__name__}, not a graph")
    return built


def _as_annotated(value: Any, annotation: Any) -> Any:
    kinds: dict[Any, Callable[[str], Any]] = {int: int, "int": int, float: float, "float": float}
    convert = kinds.get(annotation)
    if convert is None or not isinstance(value, str):
        return value
    try:
        return convert(value)
    except ValueError as error:
        raise GraphError(f"--input: {error}") from None


def parse_inputs(texts: list[str]) -> dict[str, Any]:
    """``name=value`` pairs: a ``.npy`` file is loaded (never unpickled), anything else is the text itself."""
    inputs: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise GraphError(f"--input takes NAME=VALUE, not {text!r}")
        if name in inputs:
            raise GraphError(f"--input {name} is given twice")
        inputs[name] = _value(name, value)
    return inputs


def _value(name: str, value: str) -> Any:
    if not value.endswith(".npy"):
        return value
    try:
        return np.load(value, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise GraphError(f"--input {name}: cannot read {value!r}: {error}") from None
