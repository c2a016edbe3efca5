"""The simulated network: trio's sockets, between machines that are named by their IPs.

A datagram or segment is an event of virtual time. Every arrival goes into a digest, so that two
runs of one seed can be compared.
"""

from __future__ import annotations

import errno
import hashlib
import random
import socket
import struct
from typing import Final, NoReturn

import trio

from medusa.testnet.virtual.clock import VirtualTime
from medusa.testnet.virtual.hosts import Machine, Process, running_process
from medusa.testnet.virtual.links import Links
from medusa.testnet.virtual.sockets import DatagramSocket, Listener, SimulatedSocket, StreamSocket
from medusa.testnet.virtual.tcp import Endpoint

SYN_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Linux's waits for the answer to a SYN, seconds; after the last one the connection times out."""


class Network(trio.abc.SocketFactory, trio.abc.HostnameResolver):
    """All machines and their network.

    Attributes:
        links: the weather between machines; may be changed at any time.
        machines: the machines, by IP.
        packets: number of arrived packets.
    """

    def __init__(self, time: VirtualTime, rng: random.Random) -> None:
        self.time = time
        self.links = Links(rng)
        self.machines: dict[str, Machine] = {}
        self.packets = 0
        self._hash = hashlib.sha256()
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._datagrams: dict[tuple[str, int], DatagramSocket] = {}

    def enable(self) -> None:
        """Replace every socket that trio makes in this run from now on."""
        trio.socket.set_custom_socket_factory(self)
        trio.socket.set_custom_hostname_resolver(self)

    def machine(self, ip: str) -> Machine:
        """The machine with that IP, created if missing."""
        return self.machines.setdefault(ip, Machine(ip))

    def is_up(self, ip: str) -> bool:
        machine = self.machines.get(ip)
        return machine is not None and machine.up

    def kill(self, process: Process, *, power: bool) -> None:
        """Kill a process: its kernel closes its sockets, unless its machine loses power."""
        process.alive = False
        if power:
            process.machine.up = False
        for each in list(process.sockets.values()):
            each.die(power=power)

    # -- trio's seam

    def socket(self, family: int, type_: int, proto: int) -> SimulatedSocket:  # type: ignore[override]
        process = running_process()
        if process is None or not process.alive:
            raise OSError(errno.ENETDOWN, "no process of the simulation may open a socket here")
        if family != socket.AF_INET:
            raise OSError(errno.EAFNOSUPPORT, "the simulated network has IPv4 alone")
        kind = StreamSocket if type_ == socket.SOCK_STREAM else DatagramSocket
        return kind(self, process, proto)

    async def getaddrinfo(self, *_: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "the simulated network has no names")

    async def getnameinfo(self, *_: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "the simulated network has no names")

    # -- ports

    def listen(self, address: tuple[str, int], listener: Listener) -> None:
        """
        Raises:
            OSError: the port is in use.
        """
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, "address already in use")
        self._listeners[address] = listener

    def bind_datagrams(self, address: tuple[str, int], bound: DatagramSocket) -> None:
        """
        Raises:
            OSError: the port is in use.
        """
        if address in self._datagrams:
            raise OSError(errno.EADDRINUSE, "address already in use")
        self._datagrams[address] = bound

    def forget(self, address: tuple[str, int], closed: object) -> None:
        """Free the port of a closed socket."""
        if self._listeners.get(address) is closed:
            del self._listeners[address]
        if self._datagrams.get(address) is closed:
            del self._datagrams[address]

    # -- packets

    def send_datagram(self, source: tuple[str, int], target: tuple[str, int], data: bytes) -> None:
        for arrival in self.links.arrivals(source[0], target[0], self.time.now):
            self.time.at(arrival, self._arrive, source, target, data)

    def _arrive(self, source: tuple[str, int], target: tuple[str, int], data: bytes) -> None:
        bound = self._datagrams.get(target)
        if bound is not None and not self.links.is_cut(source[0], target[0]):
            self.delivered("udp", source[0], target[0], len(data))
            bound.receive(data, source)

    def send_reset(self, source: Endpoint, target: Endpoint) -> None:
        """Send a reset, which is not repeated if it is lost."""

        def arrive() -> None:
            if not self.links.is_cut(source.ip, target.ip):
                self.delivered("rst", source.ip, target.ip, 0)
                target.reset()

        if not self.links.is_cut(source.ip, target.ip):
            arrival = self.links.segment_arrival(source.ip, target.ip, self.time.now)
            self.time.at(arrival, arrive)

    async def connect(self, endpoint: Endpoint, target: tuple[str, int]) -> None:
        """
        Open a connection from a new endpoint.

        Raises:
            OSError: refused, or there is no answer.
        """
        answer = _Answer(Endpoint(self, *target))
        answer.theirs.other, endpoint.other = endpoint, answer.theirs
        for pause in SYN_PAUSES_S:
            for arrival in self.links.arrivals(endpoint.ip, target[0], self.time.now)[:1]:
                self.time.at(arrival, self._greet, endpoint, target, answer)
            with trio.move_on_after(pause):
                await answer.here.wait()
                endpoint.check()
                if answer.refused:
                    raise OSError(errno.ECONNREFUSED, "connection refused")
                return
        raise OSError(errno.ETIMEDOUT, "connection timed out")

    def _greet(self, endpoint: Endpoint, target: tuple[str, int], answer: _Answer) -> None:
        """Handle a SYN."""
        ip = target[0]
        if self.links.is_cut(endpoint.ip, ip) or not self.is_up(ip):
            return
        self.delivered("syn", endpoint.ip, ip, 0)
        if not answer.accepted:
            listener = self._listeners.get(target)
            answer.accepted = listener is not None and listener.offer(answer.theirs)
            answer.refused = not answer.accepted
        for arrival in self.links.arrivals(ip, endpoint.ip, self.time.now)[:1]:
            self.time.at(arrival, self._answered, endpoint, answer)

    def _answered(self, endpoint: Endpoint, answer: _Answer) -> None:
        """Handle the answer to a SYN."""
        if self.links.is_cut(answer.theirs.ip, endpoint.ip) or not self.is_up(endpoint.ip):
            return
        self.delivered("ack", answer.theirs.ip, endpoint.ip, 0)
        if endpoint.closed and answer.accepted:
            self.send_reset(endpoint, answer.theirs)
        answer.here.set()

    # -- the digest, in which two runs of a seed must agree

    def delivered(self, kind: str, source: str, target: str, length: int) -> None:
        """Note that a packet has arrived, without its bytes: the bytes of TLS are random."""
        self.packets += 1
        text = f"{kind} {source} {target} {length}".encode()
        self._hash.update(struct.pack("<d", self.time.now) + text)

    def digest_text(self, line: str) -> None:
        """Note a line of the trace."""
        self._hash.update(line.encode())

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


class _Answer:
    """The answer to a TCP connection request (SYN). here: an event, set once the dialling side has
    the answer."""

    def __init__(self, theirs: Endpoint) -> None:
        self.theirs = theirs
        self.here = trio.Event()
        self.accepted = self.refused = False
