"""What NVIDIA's management library knows beyond the runtime: link, NVLink, UUID, ECC; nothing without it."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Managed:
    """Figures of one device; None where the library or the device does not know."""

    pci_generation: int | None = None
    pci_width: int | None = None
    nvlink: int | None = None
    ecc: bool | None = None
    uuid: str | None = None
    driver_release: str | None = None


def managed(address: str, module: Any = None) -> Managed:
    """The figures of the device at a PCI address, from ``module`` or from ``pynvml`` if it is installed."""
    library = _library() if module is None else module
    if library is None:
        return Managed()
    try:
        library.nvmlInit()
    except (library.NVMLError, AttributeError):  # no NVIDIA driver
        return Managed()
    try:
        handle = _ask(library, lambda: library.nvmlDeviceGetHandleByPciBusId(address))
        if handle is None:
            return Managed()
        return Managed(
            pci_generation=_ask(library, lambda: int(library.nvmlDeviceGetMaxPcieLinkGeneration(handle))),
            pci_width=_ask(library, lambda: int(library.nvmlDeviceGetCurrPcieLinkWidth(handle))),
            nvlink=_nvlink(library, handle),
            ecc=_ask(library, lambda: bool(library.nvmlDeviceGetEccMode(handle)[0])),
            uuid=_ask(library, lambda: _text(library.nvmlDeviceGetUUID(handle))),
            driver_release=_ask(library, lambda: _text(library.nvmlSystemGetDriverVersion())),
        )
    finally:
        _ask(library, library.nvmlShutdown)


def _library() -> Any:
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


def _ask(library: Any, question: Callable[[], Any]) -> Any:
    """The answer, or None where the library, an older one's lack of the function included, has none."""
    try:
        return question()
    except (library.NVMLError, AttributeError):
        return None


def _nvlink(library: Any, handle: Any) -> int | None:
    """Links that are up. Those past the device's last one raise, as do all on a device without."""
    states = [
        _ask(library, functools.partial(library.nvmlDeviceGetNvLinkState, handle, link))
        for link in range(library.NVML_NVLINK_MAX_LINKS)
    ]
    known = [state for state in states if state is not None]
    return sum(bool(state) for state in known) if known else None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
