"""Checks of a move, whichever peer asks for it.

A worker serves the output to the readers that the task's owner names. So it reads for an owner only
streams that this owner may read itself, as the owners of those streams say. And an owner sends the
history of an input only to participants that may read it.
"""

from __future__ import annotations

import math
from functools import partial

from medusa.engine.objects.definitions import check_stream
from medusa.engine.objects.readers import Readers
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.copies.copy import Workshop
from medusa.engine.replication.moves.messages import Assignment
from medusa.engine.replication.records.term import OWNERS_WORD
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.query_editions import check_history
from medusa.overlay.errors import InvalidInputError, NotAuthorisedError
from medusa.overlay.names import ObjectName


def check_owner(request: Assignment, owner: str) -> None:
    """Refuse a task that is not of the participant that assigns it. Raises: NotAuthorisedError."""
    for name in (request.task, request.query.name):
        if ObjectName.parse(name).participant != owner:
            raise NotAuthorisedError(f"{name[:256]} is not of {owner}, who wants it run")


def check_form(request: Assignment, now: float) -> None:
    """Check names and numbers, which need no plan of the definition.

    Args:
        now: seconds since the epoch.

    Raises:
        InvalidInputError: a malformed name, or a number out of range.
    """
    for name, entry in request.inputs.items():
        ObjectName.parse(name)
        if entry.stream.name != name:
            raise InvalidInputError(f"{name} is said to be {entry.stream.name[:256]!a}")
    numbers = (
        ("boundary", request.after, BEGINNING, END - 1),
        ("term", request.term_number, 0, OWNERS_WORD.latest(now)),
        ("load", request.load, 0.0, math.inf),
        ("rate", request.rate, 0.0, math.inf),
    )
    for what, number, least, most in numbers:
        if not least <= number <= most or number == math.inf:
            raise InvalidInputError(f"{request.task[:80]!a}: {number} is no {what}")
    check_history(request.query, request.editions)


def network_of(request: Assignment) -> Network:
    """The query that the task is part of."""
    return Network(
        request.query,
        request.inputs,
        request.kept,
        request.editions,
        request.readers,
        request.altered,
    )


def planned_task(request: Assignment) -> Task:
    """The task, planned from its definition alone; that takes seconds for the largest.

    Raises:
        InvalidInputError: the definition makes no sense, or has no such task.
    """
    for task in network_of(request).tasks():
        if task.name == request.task:
            return task
    raise InvalidInputError(f"{request.query.name} has no task {request.task}")


def check_worker(task: Task, network: Network, participant: str, readers: Readers) -> None:
    """Check that a participant may compute a task: a worker reads its inputs, and gets the whole
    query, with the schemas of all its inputs.

    Args:
        network: the query that it is part of.

    Raises: NotAuthorisedError: that participant may not read an input, or the task calls a function
            of a user, whose code stays at its participant's peers.
    """
    owner = ObjectName.parse(network.query.name).participant
    if participant != owner and task.functions:
        raise NotAuthorisedError(
            f"{task.name} calls {task.functions[0].name}, whose code {owner} alone has: "
            f"{participant} cannot run it"
        )
    made = zip(task.inputs, task.input_schemas, strict=True)
    entries = {name: network.entry_of(name, schema, "") for name, schema in made}
    for entry in {**network.inputs, **entries}.values():
        readers.check(entry.stream, participant)


async def permitted_task(request: Assignment, owner: str, shop: Workshop) -> Task:
    """`planned_task`, if its owner and we may read all its inputs. The owner's entries of other
    participants' streams are compared with theirs.

    Args:
        owner: the participant that assigns it.

    Raises:
        NotAuthorisedError: one of the two may not read an input, or the query makes another
            participant's stream. InvalidInputError: an entry differs. MedusaError: an entry cannot
            be looked up now.
    """
    worker = shop.overlay.identity.participant
    task = await shop.overlay.threads.run(owner, partial(planned_task, request))
    network = network_of(request)
    check_stream(network.entry_of(task.output, task.output_schema, "").stream)
    check_worker(task, network, worker, shop.readers)
    for name in task.inputs:
        if ObjectName.parse(name).participant == owner:
            continue
        state = shop.store.serving(name)
        published = await shop.directory.entry(name) if state is None else state.entry
        for participant in (owner, worker):
            shop.readers.check(published.stream, participant)
        claimed = request.inputs.get(name)
        if claimed is None:
            raise NotAuthorisedError(f"{name} is not for {owner} to make")
        if claimed.schema != published.schema:
            raise InvalidInputError(f"{name} has other fields than {owner} says")
    return task
