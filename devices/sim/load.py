"""Machines from JSON: every field checked, every error with the file and the field. Data only, never executed."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from plait.devices.sim.model import HOST, SHARINGS, DeviceModel, HostModel, LinkModel, Machine
from plait.errors import DeviceError

_MOST_DEVICES = 4096
_NOTES = ("note", "sources")  # for readers


def machine(
    source: str | os.PathLike[str] | Machine,
    *,
    dry: bool = False,
    seed: int = 0,
    noise: float = 0.0,
    costs: Any = None,
    faults: Sequence[Any] = (),
) -> Machine:
    """A simulated machine for ``open_scheduler(devices=...)``: one that plait ships, by name, or a JSON file.

    ``dry`` counts sizes and calls nothing. ``noise`` is a part of each item's time (0.1: a tenth, one standard
    deviation), drawn by ``seed``. ``costs`` says what items take, ``faults`` what goes wrong. DeviceError names the
    file and the field that is wrong.
    """
    found = source if isinstance(source, Machine) else _read(source)
    if not isinstance(noise, int | float) or not 0 <= noise < 1:
        raise DeviceError(f"noise is a part of an item's time, from 0 to below 1, not {noise!r}")
    return Machine(
        name=found.name,
        host=found.host,
        devices=found.devices,
        links=found.links,
        dry=dry,
        seed=seed,
        noise=float(noise),
        costs=costs,
        faults=tuple(faults),
        speed=found.speed,
    )


def shipped() -> tuple[str, ...]:
    """The names of the machines that come with plait."""
    files = resources.files("plait.devices.sim").joinpath("machines").iterdir()
    return tuple(sorted(entry.name.removesuffix(".json") for entry in files if entry.name.endswith(".json")))


def _read(source: str | os.PathLike[str]) -> Machine:
    path = Path(source)
    if isinstance(source, str) and path.suffix != ".json" and not path.is_file():
        known = shipped()
        if source not in known:
            near = difflib.get_close_matches(source, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise DeviceError(f"plait ships no machine {source!r} (it ships {', '.join(known)}){hint}")
        text = resources.files("plait.devices.sim").joinpath("machines", f"{source}.json").read_text("utf-8")
    else:
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DeviceError(f"cannot read the machine {str(source)!r}: {error}") from error
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DeviceError(f"{source}: this is not JSON: {error}") from error
    return checked(data, str(source))


def checked(data: Any, where: str) -> Machine:
    """The machine that plain data describes; DeviceError says what is wrong ``where``, by field."""
    top = _Fields(where, "", data)
    name = top.text("name")
    host = _host(top.mapping("host"))
    devices = [device for entry in top.mappings("devices") for device in _devices(entry)]
    links = tuple(_link(entry) for entry in top.mappings("links"))
    top.end()
    counts: dict[str, int] = {}
    for place, device in enumerate(devices):
        ordinal = counts.get(device.kind, 0)
        counts[device.kind] = ordinal + 1
        devices[place] = DeviceModel(**{**_asdict(device), "ordinal": ordinal})
    if len(devices) > _MOST_DEVICES:
        raise DeviceError(f"{where}: devices: {len(devices)} are more than {_MOST_DEVICES}")
    ends = {HOST, *counts, *(device.name for device in devices)}
    for number, link in enumerate(links):
        for end in link.between:
            if end not in ends:
                raise DeviceError(
                    f"{where}: links[{number}].between: {end!r} is neither 'host' nor a kind or a name of a device"
                )
    found = Machine(name, host, tuple(devices), links)
    for device in devices:
        if found.link(HOST, device.name) is None:
            raise DeviceError(f"{where}: links: nothing joins 'host' to {device.name!r}: add a link between them")
    return found


def _host(fields: _Fields) -> HostModel:
    host = HostModel(
        workers=fields.count("workers", 1),
        model=fields.text("model", ""),
        memory_bytes=fields.amount("memory_bytes"),
        flops_per_s=fields.rate("flops_per_s"),
        bytes_per_s=fields.rate("bytes_per_s"),
        overhead_s=fields.seconds("overhead_s"),
    )
    fields.end()
    return host


def _devices(fields: _Fields) -> list[DeviceModel]:
    kind = fields.text("kind")
    if kind == HOST or ":" in kind or not kind.strip():
        raise fields.wrong("kind", f"must be a kind of device without a colon, and not 'host', not {kind!r}")
    count = fields.count("count", 1)
    device = DeviceModel(
        kind=kind.lower(),
        ordinal=0,
        model=fields.text("model", ""),
        streams=fields.count("streams", 1),
        copies_in=fields.count("copies_in", 1),
        copies_out=fields.count("copies_out", 1),
        copies_peer=fields.count("copies_peer", 1),
        memory_bytes=fields.amount("memory_bytes"),
        flops_per_s=fields.rate("flops_per_s"),
        bytes_per_s=fields.rate("bytes_per_s"),
        launch_s=fields.seconds("launch_s"),
    )
    fields.end()
    return [device] * min(count, _MOST_DEVICES + 1)


def _link(fields: _Fields) -> LinkModel:
    between = fields.take("between")
    if not isinstance(between, list) or len(between) != 2 or not all(isinstance(end, str) for end in between):
        raise fields.wrong("between", f'must be two names of ends, as in ["host", "cuda"], not {between!r}')
    sharing = fields.text("sharing", "pair")
    if sharing not in SHARINGS:
        raise fields.wrong("sharing", f"must be one of {', '.join(map(repr, SHARINGS))}, not {sharing!r}")
    rate = fields.rate("bytes_per_s")
    if rate is None:
        raise fields.wrong("bytes_per_s", "is missing")
    link = LinkModel(
        name=fields.text("name"),
        between=(between[0].lower(), between[1].lower()),
        bytes_per_s=rate,
        latency_s=fields.seconds("latency_s"),
        sharing=sharing,
    )
    fields.end()
    return link


def _asdict(device: DeviceModel) -> dict[str, Any]:
    return {name: getattr(device, name) for name in DeviceModel.__slots__}


_MISSING = object()


class _Fields:
    """One object of the file: fields are taken out, and what is left at the end is unknown."""

    def __init__(self, where: str, path: str, data: Any) -> None:
        self._where = where
        self._path = path
        if not isinstance(data, Mapping):
            raise DeviceError(f"{where}: {path or 'the file'}: must be an object, not {_short(data)}")
        self._left = dict(data)
        self._known: list[str] = []
        for name in _NOTES:
            self._left.pop(name, None)

    def wrong(self, name: str, what: str) -> DeviceError:
        """An error about one field."""
        return DeviceError(f"{self._where}: {self._at(name)}: {what}")

    def take(self, name: str, default: Any = _MISSING) -> Any:
        """A field's value; DeviceError if it is missing and has no default."""
        self._known.append(name)
        value = self._left.pop(name, default)
        if value is _MISSING:
            raise self.wrong(name, "is missing")
        return value

    def text(self, name: str, default: Any = _MISSING) -> str:
        """A string; one without a default must not be empty."""
        value = self.take(name, default)
        if not isinstance(value, str) or (default is _MISSING and not value.strip()):
            raise self.wrong(name, f"must be a string that is not empty, not {_short(value)}")
        return value

    def count(self, name: str, default: int) -> int:
        """A whole number of at least 1."""
        value = self.take(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.wrong(name, f"must be a whole number of at least 1, not {_short(value)}")
        return value

    def amount(self, name: str) -> int | None:
        """A whole number of bytes, None if there is no such field."""
        value = self.take(name, None)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.wrong(name, f"must be a whole number of bytes, not {_short(value)}")
        return value

    def rate(self, name: str) -> float | None:
        """A positive number, None if there is no such field."""
        value = self.take(name, None)
        if value is None:
            return None
        if not _is_number(value) or not 0 < value < float("inf"):
            raise self.wrong(name, f"must be a positive number, not {_short(value)}")
        return float(value)

    def seconds(self, name: str) -> float:
        """A number of seconds, 0 if there is no such field."""
        value = self.take(name, 0)
        if not _is_number(value) or not 0 <= value < float("inf"):
            raise self.wrong(name, f"must be a number of seconds, not {_short(value)}")
        return float(value)

    def mapping(self, name: str) -> _Fields:
        """An object; an empty one if there is no such field."""
        return _Fields(self._where, self._at(name), self.take(name, {}))

    def mappings(self, name: str) -> list[_Fields]:
        """A list of objects."""
        value = self.take(name, [])
        if not isinstance(value, list):
            raise self.wrong(name, f"must be a list, not {_short(value)}")
        return [_Fields(self._where, f"{self._at(name)}[{number}]", entry) for number, entry in enumerate(value)]

    def end(self) -> None:
        """DeviceError if a field is left that nobody asked for."""
        for name in self._left:
            near = difflib.get_close_matches(name, self._known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise self.wrong(name, f"is not a field here (there are {', '.join(self._known)}){hint}")

    def _at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
