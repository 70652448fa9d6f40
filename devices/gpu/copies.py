"""Copies from, to and between GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.devices.gpu import driver


class OutCopy:
    """A copy to the host under way."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish


class Copier:
    """Copies of one device."""

    def __init__(self, ordinal: int, name: str) -> None:
        self.ordinal = ordinal
        self.name = name

    def copy_in(self, target: Any, source: Any, stream: Any) -> None:
        with driver.cupy().cuda.Device(self.ordinal):
            target.set(source, stream=stream)

    def copy_out(self, target: Any, source: Any, stream: Any) -> OutCopy:
        def finish() -> None:
            try:
                with driver.cupy().cuda.Device(self.ordinal):
                    target[...] = source.get(stream=stream)
            except Exception as error:
                raise driver.translated(error, self.name, "copy out") from error

        return OutCopy(finish)

    def copy_within(self, target: Any, source: Any, stream: Any) -> None:
        with driver.cupy().cuda.Device(self.ordinal), stream:
            target[...] = source

    def copy_peer(self, target: Any, source: Any, stream: Any) -> None:
        stream.synchronize()
        with source.device:
            contents = source.get(stream=driver.cupy().cuda.Stream(non_blocking=True))
        with driver.cupy().cuda.Device(self.ordinal):
            target.set(contents, stream=stream)
            stream.synchronize()
