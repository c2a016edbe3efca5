"""Keys change the monitor's view."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from medusa.tools.monitor.keys import keys_in
from medusa.tools.monitor.view import FILTER_CHARACTERS, Shown, View, pressed

SHOWN = Shown(("Peers", "Streams", "Events"), ("aa", "bb"), items=50, page=10)


def after(*keys: str, view: View | None = None, shown: Shown = SHOWN) -> View:
    view = view or View()
    for key in keys:
        changed = pressed(view, key, shown)
        assert changed is not None
        view = changed
    return view


def test_q_leaves_and_is_a_letter_in_a_filter() -> None:
    assert pressed(View(), "q", SHOWN) is None
    assert pressed(View(help=True), "q", SHOWN) is None
    assert after("/", "q", "x", "enter") == View(needle="qx")
    assert pressed(View(typing=True), "eof", SHOWN) is None


def test_tables_go_round() -> None:
    names = [after(*["tab"] * presses).table for presses in range(5)]
    assert names == ["", "Peers", "Streams", "Events", ""]
    assert after("left").table == after("back tab").table == "Events"
    assert after("3").table == "Streams"
    assert after("9") == View()
    assert after("e").table == "Events"
    assert after("right", view=View("Gone")).table == "Peers"


def test_the_view_scrolls_within_the_table() -> None:
    events = View("Events")
    assert after("down", "down", "up", view=events).top == 1
    assert after("up", view=events).top == 0
    assert after("page down", view=events).top == 10
    assert after("end", view=events).top == 40
    assert after("end", "down", view=events).top == 40
    assert after("end", "home", view=events).top == 0
    assert after("end", "tab", view=events).top == 0
    assert after("down") == View("Peers", 1), "the first table, where all are shown"


def test_one_peer_after_the_other() -> None:
    assert [after(*["p"] * presses).peer for presses in range(4)] == ["", "aa", "bb", ""]
    assert after("p", view=View(peer="gone")).peer == "aa"


def test_a_filter_is_typed_mended_kept_and_ended() -> None:
    assert after("/", "a", "b", "backspace", "c").needle == "ac"
    assert after("/", "a", "enter", "down").needle == "a"
    assert after("/", "a", "escape") == View()
    assert after("/", "a", "enter", "escape") == View()
    assert after("/", "a", "up", "tab").needle == "a"
    assert len(after("/", *"x" * 300).needle) == FILTER_CHARACTERS


def test_help_is_shown_until_the_next_key() -> None:
    assert after("?").help
    assert after("?", "x") == View()


KEYS = st.sampled_from(["up", "down", "page up", "page down", "home", "end", "tab", "left", "p"])


@given(
    st.lists(KEYS | st.characters(), max_size=30),
    st.builds(Shown, st.just(("Peers",)), st.just(("a",)), st.integers(0, 9), st.integers(1, 9)),
)
def test_no_keys_lead_out_of_the_table(keys: list[str], shown: Shown) -> None:
    view: View | None = View()
    for key in keys:
        if view is not None:
            view = pressed(view, key, shown)
    assert view is None or 0 <= view.top <= max(0, shown.items - shown.page)


def test_keys_of_terminals() -> None:
    assert keys_in(b"q\x1b[A\x1b[B\x1bOC\x1b[5~\x1b[Z\t\r\x7f\x1b") == [
        "q",
        "up",
        "down",
        "right",
        "page up",
        "back tab",
        "tab",
        "enter",
        "backspace",
        "escape",
    ]
    assert keys_in("\xe9\x04".encode()) == ["\xe9", "eof"]
    assert keys_in(b"\x1b[200~\x1b[1;5A\xff\x00") == []


@given(st.binary(max_size=60))
def test_any_input_of_a_terminal_gives_printable_keys(data: bytes) -> None:
    assert all(key.isprintable() for key in keys_in(data))
