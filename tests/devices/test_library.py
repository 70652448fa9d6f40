"""The function library: typed lookup by name and platform."""

from __future__ import annotations

import numpy as np
import plait
import pytest
from plait.devices import library
from plait.devices.library import FunctionLibrary


def double(value: float) -> float:
    return 2 * value


@pytest.fixture
def mine() -> FunctionLibrary:
    found = FunctionLibrary()
    found.register("double", "host", double)
    found.register("descending", "host", np.greater, kind="comparator")
    return found


def test_finds_by_name_and_platform_whatever_the_platforms_case(mine: FunctionLibrary) -> None:
    assert mine.lookup("double", "HOST") is double
    assert mine.lookup("descending", "host", kind="comparator") is np.greater
    assert mine.names("host") == ("double",)
    assert mine.names("host", kind="comparator") == ("descending",)
    assert mine.names("cuda") == ()


def test_a_missing_name_names_near_ones_of_its_kind(mine: FunctionLibrary) -> None:
    with pytest.raises(plait.PlanError, match=r"no kernel is called 'doubel'; near names: double"):
        mine.lookup("doubel", "host")
    with pytest.raises(plait.PlanError, match=r"no comparator is called 'doubel'$"):
        mine.lookup("doubel", "host", kind="comparator")


def test_another_platform_and_another_kind_are_other_errors(mine: FunctionLibrary) -> None:
    with pytest.raises(plait.PlanError, match="kernel 'double' exists for host, not for 'cuda'"):
        mine.lookup("double", "cuda")
    with pytest.raises(plait.PlanError, match="'double' is a kernel, not a reducer"):
        mine.lookup("double", "host", kind="reducer")


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("double", "Host", double), "kernel", "registered for 'host' already"),
        (("double", "cuda", double), "reducer", "'double' is a kernel and cannot be a reducer too"),
        (("half", "host", 3), "kernel", "3 is not callable"),
        (("", "host", double), "kernel", "non-empty name"),
        (("half", "host", double), "kernal", "kind must be one of kernel, comparator, reducer"),
    ],
)
def test_refuses_to_register(mine: FunctionLibrary, arguments: tuple, kind: str, message: str) -> None:
    with pytest.raises(plait.PlanError, match=message):
        mine.register(*arguments, kind=kind)
    assert mine.names("host") == ("double",)


def test_a_graph_calls_kernels_by_name_and_an_unknown_one_fails_before_anything_runs() -> None:
    image = np.arange(12.0).reshape(3, 4)
    g = plait.Graph()
    g.output("turned", g.call("transpose", g.constant(image)))
    np.testing.assert_array_equal(plait.run(g)["turned"], image.T)

    ran: list[int] = []
    g = plait.Graph()
    g.call(ran.append, 1)
    g.call("conv2", g.constant(image), g.constant(image))
    with pytest.raises(
        plait.PlanError, match=r"item 'conv2#1' \(recorded at .*no kernel is called 'conv2'; near.*conv2d"
    ):
        plait.run(g)
    assert not ran


def test_the_platforms_own_names_are_taken_also_before_the_first_lookup() -> None:
    with pytest.raises(plait.PlanError, match="registered for 'host' already"):
        library.register("conv2d", "host", double)
