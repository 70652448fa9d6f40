"""``plait.Kernel``: one function with a source per platform, compiled once per device, its arguments checked."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from plait.devices.dimensions import Counts, Dimensions, Triple, covering, triple
from plait.devices.gpu import driver
from plait.devices.gpu.launch import Launch, call_checked
from plait.devices.signature import Signature, bind, declared
from plait.devices.sources import GPU_PLATFORMS, Source, by_platform, is_launched, read_signature
from plait.errors import DeviceError, PlanError

PerArguments = Callable[..., Any]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Kernel:
    """Called with CuPy arrays it launches on the current device and stream, else it calls its host source.

    ``source`` has one entry per platform; a key can be several platforms in a tuple, and ``"gpu"`` is CUDA and HIP.
    For these an entry is C++ text with a ``__global__`` function called ``name`` (``extern "C"``, or a template of
    which the name gives an instance, ``"scale<float>"``), a compiled module (bytes, or the path of a .cubin, .ptx,
    .fatbin, .hsaco or .co), a ``cupy.RawKernel``, or a callable. For the host it is a callable.

    ``signature`` says what is taken: ``"float32[]"`` is an array that the kernel may change, ``"const float32[]"`` one
    that it only reads, ``"int32"`` a scalar; a name may follow. It is read from C++ text if that has only basic types.
    A kernel with a signature changes its arrays in place and returns None, on every platform; one without it is
    nothing but its callables: it checks nothing and returns what they return.

    ``block`` counts items (threads) per group; ``grid`` counts groups, or ``threads`` the items in all, rounded up to
    whole groups. ``shared`` is bytes of dynamic shared memory. Each is a value or a callable of the arguments; counts
    can be tuples of up to three; a launch of no groups does nothing. ``cluster`` counts the groups per cluster that the
    source sets with ``__cluster_dims__``; it is only checked. ``options`` go to the compiler.

    PlanError or DeviceError if this does not hold together. Nothing is compiled before it is needed; what has been
    compiled stays loaded until the process ends.
    """

    name: str
    source: Mapping[str | tuple[str, ...], Source]
    _: KW_ONLY
    signature: Sequence[str] | None = None
    grid: Counts | PerArguments | None = None
    block: Counts | PerArguments | None = None
    threads: Counts | PerArguments | None = None
    cluster: Counts = 1
    shared: int | PerArguments = 0
    options: tuple[str, ...] = ()
    arguments: Signature | None = field(init=False)
    calls: Mapping[str, Callable[..., Any]] = field(init=False)

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str) or not name:
            raise PlanError(f"a kernel needs a non-empty name, not {name!r}")
        if isinstance(self.options, str) or not all(isinstance(each, str) for each in self.options):
            raise PlanError(f"kernel {name!r}: options are a tuple of texts, not {self.options!r}")
        sources = by_platform(self.source, name)
        launched = [platform for platform, source in sources.items() if is_launched(source)]
        if launched and (self.block is None or (self.grid is None) == (self.threads is None)):
            raise PlanError(f"kernel {name!r} is launched on {launched[0]}: give block, and either grid or threads")
        given = None if self.signature is None else declared(self.signature, name)
        settled: dict[str, Any] = {"arguments": read_signature(sources, name, given), "options": tuple(self.options)}
        for what in ("grid", "block", "threads", "cluster"):
            value = getattr(self, what)
            if value is not None and not callable(value):
                settled[what] = self._triple(what, value)
        for what, value in settled.items():
            object.__setattr__(self, what, value)
        calls = {platform: self._call(platform, source) for platform, source in sources.items()}
        object.__setattr__(self, "calls", calls)

    def _call(self, platform: str, source: Source) -> Callable[..., Any]:
        if is_launched(source):
            return Launch(self, platform, source)
        assert callable(source)
        if self.arguments is None:
            return source
        return functools.partial(call_checked if platform in GPU_PLATFORMS else _call_on_host, self, source)

    @property
    def __name__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Kernel {self.name!r} for {', '.join(self.calls)}>"

    @property
    def writes(self) -> tuple[int, ...]:
        """Indices of the arguments that it may change."""
        return tuple(index for index, argument in enumerate(self.arguments or ()) if argument.writes)

    def on(self, platform: str) -> Callable[..., Any]:
        """What to call on one platform, with the device and stream current; PlanError if there is no source for it."""
        call = self.calls.get(platform)
        if call is None:
            raise PlanError(f"kernel {self.name!r} has no source for {platform!r}, only for {', '.join(self.calls)}")
        return call

    def __call__(self, *args: Any) -> Any:
        platform = "host"
        if "cupy" in sys.modules:
            ndarray = driver.cupy().ndarray
            if any(isinstance(arg, ndarray) for arg in args):
                platform = driver.platform_name()
        return self.on(platform)(*args)

    def dimensions(self, *args: Any) -> Dimensions:
        """The dimensions of a launch with these arguments; DeviceError for counts that are none."""
        items = self._counts("block", args)
        groups = covering(self._counts("threads", args), items) if self.grid is None else self._counts("grid", args)
        return Dimensions(groups, items, self.cluster)  # type: ignore[arg-type]

    def _counts(self, what: str, args: tuple[Any, ...]) -> Triple:
        value = getattr(self, what)
        return self._triple(what, value(*args)) if callable(value) else value

    def _triple(self, what: str, value: Counts) -> Triple:
        return triple(value, f"kernel {self.name!r}: {what}", least=int(what in ("block", "cluster")))


def _call_on_host(kernel: Kernel, function: Callable[..., Any], *args: Any) -> None:
    assert kernel.arguments is not None
    values = bind(kernel.arguments, args, kernel.name, np.ndarray, None)
    for index in kernel.writes:
        if not values[index].flags.writeable:
            raise DeviceError(f"kernel {kernel.name!r} may change its argument {index}, which is read-only")
    function(*values)
