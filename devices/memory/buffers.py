"""An executing plan's bytes by index: what the caller bound, what was allocated, what was given up for reuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from plait.devices.blocks import checked_view
from plait.devices.protocol import Allocator, Block, Stream
from plait.errors import DeviceError


class Donation:
    """Something that its owner gives up: whoever takes it may overwrite it, and nobody else may look at it again.

    ``plait.donate(array)`` as an input of a run lets the run change the array itself instead of a copy of it.
    """

    __slots__ = ("_taker", "_value")

    def __init__(self, value: Any) -> None:
        self._value = value
        self._taker: str | None = None

    def __repr__(self) -> str:
        return f"<Donation {'of ' + repr(self._value) if self._taker is None else 'taken by ' + self._taker}>"

    @property
    def value(self) -> Any:
        """What is given up; DeviceError once it has been taken."""
        if self._taker is not None:
            raise DeviceError(f"this was donated and taken by {self._taker}: keep a copy of what is needed afterwards")
        return self._value

    def take(self, taker: str) -> Any:
        """The value, which the donation then lets go of; DeviceError the second time."""
        value, self._value = self.value, None
        self._taker = taker
        return value


class BufferAllocations:
    """The bytes of ``count`` buffers, each unbound, bound to the caller's or ours. For one thread, or under one lock.

    ``names`` are what errors call them. What was allocated or accepted here is freed by ``free``, ``close`` or the end
    of a ``with`` block, unless ``hand_over`` gave it to the caller; what was bound stays the caller's.
    """

    def __init__(self, allocator: Allocator, count: int, *, names: Sequence[str] = ()) -> None:
        self.allocator = allocator
        self._names = names
        self._data: list[Any] = [None] * count  # flat, uint8, of the platform's array type
        self._blocks: list[Block | None] = [None] * count
        self._donated: set[int] = set()
        self._reused: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._data)

    def __enter__(self) -> BufferAllocations:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def name(self, index: int) -> str:
        """What errors call a buffer."""
        return repr(self._names[index]) if 0 <= index < len(self._names) else str(index)

    # ---- where bytes come from ------------------------------------------------------------------------------------

    def allocate(self, index: int, nbytes: int, *, stream: Stream | None = None) -> None:
        """Bytes of our own, in the order of ``stream``, for an unbound buffer. OutOfMemory as the allocator says."""
        self._check_unbound(index)
        block = self.allocator.allocate(nbytes, stream=stream)
        self._data[index], self._blocks[index] = flat_bytes(block), block

    def bind(self, index: int, value: Any) -> None:
        """The caller's bytes for an unbound buffer: a block, or an array whose bytes lie in order."""
        self._check_unbound(index)
        self._data[index] = self._flat(index, value)

    def accept(self, index: int, donation: Donation) -> None:
        """What the caller gives up for an unbound buffer; a block must be of the allocator, and is freed from here."""
        self._check_unbound(index)
        data = self._flat(index, donation.value)  # before it is taken: a wrong one stays the caller's
        value = donation.take(f"buffer {self.name(index)}")
        self._data[index] = data
        self._blocks[index] = value if isinstance(value, Block) else None
        self._donated.add(index)

    def reuse(self, index: int, donor: int, nbytes: int) -> None:
        """Give an unbound buffer of ``nbytes`` the bytes of a donated one, which must not be used from then on.

        DeviceError if the donor was not donated (its bytes are someone's) or has another size.
        """
        self._check_unbound(index)
        data, names = self._bound(donor), (self.name(index), self.name(donor))
        if donor not in self._donated:
            raise DeviceError(f"buffer {names[0]} cannot have the bytes of {names[1]}, which was not donated")
        if data.nbytes != nbytes:
            raise DeviceError(f"buffer {names[0]} needs {nbytes} bytes, not the {data.nbytes} of {names[1]}")
        self._data[index], self._blocks[index] = data, self._blocks[donor]
        self._data[donor] = self._blocks[donor] = None
        self._donated.discard(donor)
        self._reused[donor] = index

    # ---- what is done with them -----------------------------------------------------------------------------------

    def slice(self, index: int, offset: int, nbytes: int) -> Any:
        """Bytes of a buffer, uint8, shape (nbytes,), not copied; None for no bytes, whatever the index.

        DeviceError for an index that there is not or that is unbound, and for what is not inside the buffer.
        """
        if nbytes == 0:
            return None
        data = self._bound(index)
        if offset < 0 or nbytes < 0 or offset + nbytes > data.nbytes:
            raise DeviceError(
                f"bytes {offset} to {offset + nbytes} are not in buffer {self.name(index)}, which has {data.nbytes}"
            )
        return data[offset : offset + nbytes]

    def array(self, index: int, shape: int | tuple[int, ...], dtype: Any, *, offset: int = 0) -> Any:
        """A buffer's bytes from ``offset`` on as an array, not copied. DeviceError as for ``slice``."""
        data = self._bound(index)
        dims, kind, nbytes = checked_view(shape, dtype, max(0, data.nbytes - offset))
        part = data[:0] if nbytes == 0 else self.slice(index, offset, nbytes)
        return part.view(kind).reshape(dims)

    def nbytes(self, index: int) -> int:
        """The size of a bound buffer."""
        return int(self._bound(index).nbytes)

    # ---- where they go --------------------------------------------------------------------------------------------

    def hand_over(self, index: int) -> Any:
        """Unbind a buffer that is a result: the block, the caller's to free from now on, or the bytes if bound."""
        data, block = self._bound(index), self._blocks[index]
        self._data[index] = self._blocks[index] = None
        self._donated.discard(index)
        return data if block is None else block

    def free(self, index: int, *, stream: Stream | None = None) -> None:
        """Unbind a buffer; its bytes go back to the allocator if they are ours, in the order of ``stream``."""
        self._bound(index)
        block = self._blocks[index]
        self._data[index] = self._blocks[index] = None
        self._donated.discard(index)
        if block is not None:
            self.allocator.free(block, stream=stream)

    def close(self, *, stream: Stream | None = None) -> None:
        """Free what remains. Twice is fine."""
        for index, data in enumerate(self._data):
            if data is not None:
                self.free(index, stream=stream)

    def _bound(self, index: int) -> Any:
        if not 0 <= index < len(self._data):
            raise DeviceError(f"there is no buffer {index}: they are numbered from 0 to {len(self._data) - 1}")
        data = self._data[index]
        if data is None:
            taker = self._reused.get(index)
            why = "is not bound" if taker is None else f"was donated, and its bytes are {self.name(taker)}'s now"
            raise DeviceError(f"buffer {self.name(index)} {why}")
        return data

    def _check_unbound(self, index: int) -> None:
        if 0 <= index < len(self._data) and self._data[index] is None:
            self._reused.pop(index, None)
            return
        self._bound(index)
        raise DeviceError(f"buffer {self.name(index)} is bound already; free it first")

    def _flat(self, index: int, value: Any) -> Any:
        try:
            return flat_bytes(value)
        except DeviceError as error:
            raise DeviceError(f"buffer {self.name(index)}: {error}") from None


def flat_bytes(value: Any) -> Any:
    """A block's or an array's bytes as uint8, shape (nbytes,), not copied; DeviceError if they do not lie in order."""
    if isinstance(value, Block):
        return value.array(value.nbytes, np.uint8)
    if not hasattr(value, "flags") or not value.flags.c_contiguous or value.dtype.hasobject:
        raise DeviceError(f"{type(value).__name__} is no array of plain bytes that lie in order; pass a contiguous one")
    return value.reshape(-1).view(np.uint8)
