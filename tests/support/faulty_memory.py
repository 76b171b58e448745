"""Makes workers exit, when a test asks for it, after they have reported a round and before it is inserted.

Orders as in `faulty_envs`: `die-before` the first of a worker's unrolls is inserted, `die-within` after that.
"""

from __future__ import annotations

import os
import signal

from faulty_envs import ordered

from clearl.acting.worker import Worker
from clearl.replay.shard import insert_each
from clearl.unroll import Unroll

_as_it_is = Worker.remember


def _remember(self: Worker, new: Unroll) -> None:
    if ordered("die-before"):
        os.kill(os.getpid(), signal.SIGKILL)
    if ordered("die-within"):
        insert_each(self.shards[:1], new[:1])
        os.kill(os.getpid(), signal.SIGKILL)
    _as_it_is(self, new)


Worker.remember = _remember
