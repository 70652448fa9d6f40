"""What kernels took before, by device kind and size, in a JSON file: data that any tool may read, and never code."""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.errors import PlaitError
from plait.graph import WorkItem
from plait.graph.item import function_name

if TYPE_CHECKING:
    from plait.scheduler.trace import Trace

KEPT = 32  # newest samples of a kernel at one size; older ones are let go, so a changed machine is learnt again
_FEW = 2  # with fewer samples a time is a guess that is worth another try
_UNKNOWN = -1  # the class of samples whose size was not known
_FORMAT = "plait costs 1"

Key = tuple[str, str, int]


class CostModel:
    """Seconds by kernel, device kind and size, learnt from runs.

    Sizes are in classes of powers of two. Of a class the median of its newest 32 samples counts, of those within five
    median absolute deviations (Hampel, JASA 1974), so a pause of the machine is not learnt. Between classes the time
    is interpolated, beyond them it grows in proportion to the bytes. Not safe on several threads at once.
    """

    def __init__(self) -> None:
        self._samples: dict[Key, list[float]] = {}
        self._new: dict[Key, list[float]] = {}  # since the last load or save
        self._medians: dict[Key, float] = {}
        self._sizes: dict[tuple[str, str], list[int]] = {}
        self.generation = 0

    def __len__(self) -> int:
        return len(self._samples)

    def seconds(self, name: str, device_kind: str, nbytes: int | None = None) -> float | None:
        """Seconds of the kernel ``name`` on a device of that kind where it touches ``nbytes``; None if none is known.

        Without ``nbytes``, the median over all sizes.
        """
        sizes = self._sizes.get((name, device_kind))
        if not sizes:
            return None
        if nbytes is None or sizes == [_UNKNOWN]:
            return statistics.median(self._median((name, device_kind, size)) for size in sizes)
        sizes = [size for size in sizes if size != _UNKNOWN]
        wanted = size_class(nbytes)
        if wanted in sizes:
            return self._median((name, device_kind, wanted))
        above = next((size for size in sizes if size > wanted), None)
        below = next((size for size in reversed(sizes) if size < wanted), None)
        if below is None or above is None:
            nearest = above if below is None else below
            assert nearest is not None, "sizes is not empty"
            took = self._median((name, device_kind, nearest))
            # Below the smallest class an item is as short as overheads let it be: nobody knows, so it is not scaled.
            return took if below is None else took * 2.0 ** (wanted - nearest)
        low, high = (self._median((name, device_kind, size)) for size in (below, above))
        share = (2.0**wanted - 2.0**below) / (2.0**above - 2.0**below)
        return low + share * (high - low)

    def is_guess(self, name: str, device_kind: str, nbytes: int | None = None) -> bool:
        """Whether too few samples are known of this kernel, kind and size to rely on them."""
        sizes = self._sizes.get((name, device_kind), ())
        among = sizes if nbytes is None else [size for size in sizes if size in (_UNKNOWN, size_class(nbytes))]
        return sum(len(self._samples[name, device_kind, size]) for size in among) < _FEW

    def observe(self, name: str, device_kind: str, nbytes: int | None, seconds: float) -> None:
        """Note that it took ``seconds``; PlaitError for a time that none can be."""
        if not (seconds >= 0 and math.isfinite(seconds)):
            raise PlaitError(f"a time of {seconds!r} s cannot be observed: it must be finite and at least 0")
        key = (name, device_kind, _UNKNOWN if nbytes is None else size_class(nbytes))
        self._new.setdefault(key, []).append(seconds)
        self._add(key, [seconds])

    def observe_trace(self, trace: Trace, nbytes: Any = None) -> None:
        """Note what each item of a traced run took; ``nbytes`` gives the bytes by item index, if they are known.

        The kernel is what the item's automatic name says, or its whole name; the device kind what its stream's says.
        """
        records = trace.records
        spans = (records["end_ns"] - records["start_ns"]).tolist()
        kinds = [stream.partition("/")[0].partition(":")[0] for stream in trace.streams]
        kinds = ["host" if kind == "loop" else kind for kind in kinds]
        for item, stream, kind, span in zip(
            records["item"].tolist(), records["stream"].tolist(), records["kind"].tolist(), spans, strict=True
        ):
            if kind != 1:  # a copy's time is its link's
                name = trace.names[item].partition("#")[0]
                self.observe(name, kinds[stream], None if nbytes is None else nbytes[item], max(0, span) / 1e9)

    @classmethod
    def from_trace(cls, trace: Trace) -> CostModel:
        """A model of what the items of one run took."""
        model = cls()
        model.observe_trace(trace)
        return model

    def __call__(self, item: WorkItem, device_kind: str, nbytes: int | None) -> float | None:
        """As ``seconds``, for a work item."""
        return self.seconds(kernel_name(item), device_kind, nbytes)

    # ---- the file ---------------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CostModel:
        """The model in a file; an empty one if there is no file. PlaitError for a file that is no cost model, and where
        there is no folder to write one to."""
        model = cls()
        folder = Path(path).absolute().parent
        if not folder.is_dir():
            raise PlaitError(f"costs: there is no folder {str(folder)!r} for {Path(path).name}: make it first")
        with contextlib.suppress(FileNotFoundError):
            for key, samples in _read(Path(path)).items():
                model._add(key, samples)
        return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Add what was observed since the last load or save to the file, in one step: readers see the old or the new.

        Of two writers at the same moment one may lose its new samples; the file stays whole.
        """
        target = Path(path)
        merged = CostModel.load(target) if target.exists() else self
        if merged is not self:
            for key, samples in self._new.items():
                merged._add(key, samples)
        content = {
            "format": _FORMAT,
            "unit": "seconds; size_class k: at most 2**k bytes touched, -1: not known",
            "costs": [
                {"kernel": name, "device": kind, "size_class": size, "seconds": samples}
                for (name, kind, size), samples in sorted(merged._samples.items())
            ],
        }
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.absolute().parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        self._new.clear()

    # ---- inside -----------------------------------------------------------------------------------------------

    def _add(self, key: Key, samples: list[float]) -> None:
        known = self._samples.setdefault(key, [])
        was_guess = len(known) < _FEW
        known.extend(samples)
        del known[:-KEPT]
        self._medians.pop(key, None)
        if was_guess:
            self.generation += 1  # what plans were made from was not known to this class before
            sizes = self._sizes.setdefault(key[:2], [])
            if key[2] not in sizes:
                sizes.append(key[2])
                sizes.sort()

    def _median(self, key: Key) -> float:
        found = self._medians.get(key)
        if found is None:
            found = self._medians[key] = robust_median(self._samples[key])
        return found


def robust_median(samples: list[float]) -> float:
    """The median of those samples that lie within five median absolute deviations of the median."""
    middle = statistics.median(samples)
    spread = statistics.median(abs(sample - middle) for sample in samples)
    return statistics.median(sample for sample in samples if abs(sample - middle) <= 5 * spread)


def size_class(nbytes: int) -> int:
    """The power of two at or above ``nbytes``, as its exponent; 0 for at most a byte."""
    return max(0, int(nbytes) - 1).bit_length()


def kernel_name(item: WorkItem) -> str:
    """What an item's history goes by: its function's or kernel's name, else its kind."""
    return function_name(item.function) or item.kind


def is_cost_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file says of itself that it is a cost model."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("format") == _FORMAT


def _read(path: Path) -> dict[Key, list[float]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}, not {_FORMAT!r}")
        found: dict[Key, list[float]] = {}
        for entry in content["costs"]:
            samples = [float(sample) for sample in entry["seconds"]][-KEPT:]
            if not samples or not all(sample >= 0 and math.isfinite(sample) for sample in samples):
                raise ValueError(f"kernel {entry['kernel']!r} has a time that none can be")
            found[str(entry["kernel"]), str(entry["device"]), int(entry["size_class"])] = samples
    except (ValueError, KeyError, TypeError) as error:
        raise PlaitError(f"{path} is no cost model that this version reads ({error}): name another file") from error
    return found
