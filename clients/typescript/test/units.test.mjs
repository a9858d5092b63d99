// What needs no service: back-off, the breaker, and what is refused at once; the clock is the test's.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient } from "../dist/topk-bandit.js";
import "./service.mjs";

const SLATE = { recommendationId: "1", itemIds: ["a", "b"] };
const reply = (status, body, headers = {}) => new Response(JSON.stringify(body), { status, headers });
const unavailable = (details = []) => reply(503, { code: "unavailable", message: "away", details });

const NO_DETAILS = { reason: "", reference: "", quota: "", retryAfterMs: null, numbers: {} };
const ONCE = { initialBackoffMs: 1e6, multiplier: 1, maxBackoffMs: 1e6 }; // longer than any deadline here

/** Return a client of a service that gives these answers in turn, the last one for ever; time passes in pauses alone. */
function scripted(answers, options = {}) {
  const world = { now: 0, pauses: [], sent: [], told: [] };
  const tell = (text) => world.told.push(text);
  const client = createClient({
    url: "http://shop.test/base/",
    tenant: "acme",
    clock: () => world.now,
    random: () => 0.5,
    sleep: async (ms) => void (world.pauses.push(ms), (world.now += ms)),
    fetch: async (address, init) => {
      world.sent.push({ address, ...init, body: JSON.parse(init.body) });
      return (answers.length > 1 ? answers.shift() : answers[0])();
    },
    log: { warn: tell, error: tell },
    ...options,
  });
  return { client, world };
}

test("tries back off within the deadline, under one request id", async () => {
  const { client, world } = scripted([unavailable]);
  await assert.rejects(client.recommend({ bandit: "home", deadlineMs: 1000 }), { code: "UNAVAILABLE", message: "UNAVAILABLE: away" });
  assert.deepEqual(world.pauses, [37.5, 75, 150, 300]);
  assert.equal(new Set(world.sent.map(({ body }) => body.requestId)).size, 1);
  assert.match(world.sent[0].body.requestId, /^[0-9a-f]{32}$/);
  assert.deepEqual(world.sent.map(({ headers }) => headers["Connect-Timeout-Ms"]), ["1000", "963", "888", "738", "438"]);
  assert.equal(world.sent[0].address, "http://shop.test/base/topk_bandit.v1.RecommenderService/Recommend");
});

test("the pause that the service asks for comes on top", async () => {
  const details = [{ type: "google.rpc.RetryInfo", value: "", debug: { retryDelay: "0.400s" } }];
  const { client, world } = scripted([() => unavailable(details), () => reply(200, SLATE)]);
  assert.equal((await client.recommend({ bandit: "home" })).id, "1");
  assert.deepEqual(world.pauses, [437.5]);
});

test("a pause below zero is none, and the call ends with its deadline", async () => {
  const { client, world } = scripted([() => unavailable([{ type: "google.rpc.RetryInfo", debug: { retryDelay: "-5s" } }])]);
  await assert.rejects(client.recommend({ bandit: "home", deadlineMs: 1000 }), { code: "UNAVAILABLE", details: { ...NO_DETAILS, field: "", retryAfterMs: 0 } });
  assert.deepEqual(world.pauses, [37.5, 75, 150, 300]);
});

test("why nobody answered is said where the platform says it", async () => {
  const refused = () => { throw new TypeError("fetch failed", { cause: new Error("self-signed certificate") }); };
  await assert.rejects(scripted([() => Promise.reject()], { retry: ONCE }).client.recommend({ bandit: "home" }), { code: "UNAVAILABLE" });
  const { client } = scripted([refused], { retry: ONCE });
  await assert.rejects(client.recommend({ bandit: "home" }), { message: /^UNAVAILABLE: no answer from http:\/\/shop\.test\/.*: TypeError: fetch failed: self-signed certificate$/ });
});

test("a quota is waited for if the service says how long, and nothing else is", async () => {
  const retry = [{ type: "google.rpc.RetryInfo", debug: { retryDelay: "0.1s" } }, { type: "google.rpc.ErrorInfo", debug: { reason: "QUOTA", metadata: { quota: "calls_per_second", limit: "5", reference: "r" } } }];
  const full = (details) => () => reply(429, { code: "resource_exhausted", details });
  assert.equal((await scripted([full(retry), () => reply(200, SLATE)]).client.recommend({ bandit: "home" })).id, "1");
  for (const answer of [full([]), () => reply(404, { code: "not_found" }), () => reply(500, { code: "internal" }), () => reply(499, { code: "canceled" })]) {
    const { client, world } = scripted([answer]);
    await assert.rejects(client.recommend({ bandit: "home" }));
    assert.equal(world.sent.length, 1);
  }
  const error = await scripted([full(retry)]).client.recommend({ bandit: "home" }).catch((error) => error);
  assert.deepEqual(error.details, { field: "", reason: "QUOTA", reference: "r", quota: "calls_per_second", retryAfterMs: 100, numbers: { limit: 5 } });
});

test("every code of the protocol is known", async () => {
  const names = "canceled unknown invalid_argument deadline_exceeded not_found already_exists permission_denied resource_exhausted failed_precondition aborted out_of_range unimplemented internal unavailable data_loss unauthenticated";
  for (const code of names.split(" ")) {
    const { client } = scripted([() => reply(500, { code })], { retry: ONCE });
    const error = await client.recommend({ bandit: "home" }).catch((error) => error);
    assert.equal(error.code, code === "canceled" ? "CANCELLED" : code.toUpperCase());
  }
});

test("the breaker opens after failures in a row, tries once in each pause, and closes", async () => {
  const answers = [unavailable];
  const { client, world } = scripted(answers, { breaker: { failures: 3, pauseMs: 1000 }, fallbackTimeoutMs: 9000, retry: ONCE });
  const source = async () => (await client.recommend({ bandit: "home", fallback: ["z"] })).source;
  for (let time = 0; time < 6; time++) assert.equal(await source(), "fallback");
  assert.equal(world.sent.length, 3);
  assert.deepEqual(client.fallbacks, { UNAVAILABLE: 3, BREAKER_OPEN: 3 });
  world.now += 1000;
  for (let time = 0; time < 3; time++) await source();
  assert.equal(world.sent.length, 4);
  answers[0] = () => reply(200, SLATE);
  world.now += 999;
  assert.equal(await source(), "fallback");
  world.now += 1;
  assert.deepEqual([await source(), await source()], ["service", "service"]);
  assert.equal(world.told.length, 3);
});

test("a mistake does not open the breaker", async () => {
  const { client, world } = scripted([() => reply(400, { code: "invalid_argument" })], { breaker: { failures: 1, pauseMs: 1000 }, fallbackTimeoutMs: 9000 });
  for (let time = 0; time < 3; time++) await client.recommend({ bandit: "home", fallback: ["z"] });
  assert.equal(world.sent.length, 3);
});

test("a slow recommend is sent a second time, under the same id, and the first answer counts", async () => {
  const never = () => new Promise(() => {});
  const { client, world } = scripted([never, () => reply(200, SLATE)], { hedgeAfterMs: 50, timeoutMs: 9000 });
  assert.equal((await client.recommend({ bandit: "home" })).id, "1");
  assert.deepEqual(world.pauses, [50]);
  assert.equal(world.sent.length, 2);
  assert.equal(world.sent[0].body.requestId, world.sent[1].body.requestId);
  assert.deepEqual(world.sent.map(({ headers }) => headers["Connect-Timeout-Ms"]), ["9000", "8950"]);
  assert.ok(world.sent.every(({ signal }) => signal.aborted)); // and the one that lost is waited for no more
});

test("nothing is sent twice that was answered, has no time left, or is a reward", async () => {
  const later = { sleep: () => new Promise(() => {}), hedgeAfterMs: 50 };
  const quick = scripted([() => reply(200, SLATE)], later);
  await quick.client.recommend({ bandit: "home" });
  const refused = scripted([() => reply(400, { code: "invalid_argument" })], later);
  await assert.rejects(refused.client.recommend({ bandit: "home" }), { code: "INVALID_ARGUMENT" });
  const short = scripted([() => new Promise(() => {})], { hedgeAfterMs: 50 });
  await assert.rejects(short.client.recommend({ bandit: "home", deadlineMs: 50 }), { code: "DEADLINE_EXCEEDED" });
  const reward = scripted([() => reply(200, { outcome: "REWARD_OUTCOME_ACCEPTED" })], { hedgeAfterMs: 1 });
  await reward.client.reward({ bandit: "home", recommendationId: "1", value: 1 });
  for (const { world } of [quick, refused, short, reward]) assert.equal(world.sent.length, 1);
});

test("item values are sent where there are any: a service of before takes rewards without them", async () => {
  const { client, world } = scripted([() => reply(200, { outcome: "REWARD_OUTCOME_ACCEPTED" })]);
  const about = { bandit: "home", recommendationId: "1", value: 1 };
  for (const itemValues of [undefined, {}, { a: 1, b: Infinity }]) {
    await client.reward({ ...about, itemValues });
    await client.amendReward({ ...about, itemValues });
  }
  assert.deepEqual(world.sent.map(({ body }) => body.itemValues), [...Array(4).fill(undefined), ...Array(2).fill({ a: 1, b: "Infinity" })]);
  assert.ok(world.sent.slice(0, 4).every(({ body }) => !("itemValues" in body)));
});

test("of two calls that fail the second tells why", async () => {
  let tell;
  const first = () => new Promise((resolve) => (tell = () => resolve(reply(404, { code: "not_found" }))));
  const second = () => (tell(), reply(400, { code: "invalid_argument" }));
  const { client } = scripted([first, second], { hedgeAfterMs: 50, timeoutMs: 9000 });
  await assert.rejects(client.recommend({ bandit: "home" }), { code: "INVALID_ARGUMENT" });
});

test("degraded slates are marked and counted", async () => {
  const { client } = scripted([() => reply(200, { itemIds: ["a"], degraded: true })], { fallbackTimeoutMs: 9000 });
  assert.equal((await client.recommend({ bandit: "home", fallback: ["z"] })).source, "degraded");
  assert.deepEqual(client.slates, { service: 0, degraded: 1, fallback: 0 });
});

test("a key is sent, and none else", async () => {
  const { client, world } = scripted([() => reply(200, SLATE)], { key: "abc.d_e-f" });
  await client.recommend({ bandit: "home" });
  assert.equal(world.sent[0].headers.Authorization, "Bearer abc.d_e-f");
  const without = scripted([() => reply(200, SLATE)]);
  await without.client.recommend({ bandit: "home" });
  assert.equal(without.world.sent[0].headers.Authorization, undefined);
});

test("options that can't be are refused when the client is made", () => {
  const make = (options) => () => createClient({ url: "http://shop.test", tenant: "acme", ...options });
  for (const bad of [{ url: "shop.test:1" }, { url: "ftp://shop.test" }, { key: "a b.c" }, { key: "abc\n.d" }]) assert.throws(make(bad), TypeError);
  const ranges = [{ timeoutMs: "20000" }, { fallbackTimeoutMs: "150" }, { hedgeAfterMs: [5] }, { breaker: { failures: 2, pauseMs: "1000" } }, { breaker: { failures: "2", pauseMs: 1000 } }, { retry: { initialBackoffMs: "1", multiplier: 2, maxBackoffMs: 3 } }, { timeoutMs: 0 }, { timeoutMs: NaN }, { timeoutMs: 2 ** 31 }, { fallbackTimeoutMs: -1 }, { hedgeAfterMs: 0 }, { breaker: { failures: 0, pauseMs: 1 } }, { breaker: { failures: 1, pauseMs: Infinity } }, { retry: { initialBackoffMs: 2, multiplier: 2, maxBackoffMs: 1 } }, { retry: { initialBackoffMs: 1, multiplier: 0.5, maxBackoffMs: 1 } }];
  for (const bad of ranges) assert.throws(make(bad), { code: "INVALID_ARGUMENT", message: new RegExp(Object.keys(bad)[0]) });
});

test("each rule is sent as what it is, and what is no rule is named", async () => {
  const answer = {
    ...SLATE,
    relaxedRules: ["pin b at position 2"],
    absentItems: [{ itemId: "c", reason: "ABSENCE_REASON_FILTERED", rule: "filter price < 20" }, { itemId: "d", reason: "ABSENCE_REASON_NOT_CHOSEN" }],
  };
  const { client, world } = scripted([() => reply(200, answer)]);
  const rules = [
    "price < 20",
    { exclude: new Set(["x", "y"]) },
    { filter: "price < 20", mayRelax: true },
    { pin: ["b"], position: 2, mayRelax: true },
    { count: { feature: "brand" }, atMost: 0 },
    { count: { feature: "brand", value: "x" }, atLeast: 1 },
    { count: { shownFewerThan: 5 }, atLeast: 1, atMost: 2 },
    { count: { itemIds: ["a", "b"] }, atMost: 1 },
    { apart: { feature: "category" } },
    { frequency: "each item", atMost: 2, withinSeconds: 60 },
    { frequency: { itemIds: ["a", "b"] }, atMost: 1, withinSeconds: 60, mayRelax: true },
  ];
  const slate = await client.recommend({ bandit: "home", rules, explain: ["c", "d"], frequencyKey: "v" });
  assert.equal(world.sent[0].body.frequencyKey, "v");
  assert.deepEqual(world.sent[0].body.rules, [
    { filter: "price < 20" },
    { exclude: { itemIds: ["x", "y"] }, mayRelax: false },
    { filter: "price < 20", mayRelax: true },
    { pin: { position: 2, itemIds: ["b"] }, mayRelax: true },
    { count: { group: { feature: "brand", value: "" }, atLeast: 0, atMost: 0 }, mayRelax: false },
    { count: { group: { feature: "brand", value: "x" }, atLeast: 1 }, mayRelax: false },
    { count: { group: { shownFewerThan: 5 }, atLeast: 1, atMost: 2 }, mayRelax: false },
    { count: { group: { itemIds: ["a", "b"] }, atLeast: 0, atMost: 1 }, mayRelax: false },
    { apart: { feature: "category", value: "" }, mayRelax: false },
    { frequency: { atMost: 2, withinSeconds: 60 }, mayRelax: false },
    { frequency: { group: { itemIds: ["a", "b"] }, atMost: 1, withinSeconds: 60 }, mayRelax: true },
  ]);
  assert.deepEqual(world.sent[0].body.explainItemIds, ["c", "d"]);
  assert.deepEqual(slate.relaxedRules, ["pin b at position 2"]);
  assert.deepEqual(slate.absentItems, [
    { itemId: "c", reason: "filtered", rule: "filter price < 20" },
    { itemId: "d", reason: "not_chosen", rule: "" },
  ]);
  await client.recommend({ bandit: "home" });
  assert.equal("rules" in world.sent[1].body || "explainItemIds" in world.sent[1].body, false);
  await assert.rejects(client.recommend({ bandit: "home", rules: ["price < 20", { sum: "price" }] }), /rules\[1\]: is none of exclude, filter, pin, count, apart, frequency/);
});

test("a rule of two kinds, or with what is nothing to it, is refused", async () => {
  const { client } = scripted([() => reply(200, SLATE)]);
  const rules = [
    [{ exclude: ["t"], pin: ["m"], position: 1 }, "rules[0]: has exclude and pin: leave one of them out"],
    [{ exclude: ["t"], filter: "price < 3" }, "rules[0]: has exclude and filter: leave one of them out"],
    [{ count: { feature: "brand", itemIds: ["a"] }, atMost: 1 }, "rules[0].count: has feature and itemIds: leave one of them out"],
    [{ exclude: ["t"], may_relax: true }, "rules[0]: has may_relax, which is nothing to exclude"],
    [{ apart: { feature: "brand", valeu: "x" } }, "rules[0].apart: has valeu, which is nothing to feature"],
    [{ exclude: "tea" }, "rules[0].exclude: expected a list, got String"],
    [{ count: { itemIds: "tea" }, atMost: 1 }, "rules[0].count.itemIds: expected a list, got String"],
    [null, "rules[0]: is none of exclude, filter, pin, count, apart, frequency"],
    [7, "rules[0]: expected an object, got Number"],
  ];
  for (const [rule, message] of rules)
    await assert.rejects(client.recommend({ bandit: "home", rules: [rule] }), { code: "INVALID_ARGUMENT", message: `INVALID_ARGUMENT: ${message}` });
  for (const given of [{ exclude: ["t"] }, "price < 3", 7]) await assert.rejects(client.recommend({ bandit: "home", rules: given }), /rules: expected a list/);
  await client.recommend({ bandit: "home", rules: [{ exclude: ["t"], pin: undefined, filter: null, mayRelax: undefined }, { count: { feature: "x", itemIds: null }, atMost: null }] });
});

test("a value of another kind is refused by its field, and never taken for nothing or for letters", async () => {
  const { client, world } = scripted([() => reply(200, { ...SLATE, outcome: "REWARD_OUTCOME_ACCEPTED" })]);
  const asked = [
    [{ candidates: "tea" }, "candidate_item_ids: expected a list, got String"],
    [{ candidates: [7] }, "candidate_item_ids[0]: expected a text, got Number"],
    [{ candidates: [, "a"] }, "candidate_item_ids[0]: expected a text, got Undefined"],
    [{ baseline: "te" }, "baseline_item_ids: expected a list, got String"],
    [{ explain: "tea" }, "explain_item_ids: expected a list, got String"],
    [{ context: "12" }, "context: expected a list, got String"],
    [{ context: [1, "2"] }, "context[1]: expected a number, got String"],
    [{ context: new BigInt64Array(2) }, "context: expected a list, got BigInt64Array"],
    [{ features: new Map([["a", 1]]) }, "features: expected an object, got Map"],
    [{ features: 5 }, "features: expected an object, got Number"],
    [{ features: { country: "D\ud83d" } }, 'features["country"]: has half of a character'],
    [{ frequencyKey: 0 }, "frequency_key: expected a text, got Number"],
    [{ groupKey: 0 }, "group_key: expected a text, got Number"],
    [{ strictCandidates: "false" }, "strict_candidates: expected true or false, got String"],
  ];
  for (const [options, message] of asked)
    await assert.rejects(client.recommend({ bandit: "home", ...options }), { code: "INVALID_ARGUMENT", message: `INVALID_ARGUMENT: ${message}`, details: { ...NO_DETAILS, field: message.slice(0, message.search(/: /)) } });
  const wrongCalls = [
    [client.recommend({}), 'bandit: must be 1 to 64 letters of a-z, digits, \'.\', \'_\' or \'-\', not ""'],
    [client.recommend({ bandit: 5 }), "bandit: expected a text, got Number"],
    [client.reward({ bandit: "a/b", recommendationId: "1", value: 1 }), /^INVALID_ARGUMENT: bandit: must be .*, not "a\/b"$/],
    [client.recommend({ bandit: "home", tenant: 7 }), "tenant: expected a text, got Number"],
    [client.recommend({ bandit: "home", deadlineMs: "5000" }), "deadlineMs: expected a number, got String"],
    [client.recommend({ bandit: "home", deadlineMs: NaN }), "deadlineMs: must be positive and at most 2147483647, not NaN"],
    [client.recommend({ bandit: "home", minModelVersion: "7" }), "min_model_version: expected a number, got String"],
    [client.activate({ bandit: "home", recommendationId: 5n }), "recommendation_id: expected a text, got BigInt"],
    [client.amendReward({ bandit: "home", recommendationId: 5, value: 1 }), "recommendation_id: expected a text, got Number"],
    [client.voidReward({ bandit: "home", recommendationId: 5 }), "recommendation_id: expected a text, got Number"],
    [client.recommendBatch({ bandit: "home" }), "requests: expected a list, got Undefined"],
    [client.recommendBatch({ bandit: "home", requests: [{}, null] }), "requests[1]: expected an object, got Null"],
    [client.recommendBatch({ bandit: "home", requests: ["ab"] }), "requests[0]: expected an object, got String"],
    [client.rewardPage({ pageId: "1", value: 1 }), "bandits: expected a list, got Undefined"],
  ];
  for (const [call, message] of wrongCalls)
    await assert.rejects(call, { code: "INVALID_ARGUMENT", message: typeof message === "string" ? `INVALID_ARGUMENT: ${message}` : message });
  const limits = [
    [{ count: { itemIds: ["a"] }, atLeast: 1, atMost: Infinity }, "rules[0].atMost: must be a whole number, not Infinity"],
    [{ count: { itemIds: ["a"] }, atLeast: NaN, atMost: 1 }, "rules[0].atLeast: must be a whole number, not NaN"],
    [{ pin: ["a"], position: 1n }, "rules[0].position: expected a number, got BigInt"],
    [{ count: { shownFewerThan: NaN }, atLeast: 1 }, "rules[0].count.shownFewerThan: must be a whole number, not NaN"],
    [{ frequency: "each item", atMost: 1, withinSeconds: "60" }, "rules[0].withinSeconds: expected a number, got String"],
    [{ filter: 5 }, "rules[0].filter: expected a text, got Number"],
    [{ exclude: ["a"], mayRelax: "no" }, "rules[0].mayRelax: expected true or false, got String"],
  ];
  for (const [rule, message] of limits)
    await assert.rejects(client.recommend({ bandit: "home", rules: [rule] }), { code: "INVALID_ARGUMENT", message: `INVALID_ARGUMENT: ${message}` });
  for (const [options, message] of [[{ itemValues: new Map() }, /item_values: expected an object, got Map/], [{ itemValues: 5 }, /item_values/], [{ value: "1" }, /value: expected a number, got String/], [{ final: "false" }, /final: expected true or false/]])
    await assert.rejects(client.reward({ bandit: "home", recommendationId: "1", value: 1, ...options }), { code: "INVALID_ARGUMENT", message });
  await assert.rejects(client.recommendPage({ placements: [{ bandit: "a" }, { bandit: "b", candidates: "tea" }] }), /placements\[1\]\.candidate_item_ids: expected a list/);
  await assert.rejects(client.recommendBatch({ bandit: "a", requests: [{}, { features: 5 }] }), /requests\[1\]\.features: expected an object/);
  assert.equal(world.sent.length, 0);
  // What is missing, in whichever way, is missing; and what a class's getters return is there.
  await client.recommend({ bandit: "home", candidates: null, context: null, features: null, rules: null, explain: null, baseline: null, groupKey: null, frequencyKey: null });
  class Visitor { #country = "DE"; get country() { return this.#country; } basket = 3; }
  await client.recommend({ bandit: "home", candidates: new Set(["a", "b"]), context: new Float64Array([1, 2]), features: new Visitor(), rules: new Set([{ exclude: ["t"] }]) });
  const [bare, full] = world.sent.map(({ body }) => body);
  assert.deepEqual([bare.features, bare.context, "candidateItemIds" in bare, "rules" in bare], [{}, [], false, false]);
  assert.deepEqual([full.candidateItemIds, full.context, full.features, full.rules.length], [["a", "b"], [1, 2], { basket: { number: 3 }, country: { text: "DE" } }, 1]);
});

test("a fallback is shown whatever its size, its client's options and the other placements are", async () => {
  const shown = async (options, more = {}) => (await scripted([unavailable], { breaker: null, ...more }).client.recommend({ bandit: "home", fallback: ["c", "b", "a"], deadlineMs: 10, ...options })).items;
  for (const fallbackSize of [NaN, "x", "", {}, -1, 1.5, 2n, Infinity, null, undefined]) assert.deepEqual(await shown({ fallbackSize }), ["c", "b", "a"]);
  assert.deepEqual(await shown({ fallbackSize: 2 }), ["c", "b"]);
  assert.deepEqual(await shown({ fallback: ["c", "b", "c", "a"], fallbackSize: 3 }), ["c", "b", "a"]);
  assert.deepEqual(await shown({ fallback: new Set(["x", "y"]) }), ["x", "y"]);
  for (const log of [undefined, { warn() { throw new Error("full"); } }, {}]) assert.deepEqual(await shown({}, { log }), ["c", "b", "a"]);
  const { client } = scripted([unavailable], { breaker: null });
  for (const fallback of [7, "abc", {}]) await assert.rejects(client.recommend({ bandit: "home", fallback }), { code: "INVALID_ARGUMENT", message: /fallback: expected a list/ });
  await assert.rejects(client.recommend({ bandit: "home", fallback: null, deadlineMs: 10 }), { code: "UNAVAILABLE" });
  const page = await client.recommendPage({ placements: [null, { bandit: "b", fallback: ["x"] }, { bandit: "c", fallback: new Set(["x", "y"]), fallbackSize: NaN }], deadlineMs: 10 });
  assert.deepEqual([page.bandits, page.slates.map((one) => one.items)], [["", "", ""], [undefined, ["x"], ["y"]]]);
  await assert.rejects(client.recommendPage({ placements: 7 }), { code: "INVALID_ARGUMENT" });
});

test("options that are undefined are left at what they are by default", async () => {
  const { client } = scripted([() => reply(200, SLATE)], { random: undefined, newRequestId: undefined, now: undefined, log: undefined });
  assert.equal((await client.recommend({ bandit: "home" })).id, "1");
});

test("whatever a proxy writes into an error is an error of the client", async () => {
  for (const [body, code] of [[{ code: "constructor" }, "UNAVAILABLE"], [{ code: "__proto__" }, "UNAVAILABLE"], [{ code: "unavailable", details: [null, 7, { type: "google.rpc.RetryInfo", debug: 7 }] }, "UNAVAILABLE"], [{ code: "internal", message: { a: 1 } }, "INTERNAL"]]) {
    const { client } = scripted([() => reply(503, body)], { retry: ONCE });
    await assert.rejects(client.recommend({ bandit: "home" }), { name: "ClientError", code });
  }
  const { client } = scripted([() => reply(200, { ...SLATE, positionPropensities: 7, relaxedRules: "x", absentItems: {} })]);
  assert.deepEqual((await client.recommend({ bandit: "home" })).positionPropensities, []);
});

test("an address with more than where the service is, is refused", () => {
  for (const url of ["http://shop.test?x=1", "http://shop.test/#f", "http://user:pass@shop.test", "ftp://shop.test", "shop.test"]) assert.throws(() => createClient({ url }), TypeError);
  assert.ok(createClient({ url: new URL("http://shop.test/base/") }));
});

test("a fallback keeps what is excluded, and breaks for no rule that is none", async () => {
  const { client } = scripted([unavailable], { breaker: null });
  const shown = async (rules) => (await client.recommend({ bandit: "home", fallback: ["z", "y", "x", "w"], fallbackSize: 2, deadlineMs: 10, rules })).items;
  assert.deepEqual(await shown([{ exclude: ["y"] }, { pin: ["w"], position: 1 }, { exclude: new Set(["z"]) }]), ["x", "w"]);
  assert.deepEqual(await shown(new Set([{ exclude: ["z"] }])), ["y", "x"]);
  for (const rules of [7, [7], [null], [{ exclude: "xy" }], [{ exclude: 7 }]]) assert.deepEqual(await shown(rules), ["z", "y"]);
});

test("an answer that is no page, or of other slates, is an error, and a page with fallbacks is shown all the same", async () => {
  const answers = [{}, { placements: [] }, { placements: [{ slate: {} }, { slate: SLATE }] }, { results: [] }, { pageId: 7, placements: [{}, {}] }, { placements: [null, null], results: [null, null] }, { placements: [{ slate: { ...SLATE, absentItems: [null] } }, {}] }];
  for (const answer of answers) {
    const { client } = scripted([() => reply(200, answer)], { fallbackTimeoutMs: 9000 });
    const asked = (fallback) => ({ placements: [{ bandit: "a", ...fallback }, { bandit: "b", ...fallback }] });
    await assert.rejects(client.recommendPage(asked({})), { code: "UNKNOWN" });
    assert.deepEqual((await client.recommendPage(asked({ fallback: ["z", "y"], fallbackSize: 1 }))).slates.map(({ items }) => items), [["z"], ["y"]]);
    await assert.rejects(client.recommendBatch({ bandit: "a", requests: [{}, {}] }), { code: "UNKNOWN" });
    await assert.rejects(client.rewardPage({ pageId: "p", bandits: ["a", "b"], value: 1 }), { code: "UNKNOWN" });
  }
});

test("a page is sent under one id, for one tenant, and its placements have none", async () => {
  const away = () => unavailable();
  const { client, world } = scripted([away, away, () => reply(200, { pageId: "p", placements: [{ slate: SLATE }, { error: { code: 5, message: "no" } }] })]);
  const page = await client.recommendPage({ tenant: "other", placements: [{ bandit: "a" }, { bandit: "b", groupKey: "g" }], features: { x: 1 }, frequencyKey: "v" });
  assert.deepEqual([page.id, page.bandits, page.slates[0].items, page.slates[1].code], ["p", ["a", ""], ["a", "b"], "NOT_FOUND"]);
  const sent = world.sent.map(({ body }) => body);
  assert.equal(new Set(sent.map(({ pageId }) => pageId)).size, 1);
  assert.equal(sent[0].frequencyKey, "v");
  assert.match(sent[0].pageId, /^[0-9a-f]{32}$/);
  assert.deepEqual([sent[0].parent, sent[0].placements.map(({ bandit, requestId }) => [bandit, requestId])], ["tenants/other", [["tenants/other/bandits/a", ""], ["tenants/other/bandits/b", ""]]]);
  assert.deepEqual(client.slates, { service: 1, degraded: 0, fallback: 0 });
});

test("a page keeps its id unless each of its slates is the shop's own", async () => {
  const failed = { error: { code: 5, message: "no" } };
  const placements = [{ bandit: "a" }, { bandit: "b" }];
  const own = placements.map((one) => ({ ...one, fallback: ["z"] }));
  for (const [answered, asked, id] of [[[failed, failed], placements, "p"], [[failed, failed], own, ""], [[{ slate: SLATE }, failed], own, "p"], [[failed, failed], [own[0], placements[1]], ""]]) {
    const { client } = scripted([() => reply(200, { pageId: "p", placements: answered })]);
    assert.equal((await client.recommendPage({ placements: asked })).id, id);
  }
});

test("a batch is asked for again under the same ids, and in parts of a hundred", async () => {
  const answers = [() => unavailable()];
  const { client, world } = scripted(answers);
  answers.push(...[100, 3].map((count) => () => reply(200, { results: Array(count).fill({ slate: SLATE }) })));
  assert.equal((await client.recommendBatch({ bandit: "a", requests: Array(103).fill({}), minModelVersion: 4 })).length, 103);
  const ids = world.sent.map(({ body }) => body.requests.map(({ requestId }) => requestId));
  assert.deepEqual(ids.map(({ length }) => length), [100, 100, 3]);
  assert.deepEqual(ids[0], ids[1]);
  assert.equal(new Set(ids.flat()).size, 103);
  assert.ok(world.sent.every(({ body }) => body.requests.every(({ minModelVersion, bandit }) => minModelVersion === "4" && bandit === "")));
  assert.equal(world.sent[0].headers["Connect-Timeout-Ms"], "60000");
});

test("a page's breaker counts a call once, however many slates it has", async () => {
  const { client, world } = scripted([unavailable], { breaker: { failures: 3, pauseMs: 1000 }, fallbackTimeoutMs: 9000, retry: ONCE });
  const placements = ["a", "b", "c"].map((bandit) => ({ bandit, fallback: ["z"] }));
  for (let time = 0; time < 4; time++) await client.recommendPage({ placements });
  assert.equal(world.sent.length, 3);
});

test("what is asked for need not outlive its page, and what is posted does", async () => {
  globalThis.document = {}; // a browser takes at most 64 kB of what outlives its page
  try {
    const { client, world } = scripted([() => reply(400, { code: "invalid_argument" })]);
    const calls = [client.recommend({ bandit: "a" }), client.recommendBatch({ bandit: "a", requests: [{}] }), client.recommendPage({ placements: [{ bandit: "a" }] }), client.rewardPage({ pageId: "p", bandits: ["a"], value: 1 })];
    await Promise.allSettled(calls);
    assert.deepEqual(world.sent.map(({ address, keepalive }) => [address.split("/").at(-1), keepalive]), [["Recommend", undefined], ["BatchRecommend", undefined], ["RecommendPage", undefined], ["RewardPage", true]]);
  } finally {
    delete globalThis.document;
  }
});
