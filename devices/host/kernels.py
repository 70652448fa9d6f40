"""Host kernels by name, thin over NumPy."""

from __future__ import annotations

import numpy as np
from plait.devices.library import register

for _name, _function in (("dot", np.dot), ("transpose", np.transpose), ("sort", np.sort), ("fft", np.fft.fft)):
    register(_name, "host", _function)
