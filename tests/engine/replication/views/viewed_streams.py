"""Streams with views that clients read while other clients post."""

from __future__ import annotations

from engine_peers import Place, Row, send_rows, until

from medusa.tools.client.async_client import AsyncMedusaClient


async def post(client: AsyncMedusaClient, place: Place, stream: str, *stimes: int) -> list[Row]:
    """Post a row at each of these times, in one epoch."""
    found = [(stime, stime) for stime in stimes]
    await send_rows(client, stream, found, boundary=stimes[-1])
    await until(lambda: place.state(stream).log.boundary >= stimes[-1])
    return found


async def caught_up(place: Place, view: str, boundary: int) -> None:
    await until(lambda: place.state(view).log.boundary >= boundary, f"{view} at {boundary}")
