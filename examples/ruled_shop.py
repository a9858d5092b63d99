"""A shop with six rules, in the service that its tests use: python examples/ruled_shop.py."""

from __future__ import annotations

from topk_bandit.client import Apart, Count, Exclude, Filter, Pin, Rule, categorical, numeric
from topk_bandit.testing import local_service

KINDS = ("soup", "salad", "bread", "cake")
DISHES = {f"{kind}-{number}": {"kind": kind, "price": 4.0 + 3 * number} for kind in KINDS for number in range(5)}
OWN_RULES: list[Rule] = [
    Filter("price < 15"),  # a dish of 16 is for the evening
    Apart("kind"),  # never two soups beside each other
    Count("kind", at_most=2),
    Count("kind", "bread", at_least=1, may_relax=True),  # unless there is none
]


def main() -> None:
    """Ask for slates under the rules of the bandit and of the request."""
    with local_service() as service:
        client = service.client()
        client.create_bandit(
            "lunch",
            slate_size=5,
            item_capacity=50,
            item_schema=[categorical("kind", values=KINDS), numeric("price")],
            rules=OWN_RULES,
        )
        client.upsert_items("lunch", DISHES)

        basket = Exclude(["soup-0", "bread-1"])
        sponsored = Pin(2, ["salad-1"])
        slate = client.recommend("lunch", rules=[basket, sponsored], explain=["soup-0", "cake-4"])
        print("with six rules:", ", ".join(slate.items))
        for absent in slate.absent_items:
            print(f"{absent.item_id} is not there: {absent.reason.name}, {absent.rule}")

        sold_out = Exclude([dish for dish in DISHES if dish.startswith("bread")])
        slate = client.recommend("lunch", rules=[sold_out])
        print("without bread:", ", ".join(slate.items), "- given up:", ", ".join(slate.relaxed_rules))


if __name__ == "__main__":
    main()
