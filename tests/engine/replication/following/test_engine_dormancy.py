"""A follower may drop its copy only if the source has, and keeps, all tuples that may be needed
again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.schema import END
from medusa.engine.replication.following.dormancy import Dormancy, Keep, Look, Read, Sleep
from medusa.overlay.names import NO_PEER, PeerId

ONE, TWO = PeerId(b"1" * 20), PeerId(b"2" * 20)


def test_a_follower_sleeps_once_its_source_keeps_all_needed_tuples() -> None:
    dormancy = Dormancy()
    assert dormancy.handle(Look(NO_PEER, 5)) is None
    assert dormancy.handle(Look(ONE, 5)) == Keep(ONE)
    assert dormancy.handle(Look(ONE, 7)) is None  # the position is not reported yet
    assert dormancy.handle(Look(ONE, 7, held=9)) is None  # only this peer has the rows from 7 to 9
    assert dormancy.handle(Look(ONE, 9, held=9)) == Sleep(9)
    assert dormancy.handle(Look(ONE, 12)) == Sleep(12)
    assert dormancy.handle(Look(ONE, END)) is None  # the output has ended
    assert dormancy.handle(Look(NO_PEER, 15)) == Read(12)
    assert dormancy.handle(Look(NO_PEER, 15)) is None


def test_another_source_begins_anew() -> None:
    dormancy = Dormancy()
    dormancy.handle(Look(ONE, 5))
    assert dormancy.handle(Look(ONE, 5, held=5)) == Sleep(5)
    assert dormancy.handle(Look(TWO, 6)) == Read(5)
    assert dormancy.handle(Look(TWO, 6)) == Keep(TWO)


@given(st.lists(st.tuples(st.sampled_from([NO_PEER, ONE, TWO]), st.integers(0, 3), st.booleans())))
def test_rows_that_may_be_needed_are_here_or_at_the_source(
    looks: list[tuple[PeerId, int, bool]],
) -> None:
    """A model of both ends: the tuples here, and the boundary from which the source must have kept
    all."""
    dormancy, needed, now = Dormancy(), 0, 0
    here, held, asked = 0, END, END  # `here`: the beginning of the copy, or END if it has none
    for source, step, heard in looks:
        needed, now = needed + step, now + step
        held = asked if heard else held
        match dormancy.handle(Look(source, needed, held)):
            case Keep():
                asked, held = now, END
            case Sleep(boundary):
                assert here == END or held <= boundary
                assert boundary <= needed
                here, held = END, boundary
            case Read(after):
                assert after <= needed
                if here == END:
                    assert held <= after
                    here = after
                asked = held = END
            case None:
                pass
        assert here <= needed or held <= needed
