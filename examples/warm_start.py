"""People are asked first, and their answers start a bandit warm: python examples/warm_start.py [ADDRESS]."""

from __future__ import annotations

import sys

from topk_bandit.client import Client

# Features of each item: sweetness and strength. What people like of them is what the study finds out.
ITEMS = {
    "tea": [0.1, 0.5],
    "coffee": [0.2, 1.0],
    "cocoa": [1.0, 0.4],
    "milk": [0.4, 0.0],
    "juice": [0.9, 0.1],
    "water": [0.0, 0.1],
}


def best_first(items: tuple[str, ...]) -> list[str]:
    """Stand for a person, who likes sweet things and strong ones a little less."""
    return sorted(items, key=lambda item: -(ITEMS[item][0] + 0.5 * ITEMS[item][1]))


def main(address: str = "127.0.0.1:50051") -> None:
    """Design a study, collect its answers, and print the first slate of a bandit that no reward has taught."""
    with Client(address, tenant="example") as client:
        client.create_study("tastes", items=ITEMS, answer_kind="ranking", list_size=3, budget=30)
        client.wait_for_design("tastes")
        questions = client.next_questions("tastes", 30).questions
        client.submit_answers("tastes", {question.id: best_first(question.items) for question in questions})
        for item in client.get_preferences("tastes").items:
            print(f"{item.rank}. {item.id:8} {item.utility:+.2f} ± {item.standard_deviation:.2f}")
        client.create_bandit(
            "warm",
            slate_size=3,
            item_capacity=10,
            default_reward=0.0,  # else it would learn from visitors who buy alone
            prior_study="tastes",
            uniform_share=0.0,
            near_share=0.0,
        )
        client.upsert_items("warm", list(ITEMS))
        print("first slate:", ", ".join(client.recommend("warm", context=[1.0]).items))
        client.delete_bandit("warm")
        client.delete_study("tastes")


if __name__ == "__main__":
    main(*sys.argv[1:])
