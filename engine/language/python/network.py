"""The query that makes some streams: its boxes in order, with the names of its streams."""

from __future__ import annotations

from medusa.engine.expressions.spans import Span, span_us
from medusa.engine.language.check import completed
from medusa.engine.language.python.building import Step, Stream, step_of
from medusa.engine.objects.availability import requested
from medusa.engine.objects.query import Box, Query
from medusa.engine.objects.schema import BEGINNING, END
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import ObjectName


def query(
    name: str,
    *streams: Stream,
    ha: str | None = None,
    recovery: str | None = None,
    bound: Span | None = None,
    checkpoint: Span | None = None,
    secondary: str | None = None,
    after: int = BEGINNING,
    until: int = END,
    version: int = 0,
) -> Query:
    """The query that makes the streams, as `create_query` takes it.

    Its fields and types are checked when it is created: only the catalog knows the streams.

    Args:
        name: `medusa://participant/path`; streams without a name get one that begins so.
        streams: its outputs.
        ha, recovery: a mode and a recovery, as `"active_standby"` and `"precise"`.
        bound, checkpoint: lengths of time, like `"2 seconds"`. secondary: a peer's id.
        after, until: boundaries, microseconds: it reads its inputs between them.
        version: 0; of a copy, one more than the original's.

    Raises:
        InvalidInputError: the network's shape is wrong, a stream has two names, or the availability
            is more than its boxes allow.
    """
    network = _Network(str(ObjectName.parse(name)))
    for each in streams:
        network.note(each)
    boxes = network.boxes()
    made = {each for box in boxes for each in box.outputs}
    outputs = [network.name_of(each) for each in streams]
    read = {each for box in boxes for each in box.inputs}
    for output in outputs:
        if output not in made:
            raise InvalidInputError(f"query {name}: it does not make {output}: say .union() of it")
    found = Query(
        network.name,
        boxes,
        tuple(dict.fromkeys(each for each in outputs if each in read)),
        readers=network.readers(),
    )
    bound_us, checkpoint_us = (
        None if each is None else span_us(each) for each in (bound, checkpoint)
    )
    request = requested(ha, recovery, bound_us, checkpoint_us, secondary)
    return completed(found, request, after=after, until=until, version=version)


class _Network:
    """The steps behind some streams, and their names.

    Attributes:
        name: the query's.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._steps: dict[Step, None] = {}
        self._streams: dict[tuple[Step, int], Stream] = {}
        self._names: dict[tuple[Step, int], str] = {}

    def note(self, given: Stream) -> None:
        """Note the steps that a stream is made of. Raises: InvalidInputError: two names for one
        stream."""
        waiting = [given]
        while waiting:
            each = waiting.pop()
            step, port = step_of(each)
            if step is None:
                continue
            self._note_name(step, port, each)
            if step not in self._steps:
                self._steps[step] = None
                waiting += reversed(step.inputs)

    def _note_name(self, step: Step, port: int, each: Stream) -> None:
        known = self._streams.get((step, port))
        if known is None or not known.name:
            self._streams[step, port] = each
        elif each.name and each != known:
            raise InvalidInputError(
                f"query {self.name}: {known.name} has another name, box or readers elsewhere: "
                "name a stream once, and use what named() gives"
            )

    def boxes(self) -> tuple[Box, ...]:
        """The boxes, each before those that it reads."""
        self._name_all()
        return tuple(self._box(step) for step in self._steps)

    def name_of(self, each: Stream) -> str:
        step, port = step_of(each)
        return each.name if step is None else self._names[step, port]

    def readers(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The streams that declare readers, with these."""
        return tuple(
            (self._names[key], each.readers)
            for key, each in self._streams.items()
            if each.readers is not None
        )

    def _name_all(self) -> None:
        taken = {each.name for each in self._streams.values()}
        for step in reversed(self._steps):
            for port in range(step.ports):
                known = self._streams.get((step, port))
                name = known.name if known is not None else ""
                number = 1
                while not name or (name in taken and (known is None or name != known.name)):
                    name = f"{self.name}/{step.word}_{number}"
                    number += 1
                taken.add(name)
                self._names[step, port] = name

    def _box(self, step: Step) -> Box:
        outputs = tuple(self._names[step, port] for port in range(step.ports))
        told = {
            each.box
            for port in range(step.ports)
            if (each := self._streams.get((step, port))) is not None and each.box
        }
        if len(told) > 1:
            raise InvalidInputError(
                f"query {self.name}: the box of {outputs[0]} has several names: "
                f"{', '.join(sorted(told))}"
            )
        name = told.pop() if told else outputs[0].rpartition("/")[2]
        return step.make(name, tuple(self.name_of(each) for each in step.inputs), outputs)
