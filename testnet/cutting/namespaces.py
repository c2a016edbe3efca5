"""Links that the kernel cuts: each peer in a network namespace of its own. Needs root and `ip`.

A hub namespace has one bridge, with a port for each peer and one for this process and its clients,
which see the peers' client ports at the peers' IPs. (With a bridge among the machine's own
interfaces, packets would pass the machine's firewall.)

A cut from A to B is a fixed neighbour entry at A that maps B's IP to the MAC of no machine. Tried
on veths, with a datagram and a dial, against the other ways without further tools or modules:

    fixed neighbour entry   sent and lost, dials hang; one direction between two peers
    other end's link down   the same, but of all directions of that peer
    own link down           ENETUNREACH at once
    blackhole route         EINVAL at once
    unreachable route       EHOSTUNREACH at once

`tc netem`, nftables, iptables and ebtables would work; kernels and machines often lack them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

from medusa.overlay.errors import UnavailableError
from medusa.testnet.cutting import Cut
from medusa.testnet.kit.peers import Launch

PREFIX: Final = "medusanet"
"""The prefix of all names made here; a slot's number follows: at most 15 characters."""

SLOTS: Final = 256
"""Testnets at once on this machine."""

NETWORK: Final = "198.18.{slot}"
"""The first three bytes of the IPs of a slot, from the range for measurements (RFC 2544)."""

MOST_PEERS: Final = 250

MAC: Final = "02:4d:4e:{slot:02x}:00:{number:02x}"
NOBODY: Final = "02:4d:4e:ff:ff:ff"

WITHOUT: Final = "or do without --netns: then links are cut inside the peers"


class Namespaces:
    """The hub and the namespaces of one slot.

    Attributes:
        slot: distinguishes their names and IPs from those of other testnets.
    """

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self._numbers: dict[str, int] = {}
        self._cuts: frozenset[Cut] = frozenset()

    def host(self, peer: str) -> str:
        """The IP of that peer."""
        return f"{NETWORK.format(slot=self.slot)}.{self._numbers[peer] + 1}"

    def namespace(self, peer: str) -> str:
        """The name of that peer's namespace, as `ip netns` knows it."""
        return _namespace(self.slot, self._numbers[peer])

    async def set_up(self) -> None:
        """Make the hub and our own link to it."""
        hub, ours = _namespace(self.slot, "hub"), _link(self.slot)
        await _ip("netns", "add", hub)
        await _configure(hub, "link add bridge type bridge", "link set bridge up")
        await _ip("link", "add", ours, "type", "veth", "peer", "name", "testnet", "netns", hub)
        await _configure(hub, "link set testnet master bridge up")
        await _ip("address", "add", f"{NETWORK.format(slot=self.slot)}.1/24", "dev", ours)
        await _ip("link", "set", ours, "up")

    async def launch(self, peer: str) -> Launch:
        if len(self._numbers) == MOST_PEERS:
            raise UnavailableError(f"--netns: there is room for {MOST_PEERS} peers; {WITHOUT}")
        number = self._numbers[peer] = len(self._numbers) + 1
        namespace, host = self.namespace(peer), self.host(peer)
        await _ip("netns", "add", namespace)
        await _configure(
            _namespace(self.slot, "hub"),
            f"link add peer{number} type veth peer name eth0 "
            f"address {self._mac(peer)} netns {namespace}",
            f"link set peer{number} master bridge up",
        )
        await _configure(
            namespace, "link set lo up", f"address add {host}/24 dev eth0", "link set eth0 up"
        )
        await self.lose(self._cuts)  # so that the others learn its MAC address
        return Launch(
            f"{host}:0",
            prefix=("ip", "netns", "exec", namespace),
            config=f'\n[client]\nlisten = "{host}:0"\n',
        )

    async def lose(self, cuts: Collection[Cut]) -> None:
        self._cuts = frozenset(cuts)
        for source in self._numbers:
            entries = []
            for target in self._numbers:
                mac = NOBODY if Cut(source, target) in self._cuts else self._mac(target)
                if source != target:
                    entries.append(
                        f"neighbour replace {self.host(target)} lladdr {mac} nud permanent dev eth0"
                    )
            await _configure(self.namespace(source), *entries)

    def _mac(self, peer: str) -> str:
        return MAC.format(slot=self.slot, number=self._numbers[peer])


@asynccontextmanager
async def open_namespaces() -> AsyncIterator[Namespaces]:
    """Namespaces until the block ends; processes left in them are killed.

    Raises:
        UnavailableError: not root, no `ip`, or not allowed; names the thing and the mend.
    """
    if shutil.which("ip") is None:
        raise UnavailableError(f"--netns needs the command `ip`: install iproute2, {WITHOUT}")
    if os.geteuid() != 0:
        raise UnavailableError(f"--netns needs root: run it as root, {WITHOUT}")
    await _take_down_left()
    slot, held = _claim()
    with held:
        namespaces = Namespaces(slot)
        try:
            await namespaces.set_up()
            yield namespaces
        finally:
            with trio.CancelScope(shield=True):
                await _take_down(slot)


def _claim() -> tuple[int, socket.socket]:
    """A free slot; it is ours as long as the socket is open."""
    for slot in range(SLOTS):
        if (held := _hold(slot)) is not None:
            return slot, held
    raise UnavailableError(f"--netns: {SLOTS} testnets run on this machine; end one, {WITHOUT}")


def _hold(slot: int) -> socket.socket | None:
    """Take an abstract socket's name: one process can have it, and it is free when that process
    dies."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0{PREFIX}{slot}")
    except OSError:
        held.close()
        return None
    return held


async def _take_down_left() -> None:
    """Remove the namespaces of killed runs."""
    for slot in {_slot(name) for name in await _namespaces()}:
        if slot is not None and (held := _hold(slot)) is not None:
            with held:
                await _take_down(slot)


async def _take_down(slot: int) -> None:
    for name in await _namespaces():
        if _slot(name) == slot:
            for pid in (await _ip("netns", "pids", name)).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            await _ip("netns", "delete", name)
    # the kernel removes a namespace some time later, but a link at once
    if _link(slot) in {name for _, name in socket.if_nameindex()}:
        with suppress(UnavailableError):  # the link may have been removed with the hub
            await _ip("link", "delete", _link(slot))


def _link(slot: int) -> str:
    return f"{PREFIX}{slot}"


def _namespace(slot: int, what: object) -> str:
    return f"{PREFIX}{slot}-{what}"


def _slot(namespace: str) -> int | None:
    """The slot of a namespace, if it is one of ours."""
    found = re.fullmatch(rf"{PREFIX}(\d+)-(hub|\d+)", namespace)
    return int(found[1]) if found else None


async def _namespaces() -> list[str]:
    """The names of all namespaces, others' included."""
    return [line.split()[0] for line in (await _ip("netns", "list")).splitlines() if line]


async def _configure(namespace: str, *lines: str) -> None:
    await _ip("-netns", namespace, "-batch", "-", lines="\n".join(lines))


async def _ip(*arguments: str, lines: str = "") -> str:
    """Run `ip`; returns its output.

    Raises:
        UnavailableError: it failed.
    """
    done = await trio.run_process(
        ["ip", *arguments],
        stdin=lines.encode(),
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise UnavailableError(
            f"--netns: `{' '.join(('ip', *arguments))}` failed: {said}; it needs CAP_NET_ADMIN "
            f"and CAP_SYS_ADMIN, {WITHOUT}"
        )
    return done.stdout.decode()
