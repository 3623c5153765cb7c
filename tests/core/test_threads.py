"""Flags and background threads, also if one of their calls is interrupted at any moment."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from logwright.core.io.threads import Background, Flag
from tests.support.interrupts import Interrupt, at_every_moment


def test_flag_is_set_and_cleared() -> None:
    flag = Flag()
    assert not flag.wait(0)
    flag.set()
    flag.set()
    assert flag.is_set()
    assert flag.wait()
    assert flag.wait(0)
    flag.clear()
    flag.clear()
    assert not flag.is_set()
    assert not flag.wait(0.001)
    flag.set()
    assert flag.wait()


def test_setting_a_flag_wakes_every_waiting_thread() -> None:
    flag, ready = Flag(), threading.Semaphore(0)

    def wait() -> None:
        ready.release()
        flag.wait()

    threads = [Background(wait) for _ in range(5)]
    for _ in threads:
        ready.acquire()
    flag.set()
    for thread in threads:
        thread.join()


def test_thread_is_alive_until_its_function_ends_and_can_join_itself() -> None:
    threads: list[Background] = []
    begun, joined = Flag(), Flag()

    def work() -> None:
        begun.wait()
        threads[0].join()
        joined.set()

    threads.append(Background(work))
    assert threads[0].is_alive()
    begun.set()
    threads[0].join()
    assert joined.is_set()
    assert not threads[0].is_alive()


@pytest.mark.parametrize("call", [Flag.set, Flag.clear, lambda flag: flag.wait(0.001)], ids=["set", "clear", "wait"])
@pytest.mark.parametrize("is_set", [False, True])
def test_interrupted_call_leaves_a_flag_usable(call: Callable[[Flag], object], is_set: bool) -> None:
    def trial(interrupt: Interrupt) -> None:
        flag = Flag()
        if is_set:
            flag.set()
        interrupt(lambda: call(flag))
        flag.set()
        assert flag.wait(60)
        flag.clear()
        assert not flag.wait(0)
        thread = Background(flag.wait)
        flag.set()
        thread.join()

    assert at_every_moment(trial, 1000)
