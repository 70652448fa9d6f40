"""Launch a kernel on the current device and stream: values checked and cast, dimensions held against the limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from plait.devices.gpu import driver
from plait.devices.gpu.compile import Compiled, compiled
from plait.devices.signature import bind
from plait.devices.sources import Source
from plait.errors import PlanError

if TYPE_CHECKING:
    from plait.devices.kernel import Kernel


class Launch:
    """A kernel's source on one GPU platform; a call launches on the current device and stream and does not wait.

    DeviceError for arguments, dimensions or a source that this device does not take, before anything is enqueued.
    """

    def __init__(self, kernel: Kernel, platform: str, source: Source) -> None:
        self._kernel = kernel
        self._platform = platform
        self._source = source
        self._compiled: dict[int, Compiled] = {}

    def __call__(self, *args: Any) -> None:
        kernel = self._kernel
        function = self.compile()
        values = _bound(kernel, args)
        dimensions = kernel.dimensions(*values)
        shared = kernel.shared(*values) if callable(kernel.shared) else kernel.shared
        function.limits.check(dimensions, shared, kernel=kernel.name, device=function.device)
        if not dimensions.group_count:
            return
        try:
            function.admit_shared(shared)
            function.function(dimensions.groups, dimensions.items, tuple(values), shared)
        except Exception as raised:
            found = driver.translated(raised, function.device, f"launching kernel {kernel.name!r}, {dimensions},")
            if found is raised:
                raise
            raise found from raised

    def compile(self) -> Compiled:
        """The function for the current device, compiled if it has not been; DeviceError with the compiler's log."""
        ordinal = driver.runtime().getDevice()
        function = self._compiled.get(ordinal)
        if function is None:
            kernel = self._kernel
            found = driver.platform_name()
            if found != self._platform:
                raise PlanError(f"kernel {kernel.name!r} on {self._platform}: the installed CuPy is built for {found}")
            function = self._compiled[ordinal] = compiled(kernel.name, self._source, kernel.options, ordinal)
        return function


def call_checked(kernel: Kernel, function: Callable[..., Any], *args: Any) -> None:
    """Call a CuPy function for a kernel that has a signature."""
    function(*_bound(kernel, args))


def _bound(kernel: Kernel, args: tuple[Any, ...]) -> list[Any]:
    assert kernel.arguments is not None
    return bind(kernel.arguments, args, kernel.name, driver.cupy().ndarray, driver.runtime().getDevice())
