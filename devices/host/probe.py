"""Reads the host's description from /proc and /sys.

What cannot be read stays None; other systems know little.
"""

from __future__ import annotations

import math
import mmap
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from plait.devices.host.describe import Cache, HostDescription, HugePages, NumaNode

ROOT = Path("/")

# Names of vector and matrix units: on x86 among the "flags" of /proc/cpuinfo, on Arm among its "Features".
_X86_VECTOR = re.compile(
    r"mmx|sse|sse2|pni|ssse3|sse4_1|sse4_2|sse4a|avx|avx2|avx512\w*|avx10\w*|avx_\w+|fma|f16c|amx_\w+"
)
_ARM_VECTOR = re.compile(r"neon|asimd|asimdhp|asimddp|sve\w*|sme\w*|i8mm|bf16")


def describe(root: Path = ROOT) -> HostDescription:
    """What the tree under ``root`` says, and for the live machine what Python knows besides."""
    live = root == ROOT
    info = _cpuinfo(root)
    siblings, sockets = _topology(root)
    online = _cores(root / "sys/devices/system/cpu/online")
    cores = len(online) if online else (os.cpu_count() if live else None)
    per_core = {len(group) for group in siblings}
    memory_kib = _meminfo(root / "proc/meminfo").get("MemTotal")
    quota = cpu_quota(root)
    return HostDescription(
        model=info.get("model name") or info.get("Model") or (platform.processor() or None if live else None),
        architecture=(platform.machine() or None) if live else None,
        cores=cores,
        usable_cores=usable_cores() if live else _limited(_affinity(root), quota),
        quota_cores=quota,
        physical_cores=len(siblings) or None,
        threads_per_core=per_core.pop() if len(per_core) == 1 else None,
        sockets=sockets,
        caches=_caches(root),
        numa_nodes=_numa_nodes(root),
        memory_bytes=_physical_memory() if memory_kib is None and live else _kib(memory_kib),
        page_bytes=mmap.PAGESIZE if live else None,
        huge_pages=_huge_pages(root),
        transparent_huge_pages=_bracketed(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        vector_extensions=_vector_extensions(info),
        frequency_mhz=_float(info.get("cpu MHz")),
        maximum_frequency_mhz=_mhz(_number(root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")),
    )


def usable_cores() -> int:
    """Cores that this process may run on: its affinity, or fewer if its control group has a smaller quota."""
    count = getattr(os, "process_cpu_count", os.cpu_count)()  # Python 3.13's also heeds -X cpu_count
    if hasattr(os, "sched_getaffinity"):
        count = min(count or 1, len(os.sched_getaffinity(0)))
    return _limited(count, cpu_quota()) or 1


def cpu_quota(root: Path = ROOT) -> float | None:
    """Cores' worth of time that the control group (version 2) grants; None if unlimited or unknown."""
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def numa_node_of(file: Path) -> int | None:
    """The NUMA node that a device's ``numa_node`` file names: -1 (no affinity) counts as 0, unreadable is
    unknown.
    """
    node = _number(file)
    return 0 if node == -1 else node


def parse_cores(text: str) -> tuple[int, ...]:
    """``"0-2,8"`` is (0, 1, 2, 8)."""
    cores: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.extend(range(int(first), int(last or first) + 1))
    return tuple(cores)


def _limited(cores: int | None, quota: float | None) -> int | None:
    return cores if cores is None or quota is None else max(1, min(cores, math.ceil(quota)))


def _affinity(root: Path) -> int | None:
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)", _text(root / "proc/self/status") or "", re.MULTILINE)
    return len(parse_cores(found[1])) if found else None


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first value of each key."""
    values: dict[str, str] = {}
    for line in (_text(root / "proc/cpuinfo") or "").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            values.setdefault(key.strip(), value.strip())
    return values


def _vector_extensions(info: dict[str, str]) -> tuple[str, ...] | None:
    for key, pattern in (("flags", _X86_VECTOR), ("Features", _ARM_VECTOR)):
        if key in info:
            found = {flag for flag in info[key].split() if pattern.fullmatch(flag)}
            return tuple(sorted("sse3" if flag == "pni" else flag for flag in found))
    return None


def _meminfo(file: Path) -> dict[str, int]:
    pairs = re.findall(r"(\w+):\s+(\d+)(?: kB)?\s*$", _text(file) or "", re.MULTILINE)
    return {key: int(value) for key, value in pairs}


def _topology(root: Path) -> tuple[set[tuple[int, ...]], int | None]:
    """The groups of logical cores that are one physical core each, and the number of sockets."""
    siblings: set[tuple[int, ...]] = set()
    packages: set[int] = set()
    for folder in _numbered(root / "sys/devices/system/cpu", "cpu"):
        group = _cores(folder / "topology/thread_siblings_list")
        if group:
            siblings.add(group)
        package = _number(folder / "topology/physical_package_id")
        if package is not None and package >= 0:
            packages.add(package)
    return siblings, len(packages) or None


def _caches(root: Path) -> tuple[Cache, ...] | None:
    """Each cache once, though every core that shares it lists it."""
    caches: dict[tuple[object, ...], Cache] = {}
    for folder in _numbered(root / "sys/devices/system/cpu", "cpu"):
        for index in _numbered(folder / "cache", "index"):
            level = _number(index / "level")
            if level is None:
                continue
            kind = _text(index / "type")
            shared = _cores(index / "shared_cpu_list")
            cache = Cache(
                level=level,
                kind=kind.strip().lower() if kind else None,
                size_bytes=_size(_text(index / "size")),
                line_bytes=_number(index / "coherency_line_size"),
                shared_cores=shared,
            )
            caches.setdefault((level, cache.kind, shared or folder.name), cache)
    ordered = sorted(caches.values(), key=lambda cache: (cache.level, cache.kind or "", cache.shared_cores or ()))
    return tuple(ordered) or None


def _numa_nodes(root: Path) -> tuple[NumaNode, ...] | None:
    nodes = []
    for folder in _numbered(root / "sys/devices/system/node", "node"):
        distances = _text(folder / "distance")
        nodes.append(
            NumaNode(
                ordinal=int(folder.name[4:]),
                cores=_cores(folder / "cpulist"),
                memory_bytes=_kib(_meminfo(folder / "meminfo").get("MemTotal")),
                distances=tuple(int(value) for value in distances.split()) if distances else None,
            )
        )
    return tuple(nodes) or None


def _huge_pages(root: Path) -> tuple[HugePages, ...] | None:
    folder = root / "sys/kernel/mm/hugepages"
    pools = []
    for pool in folder.glob("hugepages-*kB") if folder.is_dir() else ():
        size_kib = re.fullmatch(r"hugepages-(\d+)kB", pool.name)
        if size_kib:
            total, free = _number(pool / "nr_hugepages"), _number(pool / "free_hugepages")
            pools.append(HugePages(page_bytes=int(size_kib[1]) << 10, total=total, free=free))
    return tuple(sorted(pools, key=lambda pool: pool.page_bytes)) or None


def _physical_memory() -> int | None:
    """For systems without /proc."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _numbered(folder: Path, prefix: str) -> Iterator[Path]:
    entries = [entry for entry in folder.glob(f"{prefix}*") if entry.name[len(prefix) :].isdigit()]
    yield from sorted(entries, key=lambda entry: int(entry.name[len(prefix) :]))


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def _number(file: Path) -> int | None:
    try:
        return int(_text(file) or "")
    except ValueError:
        return None


def _cores(file: Path) -> tuple[int, ...] | None:
    text = _text(file)
    try:
        return None if text is None else parse_cores(text)
    except ValueError:
        return None


def _size(text: str | None) -> int | None:
    found = re.fullmatch(r"(\d+)([KMG]?)", (text or "").strip())
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]] if found else None


def _bracketed(file: Path) -> str | None:
    found = re.search(r"\[(\w+)\]", _text(file) or "")
    return found[1] if found else None


def _kib(value: int | None) -> int | None:
    return None if value is None else value << 10


def _mhz(khz: int | None) -> float | None:
    return None if khz is None else khz / 1000


def _float(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
