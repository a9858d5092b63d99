// The client against the real service.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ClientError, createClient } from "../dist/topk-bandit.js";
import { Service } from "./service.mjs";

const OWN = ["z", "y", "x", "w"];
const SCHEMA = {
  features: [
    { name: "price", numeric: { min: 0, max: 100 } },
    { name: "country", categorical: { values: ["DE", "FR"] } },
    { name: "member", boolean: {} },
    { name: "likes", labels: { buckets: 8 } },
    { name: "taste", vector: { dimension: 2 } },
  ],
};

const service = new Service();

before(async () => {
  await service.start();
  await service.create("home", {});
  await service.create("typed", { contextSchema: SCHEMA });
  await service.create("numbers", { contextDimension: 2 });
  await service.create("careful", { requiresActivation: true });
  await service.create("sums", { rewardAggregation: "REWARD_AGGREGATION_SUM" });
  await service.create("hasty", { rewardWait: "1s" });
});
after(() => service.close());

function client(options = {}) {
  const log = { warned: [], failed: [], warn: (text) => log.warned.push(text), error: (text) => log.failed.push(text) };
  return Object.assign(createClient({ url: service.url, tenant: "acme", timeoutMs: 20_000, fallbackTimeoutMs: 20_000, log, ...options }), { log });
}

test("a slate has what the service says of it", async () => {
  const asked = { bandit: "home", requestId: "first" };
  const slate = await client().recommend(asked);
  const told = await service.post("RecommenderService/Recommend", { bandit: "tenants/acme/bandits/home", requestId: "first" });
  assert.deepEqual(slate, {
    id: told.recommendationId,
    items: told.itemIds,
    propensity: told.propensity,
    mean: told.mean,
    standardDeviation: told.standardDeviation,
    regretBound: told.regretBound,
    estimatedRegret: told.estimatedRegret,
    explored: told.mode === "MODE_EXPLORED",
    baseline: false,
    modelVersion: Number(told.modelVersion),
    observations: 0,
    rewardDeadline: new Date(told.rewardDeadline),
    source: "service",
    positionPropensities: told.positionPropensities,
    regretConfidence: 0.9,
    passedOver: 0,
    stage: "live",
    group: null,
    relaxedRules: [],
    absentItems: [],
    paidExposures: [],
  });
  assert.equal(slate.items.length, 3);
  assert.ok(slate.propensity > 0 && slate.positionPropensities.every((one) => one > 0 && one <= 1));
  assert.ok(slate.rewardDeadline > new Date());
});

test("a request id is one recommendation, and without one each call is another", async () => {
  const [first, again] = [await client().recommend({ bandit: "home", requestId: "a" }), await client().recommend({ bandit: "home", requestId: "a" })];
  assert.deepEqual(first, again);
  const others = [await client().recommend({ bandit: "home" }), await client().recommend({ bandit: "home" })];
  assert.notEqual(others[0].id, others[1].id);
});

test("features arrive as what they are", async () => {
  const features = { price: 12.5, country: "DE", member: true, likes: new Set(["tea", "milk"]), taste: [0.5, -1] };
  const slate = await client().recommend({ bandit: "typed", features, requestId: "typed" });
  const written = {
    price: { number: 12.5 },
    country: { text: "DE" },
    member: { boolean: true },
    likes: { labels: { values: ["milk", "tea"] } },
    taste: { vector: { values: [0.5, -1] } },
  };
  const bandit = "tenants/acme/bandits/typed";
  const told = await service.post("RecommenderService/Recommend", { bandit, features: written, requestId: "typed" });
  assert.equal(told.recommendationId, slate.id);
  const others = { ...features, likes: ["tea", "milk", "tea"], taste: new Float64Array([0.5, -1]), price: 12.5 };
  assert.equal((await client().recommend({ bandit: "typed", features: others, requestId: "typed" })).id, slate.id);
  await assert.rejects(client().recommend({ bandit: "typed", features: { ...features, price: 13 }, requestId: "typed" }), { code: "ALREADY_EXISTS" });
});

test("features that are missing, empty or of no kind", async () => {
  const asked = (features) => client().recommend({ bandit: "typed", features });
  assert.equal((await asked({ price: null, country: undefined, likes: [] })).source, "service");
  const refused = async (features) => (await asked(features).catch((error) => error)).details.field;
  assert.equal(await refused({ price: NaN }), 'features["price"]');
  assert.equal(await refused({ taste: [1, Infinity] }), 'features["taste"][1]');
  assert.equal(await refused({ price: new Date() }), 'features["price"]');
  assert.equal(await refused({ likes: ["a", 1] }), 'features["likes"]');
  await assert.rejects(asked({ user: { age: 3 } }), /features\["user"\]: expected a number, .* got Object: write nested features flat/);
  assert.equal((await asked({ price: "12.5", likes: "milk|tea" })).source, "service");
});

test("a control group gets the shop's own slate, and a key stays in its group", async () => {
  const change = (settings, mask) => service.post("BanditService/UpdateBandit", { bandit: { name: "tenants/acme/bandits/held", ...settings }, updateMask: mask });
  await service.post("BanditService/CreateBandit", { bandit: { name: "tenants/acme/bandits/held", slateSize: 2, itemCapacity: 9, controlShare: 0.5 } });
  await service.post("BanditService/UpsertItems", { bandit: "tenants/acme/bandits/held", items: ["a", "b", "c", "d"].map((itemId) => ({ itemId })) });
  const asked = (visitor) => client().recommend({ bandit: "held", baseline: ["d", "c"], groupKey: `visitor-${visitor}` });
  const groups = [];
  for (let visitor = 0; visitor < 24; visitor++) {
    const [slate, again] = [await asked(visitor), await asked(visitor)];
    assert.equal(slate.group, again.group);
    if (slate.group === "control") assert.deepEqual(slate.items, ["d", "c"]);
    groups.push(slate.group);
  }
  assert.deepEqual([...new Set(groups)].sort(), ["bandit", "control"]);
  await change({ stage: "STAGE_OFF" }, "stage");
  const off = await client().recommend({ bandit: "held", baseline: ["a", "b"] });
  assert.deepEqual([off.items, off.stage, off.baseline, off.group], [["a", "b"], "off", true, null]);
  await assert.rejects(client().recommend({ bandit: "held" }), { code: "FAILED_PRECONDITION" });
  await assert.rejects(client().recommend({ bandit: "held", baseline: [] }), /baseline_item_ids: must not be empty/);
});

test("contexts of numbers, and candidates", async () => {
  const slate = await client().recommend({ bandit: "numbers", context: [1, 0.3], candidates: ["milk", "tea", "coffee", "gone"] });
  assert.deepEqual([...slate.items].sort(), ["coffee", "milk", "tea"]);
  assert.equal(slate.passedOver, 1);
  await assert.rejects(client().recommend({ bandit: "numbers", context: [1] }), { code: "INVALID_ARGUMENT", details: { field: "context", reason: "", reference: "", quota: "", retryAfterMs: null, numbers: {} } });
  const strict = { bandit: "numbers", context: [1, 0], candidates: ["milk", "tea", "coffee", "gone"], strictCandidates: true };
  await assert.rejects(client().recommend(strict), { code: "NOT_FOUND" });
  await assert.rejects(client().recommend({ bandit: "numbers", context: [1, 0], candidates: [] }), /candidate_item_ids: must not be empty/);
});

test("what too few items are is counted in the error", async () => {
  const error = await client().recommend({ bandit: "home", candidates: ["tea", "milk", "gone"] }).catch((error) => error);
  assert.ok(error instanceof ClientError);
  assert.deepEqual([error.code, error.details.reason, error.details.numbers], ["FAILED_PRECONDITION", "TOO_FEW_ITEMS", { items_left: 2, passed_over: 1, slate_size: 3 }]);
});

test("a reward is accepted once, and a slate can wait until it is learned", async () => {
  const shop = client();
  const { id } = await shop.recommend({ bandit: "home" });
  const posted = { bandit: "home", recommendationId: id, value: 0.7 };
  const receipt = await shop.reward(posted);
  assert.equal(receipt.outcome, "accepted");
  assert.deepEqual(await shop.reward(posted), { ...receipt, outcome: "duplicate" });
  await assert.rejects(shop.reward({ ...posted, value: 0.8 }), { code: "ALREADY_EXISTS" });
  const next = await shop.recommend({ bandit: "home", minModelVersion: receipt.logPosition });
  assert.ok(next.modelVersion >= receipt.logPosition && next.observations >= 1);
});

test("several rewards of a slate, the last one final", async () => {
  const shop = client();
  const { id } = await shop.recommend({ bandit: "sums" });
  const post = (rewardId, value, final = false) => shop.reward({ bandit: "sums", recommendationId: id, value, rewardId, final });
  assert.equal((await post("click", 1)).outcome, "accepted");
  assert.equal((await post("click", 1)).outcome, "duplicate");
  const { logPosition } = await post("order", 4, true);
  assert.equal((await shop.recommend({ bandit: "sums", minModelVersion: logPosition })).observations, 1);
});

test("a reward is amended, and taken back", async () => {
  const shop = client();
  const { id } = await shop.recommend({ bandit: "sums" });
  const about = { bandit: "sums", recommendationId: id, rewardId: "order" };
  await shop.reward({ ...about, value: 4 });
  const { logPosition, outcome } = await shop.amendReward({ ...about, value: 1.5 });
  assert.deepEqual([outcome, (await shop.amendReward({ ...about, value: 1.5 })).outcome], ["accepted", "duplicate"]);
  assert.ok(logPosition > 0);
  await assert.rejects(shop.amendReward({ ...about, value: NaN }), { code: "INVALID_ARGUMENT" });
  await assert.rejects(shop.amendReward({ ...about, rewardId: "none", value: 1 }), { code: "FAILED_PRECONDITION" });
  assert.equal((await shop.voidReward(about)).outcome, "accepted");
  assert.equal((await shop.voidReward(about)).outcome, "duplicate");
  await assert.rejects(shop.amendReward({ ...about, value: 2 }), ClientError);
  assert.equal((await shop.voidReward({ bandit: "sums", recommendationId: id })).outcome, "accepted");
  await assert.rejects(shop.reward({ ...about, rewardId: "click", value: 1 }), { code: "ALREADY_EXISTS" });
});

test("a reward says what each item of its slate did", async () => {
  const shop = client();
  const { id, items } = await shop.recommend({ bandit: "home" });
  const about = { bandit: "home", recommendationId: id, value: 1 };
  const itemValues = { [items[0]]: 1, [items[1]]: 0.5 };
  const unknown = await shop.reward({ ...about, itemValues: { soup: 1 } }).catch((error) => error);
  assert.deepEqual([unknown.code, unknown.details.field], ["INVALID_ARGUMENT", 'item_values["soup"]']);
  await assert.rejects(shop.reward({ ...about, itemValues: { [items[0]]: NaN } }), { code: "INVALID_ARGUMENT" });
  assert.equal((await shop.reward({ ...about, itemValues })).outcome, "accepted");
  assert.equal((await shop.reward({ ...about, itemValues })).outcome, "duplicate");
  await assert.rejects(shop.reward({ ...about, itemValues: { [items[0]]: 2 } }), { code: "ALREADY_EXISTS" });
  const slate = await shop.recommend({ bandit: "sums" });
  const click = { bandit: "sums", recommendationId: slate.id, rewardId: "click", value: 1 };
  await shop.reward(click);
  const amended = { ...click, itemValues: { [slate.items[2]]: 2 } };
  assert.equal((await shop.amendReward(amended)).outcome, "accepted");
  assert.equal((await shop.amendReward(amended)).outcome, "duplicate");
});

test("an activation, also of what was shown instead", async () => {
  const shop = client();
  const { id } = await shop.recommend({ bandit: "careful" });
  const shown = ["tea", "milk", "coffee"];
  const receipt = await shop.activate({ bandit: "careful", recommendationId: id, shown });
  assert.equal(receipt.outcome, "activated");
  await assert.rejects(shop.activate({ bandit: "careful", recommendationId: id, shown: [] }), /shown_item_ids: must not be empty/);
  assert.equal((await shop.activate({ bandit: "careful", recommendationId: id, shown })).outcome, "duplicate");
});

test("late rewards are counted and said once, or thrown", async () => {
  const [shop, strict] = [client(), client({ raiseLate: true })];
  const slates = [await shop.recommend({ bandit: "hasty" }), await shop.recommend({ bandit: "hasty" }), await shop.recommend({ bandit: "hasty" })];
  assert.deepEqual(shop.lateRewards, {});
  await new Promise((resolve) => setTimeout(resolve, slates[2].rewardDeadline - Date.now() + 200));
  const [first, second, third] = slates.map(({ id }) => ({ bandit: "hasty", recommendationId: id, value: 1 }));
  assert.equal((await shop.reward(first)).outcome, "late");
  assert.equal((await shop.reward(second)).outcome, "late");
  assert.deepEqual([shop.lateRewards, shop.log.warned.length], [{ hasty: 2 }, 1]);
  await assert.rejects(strict.reward(third), { code: "FAILED_PRECONDITION", message: /after its deadline/ });
  assert.deepEqual(strict.lateRewards, { hasty: 1 });
});

test("mistakes show the fallback, are counted, and said once", async () => {
  const shop = client();
  const seen = await shop.recommend({ bandit: "home", fallback: OWN });
  assert.equal(seen.source, "service");
  for (let time = 0; time < 7; time++) {
    const slate = await shop.recommend({ bandit: "home", context: [1, 2], fallback: OWN });
    assert.deepEqual([slate.source, slate.id, slate.items], ["fallback", "", ["z", "y", "x"]]);
  }
  assert.deepEqual((await shop.recommend({ bandit: "none", fallback: OWN })).items, OWN);
  assert.deepEqual((await shop.recommend({ bandit: "none", fallback: OWN, fallbackSize: 1 })).items, ["z"]);
  assert.equal((await shop.recommend({ bandit: "home", deadlineMs: -1, fallback: OWN })).source, "fallback");
  assert.deepEqual(shop.slates, { service: 1, degraded: 0, fallback: 10 });
  assert.deepEqual(shop.fallbacks, { INVALID_ARGUMENT: 8, NOT_FOUND: 2 });
  assert.equal(shop.log.failed.length, 2);
});

test("a call may name another tenant", async () => {
  const roaming = client({ tenant: "nobody" });
  assert.equal((await roaming.recommend({ bandit: "home", tenant: "acme" })).source, "service");
  await assert.rejects(roaming.recommend({ bandit: "home" }), { code: "NOT_FOUND" });
  await assert.rejects(createClient({ url: service.url }).recommend({ bandit: "home" }), /tenant/);
});
