"""Virtual time and trio's: a task that lets virtual time go on while everyone else waits.

Under a ``trio.testing.MockClock`` that jumps by itself, a burst of calls is made at once and the clock is set after
them; it ends where someone else has something to do. Under an ordinary clock the simulation keeps pace with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import trio
from plait.devices.sim import Simulation
from plait.scheduler.collector import collector_paused

_BURST = 4096  # calls between two looks at the loop, so that it can be interrupted


class Drive:
    """Drives one simulation from one nursery, for as long as there is something to drive.

    ``arrive`` is called whenever all other tasks wait: what they asked for meanwhile is taken in an order of its own,
    since trio runs tasks of one moment in no particular one. ``failed`` is called with what a call
    raised, which none should.
    """

    def __init__(
        self,
        simulation: Simulation,
        nursery: trio.Nursery,
        arrive: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._time = simulation.time
        self._nursery = nursery
        self._arrive = arrive
        self._failed = failed
        self._clock: Any = trio.lowlevel.current_clock()
        self._offset_ns = self._time.now_ns - round(trio.current_time() * 1e9)
        self._dry = simulation.machine.dry
        self._running = False
        self._poked = trio.Event()
        self.news = False  # someone on the loop is to be woken

    def now_ns(self) -> int:
        """Virtual time, as far as trio's clock has come."""
        return max(self._time.now_ns, round(trio.current_time() * 1e9) + self._offset_ns)

    def wake(self) -> None:
        """There is something to do."""
        self._poked.set()
        if not self._running:
            self._running = True
            self._nursery.start_soon(self._main, name=f"simulated time of {self!r}")

    async def _main(self) -> None:
        # Shielded, since a run that is being cancelled waits for what is in flight here.
        with trio.CancelScope(shield=True):
            while self._running:
                try:
                    await self._go_on()
                except BaseException as error:
                    self._failed(error)
                    if not isinstance(error, Exception):
                        self._running = False
                        raise

    async def _go_on(self) -> None:
        while True:
            await self._settle()
            self._time.reach(self.now_ns())
            self._arrive()
            self.news = False
            next_ns = self._time.next_ns
            if next_ns is None:
                self._running = False
                return
            if not self._jumps or not self._burst():
                await self._sleep(next_ns)

    @property
    def _jumps(self) -> bool:
        """Whether trio's clock may be set forward while all tasks wait."""
        return getattr(self._clock, "autojump_threshold", math.inf) < math.inf

    async def _settle(self) -> None:
        if not self._jumps:
            await trio.lowlevel.checkpoint()
            return
        from trio.testing import wait_all_tasks_blocked  # noqa: PLC0415  it imports pytest where that is installed

        await wait_all_tasks_blocked()

    def _burst(self) -> bool:
        """Make calls until someone is to be woken; whether there were any before the loop's next deadline."""
        time = self._time
        deadline_s = trio.lowlevel.current_statistics().seconds_to_next_deadline
        deadline_ns = math.inf if deadline_s == math.inf else self.now_ns() + round(deadline_s * 1e9)
        made = 0
        # A dry run makes objects by the million and no cycles, and each full collection would visit them all.
        with collector_paused(_BURST if self._dry else 0, _BURST):
            while made < _BURST and not self.news and (next_ns := time.next_ns) is not None and next_ns < deadline_ns:
                time.step()
                made += 1
        ahead_s = (time.now_ns - self._offset_ns) / 1e9 - trio.current_time()
        if ahead_s > 0:
            self._clock.jump(ahead_s)
        return made > 0

    async def _sleep(self, until_ns: int) -> None:
        self._poked = trio.Event()
        with trio.move_on_at((until_ns - self._offset_ns) / 1e9):
            await self._poked.wait()
