"""The dimensions of a launch: clusters of groups of items, up to three numbers each, and a device's limits on them."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import SupportsIndex

from plait.errors import DeviceError

Counts = SupportsIndex | Iterable[SupportsIndex]
Triple = tuple[int, int, int]


def triple(value: Counts, what: str, *, least: int = 1) -> Triple:
    """One to three counts of ``least`` or more as three, filled up with 1; else DeviceError, naming ``what``."""
    if type(value) is int and value >= least:
        return (value, 1, 1)
    try:
        counts = tuple(map(operator.index, value if isinstance(value, Iterable) else (value,)))
    except TypeError:
        counts = ()
    if not 1 <= len(counts) <= 3 or min(counts) < least:
        raise DeviceError(f"{what} must be a count of at least {least}, or up to three of them, not {value!r}")
    return (*counts, 1, 1)[:3]  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Dimensions:
    """How many ``groups`` a launch has, ``items`` (threads) in each group, and groups in each ``cluster``."""

    groups: Triple
    items: Triple
    cluster: Triple = (1, 1, 1)

    @property
    def items_per_group(self) -> int:
        return math.prod(self.items)

    @property
    def group_count(self) -> int:
        return math.prod(self.groups)

    @property
    def item_count(self) -> int:
        """Items of the whole launch; 0 means that there is nothing to do."""
        return self.group_count * self.items_per_group

    def __str__(self) -> str:
        clusters = "" if self.cluster == (1, 1, 1) else f", clusters of {self.cluster} groups"
        return f"{self.groups} groups of {self.items} items{clusters}"


def covering(total: Triple, items: Triple) -> Triple:
    """The groups of ``items`` that it takes to have at least ``total`` items along every dimension."""
    return (-(-total[0] // items[0]), -(-total[1] // items[1]), -(-total[2] // items[2]))


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a device, or a function compiled for it, takes in one launch; ``shared`` in bytes per group."""

    items_per_group: int
    items: Triple
    groups: Triple
    groups_per_cluster: int
    shared: int

    def check(self, dimensions: Dimensions, shared: int, *, kernel: str, device: str) -> None:
        """DeviceError that names the kernel, the dimensions and the limit, if the launch goes over one."""
        groups, items, cluster = dimensions.groups, dimensions.items, dimensions.cluster
        (gx, gy, gz), (ix, iy, iz) = groups, items
        (most_gx, most_gy, most_gz), (most_ix, most_iy, most_iz) = self.groups, self.items
        if not (
            ix * iy * iz <= self.items_per_group
            and (ix <= most_ix and iy <= most_iy and iz <= most_iz)
            and (gx <= most_gx and gy <= most_gy and gz <= most_gz)
            and 0 <= shared <= self.shared
            and cluster == (1, 1, 1)
        ):
            found = self._excess(dimensions, shared)
            if found is not None:
                raise DeviceError(f"kernel {kernel!r}, {dimensions}, on {device}: {found}")

    def _excess(self, dimensions: Dimensions, shared: int) -> str | None:
        """In words, what is over a limit; ``check`` comes here only where something may be."""
        groups, items, cluster = dimensions.groups, dimensions.items, dimensions.cluster
        if dimensions.items_per_group > self.items_per_group:
            return f"{dimensions.items_per_group} items per group, at most {self.items_per_group}"
        for word, counts, most in (("items per group", items, self.items), ("groups", groups, self.groups)):
            for axis, count, limit in zip("xyz", counts, most, strict=True):
                if count > limit:
                    return f"{count} {word} along {axis}, at most {limit}"
        if not 0 <= shared <= self.shared:
            return f"{shared} bytes of dynamic shared memory, at most {self.shared}"
        if cluster == (1, 1, 1):
            return None
        if math.prod(cluster) > self.groups_per_cluster:
            return f"{math.prod(cluster)} groups per cluster, at most {self.groups_per_cluster}"
        if any(count % each for count, each in zip(groups, cluster, strict=True)):
            return "the groups are not a multiple of the cluster along every dimension"
        return None
