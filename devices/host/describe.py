"""What a host machine is: frozen values with units in their names, None where unknown, and their JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from plait.errors import DeviceError


@dataclasses.dataclass(frozen=True, slots=True)
class Cache:
    """One cache, and the logical cores that share it.

    ``kind`` is ``data``, ``instruction`` or ``unified``.
    """

    level: int
    kind: str | None
    size_bytes: int | None
    line_bytes: int | None
    shared_cores: tuple[int, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class NumaNode:
    """Memory and the logical cores near it; ``distances`` are the firmware's, to each node in order, 10 being
    local.
    """

    ordinal: int
    cores: tuple[int, ...] | None
    memory_bytes: int | None
    distances: tuple[int, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class HugePages:
    """A pool of huge pages of one size."""

    page_bytes: int
    total: int | None
    free: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class HostDescription:
    """A host. A core here is what the system schedules on; SMT makes several of one physical core."""

    model: str | None = None
    architecture: str | None = None
    cores: int | None = None
    usable_cores: int | None = None
    quota_cores: float | None = None
    physical_cores: int | None = None
    threads_per_core: int | None = None
    sockets: int | None = None
    caches: tuple[Cache, ...] | None = None
    numa_nodes: tuple[NumaNode, ...] | None = None
    memory_bytes: int | None = None
    page_bytes: int | None = None
    huge_pages: tuple[HugePages, ...] | None = None
    transparent_huge_pages: str | None = None
    vector_extensions: tuple[str, ...] | None = None
    frequency_mhz: float | None = None
    maximum_frequency_mhz: float | None = None

    def cache_bytes(self, level: int) -> int | None:
        """Size of one data or unified cache of the level; None if unknown."""
        for cache in self.caches or ():
            if cache.level == level and cache.kind != "instruction":
                return cache.size_bytes
        return None

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> HostDescription:
        """The description that ``to_json`` wrote; DeviceError if the text is not one."""
        try:
            fields = json.loads(text)
            for name, kind in (("caches", Cache), ("numa_nodes", NumaNode), ("huge_pages", HugePages)):
                if fields.get(name) is not None:
                    fields[name] = tuple(kind(**_tuples(entry)) for entry in fields[name])
            return cls(**_tuples(fields))
        except (ValueError, TypeError, AttributeError) as error:
            raise DeviceError(f"this is not a host description in JSON: {error}") from error


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
