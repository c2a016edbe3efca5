from __future__ import annotations

from medusa.engine.api.administration import Administration
from medusa.engine.api.definitions import SchemaCalls, StreamCalls
from medusa.engine.api.documents import DocumentCalls, QueryCalls, ViewCalls
from medusa.engine.api.flow import FlowCalls
from medusa.engine.api.listing import ListingCalls
from medusa.engine.api.moving import MovingCalls
from medusa.engine.api.own_status import OwnStatus, OwnTasks
from medusa.engine.api.replicas import ReplicaCalls
from medusa.engine.api.status import StatusCalls
from medusa.engine.engine import Engine
from medusa.overlay.clients import Clients


def register_calls(engine: Engine, clients: Clients) -> None:
    """Put the calls of a peer's engine on its service. clients: the peer's status names them."""
    _register_administration(engine)
    FlowCalls(
        overlay=engine.overlay,
        store=engine.store,
        subscriptions=engine.subscriptions,
        delivery=engine.delivery,
        readers=engine.readers,
        directory=engine.directory,
        copies=engine.copies,
        leaders=engine.leaders,
    ).register()
    MovingCalls(
        overlay=engine.overlay,
        queries=engine.queries,
        readers=engine.readers,
        delivery=engine.delivery,
        mover=engine.mover,
        assignments=engine.assignments,
    ).register()
    ReplicaCalls(
        engine.overlay, engine.queries, engine.primaries, engine.standbys, engine.repair
    ).register()
    own = OwnStatus(
        overlay=engine.overlay,
        clients=clients,
        store=engine.store,
        directory=engine.directory,
        tasks=OwnTasks(
            engine.queries, engine.assignments, engine.primaries, engine.standbys, engine.executor
        ),
        capacity_cores=engine.config.capacity_cores,
        started_at=engine.started_at,
    )
    StatusCalls(engine.overlay, own, engine.copies, engine.store, engine.readers).register()
    ListingCalls(engine.overlay, engine.catalog, engine.queries).register()


def _register_administration(engine: Engine) -> None:
    ours = Administration(
        overlay=engine.overlay,
        catalog=engine.catalog,
        store=engine.store,
        leaders=engine.leaders,
        queries=engine.queries,
    )
    schemas = SchemaCalls(ours, engine.schemas)
    streams = StreamCalls(
        ours,
        store=engine.store,
        leaders=engine.leaders,
        announcements=engine.announcements,
        sources=engine.sources,
        modifier=engine.modifier,
    )
    queries = QueryCalls(ours, engine.queries, engine.lifecycle, engine.locator, engine.modifier)
    views = ViewCalls(ours, engine.store, engine.views, engine.locator, engine.readers)
    documents = DocumentCalls(engine.overlay, engine.catalog, schemas, streams, queries, views)
    for calls in (schemas, streams, queries, views, documents):
        calls.register()
