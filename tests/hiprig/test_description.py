"""A device's description from the real CuPy on the rig, what is unknown there left out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import cupy
import pytest
import rig
from plait.devices.gpu.absent import absent_reason
from plait.devices.gpu.describe import GpuDescription
from plait.devices.gpu.probe import describe, stream_priorities

RUNTIME = cupy.cuda.runtime


def alone(code: str, **environment: str) -> str:
    """What the code prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=rig.command_environment() | environment,
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_the_figures_are_the_runtimes(tmp_path: Path) -> None:
    found = describe(0, tmp_path)
    properties = RUNTIME.getDeviceProperties(0)
    assert found.platform == "hip"
    assert found.name == properties["name"].decode()
    assert found.architecture == properties["gcnArchName"].decode()
    assert found.memory_bytes == properties["totalGlobalMem"]
    assert found.warp_size == properties["warpSize"]
    assert found.maximum_block == properties["maxThreadsDim"]
    assert found.clock_hz == properties["clockRate"] * 1000
    assert found.copy_engines == 2
    assert found.pci_address == cupy.cuda.Device(0).pci_bus_id
    assert found.runtime_version is not None
    assert found.runtime_version.startswith("7.")
    assert (found.memory_bandwidth, found.l2_bytes, found.numa_node, found.nvlink) == (None, None, None, None)
    assert GpuDescription.from_json(found.to_json()) == found


def test_every_device_reaches_the_others() -> None:
    count = RUNTIME.getDeviceCount()
    for ordinal in range(count):
        assert describe(ordinal).peers == tuple(other for other in range(count) if other != ordinal)


def test_the_range_of_priorities_is_what_streams_get() -> None:
    least, greatest = stream_priorities(0)
    assert least > greatest
    for asked, got in ((least + 1, least), (greatest - 1, greatest), (0, 0)):
        stream = cupy.cuda.Stream(non_blocking=True, priority=asked)
        assert RUNTIME.streamGetPriority(stream.ptr) == got


@pytest.mark.parametrize("ordinal", range(RUNTIME.getDeviceCount()))
def test_the_current_device_and_stream_stay(ordinal: int) -> None:
    with cupy.cuda.Device(ordinal), cupy.cuda.Stream(non_blocking=True) as stream:
        for other in range(RUNTIME.getDeviceCount()):
            describe(other)
            assert absent_reason("hip") is None
        assert RUNTIME.getDevice() == ordinal
        assert cupy.cuda.get_current_stream() == stream


def test_the_command_lists_the_device_and_why_there_is_no_cuda() -> None:
    lines = alone("from plait.cli.main import main; main(['devices'])").splitlines()
    platforms = {line.partition(":")[0]: line for line in lines}
    assert "cupy-rocm-7-0 is built for HIP; for CUDA" in platforms["cuda"]
    assert "gfx" in platforms["hip"]
    text = alone("from plait.cli.main import main; main(['devices', '--json'])")
    host, end = json.JSONDecoder().raw_decode(text)
    gpu, _ = json.JSONDecoder().raw_decode(text[end:].lstrip())
    assert host["usable_cores"] >= 1
    assert (gpu["platform"], gpu["ordinal"]) == ("hip", 0)


REASON = "from plait.devices.gpu.absent import absent_reason; print(absent_reason('hip'))"


def test_no_device_on_the_rig() -> None:
    assert alone(REASON, HIPCPU_DEVICES="0").startswith("no device is visible")
    assert "HIP_VISIBLE_DEVICES='9' hides" in alone(REASON, HIPCPU_DEVICES="0", HIP_VISIBLE_DEVICES="9")


def test_a_rig_that_is_not_found() -> None:
    reason = alone(REASON, LD_LIBRARY_PATH="")
    assert reason.startswith("cupy-rocm-7-0 is installed but does not load: ImportError: lib")
