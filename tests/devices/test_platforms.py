"""The registry of platforms: names, ordinals, entry points good and bad, and what each refusal says."""

from __future__ import annotations

from importlib import metadata

import pytest
from plait.devices import device, devices, platforms, register
from plait.devices import platforms as listing
from plait.devices.host import HOST, HostDevice, HostPlatform
from plait.devices.platforms import GROUP, Registry
from plait.errors import DeviceError


class Other(HostPlatform):
    """Two devices under another name."""

    name = "Other"

    def __init__(self) -> None:
        self.pair = (HostDevice(), HostDevice())
        for number, entry in enumerate(self.pair):
            entry.name, entry.ordinal, entry.platform = f"other:{number}", number, "Other"

    def devices(self) -> tuple[HostDevice, ...]:
        return self.pair


class Gone(HostPlatform):
    name = "gone"
    absent = "its driver is not loaded; load it"

    def devices(self) -> tuple[HostDevice, ...]:
        return ()


OTHER = Other()
NOT_A_PLATFORM = 7


def explode() -> None:
    raise RuntimeError("no such hardware")


@pytest.fixture
def registry() -> Registry:
    return Registry([HOST, Other(), Gone()], group=None)


def test_the_host_is_one_object_by_every_name() -> None:
    host = device("host")
    for name in ("host:0", "HOST", "Host:0", " host "):
        assert device(name) is host
    assert device() is host
    assert devices()[0] is host
    assert HOST in platforms()
    assert listing is platforms


def test_devices_by_ordinal(registry: Registry) -> None:
    assert [entry.name for entry in registry.devices()] == ["host", "other:0", "other:1"]
    assert registry.device("OTHER:1") is registry.devices()[2]
    assert registry.device("other") is registry.devices()[1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("host:1", r"'host' has 1 \(host\), counted from 0"),
        ("other:2", r"'other' has 2 \(other:0, other:1\)"),
        ("cuda", "no platform 'cuda' is installed, known are: host, other, gone"),
        ("hip:0", "no platform 'hip' is installed"),
        ("sim", "no platform 'sim' is installed"),
        ("hots", "did you mean 'host'"),
        ("host:", "after the colon comes an ordinal"),
        ("host:-1", "after the colon comes an ordinal"),
        ("host:0:0", "after the colon comes an ordinal"),
        ("host:²", "after the colon comes an ordinal"),
        ("", "no platform ''"),
        ("gone:0", "absent: its driver is not loaded; load it"),
        (3, "by name, not by 3"),
    ],
)
def test_refusals_say_what_there_is(registry: Registry, name: str, words: str) -> None:
    with pytest.raises(DeviceError, match=words):
        registry.device(name)


def test_a_duplicate_and_a_missing_platform_are_different_errors(registry: Registry) -> None:
    with pytest.raises(DeviceError, match="'other' is registered already"):
        registry.register(Other())
    with pytest.raises(DeviceError, match="registered already"):
        register(HOST)
    nameless = Gone()
    for name in ("", "a:b"):
        nameless.name = name
        with pytest.raises(DeviceError, match="cannot name a platform"):
            registry.register(nameless)


def entry_points(monkeypatch: pytest.MonkeyPatch, *pairs: tuple[str, str]) -> Registry:
    made = metadata.EntryPoints(metadata.EntryPoint(name, value, GROUP) for name, value in pairs)
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: made.select(group=group))
    return Registry([HOST])


@pytest.mark.parametrize("attribute", ["OTHER", "Other"])
def test_a_platform_from_another_distribution(monkeypatch: pytest.MonkeyPatch, attribute: str) -> None:
    registry = entry_points(monkeypatch, ("other", f"{__name__}:{attribute}"))
    assert registry.device("other:1").name == "other:1"
    assert registry.devices() == registry.devices()
    assert registry.device("other") is registry.device("other:0")


def test_an_entry_point_that_fails_explains_itself_and_breaks_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry = entry_points(
        monkeypatch,
        ("lost", "a_module_that_is_not_there:PLATFORM"),
        ("bomb", f"{__name__}:explode"),
        ("seven", f"{__name__}:NOT_A_PLATFORM"),
        ("host", f"{__name__}:OTHER"),
        ("other", f"{__name__}:OTHER"),
    )
    assert registry.device("host") is HOST.devices()[0]
    assert registry.device("other").name == "other:0"
    reasons = {platform.name.lower(): platform.absent for platform in registry.platforms()}
    assert reasons["host"] is None
    assert reasons["other"] is None
    assert "No module named 'a_module_that_is_not_there'" in (reasons["lost"] or "")
    assert "RuntimeError: no such hardware" in (reasons["bomb"] or "")
    assert "entry point 'seven'" in (reasons["seven"] or "")
    assert "a name that is taken" in (reasons["host (2)"] or "")
    with pytest.raises(DeviceError, match="no such hardware"):
        registry.device("bomb:0")
