"""Actors that are threads of this process: calls and answers as of a cluster, without one."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

from clearl.runtimes.cluster.backend import ActorLost

DEATH = "died: it was killed"


class ThreadActor:
    """One thread for calls, another for those aside. A call under way when it is killed is never answered."""

    def __init__(self, held: Any) -> None:
        self.held, self.dead = held, False
        self._threads = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._open: list[Future[Any]] = []

    def call(self, method: str, *given: Any) -> Future[Any]:
        return self._submit(0, method, given)

    def call_aside(self, method: str, *given: Any) -> Future[Any]:
        return self._submit(1, method, given)

    def kill(self) -> None:
        self.dead = True
        for future in self._open:
            with suppress(InvalidStateError):
                future.set_exception(ActorLost(DEATH))
        for threads in self._threads:
            threads.shutdown(wait=False, cancel_futures=True)

    def _submit(self, thread: int, method: str, given: Sequence[Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        self._open.append(answer)
        if self.dead:
            answer.set_exception(ActorLost(DEATH))
            return answer

        def work() -> None:
            try:
                value = getattr(self.held, method)(*given)
            except Exception as error:  # noqa: BLE001 - it is the answer
                with suppress(InvalidStateError):
                    answer.set_exception(error)
            else:
                with suppress(InvalidStateError):
                    answer.set_result(value)

        self._threads[thread].submit(work)
        return answer


class ThreadTransport:
    def arrived(self, calls: Sequence[Any], wait_s: float) -> list[Any]:
        done = wait(calls, wait_s, FIRST_COMPLETED).done
        return [call for call in calls if call in done]

    def answer(self, call: Any) -> Any:
        return call.result(0)

    def publish(self, value: Any) -> Any:
        return value
