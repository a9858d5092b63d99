"""A page that never breaks, in Django: python examples/django_shop.py [ADDRESS [PORT]]."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4
from wsgiref.simple_server import make_server

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse
from django.urls import path
from django.utils.html import format_html, format_html_join
from django.views.decorators.http import require_POST

from topk_bandit.client import Aggregation, Client, Storefront

if TYPE_CHECKING:
    from django.http import HttpRequest

    from topk_bandit.client import Recommendation

BANDIT = "django-shop"
PRICES = {"tea": 3.0, "coffee": 9.0, "cocoa": 6.0, "milk": 1.0, "juice": 4.0}  # in the shop's own order
ROW = '<li><button formaction="/buy/{}?slate={}">{}</button>'


# Opened when first needed: in each process, and when there are settings. One file is for all processes of a machine.
shop = Storefront(lambda: Client(settings.TOPK_ADDRESS, tenant="example"), outbox="django_shop.db")
home = shop.placement(BANDIT, fallback=list(PRICES), fallback_size=3)


@home.with_slate()
def page(_request: HttpRequest, slate: Recommendation) -> HttpResponse:
    """Show a slate: the service's, or after 150 ms the shop's own."""
    rows = format_html_join("", ROW, ((item, slate.id, item) for item in slate.items))
    return HttpResponse(format_html('<form method="post"><ol data-source="{}">{}</ol></form>', slate.source, rows))


def buy(request: HttpRequest, item: str) -> JsonResponse:
    """Sell; what the slate earned is on disk before the customer is thanked, and needs no service now."""
    learned = home.reward(request.GET["slate"], PRICES[item], reward_id=f"order-{uuid4()}")
    return JsonResponse({"thanks": True, "learned": learned})


urlpatterns = [path("", page), path("buy/<item>", require_POST(buy))]


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
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], TOPK_ADDRESS=address)
    make_server("127.0.0.1", int(port), get_wsgi_application()).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
