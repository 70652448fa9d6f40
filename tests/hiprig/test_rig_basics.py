"""The unmodified CuPy wheel runs on the rig."""

from __future__ import annotations

import cupy


def test_two_devices_add() -> None:
    assert cupy.cuda.runtime.getDeviceCount() == 2
    for device in range(2):
        with cupy.cuda.Device(device):
            assert (cupy.arange(5) + 1).tolist() == [1, 2, 3, 4, 5]
