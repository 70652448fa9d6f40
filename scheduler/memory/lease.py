"""A scope that keeps memory of a device for the caller's own code, and waits for its turn like an item."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import trio
from plait.errors import PlaitError, PlanError

if TYPE_CHECKING:
    from plait.scheduler.lanes import Dispatcher

_current: contextvars.ContextVar[Lease | None] = contextvars.ContextVar("plait_lease", default=None)


class Lease:
    """Bytes of ``device`` that nobody else of this scheduler uses meanwhile.

    On a GPU, what the task that holds it allocates through CuPy comes from a pool of its own that gives ``nbytes`` at
    most; ``in_use`` says how much of it arrays hold. On the host it is a promise only.
    """

    def __init__(self, device: str, nbytes: int, pool: Any) -> None:
        self.device = device
        self.nbytes = nbytes
        self._pool = pool

    def __repr__(self) -> str:
        return f"<Lease of {self.nbytes} bytes of {self.device}, {self.in_use} in use>"

    @property
    def in_use(self) -> int:
        """Bytes that CuPy arrays made under it hold; 0 on the host."""
        return 0 if self._pool is None else int(self._pool.used_bytes())

    @contextmanager
    def use(self) -> Iterator[None]:
        """On another thread than the loop's: what CuPy allocates inside comes from the lease."""
        if self._pool is None:
            yield
            return
        import cupy  # noqa: PLC0415  an extra, and loaded already where a GPU has a lease

        with cupy.cuda.using_allocator(self._pool.malloc):
            yield


class _Allocators:
    """The loop thread's CuPy allocator while leases are held: the holding task's lease, else what was in force."""

    def __init__(self) -> None:
        self.count = 0
        self._before: Callable[[int], Any] | None = None
        self._scope: AbstractContextManager[None] | None = None

    def enter(self) -> None:
        import cupy  # noqa: PLC0415  an extra

        self.count += 1
        if self.count == 1:
            self._before = cupy.cuda.get_allocator()
            self._scope = cupy.cuda.using_allocator(self._allocate)
            assert self._scope is not None
            self._scope.__enter__()

    def leave(self) -> None:
        self.count -= 1
        if not self.count and self._scope is not None:
            scope, self._scope = self._scope, None
            scope.__exit__(None, None, None)

    def _allocate(self, nbytes: int) -> Any:
        lease = _current.get()
        if lease is not None and lease._pool is not None:
            return lease._pool.malloc(nbytes)
        assert self._before is not None
        return self._before(nbytes)


_allocators: trio.lowlevel.RunVar[_Allocators] = trio.lowlevel.RunVar("plait_allocators")


@asynccontextmanager
async def leased(
    dispatcher: Dispatcher, place: int, device: str, nbytes: int, priority: int, on_gpu: bool
) -> AsyncIterator[Lease]:
    """The lease, once its turn has come. PlanError if it can never be; PlaitError if it is not empty at its end."""
    arbiter = dispatcher.memory
    limit = None if arbiter is None else arbiter.spaces[place].limit
    if limit is not None and nbytes > limit:
        raise PlanError(f"a lease of {nbytes} bytes of {device} can never be: its memory_limit is {limit} bytes")
    claim = None
    if arbiter is not None and limit is not None:
        token, granted = trio.lowlevel.current_trio_token(), trio.Event()

        def on_granted() -> None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(granted.set)

        with dispatcher.lock:
            claim = arbiter.turns.lease(place, nbytes, priority, on_granted)
            dispatcher.settle_memory()
        try:
            await granted.wait()
        except BaseException:
            _give_back(dispatcher, claim)
            raise
    else:
        await trio.lowlevel.checkpoint()
    try:
        async with _scope(device, nbytes, on_gpu) as lease:
            yield lease
    finally:
        if claim is not None:
            _give_back(dispatcher, claim)


def _give_back(dispatcher: Dispatcher, claim: Any) -> None:
    assert dispatcher.memory is not None
    with dispatcher.lock:
        dispatcher.memory.turns.end_lease(claim)
        dispatcher.settle_memory()


@asynccontextmanager
async def _scope(device: str, nbytes: int, on_gpu: bool) -> AsyncIterator[Lease]:
    if not on_gpu:
        yield Lease(device, nbytes, None)
        return
    import cupy  # noqa: PLC0415  an extra

    pool = cupy.cuda.MemoryPool(cupy.cuda.get_allocator())
    pool.set_limit(size=-(-nbytes // _UNIT) * _UNIT)
    lease = Lease(device, nbytes, pool)
    try:
        allocators = _allocators.get()
    except LookupError:
        _allocators.set(allocators := _Allocators())
    allocators.enter()
    mark = _current.set(lease)
    try:
        yield lease
        left = lease.in_use
        if left:
            raise PlaitError(
                f"the lease of {nbytes} bytes of {device} ends with {left} bytes in use: let go of the arrays made "
                "under it before its block ends (del them, or copy out what is to stay)"
            )
    finally:
        _current.reset(mark)
        allocators.leave()
        pool.free_all_blocks()


_UNIT = 512  # CuPy's pools give multiples of it
