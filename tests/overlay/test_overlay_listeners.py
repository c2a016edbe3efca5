"""Listeners and decisions: several hear, one decides."""

from contextlib import suppress

import pytest

from overlay.listeners import Decision, Listeners


def test_all_listeners_hear_in_the_order_in_which_they_came() -> None:
    heard: list[tuple[str, int]] = []
    news: Listeners[[int]] = Listeners()
    news.add(lambda number: heard.append(("first", number)))
    news.add(lambda number: heard.append(("second", number)))
    news.tell(7)
    assert heard == [("first", 7), ("second", 7)]


def test_a_listener_of_a_block_hears_nothing_after_it() -> None:
    heard: list[int] = []
    news: Listeners[[int]] = Listeners()
    with news.listening(heard.append):
        news.tell(1)
    news.tell(2)
    with suppress(ValueError), news.listening(heard.append):
        raise ValueError("of the block")
    news.tell(3)
    assert heard == [1]
    assert len(news) == 0


def test_a_listener_that_leaves_within_the_news_does_not_hide_it_from_the_next() -> None:
    heard: list[str] = []
    news: Listeners[[]] = Listeners()

    def leave() -> None:
        block.__exit__(None, None, None)

    block = news.listening(leave)
    block.__enter__()
    news.add(lambda: heard.append("next"))
    news.tell()
    assert heard == ["next"]
    assert len(news) == 1


def test_an_error_of_a_listener_goes_to_the_one_with_the_news() -> None:
    def fail() -> None:
        raise OSError("disk")

    news: Listeners[[]] = Listeners()
    news.add(fail)
    with pytest.raises(OSError, match="disk"):
        news.tell()


def test_a_decision_is_the_default_until_somebody_makes_it_and_nobody_takes_it_over() -> None:
    admits: Decision[[str], bool] = Decision(lambda _: False)
    assert not admits("mit.edu")
    admits.made_by(lambda name: name == "mit.edu")
    assert admits("mit.edu")
    assert not admits("eth.ch")
    with pytest.raises(RuntimeError, match="decides this already"):
        admits.made_by(lambda _: True)
    assert not admits("eth.ch")
