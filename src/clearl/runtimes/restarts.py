"""When a child that died may be started again, and how soon."""

from __future__ import annotations

from collections import deque

MOST_FAULTS = 5
WINDOW_S = 600.0
_LONGEST_WAIT_S = 10.0


class Restarts:
    """Counts the deaths of one child.

    A fault is a death that the child or its environment brought about. One from outside (SIGKILL) is no fault and may
    happen any number of times, but a child that never gets to do anything in between is given up all the same.
    """

    def __init__(self) -> None:
        self._faults: deque[float] = deque()
        self._in_vain = 0

    def progressed(self) -> None:
        """The child has done some work since it was started."""
        self._in_vain = 0

    def delay_s(self, now: float, *, is_fault: bool) -> float | None:
        """How long to wait before the next start, after a death at `now`; None if there is to be none."""
        self._in_vain += 1
        if is_fault:
            self._faults.append(now)
        while self._faults and self._faults[0] <= now - WINDOW_S:
            self._faults.popleft()
        count = max(len(self._faults), self._in_vain)
        if count > MOST_FAULTS:
            return None
        return 0.0 if count < 2 else min(0.25 * 2 ** (count - 2), _LONGEST_WAIT_S)
