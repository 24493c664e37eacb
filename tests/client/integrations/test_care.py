"""Nothing that goes wrong in an adapter reaches a training."""

from __future__ import annotations

import pytest

import rankside
from rankside.integrations.care import active, chosen, harmless


@harmless
def add(a, b):
    """A sum."""
    return a + b


def test_a_call_that_works_is_as_it_was():
    assert add(1, 2) == 3
    assert add.__doc__ == "A sum."


def test_an_error_is_told_once_and_none_returned(capfd, unfit):
    assert add(1, None) is None
    assert add(1, None) is None
    assert capfd.readouterr().err.count("TypeError") == 1
    assert add(unfit, 1) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_leaving_is_no_error(error):
    @harmless
    def leave():
        raise error

    with pytest.raises(error):
        leave()


def test_the_processs_monitor_is_taken_where_none_is_given(told):
    assert chosen(None) is rankside.current()
    assert chosen(told) is told
    assert active(told)
    assert not active(rankside.NoMonitor())
