"""A page that never breaks, in FastAPI: python examples/fastapi_shop.py [ADDRESS [PORT]]."""

from __future__ import annotations

import sys
from datetime import timedelta
from html import escape
from typing import TYPE_CHECKING
from uuid import uuid4

import uvicorn
from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from topk_bandit.client import Aggregation, AsyncClient, AsyncStorefront, Client

if TYPE_CHECKING:
    from topk_bandit.client import Recommendation

BANDIT = "fastapi-shop"
PRICES = {"tea": 3.0, "coffee": 9.0, "cocoa": 6.0, "milk": 1.0, "juice": 4.0}  # in the shop's own order
BUTTON = '<button formaction="/buy/{0}?slate={1}">{0}</button>'


# Opened with the application, also if the service does not run yet. One file is for all workers of a machine.
shop = AsyncStorefront(lambda: AsyncClient(app.state.address, tenant="example"), outbox="fastapi_shop.db")
home = shop.placement(BANDIT, fallback=list(PRICES), fallback_size=3)
app: FastAPI = FastAPI(lifespan=lambda _app: shop)


@app.get("/", response_class=HTMLResponse)
@home.with_slate()
async def page(slate: Recommendation) -> str:
    """Show a slate: the service's, or after 150 ms the shop's own."""
    buttons = [BUTTON.format(escape(item), slate.id) for item in slate.items]
    return f'<form method="post" data-source="{slate.source}">{"".join(buttons)}</form>'


@app.post("/buy/{item}")
async def buy(item: str, slate: str = "") -> dict[str, bool]:
    """Sell; what the slate earned is on disk before the customer is thanked, and needs no service now."""
    return {"thanks": True, "learned": await home.reward(slate, PRICES[item], reward_id=f"order-{uuid4()}")}


def main(address: str = "127.0.0.1:50051", port: str = "8000") -> None:
    """Create the bandit, as a deployment does, and serve."""
    with Client(address, tenant="example") as client:
        # Most visitors buy nothing: without a default reward it would learn from buyers alone.
        client.create_bandit(
            BANDIT,
            slate_size=3,
            item_capacity=20,
            default_reward=0.0,
            reward_aggregation=Aggregation.SUM,
            reward_wait=timedelta(days=3),
            provisional_after=timedelta(minutes=30),
        )
        client.upsert_items(BANDIT, list(PRICES))
    app.state.address = address
    uvicorn.run(app, port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
