"""Nexmark's events: persons who join an online auction, auctions that they open, bids on them.

The shape of the stream is that of the generator of nexmark/nexmark (the classes GeneratorConfig,
PersonGenerator, AuctionGenerator, BidGenerator and NexmarkConfiguration), which descends from
Apache Beam's: of 50 events in a row one is a person, three are auctions, 46 are bids. The number of
an event gives its kind, its id and its time; chance gives the rest. Bids prefer hot auctions and
hot bidders, auctions prefer hot sellers. Some events name a person or an auction that comes only a
little later.

Three things differ. A seed makes the same events on every run. Times are exact to the microsecond
instead of the millisecond, so up to a million events a second no two share a time, and "the last
bid" is one bid. The out-of-order groups are left out: the tables are sorted by time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from medusa.testnet.nexmark.texts import Integers, fillers, texts

START_US: Final = 1_436_918_400_000_000
"""2015-07-15 00:00:00 UTC, microseconds: fixed, so that a seed gives the same events on any day."""

EVENTS_PER_S: Final = 10_000
"""The number of events in a second of event time (Nexmark's first-event.rate)."""

PERSONS, AUCTIONS, BIDS = 1, 3, 46
"""The numbers of events of each kind among ROUND consecutive events, in this order."""
ROUND: Final = PERSONS + AUCTIONS + BIDS

FIRST_PERSON: Final = 1_000
FIRST_AUCTION: Final = 1_000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5

HOT_AUCTION_SHARE: Final = 1 / 2
"""The share of bids that go to the hot auction: the first of the last hundred."""
HOT_SELLER_SHARE: Final = 3 / 4
"""The share of auctions that the hot seller opens: the first of the last hundred persons."""
HOT_BIDDER_SHARE: Final = 3 / 4
"""The share of bids by the hot bidder: the second of the last hundred persons."""
HOT_EVERY: Final = 100

IN_FLIGHT: Final = 100
"""The number of the newest auctions to which bids go that do not go to the hot auction; they also
go to the next LEAD auctions, which come later."""
ACTIVE: Final = 1_000
"""The number of the newest persons who sell and bid beside the hot ones; the next LEAD persons, who
come later, do so as well."""
LEAD: Final = 10

PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
"""The average size of an event of each kind; `extra` fills it up."""

HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
"""Half of the bids come by one of these, without a channel_id in their url."""
CHANNELS: Final = 10_000
"""The other channels; nine of ten have a channel_id in their url."""

STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES: Final = ("Tucson", "Fresno", "Nampa", "Salem", "Eugene", "Tacoma", "Olympia", "Laramie")
FIRST_NAMES: Final = ("Ada", "Boris", "Clara", "Dmitri", "Edith", "Frank", "Grace", "Hugo", "Ines")
LAST_NAMES: Final = ("Adler", "Brandt", "Costa", "Dahl", "Evans", "Fischer", "Grant", "Holm")

BLOCK: Final = 50_000
"""Events that one random generator makes: the seed and the block's number seed it, so a stream is
the beginning of every longer one of its seed. A multiple of ROUND."""

_TIME: Final = pa.timestamp("us", "UTC")

PERSON: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("emailAddress", pa.string()),
        ("creditCard", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("dateTime", _TIME),
        ("extra", pa.string()),
    ]
)
AUCTION: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("itemName", pa.string()),
        ("description", pa.string()),
        ("initialBid", pa.int64()),
        ("reserve", pa.int64()),
        ("dateTime", _TIME),
        ("expires", _TIME),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("extra", pa.string()),
    ]
)
BID: Final = pa.schema(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("url", pa.string()),
        ("dateTime", _TIME),
        ("extra", pa.string()),
    ]
)


@dataclass(frozen=True)
class Events:
    """The three tables of a stretch of the stream, each ascending by `dateTime`."""

    person: pa.Table
    auction: pa.Table
    bid: pa.Table


def generate(seed: int, events: int, events_per_s: int = EVENTS_PER_S) -> Events:
    """The first events of a seed's stream, whole in memory: a million bids take about 200 MB.

    Args:
        seed: the same seed gives the same events.
        events: the number of persons, auctions and bids together.
        events_per_s: events in a second of event time, at most a million.

    Raises:
        ValueError: a number is out of its range.
    """
    parts = list(blocks(seed, events, events_per_s))
    return Events(
        person=pa.concat_tables([PERSON.empty_table(), *(part.person for part in parts)]),
        auction=pa.concat_tables([AUCTION.empty_table(), *(part.auction for part in parts)]),
        bid=pa.concat_tables([BID.empty_table(), *(part.bid for part in parts)]),
    )


def blocks(seed: int, events: int, events_per_s: int = EVENTS_PER_S) -> Iterator[Events]:
    """The events of `generate` in parts of BLOCK events, in order, for streams that do not fit into
    memory.

    Raises:
        ValueError: a number is out of its range.
    """
    if seed < 0 or events < 0:
        raise ValueError(f"seed {seed} and events {events} must not be negative")
    if not 0 < events_per_s <= 1_000_000:
        raise ValueError(f"events_per_s is {events_per_s}; give 1 to 1000000")
    channels = _Channels(seed)
    for first in range(0, events, BLOCK):
        yield _block(seed, first, min(BLOCK, events - first), events_per_s, channels)


class _Channels:
    """The channels of bids, with their urls; the hot ones come first."""

    def __init__(self, seed: int) -> None:
        rng = _rng(seed, "channels")
        count = len(HOT_CHANNELS) + CHANNELS
        folders = [texts(rng, count, 5, gap="_") for _ in range(3)]
        page = "item.htm?query=1"
        self.urls = pc.binary_join_element_wise(
            "https://auction.example", *folders, self._pages(rng, page), "/"
        )
        self.names = pa.array([*HOT_CHANNELS, *(f"channel-{n}" for n in range(CHANNELS))])

    @staticmethod
    def _pages(rng: np.random.Generator, page: str) -> pa.Array:
        marked = rng.random(CHANNELS) < 0.9
        # the bits of the number in reverse: ids that do not look like a sequence
        ids = (int(f"{number:032b}"[::-1], 2) for number in range(CHANNELS))
        others = (
            f"{page}&channel_id={name}" if mark else page
            for name, mark in zip(ids, marked, strict=True)
        )
        return pa.array([page] * len(HOT_CHANNELS) + list(others))

    def draw(self, rng: np.random.Generator, rows: int) -> Integers:
        """Indices into `names` and `urls`."""
        hot = rng.integers(0, len(HOT_CHANNELS), rows)
        other = len(HOT_CHANNELS) + rng.integers(0, CHANNELS, rows)
        return np.where(rng.random(rows) < 1 / 2, hot, other)


def _rng(seed: int, *words: str | int) -> np.random.Generator:
    """A separate random generator for each purpose, so that the size of one table does not change
    another's values."""
    return np.random.default_rng([seed, zlib.crc32(repr(words).encode())])


def _block(seed: int, first: int, count: int, rate: int, channels: _Channels) -> Events:
    """A block of events. The whole block is made and then cut, so that its length does not change
    its values."""
    numbers = np.arange(first, first + BLOCK, dtype=np.int64)
    kind = numbers % ROUND
    persons = kind < PERSONS
    bids = kind >= PERSONS + AUCTIONS
    auctions = ~persons & ~bids
    person = _persons(_rng(seed, "person", first), numbers[persons], rate)
    auction = _auctions(_rng(seed, "auction", first), numbers[auctions], rate)
    bid = _bids(_rng(seed, "bid", first), numbers[bids], rate, channels)
    return Events(
        person=person.slice(0, int(persons[:count].sum())),
        auction=auction.slice(0, int(auctions[:count].sum())),
        bid=bid.slice(0, int(bids[:count].sum())),
    )


def _times_us(numbers: Integers, events_per_s: int) -> Integers:
    return START_US + numbers * 1_000_000 // events_per_s


def _last_person(numbers: Integers) -> Integers:
    """The number of the last person at each event, from 0. If the event is a person, it is the last
    one itself."""
    return numbers // ROUND


def _last_auction(numbers: Integers) -> Integers:
    """The number of the last auction at each event, from 0; -1: there is none yet. If the event is
    an auction, it is the last one itself."""
    kind = numbers % ROUND
    so_far = np.clip(kind - PERSONS + 1, 0, AUCTIONS)
    return numbers // ROUND * AUCTIONS + so_far - 1


def _active_person(rng: np.random.Generator, numbers: Integers) -> Integers:
    known = _last_person(numbers) + 1
    active = np.minimum(known, ACTIVE)
    return known - active + rng.integers(0, active + LEAD)


def _open_auction(rng: np.random.Generator, numbers: Integers) -> Integers:
    last = _last_auction(numbers)
    oldest = np.maximum(last - IN_FLIGHT, 0)
    return oldest + rng.integers(0, last - oldest + 1 + LEAD)


def _prices(rng: np.random.Generator, rows: int) -> Integers:
    """Prices in cents, from 100 to 100 million: each power of ten is equally likely."""
    prices: Integers = np.rint(np.power(10.0, rng.random(rows) * 6) * 100).astype(np.int64)
    return prices


def _chosen(rng: np.random.Generator, rows: int, values: tuple[str, ...]) -> pa.Array:
    return pa.array(values).take(pa.array(rng.integers(0, len(values), rows)))


def _bytes(*columns: pa.Array) -> Integers:
    """For each row, the total bytes of its texts."""
    lengths = (np.asarray(pc.binary_length(column)) for column in columns)
    total: Integers = np.sum(list(lengths), axis=0, dtype=np.int64)
    return total


def _persons(rng: np.random.Generator, numbers: Integers, events_per_s: int) -> pa.Table:
    rows = len(numbers)
    first, last = _chosen(rng, rows, FIRST_NAMES), _chosen(rng, rows, LAST_NAMES)
    name = pc.binary_join_element_wise(first, last, " ")
    host = pc.binary_join_element_wise(texts(rng, rows, 5, gap="_"), "com", ".")
    email = pc.binary_join_element_wise(texts(rng, rows, 7, gap="_"), host, "@")
    groups = [pa.array(rng.integers(10_000, 20_000, rows)).cast(pa.string()) for _ in range(4)]
    four = [pc.utf8_slice_codeunits(group, 1) for group in groups]
    card = pc.binary_join_element_wise(*four, " ")
    city, state = _chosen(rng, rows, CITIES), _chosen(rng, rows, STATES)
    extra = fillers(rng, 8 + _bytes(name, email, card, city, state), PERSON_BYTES)
    times = _times_us(numbers, events_per_s)
    ids = FIRST_PERSON + _last_person(numbers)
    return _table(PERSON, [ids, name, email, card, city, state, times, extra])


def _auctions(rng: np.random.Generator, numbers: Integers, events_per_s: int) -> pa.Table:
    rows = len(numbers)
    hot = _last_person(numbers) // HOT_EVERY * HOT_EVERY
    is_hot = rng.random(rows) < HOT_SELLER_SHARE
    seller = FIRST_PERSON + np.where(is_hot, hot, _active_person(rng, numbers))
    initial = _prices(rng, rows)
    reserve = initial + _prices(rng, rows)
    times = _times_us(numbers, events_per_s)
    # on average an auction lasts until IN_FLIGHT more have begun
    ahead = _times_us(numbers + IN_FLIGHT * ROUND // AUCTIONS, events_per_s) - times
    expires = times + 1_000 * (1 + rng.integers(0, np.maximum(2 * ahead // 1_000, 1)))
    item, description = texts(rng, rows, 20), texts(rng, rows, 100)
    category = FIRST_CATEGORY + rng.integers(0, CATEGORIES, rows)
    extra = fillers(rng, 48 + _bytes(item, description), AUCTION_BYTES)
    ids = FIRST_AUCTION + _last_auction(numbers)
    columns = [ids, item, description, initial, reserve, times, expires, seller, category, extra]
    return _table(AUCTION, columns)


def _bids(
    rng: np.random.Generator, numbers: Integers, events_per_s: int, channels: _Channels
) -> pa.Table:
    rows = len(numbers)
    hot = _last_auction(numbers) // HOT_EVERY * HOT_EVERY
    is_hot = rng.random(rows) < HOT_AUCTION_SHARE
    auction = FIRST_AUCTION + np.where(is_hot, hot, _open_auction(rng, numbers))
    # the hot bidder is the second of the last hundred persons; the first one is the hot seller
    hot = _last_person(numbers) // HOT_EVERY * HOT_EVERY + 1
    is_hot = rng.random(rows) < HOT_BIDDER_SHARE
    bidder = FIRST_PERSON + np.where(is_hot, hot, _active_person(rng, numbers))
    price = _prices(rng, rows)
    drawn = pa.array(channels.draw(rng, rows))
    extra = fillers(rng, np.full(rows, 32, dtype=np.int64), BID_BYTES)
    times = _times_us(numbers, events_per_s)
    name, url = channels.names.take(drawn), channels.urls.take(drawn)
    return _table(BID, [auction, bidder, price, name, url, times, extra])


def _table(schema: pa.Schema, columns: list[Integers | pa.Array]) -> pa.Table:
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column).cast(field.type)
        for field, column in zip(schema, columns, strict=True)
    ]
    return pa.table(arrays, schema=schema)
