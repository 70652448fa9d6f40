"""The registry: which platforms there are, built in or from other distributions, and devices by name."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Sequence
from importlib import metadata

from plait.devices.gpu.platform import CUDA, HIP
from plait.devices.host.platform import HOST
from plait.devices.protocol import Device, Platform
from plait.devices.sim.platform import SIM
from plait.errors import DeviceError

GROUP = "plait.platforms"


class AbsentPlatform:
    """Stands for a platform that could not be had, and says why."""

    def __init__(self, name: str, absent: str) -> None:
        self.name = name
        self.absent: str | None = absent

    def __repr__(self) -> str:
        return f"<AbsentPlatform {self.name}: {self.absent}>"

    def devices(self) -> Sequence[Device]:
        return ()


class Registry:
    """Platforms by name, whatever the case.

    Entry points load when someone first asks, each at its own risk.
    """

    def __init__(self, builtin: Sequence[Platform], group: str | None = GROUP) -> None:
        # Guards the two fields below while the first question loads entry points, from whichever thread it
        # comes.
        self._lock = threading.RLock()
        self._platforms: dict[str, Platform] = {}
        self._group = group
        for platform in builtin:
            self.register(platform)

    def register(self, platform: Platform) -> None:
        """Add a platform; DeviceError if its name is taken or is none."""
        key = _key(platform.name)
        if not key or ":" in key:
            raise DeviceError(f"{platform.name!r} cannot name a platform: a name is not empty and has no colon")
        with self._lock:
            if key in self._platforms:
                raise DeviceError(f"a platform named {key!r} is registered already")
            self._platforms[key] = platform

    def platforms(self) -> tuple[Platform, ...]:
        """All that are known; one whose ``absent`` is not None has no devices and says why."""
        with self._lock:
            self._load()
            return tuple(self._platforms.values())

    def devices(self) -> tuple[Device, ...]:
        """The devices of every platform, the host's first; simulated ones, which do no work, are had by name."""
        real = (platform for platform in self.platforms() if not getattr(platform, "simulated", False))
        return tuple(device for platform in real for device in platform.devices())

    def device(self, name: str = "host") -> Device:
        """The device of that name: ``"host"``, ``"cuda:1"``; a platform's name alone means its first.

        Case does not matter.
        """
        if not isinstance(name, str):
            raise DeviceError(f"a device is asked for by name, not by {name!r}")
        prefix, colon, number = _key(name).partition(":")
        self.platforms()
        platform = self._platforms.get(prefix)
        if platform is None:
            raise DeviceError(self._unknown(name, prefix))
        if colon and not (number.isascii() and number.isdigit()):
            raise DeviceError(f"{name!r} names no device: after the colon comes an ordinal, as in '{prefix}:0'")
        ordinal = int(number) if colon else 0
        if platform.absent is not None:
            raise DeviceError(f"there is no device {name!r}: the platform {prefix!r} is absent: {platform.absent}")
        devices = platform.devices()
        if ordinal >= len(devices):
            there = ", ".join(device.name for device in devices) or "none"
            raise DeviceError(f"there is no device {name!r}: {prefix!r} has {len(devices)} ({there}), counted from 0")
        return devices[ordinal]

    def _unknown(self, name: str, prefix: str) -> str:
        known = ", ".join(self._platforms)
        near = difflib.get_close_matches(prefix, self._platforms, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"there is no device {name!r}: no platform {prefix!r} is installed, known are: {known}{hint}"

    def _load(self) -> None:
        if self._group is None:
            return
        group, self._group = self._group, None
        for entry in metadata.entry_points(group=group):
            distribution = entry.dist.name if entry.dist else "an unknown distribution"
            origin = f"entry point {entry.name!r} of {distribution}"
            if _key(entry.name) in self._platforms:
                self._put_aside(entry.name, f"{origin} uses a name that is taken")
                continue
            try:
                found = entry.load()
                platform = found if isinstance(found, Platform) and not isinstance(found, type) else found()
                if not isinstance(platform, Platform):
                    raise TypeError(f"{entry.value} gives {type(platform).__name__}, which is no plait Platform")
                self.register(platform)
            except Exception as error:  # someone else's code: it may cost its own platform and no other
                self._put_aside(entry.name, f"{origin} failed to load: {type(error).__name__}: {error}")

    def _put_aside(self, name: str, reason: str) -> None:
        key, number = _key(name), 1
        while key in self._platforms:
            number += 1
            key = f"{_key(name)} ({number})"
        self._platforms[key] = AbsentPlatform(key, reason)


def _key(name: str) -> str:
    return name.strip().lower()


_registry = Registry([HOST, CUDA, HIP, SIM])

platforms = _registry.platforms
devices = _registry.devices
device = _registry.device
register = _registry.register
