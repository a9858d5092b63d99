/** What the compiler takes and refuses; never run. Each expected error that is none is an error itself. */

import { type ClientError, createClient, pageStorage, type Recommendation } from "../dist/types/index.js";

interface ShopFeatures {
  country: "DE" | "FR";
  basket: number;
  member?: boolean;
  likes: readonly string[];
  taste: Float32Array | null;
}

const typed = createClient<ShopFeatures>({ url: "https://recommender.example", tenant: "acme" });
const features: ShopFeatures = { country: "DE", basket: 3, likes: [], taste: null };
export const slate: Promise<Recommendation> = typed.recommend({ bandit: "home", features });
// @ts-expect-error a country that there is not
void typed.recommend({ bandit: "home", features: { ...features, country: "XX" } });
// @ts-expect-error a feature that there is not
void typed.recommend({ bandit: "home", features: { ...features, colour: "red" } });
// @ts-expect-error one that is missing
void typed.recommend({ bandit: "home", features: { country: "DE" } });

const any = createClient({ url: "https://recommender.example", tenant: "acme", breaker: null });
void any.recommend({ bandit: "home", features: { a: 1, b: "x", c: true, d: ["x"], e: new Set(["x"]), f: [1, 2], g: null } });
void any.recommend({
  bandit: "home",
  rules: [
    "price < 20",
    { exclude: new Set(["soup"]) },
    { filter: "price < 20", mayRelax: true },
    { pin: ["pie"], position: 1 },
    { count: { feature: "brand" }, atMost: 2 },
    { count: { shownFewerThan: 5 }, atLeast: 1 },
    { count: { itemIds: ["a", "b"] }, atMost: 1 },
    { apart: { feature: "category", value: "soup" } },
  ],
  explain: ["soup"],
});
// @ts-expect-error at no position
void any.recommend({ bandit: "home", rules: [{ pin: ["pie"] }] });
// @ts-expect-error items are several
void any.recommend({ bandit: "home", rules: [{ exclude: "soup" }] });
// @ts-expect-error a rule that there is not
void any.recommend({ bandit: "home", rules: [{ sum: "price" }] });
// @ts-expect-error two kinds of rules in one
void any.recommend({ bandit: "home", rules: [{ exclude: ["soup"], pin: ["pie"], position: 1 }] });
// @ts-expect-error and of groups
void any.recommend({ bandit: "home", rules: [{ count: { feature: "brand", itemIds: ["soup"] }, atMost: 1 }] });
// @ts-expect-error no kind of feature
void any.recommend({ bandit: "home", features: { a: new Date() } });
// @ts-expect-error texts and numbers in one
void any.recommend({ bandit: "home", features: { a: ["x", 1] } });
// @ts-expect-error a client of features that can't be
createClient<{ when: Date }>({ url: "https://recommender.example" });
void any.reward({ bandit: "home", recommendationId: "1", value: 1, itemValues: { soup: 1, pie: 0 } });
// @ts-expect-error an item did a number
void any.reward({ bandit: "home", recommendationId: "1", value: 1, itemValues: { soup: "1" } });
void typed.recommendPage({ placements: [{ bandit: "hero", fallback: ["tea"] }, { bandit: "below", features: { country: "FR" } }], features });
// @ts-expect-error a placement has a bandit
void any.recommendPage({ placements: [{ fallback: ["tea"] }] });
// @ts-expect-error and its request id is made from the page's
void any.recommendPage({ placements: [{ bandit: "hero", requestId: "1" }] });
// @ts-expect-error a feature of a placement that there is not
void typed.recommendPage({ placements: [{ bandit: "hero", features: { colour: "red" } }] });
void any.rewardPage({ pageId: "1", bandits: ["hero"], value: 1 }).then((all) => all.map((one) => ("outcome" in one ? one.outcome : one.code)));
export const mailed: Promise<(Recommendation | ClientError)[]> = typed.recommendBatch({ bandit: "mail", requests: [{ features, requestId: "1" }] });
// @ts-expect-error a batch has no fallback: nobody waits for its page
void any.recommendBatch({ bandit: "mail", requests: [{ fallback: ["tea"] }] });
// @ts-expect-error a reward without a value
void any.reward({ bandit: "home", recommendationId: "1" });
const outbox = any.outbox(pageStorage(), { onRefused: ({ value, error }) => void [value?.toFixed(), error.details.reason] });
export const kept: Promise<boolean> = outbox.reward({ bandit: "home", recommendationId: "1", value: 1 });
export const keptOfPage = async (): Promise<number> => outbox.rewardPage({ page: await any.recommendPage({ placements: [] }), value: 1 });
// @ts-expect-error its call has no deadline: it is kept, not sent
void outbox.activate({ bandit: "home", recommendationId: "1", deadlineMs: 5 });
// @ts-expect-error where is it?
createClient({ tenant: "acme" });
