from __future__ import annotations

import os

import pytest

from clearl.tasks.exits import exits_raise


def test_leaving_the_process_raises_here_and_is_as_ever_in_a_fork_and_afterwards() -> None:
    leave = os._exit
    with exits_raise():
        with pytest.raises(SystemExit) as caught:
            os._exit(3)
        forked = os.fork()
        if forked == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 7
    assert caught.value.code == 3 and os._exit is leave
