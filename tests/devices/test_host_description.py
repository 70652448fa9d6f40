"""The host's description: a fake tree read figure by figure, the live machine against /proc and lscpu."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from plait.devices.host import Cache, HostDescription, HugePages, NumaNode
from plait.devices.host.probe import cpu_quota, describe, numa_node_of, parse_cores, usable_cores
from plait.errors import DeviceError

ON_LINUX = platform.system() == "Linux"

CPUINFO = """processor\t: 0
model name\t: Imaginary 9000
cpu MHz\t\t: 2445.402
flags\t\t: fpu sme smep sse2 pni ssse3 sse4_1 avx avx2 avx512f avx512_bf16 fma amx_int8 avx_vnni svm

processor\t: 1
model name\t: Another
"""


def fake_machine(root: Path) -> Path:
    """Two sockets of two cores of two threads each, as the kernel would show them."""
    files = {
        "proc/cpuinfo": CPUINFO,
        "proc/meminfo": "MemTotal:       24683584 kB\nHugePages_Total:       3\n",
        "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-2,6\n",
        "sys/devices/system/cpu/online": "0-7\n",
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "3700000\n",
        "sys/devices/system/cpu/cpufreq/boost": "1\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "16\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "5\n",
        "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    }
    for core in range(8):
        cpu = f"sys/devices/system/cpu/cpu{core}"
        pair = f"{core % 4},{core % 4 + 4}\n"
        files[f"{cpu}/topology/thread_siblings_list"] = pair
        files[f"{cpu}/topology/physical_package_id"] = f"{core % 4 // 2}\n"
        half = "0-1,4-5\n" if core % 4 < 2 else "2-3,6-7\n"
        for index, level, kind, size, shared in (
            (0, 1, "Data", "48K", pair),
            (1, 1, "Instruction", "32K", pair),
            (2, 2, "Unified", "2M", pair),
            (3, 3, "Unified", "32768K", half),
        ):
            cache = f"{cpu}/cache/index{index}"
            files |= {
                f"{cache}/level": f"{level}\n",
                f"{cache}/type": f"{kind}\n",
                f"{cache}/size": f"{size}\n",
            }
            files |= {f"{cache}/coherency_line_size": "64\n", f"{cache}/shared_cpu_list": shared}
    for node, cores in enumerate(("0-1,4-5\n", "2-3,6-7\n")):
        folder = f"sys/devices/system/node/node{node}"
        files[f"{folder}/cpulist"] = cores
        files[f"{folder}/meminfo"] = f"Node {node} MemTotal:        4810488 kB\nNode {node} MemFree:   3 kB\n"
        files[f"{folder}/distance"] = "10 21\n" if node == 0 else "21 10\n"
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_a_machine_is_read_figure_by_figure(tmp_path: Path) -> None:
    found = describe(fake_machine(tmp_path))
    assert found == HostDescription(
        model="Imaginary 9000",
        architecture=None,
        cores=8,
        usable_cores=4,
        quota_cores=None,
        physical_cores=4,
        threads_per_core=2,
        sockets=2,
        caches=(
            *(Cache(1, "data", 48 << 10, 64, (core, core + 4)) for core in range(4)),
            *(Cache(1, "instruction", 32 << 10, 64, (core, core + 4)) for core in range(4)),
            *(Cache(2, "unified", 2 << 20, 64, (core, core + 4)) for core in range(4)),
            *(Cache(3, "unified", 32 << 20, 64, cores) for cores in ((0, 1, 4, 5), (2, 3, 6, 7))),
        ),
        numa_nodes=(
            NumaNode(0, (0, 1, 4, 5), 4810488 << 10, (10, 21)),
            NumaNode(1, (2, 3, 6, 7), 4810488 << 10, (21, 10)),
        ),
        memory_bytes=24683584 << 10,
        page_bytes=None,
        huge_pages=(HugePages(2 << 20, 16, 5), HugePages(1 << 30, 0, None)),
        transparent_huge_pages="madvise",
        vector_extensions=("amx_int8", "avx", "avx2", "avx512_bf16", "avx512f", "avx_vnni", "fma")
        + ("sse2", "sse3", "sse4_1", "ssse3"),
        frequency_mhz=2445.402,
        maximum_frequency_mhz=3700.0,
    )
    assert found.cache_bytes(1) == 48 << 10
    assert found.cache_bytes(4) is None
    assert HostDescription.from_json(found.to_json()) == found
    assert json.loads(found.to_json())["numa_nodes"][1]["memory_bytes"] == 4810488 << 10


def test_an_empty_tree_is_all_unknown(tmp_path: Path) -> None:
    found = describe(tmp_path)
    assert found == HostDescription()
    assert HostDescription.from_json(found.to_json()) == found


def test_files_of_nonsense_are_unknown(tmp_path: Path) -> None:
    fake_machine(tmp_path)
    for file in [*tmp_path.rglob("*")]:
        if file.is_file():
            file.write_bytes(b"\xff\xfe nonsense [\n")
    found = describe(tmp_path)
    assert found.cores is None
    assert found.caches is None
    assert found.memory_bytes is None
    assert found.numa_nodes == (NumaNode(0, None, None, None), NumaNode(1, None, None, None))


def test_the_control_groups_quota_bounds_the_cores(tmp_path: Path) -> None:
    fake_machine(tmp_path)
    group = tmp_path / "sys/fs/cgroup/cpu.max"
    group.parent.mkdir(parents=True)
    for text, quota, usable in (("150000 100000", 1.5, 2), ("max 100000", None, 4), ("5000 100000", 0.05, 1)):
        group.write_text(text)
        assert cpu_quota(tmp_path) == quota
        assert describe(tmp_path).usable_cores == usable


def test_an_arm_machine_names_its_vector_units(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("Features\t: fp asimd sve sve2 sme aes i8mm\n")
    assert describe(tmp_path).vector_extensions == ("asimd", "i8mm", "sme", "sve", "sve2")


def test_numa_node_of_a_device(tmp_path: Path) -> None:
    file = tmp_path / "numa_node"
    assert numa_node_of(file) is None
    for text, node in (("-1\n", 0), ("0\n", 0), ("3\n", 3), ("x", None), ("", None)):
        file.write_text(text)
        assert numa_node_of(file) == node


def test_lists_of_cores() -> None:
    assert parse_cores("0-2,8\n") == (0, 1, 2, 8)
    assert parse_cores("\n") == ()


@pytest.mark.parametrize("text", ["", "[]", "7", '{"cores": 1, "horses": 2}', '{"caches": [{"level": 1}]}'])
def test_what_is_no_description_is_refused(text: str) -> None:
    with pytest.raises(DeviceError):
        HostDescription.from_json(text)


def test_the_live_machine_agrees_with_python() -> None:
    found = describe()
    assert found.usable_cores == usable_cores()
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    assert found.architecture == platform.machine()
    assert found.page_bytes is not None


@pytest.mark.skipif(not ON_LINUX, reason="/proc is Linux's")
def test_the_live_machine_agrees_with_proc() -> None:
    found = describe()
    assert found.memory_bytes is not None
    assert f"MemTotal: {found.memory_bytes >> 10} kB" in " ".join(Path("/proc/meminfo").read_text().split())
    assert found.cores == os.cpu_count()


@pytest.mark.skipif(shutil.which("lscpu") is None, reason="no lscpu here")
def test_the_live_machine_agrees_with_lscpu() -> None:
    done = subprocess.run(["lscpu", "--json"], capture_output=True, text=True, check=True, env={"LC_ALL": "C"})
    rows: dict[str, str] = {}

    def collect(entries: list[dict[str, object]]) -> None:
        for entry in entries:
            rows.setdefault(str(entry["field"]).rstrip(":"), str(entry["data"]))
            collect(entry.get("children", []))  # type: ignore[arg-type]

    collect(json.loads(done.stdout)["lscpu"])
    found = describe()
    for field, value in (
        ("Architecture", found.architecture),
        ("Model name", found.model),
        ("Thread(s) per core", found.threads_per_core),
        ("Socket(s)", found.sockets),
        ("NUMA node(s)", None if found.numa_nodes is None else len(found.numa_nodes)),
    ):
        if value is not None and rows.get(field, "-") not in ("-", "None"):
            assert rows[field] == str(value), field
