from __future__ import annotations

from clearl.runtimes.supervision import FaultBudget, RestartPolicy


def test_waits_grow_and_the_sixth_fault_in_ten_minutes_is_one_too_many() -> None:
    restarts, delays = RestartPolicy(FaultBudget()), []
    for time in range(6):
        restarts.progressed()
        delays.append(restarts.delay_s(100.0 * time, is_fault=True))
    assert delays == [0.0, 0.25, 0.5, 1.0, 2.0, None]


def test_faults_are_forgotten_after_ten_minutes() -> None:
    restarts = RestartPolicy(FaultBudget())
    for time in range(50):
        restarts.progressed()
        assert restarts.delay_s(time * 600.0 / 5, is_fault=True) is not None


def test_deaths_from_outside_are_not_limited_and_do_not_wait() -> None:
    restarts = RestartPolicy(FaultBudget())
    for time in range(100):
        restarts.progressed()
        assert restarts.delay_s(float(time), is_fault=False) == 0.0


def test_a_child_that_never_gets_anything_done_is_given_up() -> None:
    restarts = RestartPolicy(FaultBudget())
    delays = [restarts.delay_s(1000.0 * time, is_fault=False) for time in range(6)]
    assert delays[:5] == [0.0, 0.25, 0.5, 1.0, 2.0] and delays[5] is None


def test_faults_that_a_process_made_good_by_itself_count_with_the_others() -> None:
    restarts = RestartPolicy(FaultBudget(faults=3))
    assert restarts.tolerates(0.0) and restarts.tolerates(1.0)
    assert restarts.delay_s(2.0, is_fault=True) is not None and not restarts.tolerates(3.0)
    assert restarts.tolerates(700.0), "forgotten after ten minutes"
