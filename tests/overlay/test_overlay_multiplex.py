"""The frame decoder and the multiplexer: any bytes, any cuts, credit, weights, limits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.overlay.encoding import encode as pack
from medusa.overlay.errors import BusyError, DecodeError
from medusa.overlay.frames import (
    HEADER,
    LIMIT,
    MAX_FRAME_BYTES,
    FrameDecoder,
    Kind,
    encode,
    encode_header,
)
from medusa.overlay.memory import Memory, Share
from medusa.overlay.multiplex import (
    CONNECTION_BYTES,
    MAX_CONTROL_FRAMES,
    MAX_STREAMS,
    STREAM_BYTES,
    Multiplexer,
)
from medusa.overlay.streams import WINDOW_BYTES, Changed, Opened, Opening, Stream


def pair(
    max_streams: int = MAX_STREAMS, memory: Share | None = None
) -> tuple[Multiplexer, Multiplexer]:
    """Give two connected multiplexers. memory: the memory of the second one."""
    return (
        Multiplexer(dialled=True, max_streams=max_streams),
        Multiplexer(dialled=False, max_streams=max_streams, memory=memory),
    )


def carry(source: Multiplexer, target: Multiplexer, budget: int = 2**18) -> list:
    """Move the bytes of one pull to the other side; return the events that this caused."""
    buffers, _ = source.pull(budget)
    data = b"".join(buffers)
    return target.receive(data) if data else []


def opened(left: Multiplexer, right: Multiplexer, weight: int = 16) -> tuple[Stream, Stream]:
    ours = left.open("m", weight)
    (event,) = [e for e in carry(left, right) if isinstance(e, Opened)]
    return ours, event.stream


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    parts, at = [], 0
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    return [*parts, data[at:]]


frames = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda kind, stream, payload: HEADER.pack(kind, stream, len(payload)) + payload,
        st.integers(0, 9),
        st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1)),
        st.one_of(
            st.binary(max_size=60),
            st.builds(lambda w: pack(Opening("m", w, "")), st.integers(-1, 300)),
            st.integers(0, 2**64 - 1).map(LIMIT.pack),
        ),
    ),
)


@given(data=st.lists(frames, max_size=12).map(b"".join), sizes=st.lists(st.integers(0, 30)))
@settings(max_examples=400)
def test_any_bytes_give_decode_error_only(data: bytes, sizes: list[int]) -> None:
    _, target = pair()
    try:
        for part in cut(data, sizes):
            target.receive(part)
    except DecodeError:
        return
    target.pull()


@given(
    sent=st.lists(st.tuples(st.sampled_from("DF"), st.binary(min_size=1, max_size=40)), max_size=8),
    sizes=st.lists(st.integers(0, 25), max_size=20),
)
def test_frames_survive_any_cut(sent: list[tuple[str, bytes]], sizes: list[int]) -> None:
    wire = b"".join(
        encode_header(3, len(p)) + p if k == "D" else encode(Kind.RESET, 3, p) for k, p in sent
    )
    decoder = FrameDecoder()
    got = [f for part in cut(wire, sizes) for f in decoder.feed(part)]
    assert b"".join(f.payload for f in got if f.kind is Kind.DATA) == b"".join(
        p for k, p in sent if k == "D"
    )
    assert [bytes(f.payload) for f in got if f.kind is Kind.RESET] == [
        p for k, p in sent if k == "F"
    ]


def test_a_frame_that_claims_2_gib_is_refused_by_its_header() -> None:
    with pytest.raises(DecodeError, match="2147483648"):
        FrameDecoder().feed(HEADER.pack(Kind.DATA, 1, 2**31))
    FrameDecoder().feed(HEADER.pack(Kind.DATA, 1, MAX_FRAME_BYTES))


operations = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.integers(1, 700_000)),
        st.tuples(st.just("carry"), st.integers(1, 300_000), st.lists(st.integers(1, 90_000))),
        st.tuples(st.just("read"), st.integers(0, 3), st.integers(1, 900_000)),
    ),
    max_size=60,
)


def flush(left: Multiplexer, right: Multiplexer, budget: int, sizes: list[int]) -> None:
    for source, target in ((left, right), (right, left)):
        for part in cut(b"".join(source.pull(budget)[0]), sizes):
            target.receive(part)


@given(operations=operations)
@settings(max_examples=120)
def test_streams_arrive_intact_in_order_and_within_credit(operations: list) -> None:
    left, right = pair()
    streams = [opened(left, right, weight) for weight in (1, 4, 16, 256)]
    sent, got = [bytearray() for _ in streams], [bytearray() for _ in streams]

    def read(index: int, size: int) -> None:
        theirs = streams[index][1]
        size = min(size, len(sent[index]) - len(got[index]))
        if right.inbox.want(theirs, size):
            got[index].extend(right.inbox.take(theirs, size))

    for name, first, second in operations:
        if name == "send":
            data = bytes([len(sent[first]) % 251]) * second
            sent[first] += data
            left.send(streams[first][0], data[:3], memoryview(data)[3:])
        elif name == "carry":
            flush(left, right, first, second)
        else:
            read(first, second)
        assert all(theirs.unread <= WINDOW_BYTES for _, theirs in streams)
    for ours, _ in streams:
        left.finish(ours)
    for _ in range(200):
        flush(left, right, 2**20, [7, 50_000])
        for index in range(4):
            read(index, 2**30)
    assert got == sent
    assert all(theirs.ended and not theirs.unread for _, theirs in streams)


def test_a_reader_that_stops_stops_its_writer_after_one_window() -> None:
    left, right = pair()
    ours, theirs = opened(left, right)
    left.send(ours, bytes(3 * WINDOW_BYTES))
    while left.pending or right.pending:
        flush(left, right, 2**20, [])
    assert theirs.unread == WINDOW_BYTES
    assert right.inbox.want(theirs, 1000)
    right.inbox.take(theirs, WINDOW_BYTES)
    while left.pending or right.pending:
        flush(left, right, 2**20, [])
    assert theirs.unread == WINDOW_BYTES


def test_a_message_longer_than_a_window_arrives() -> None:
    left, right = pair()
    ours, theirs = opened(left, right)
    size = 5 * WINDOW_BYTES
    left.send(ours, bytes(size))
    assert not right.inbox.want(theirs, size)
    events = []
    while left.pending or right.pending:
        events += carry(left, right)
        carry(right, left)
    assert events == [Changed(theirs)]
    assert len(right.inbox.take(theirs, size)) == size


def test_weights_share_the_wire() -> None:
    left, right = pair()
    heavy, heavy_there = opened(left, right, 12)
    light, light_there = opened(left, right, 4)
    for stream in (light, heavy):
        left.send(stream, bytes(WINDOW_BYTES))
    for _ in range(4):
        carry(left, right, 2**18)
    share = heavy_there.unread / light_there.unread
    assert 2.4 <= share <= 4


def test_a_small_call_overtakes_fat_streams() -> None:
    left, right = pair()
    fat = [opened(left, right, 16) for _ in range(5)]
    for ours, _ in fat:
        left.send(ours, bytes(WINDOW_BYTES))
    for _ in range(10):
        carry(left, right)
    small = left.open("small", 16)
    left.send(small, b"x" * 100)
    wire = b"".join(left.pull(1)[0]) + b"".join(left.pull(2**18 + 2**17)[0])
    streams = [f.stream for f in FrameDecoder().feed(wire) if f.kind is Kind.DATA]
    assert small.number in streams[: len(fat) + 1]


def test_control_goes_before_data() -> None:
    left, right = pair()
    ours, _ = opened(left, right)
    left.send(ours, bytes(2**20))
    left.ping()
    frames = FrameDecoder().feed(b"".join(left.pull()[0]))
    assert frames[0].kind is Kind.PING


def test_one_stream_too_many_is_busy() -> None:
    left, right = pair(max_streams=2)
    left._max_streams = 3  # the caller ignores the limit
    third = [left.open("m", 1) for _ in range(3)][-1]
    events = carry(left, right)
    assert len([e for e in events if isinstance(e, Opened)]) == 2
    carry(right, left)
    assert third.failure is not None
    assert third.failure.code == BusyError.code
    left.open("m", 1)
    with pytest.raises(BusyError, match="3 calls"):
        left.open("m", 1)


def test_streams_are_given_back() -> None:
    left, right = pair(max_streams=1)
    for number in range(5):
        ours, theirs = opened(left, right)
        left.send(ours, b"request")
        left.finish(ours)
        carry(left, right)
        assert right.inbox.take(theirs, 7) == b"request"
        if number % 2:
            right.finish(theirs)
        else:
            right.reset(theirs, "busy", "no")
        carry(right, left)
        assert ours.over
        assert theirs.over
    assert not left.streams
    assert not right.streams


@pytest.mark.parametrize(
    "wire",
    [
        encode_header(1, 1) + b"x",
        encode(Kind.FINISH, 1),
        encode(Kind.OPEN, 2, pack(Opening("m", 1, ""))),
        encode(Kind.OPEN, 1, pack(Opening("m", 0, ""))),
        encode(Kind.OPEN, 1, pack(Opening("m", 1, ""))) * 2,
        encode(Kind.OPEN, 1, pack(Opening("m", 1, ""))) + encode(Kind.FINISH, 1) * 2,
        encode(Kind.OPEN, 1, pack(Opening("m", 1, "")))
        + (encode_header(1, MAX_FRAME_BYTES) + bytes(MAX_FRAME_BYTES)) * 9,
        encode(Kind.OPEN, 1, pack(Opening("m", 1, "")))
        + encode(Kind.CREDIT, 1, LIMIT.pack(2**64 - 1)),
    ],
    ids=["unopened", "unopened-end", "parity", "weight", "twice", "end-twice", "credit", "huge"],
)
def test_protocol_faults_are_decode_errors(wire: bytes) -> None:
    _, right = pair()
    with pytest.raises(DecodeError):
        right.receive(wire)


def test_a_peer_that_never_reads_our_answers_is_given_up() -> None:
    _, right = pair(max_streams=1)
    opens = [encode(Kind.OPEN, n, pack(Opening("m", 1, ""))) for n in range(1, 2 * 4200, 2)]
    assert len(opens) > MAX_CONTROL_FRAMES
    with pytest.raises(DecodeError, match="control frames"):
        right.receive(b"".join(opens))
    right = Multiplexer(dialled=False)
    right.receive(encode(Kind.PING, 0) * 100_000)
    assert right.pull()[0] == [encode(Kind.PONG, 0)]


def test_tiny_frames_cost_their_bytes_only() -> None:
    left, right = pair()
    _, theirs = opened(left, right)
    for _ in range(1000):
        right.receive(encode_header(1, 1) + b"x")
    assert len(theirs.inbox) == 1
    assert right.inbox.take(theirs, 600) == b"x" * 600
    assert right.inbox.take(theirs, 400) == b"x" * 400


def fill(left: Multiplexer, right: Multiplexer, size: int = WINDOW_BYTES) -> Stream:
    """Send bytes that the other side does not read; return the sender's stream."""
    ours, _ = opened(left, right)
    left.send(ours, bytes(size))
    while left.pending:
        carry(left, right)
    carry(right, left)
    return ours


def test_unread_bytes_of_all_streams_together_are_limited() -> None:
    memory = Memory(limit=5 * WINDOW_BYTES)  # memory of which one participant may use half
    left, right = pair(memory=memory.share("utah.edu"))
    failures = [f.code for _ in range(3) if (f := fill(left, right).failure) is not None]
    assert failures == [BusyError.code]
    assert sum(theirs.unread for theirs in right.streams) == 2 * WINDOW_BYTES
    right.written()
    assert memory.held == 2 * WINDOW_BYTES + CONNECTION_BYTES + 2 * STREAM_BYTES


def test_participants_share_one_memory_and_leave_room_for_another() -> None:
    memory = Memory(limit=10 * WINDOW_BYTES + WINDOW_BYTES // 4)
    sides = []
    for number in range(4):
        left, right = pair(memory=memory.share(f"p{number}.edu"))
        sides.append(right)
        streams = [fill(left, right) for _ in range(5)]
        right.written()
        held = [4, 2, 1, 1][number]
        assert [s.failure is None for s in streams] == [True] * held + [False] * (5 - held)
        assert memory.held < memory.limit
    before = memory.held
    right.break_all("gone", closed_here=True)
    assert before - memory.held == WINDOW_BYTES + CONNECTION_BYTES + STREAM_BYTES
    for side in sides:
        side.break_all("gone", closed_here=True)
    assert memory.held == 0


def test_all_connections_of_a_participant_hold_as_much_as_one() -> None:
    memory = Memory(limit=10 * WINDOW_BYTES)
    share = memory.share("utah.edu")
    connections = [pair(memory=share) for _ in range(5)]
    streams = [fill(*each) for each in connections * 2]
    assert sum(stream.failure is None for stream in streams) == 4
    for _, right in connections:
        right.break_all("gone", closed_here=True)
    assert memory.held == 0


def test_queued_bytes_of_all_streams_together_are_limited() -> None:
    memory = Memory(limit=2 * CONNECTION_BYTES + 2000)
    left, right = Multiplexer(dialled=True, memory=memory.share("utah.edu")), pair()[1]
    streams = [opened(left, right)[0] for _ in range(3)]
    for stream in streams:
        left.send(stream, bytes(400))
    assert [stream.over for stream in streams] == [False, False, True]
    assert streams[2].failure is not None
    assert streams[2].failure.code == BusyError.code
    carry(left, right)
    left.written()
    left.send(streams[0], bytes(900))
    assert not streams[0].over


def test_a_message_counts_until_its_reader_takes_the_next() -> None:
    left, right = pair()
    ours, theirs = opened(left, right)
    idle = right._account.held
    left.send(ours, bytes(1000))
    carry(left, right)
    assert right.inbox.want(theirs, 1000)
    right.inbox.take(theirs, 1000)
    right.inbox.hand_over(theirs, 1000)
    assert right._account.held == idle + 1000
    right.inbox.hand_over(theirs, 10)
    assert right._account.held == idle + 10
    right.inbox.discard(theirs)
    assert right._account.held == idle


def test_unread_answers_count() -> None:
    left, right = pair()
    idle = right._account.held
    for _ in range(100):
        _, theirs = opened(left, right)
        right.reset(theirs, "not_found", "there is no such method")
    assert right._account.held > idle + 100 * 20
    right.pull()
    assert right._account.held > idle + 100 * 20, "they are on their way"
    right.written()
    assert right._account.held == idle


def test_calls_are_refused_where_their_participant_holds_too_much() -> None:
    memory = Memory(limit=2 * (CONNECTION_BYTES + 2 * STREAM_BYTES))
    left, right = pair(memory=memory.share("utah.edu"))
    calls = [opened(left, right)[0] for _ in range(2)]
    third = left.open("m", 16)
    carry(left, right)
    carry(right, left)
    assert [call.over for call in calls] == [False, False]
    assert third.failure is not None
    assert third.failure.code == BusyError.code


def test_messages_of_the_least_pass_however_many_connections_their_participant_has() -> None:
    memory = Memory(limit=4 * CONNECTION_BYTES, least=1000)
    left, right = pair(memory=memory.share("utah.edu"))
    ours, theirs = opened(left, right)
    others = [Multiplexer(dialled=False, memory=memory.share("utah.edu")) for _ in range(3)]
    left.send(ours, bytes(900))
    carry(left, right)
    assert right.inbox.want(theirs, 900)
    right.send(theirs, bytes(50))
    assert not theirs.over
    right.send(theirs, bytes(100))
    assert theirs.over, "more than the least"
    for side in (right, *others):
        side.break_all("gone", closed_here=True)
    assert memory.held == memory.share("utah.edu").flat == 0


def test_a_small_part_of_a_read_does_not_keep_the_whole_alive() -> None:
    left, right = pair()
    kept = [opened(left, right)[1] for _ in range(2)]
    right.inbox.discard(kept[1])
    frame = encode_header(kept[0].number, 8 * 2**10) + bytes(8 * 2**10)
    noise = encode_header(kept[1].number, 200 * 2**10) + bytes(200 * 2**10)
    right.receive(frame + noise)
    alive = {
        id(part.obj): memoryview(part.obj).nbytes
        for part in kept[0].inbox
        if isinstance(part, memoryview)
    }
    assert sum(alive.values()) <= 2 * kept[0].unread


def test_a_read_is_kept_without_a_copy_if_most_of_its_bytes_are_of_one_call() -> None:
    left, right = pair()
    _, theirs = opened(left, right)
    sizes = (100 * 2**10, 40 * 2**10, 8 * 2**10)
    right.receive(b"".join(encode_header(theirs.number, size) + bytes(size) for size in sizes))
    assert [type(part) for part in theirs.inbox] == [memoryview] * 3
    right.receive(b"".join(encode_header(theirs.number, 1) + b"x" for _ in range(100)))
    assert len(theirs.inbox) == 4, "views of single bytes would take much more than they"


def test_data_for_an_answered_call_are_dropped_and_not_counted() -> None:
    left, right = pair()
    ours, theirs = opened(left, right)
    right.inbox.discard(theirs)
    left.send(ours, bytes(2 * WINDOW_BYTES))
    while left.pending:
        carry(left, right)
    assert theirs.unread == 0
    right.written()
    assert right._account.held == CONNECTION_BYTES + STREAM_BYTES
    assert not right.pending  # unread bytes give no credit
