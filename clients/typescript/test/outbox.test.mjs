// What is in an outbox is delivered, counted once by the real service, or told of.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { createClient, memoryStorage, pageStorage } from "../dist/topk-bandit.js";
import { fileStorage } from "../dist/node.js";
import { ROOT, Service } from "./service.mjs";

const PATIENCE = 60_000;
const SHOWN = ["milk", "cocoa", "tea"];
const QUICK = { initialBackoffMs: 5, multiplier: 2, maxBackoffMs: 50 };
const ONCE = { initialBackoffMs: 1e6, multiplier: 1, maxBackoffMs: 1e6 }; // longer than a call may take

const service = new Service();

before(async () => {
  await service.start();
  await service.create("home", {});
  await service.create("careful", { requiresActivation: true });
  await service.create("sums", { rewardAggregation: "REWARD_AGGREGATION_SUM" });
  await service.create("hasty", { rewardWait: "1s" });
});
after(() => service.close());

/** Return an outbox whose calls can be held off, and what it sent; it ends with its test. */
function outboxOf(context, { storage = memoryStorage(), ...options } = {}, clientOptions = {}) {
  const world = { away: false, sent: [], warned: [] };
  const shop = createClient({
    url: service.url,
    tenant: "acme",
    timeoutMs: 20_000,
    retry: ONCE,
    log: { warn: (text) => world.warned.push(text), error: (text) => world.warned.push(text) },
    async fetch(address, init) {
      const method = address.split("/").at(-1);
      if (method !== "Recommend") world.sent.push({ method, at: performance.now(), body: JSON.parse(init.body) });
      if (world.away && method !== "Recommend") throw new TypeError("no network");
      return fetch(address, init);
    },
    ...clientOptions,
  });
  const outbox = shop.outbox(storage, { retry: QUICK, ...options });
  context.after(() => outbox.close());
  return { shop, outbox, world };
}

/** Return ids of slates that are recorded; on a busy machine one may be degraded, and its reward NOT_FOUND. */
async function slates(shop, bandit, count) {
  const ids = [];
  while (ids.length < count) {
    const { id, source } = await shop.recommend({ bandit });
    if (source === "service") ids.push(id);
  }
  return ids;
}
const observations = async (bandit) => Number((await service.post("BanditService/GetBanditStats", { bandit: `tenants/acme/bandits/${bandit}` })).observationCount);

async function learned(bandit, count) {
  const end = performance.now() + PATIENCE;
  while ((await observations(bandit)) < count) {
    assert.ok(performance.now() < end);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.equal(await observations(bandit), count);
}

test("an activation goes before the reward of its slate, and each counts once", async (context) => {
  const { shop, outbox, world } = outboxOf(context);
  const before = await observations("careful");
  const ids = await slates(shop, "careful", 6);
  world.away = true;
  for (const recommendationId of ids) {
    const about = { bandit: "careful", recommendationId };
    assert.deepEqual(await Promise.all([outbox.activate({ ...about, shown: SHOWN }), outbox.reward({ ...about, value: 0.5 })]), [true, true]);
  }
  assert.equal((await outbox.status()).pending, 12);
  world.away = false;
  assert.equal(await outbox.flush(PATIENCE), 0);
  const { delivered, refused, oldest } = await outbox.status();
  assert.deepEqual([delivered, refused, oldest], [12, {}, null]);
  await learned("careful", before + 6);
  // A reward that had come first would have said that the slate itself was shown.
  for (const recommendationId of ids) {
    const told = await service.post("RecommenderService/Activate", { bandit: "tenants/acme/bandits/careful", recommendationId, shownItemIds: SHOWN });
    assert.equal(told.outcome, "ACTIVATION_OUTCOME_DUPLICATE");
  }
  assert.equal(world.warned.length, 1);
  assert.deepEqual(shop.lateRewards, {});
});

test("rewards wait while there is no network, and go in few calls when it is back", async (context) => {
  const { shop, outbox, world } = outboxOf(context);
  const ids = await slates(shop, "home", 12);
  world.away = true;
  const before = Date.now();
  for (const recommendationId of ids) assert.equal(await outbox.reward({ bandit: "home", recommendationId, value: 1 }), true);
  assert.equal(await outbox.flush(100), 12);
  const { pending, oldest } = await outbox.status();
  assert.ok(pending === 12 && before <= oldest && oldest <= Date.now());
  const tries = world.sent.length;
  assert.ok(tries < 120, `${tries} tries`);
  world.away = false;
  assert.equal(await outbox.flush(PATIENCE), 0);
  const batches = world.sent.slice(tries).filter(({ method }) => method === "BatchReward").map(({ body }) => body.rewards.length);
  assert.ok(batches.length < 12, batches.join());
  assert.equal((await outbox.status()).delivered, 12);
});

test("item values are kept, and delivered with their reward", async (context) => {
  const told = [];
  const { shop, outbox, world } = outboxOf(context, { onRefused: (refusal) => told.push(refusal) });
  const [one, other] = await slates(shop, "home", 2);
  const [item] = (await shop.recommend({ bandit: "home" })).items;
  world.away = true;
  const itemValues = { [item]: 0.5 };
  await outbox.reward({ bandit: "home", recommendationId: one, value: 1 });
  await outbox.reward({ bandit: "home", recommendationId: other, value: 1, itemValues: { soup: 2 } });
  await outbox.reward({ bandit: "home", recommendationId: "nobody's", value: 1, itemValues });
  world.away = false;
  assert.equal(await outbox.flush(PATIENCE), 0);
  assert.deepEqual(new Map(told.map((refusal) => [refusal.error.code, refusal.itemValues])), new Map([["NOT_FOUND", itemValues], ["INVALID_ARGUMENT", { soup: 2 }]]));
  const sent = world.sent.filter(({ method }) => method === "BatchReward").flatMap(({ body }) => body.rewards);
  assert.ok(sent.some((reward) => reward.recommendationId === one && !("itemValues" in reward)));
  await assert.rejects(outbox.reward({ bandit: "home", recommendationId: one, value: 1, itemValues: { a: NaN } }), { code: "INVALID_ARGUMENT" });
});

test("rewards of a slate go one after the other, the final one last", async (context) => {
  const { shop, outbox, world } = outboxOf(context);
  const before = await observations("sums");
  const [recommendationId] = await slates(shop, "sums", 1);
  const ids = ["a", "b", "c", "d"];
  await Promise.all(ids.map((rewardId) => outbox.reward({ bandit: "sums", recommendationId, value: 1, rewardId, final: rewardId === "d" })));
  assert.equal(await outbox.flush(PATIENCE), 0);
  assert.deepEqual(world.sent.map(({ body }) => body.rewards.map(({ rewardId }) => rewardId)), ids.map((one) => [one]));
  assert.equal((await outbox.status()).delivered, 4);
  await learned("sums", before + 1);
});

test("a reward without an id of its own has one, which stays the same", async (context) => {
  const { shop, outbox, world } = outboxOf(context);
  const [recommendationId] = await slates(shop, "sums", 1);
  world.away = true;
  await outbox.reward({ bandit: "sums", recommendationId, value: 1 });
  await outbox.flush(60);
  world.away = false;
  assert.equal(await outbox.flush(PATIENCE), 0);
  const ids = new Set(world.sent.map(({ body }) => body.rewards[0].rewardId));
  assert.match([...ids].join(), /^[0-9a-f]{32}$/);
  assert.ok(world.sent.length > 1);
});

test("at most a hundred rewards go in a call", async (context) => {
  const storage = memoryStorage();
  const first = outboxOf(context, { storage }, { fetch: () => new Promise(() => {}) }).outbox;
  for (let number = 0; number < 250; number++) await first.reward({ bandit: "home", recommendationId: `${number}`, value: 1 });
  first.close();
  const sizes = [];
  const take = async (_, { body }) => {
    const { rewards } = JSON.parse(body);
    sizes.push(rewards.length);
    return new Response(JSON.stringify({ results: rewards.map(() => ({ outcome: "REWARD_OUTCOME_ACCEPTED" })) }));
  };
  const { outbox } = outboxOf(context, { storage }, { fetch: take });
  assert.equal(await outbox.flush(PATIENCE), 0);
  assert.deepEqual(sizes, [100, 100, 50]);
  assert.equal((await outbox.status()).delivered, 250);
});

test("a full outbox says so, and what is no reward is not kept", async (context) => {
  const { outbox, world } = outboxOf(context, { maxWaiting: 2 });
  world.away = true;
  assert.equal(await outbox.reward({ bandit: "home", recommendationId: "", value: 1 }), false);
  await assert.rejects(outbox.reward({ bandit: "home", recommendationId: "1", value: NaN }), { code: "INVALID_ARGUMENT" });
  const kept = ["1", "2", "3"].map((recommendationId) => outbox.activate({ bandit: "home", recommendationId }));
  assert.deepEqual((await Promise.allSettled(kept)).map(({ status }) => status), ["fulfilled", "fulfilled", "rejected"]);
  await assert.rejects(outbox.reward({ bandit: "home", recommendationId: "1", value: 1 }), { code: "RESOURCE_EXHAUSTED", message: /holds 2 .* as many as it may/ });
  assert.equal((await outbox.status()).pending, 2);
});

test("what the service will never take is told, counted and taken out", async (context) => {
  const told = [];
  const { shop, outbox, world } = outboxOf(context, { onRefused: (refusal) => { told.push(refusal); throw new Error("the shop's own fault"); } });
  const [id] = await slates(shop, "home", 1);
  const [late, lateToo] = await slates(shop, "hasty", 2);
  await shop.reward({ bandit: "home", recommendationId: id, value: 0.5 });
  await outbox.reward({ bandit: "home", recommendationId: id, value: 0.75, rewardId: "click" });
  await outbox.reward({ bandit: "home", recommendationId: "nobody's", value: 0.5 });
  await outbox.activate({ bandit: "none", recommendationId: id });
  await new Promise((resolve) => setTimeout(resolve, 1300)); // the reward wait of that bandit
  await outbox.reward({ bandit: "hasty", recommendationId: late, value: 1 });
  await outbox.reward({ bandit: "hasty", recommendationId: lateToo, value: 1 });
  assert.equal(await outbox.flush(PATIENCE), 0);
  const { delivered, refused } = await outbox.status();
  assert.deepEqual([delivered, refused], [0, { REWARD_EXISTS: 1, NOT_FOUND: 2, REWARD_LATE: 2 }]);
  assert.deepEqual(shop.lateRewards, { hasty: 2 });
  const exists = told.find(({ error }) => error.code === "ALREADY_EXISTS");
  assert.deepEqual({ ...exists, error: null }, { tenant: "acme", bandit: "home", recommendationId: id, value: 0.75, rewardId: "click", shown: [], itemValues: {}, error: null });
  assert.equal(told.find(({ bandit }) => bandit === "none").value, null);
  assert.equal(world.warned.filter((text) => text.startsWith("onRefused failed")).length, 5);
});

test("without a listener the first refusal of a kind is said", async (context) => {
  const { outbox, world } = outboxOf(context);
  for (const recommendationId of ["1", "2", "3"]) await outbox.reward({ bandit: "home", recommendationId, value: 1 });
  assert.equal(await outbox.flush(PATIENCE), 0);
  assert.match(world.warned.join("|"), /^a reward of home is not taken: NOT_FOUND[^|]*$/);
});

test("what the service did not answer for in the reward wait is given up, and counted", async (context) => {
  const { outbox, world } = outboxOf(context, { rewardWaitMs: 50 });
  world.away = true;
  await outbox.activate({ bandit: "home", recommendationId: "1" });
  await outbox.reward({ bandit: "home", recommendationId: "1", value: 1 });
  assert.equal(await outbox.flush(PATIENCE), 0);
  assert.deepEqual((await outbox.status()).refused, { OUTBOX_EXPIRED: 2 });
  assert.equal((await outbox.status()).delivered, 0);
});

test("the pause that the service asks for is kept", async (context) => {
  const details = [{ type: "google.rpc.RetryInfo", debug: { retryDelay: "0.4s" } }];
  const sent = [];
  const answer = (status, body) => new Response(JSON.stringify(body), { status });
  const busy = async () => (sent.push(performance.now()), sent.length > 1 ? answer(200, { results: [{ outcome: "REWARD_OUTCOME_ACCEPTED" }] }) : answer(503, { code: "unavailable", details }));
  const { outbox } = outboxOf(context, {}, { fetch: busy });
  await outbox.reward({ bandit: "home", recommendationId: "1", value: 1 });
  while ((await outbox.status()).pending) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(sent.length, 2);
  assert.ok(sent[1] - sent[0] >= 399, `${sent[1] - sent[0]} ms`);
});

test("one that has to wait holds up its own slate alone", async (context) => {
  const stuck = async (address, init) => (init.body.includes("stuck") ? new Response('{"code": "unauthenticated"}', { status: 401 }) : fetch(address, init));
  const { shop, outbox } = outboxOf(context, {}, { fetch: stuck });
  const ids = await slates(shop, "home", 3);
  for (const recommendationId of ["stuck", ...ids]) {
    await outbox.activate({ bandit: "home", recommendationId });
    await outbox.reward({ bandit: "home", recommendationId, value: 1 });
  }
  const end = performance.now() + PATIENCE;
  while ((await outbox.status()).delivered < 6) assert.ok((await outbox.flush(50), performance.now() < end));
  assert.equal((await outbox.status()).pending, 2);
});

test("two that share a storage leave each other's alone, and deliver what another one left", async (context) => {
  const storage = memoryStorage();
  const first = outboxOf(context, { storage });
  const second = outboxOf(context, { storage });
  const ids = await slates(first.shop, "home", 4);
  for (const recommendationId of ids.slice(0, 2)) await first.outbox.reward({ bandit: "home", recommendationId, value: 1 });
  await second.outbox.reward({ bandit: "home", recommendationId: ids[2], value: 1 });
  const end = performance.now() + PATIENCE;
  while ((await first.outbox.status()).pending) assert.ok((await new Promise((resolve) => setTimeout(resolve, 5)), performance.now() < end));
  const posted = ({ world }) => world.sent.flatMap(({ body }) => body.rewards.map(({ recommendationId }) => recommendationId));
  assert.deepEqual([posted(first), posted(second)], [ids.slice(0, 2), [ids[2]]]);
  first.world.away = true;
  await first.outbox.reward({ bandit: "home", recommendationId: ids[3], value: 1 });
  for (const { outbox } of [first, second]) outbox.close();
  const third = outboxOf(context, { storage }, { now: () => Date.now() + 60_000 }); // after the lease
  while ((await third.outbox.status()).pending) assert.ok((await new Promise((resolve) => setTimeout(resolve, 20)), performance.now() < end));
  assert.deepEqual(posted(third), [ids[3]]);
  await assert.rejects(first.outbox.reward({ bandit: "home", recommendationId: "1", value: 1 }), { code: "UNAVAILABLE", message: /closed/ });
});

test("a storage that fails is an error, and what nobody can read is taken out and counted", async (context) => {
  const broken = { ...memoryStorage(), put: async () => { throw new Error("disk full"); } };
  const { outbox } = outboxOf(context, { storage: broken });
  await assert.rejects(outbox.reward({ bandit: "home", recommendationId: "1", value: 1 }), { code: "UNAVAILABLE", message: /disk full/ });
  const odd = memoryStorage();
  for (const [place, text] of ["{", "7", "{}"].entries()) odd.put(`000000000000000${place}-aaaaaaaa`, text);
  const { outbox: other, world } = outboxOf(context, { storage: odd });
  assert.equal(await other.flush(PATIENCE), 0);
  assert.ok((await other.status()).refused.UNREADABLE >= 3);
  assert.match(world.warned.join(), /can't be read/);
});

test("a clock of fractions of milliseconds loses nothing", async (context) => {
  const { shop, outbox } = outboxOf(context, {}, { now: () => performance.timeOrigin + performance.now() + 0.25 });
  const [recommendationId] = await slates(shop, "home", 1);
  assert.equal(await outbox.reward({ bandit: "home", recommendationId, value: 1 }), true);
  assert.equal(await outbox.flush(PATIENCE), 0);
  assert.equal((await outbox.status()).delivered, 1);
});

test("what no outbox has written is left alone", async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "tkb-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const foreign = ["config.json", "movie.mp4.part", "order-1.json", "package.json"];
  const order = JSON.stringify({ recommendationId: "1", value: 1, tenant: "acme", bandit: "home" });
  for (const name of foreign) writeFileSync(join(folder, name), order);
  mkdirSync(join(folder, "folder.json"));
  const shared = memoryStorage();
  shared.put("cart", order);
  for (const storage of [fileStorage(folder), shared]) {
    const { shop, outbox, world } = outboxOf(context, { storage, maxWaiting: 1 });
    const [recommendationId] = await slates(shop, "home", 1);
    assert.equal(await outbox.reward({ bandit: "home", recommendationId, value: 1 }), true);
    assert.equal(await outbox.flush(PATIENCE), 0);
    const { pending, delivered, refused } = await outbox.status();
    assert.deepEqual([pending, delivered, refused, world.warned], [0, 1, {}, []]);
  }
  assert.deepEqual(readdirSync(folder).sort(), ["config.json", "folder.json", ...foreign.slice(1)]);
  assert.deepEqual(shared.entries(), [["cart", order]]);
});

test("what the service can't read is refused at once, and costs no other its delivery", async (context) => {
  const storage = memoryStorage();
  const { shop, outbox } = outboxOf(context, { storage });
  const ids = await slates(shop, "home", 9);
  const wrong = [{ rewardId: 7 }, { rewardId: "caf\ud83d" }, { final: "x" }, { recommendationId: 7 }, { bandit: "\udc00" }, { itemValues: { "\ud83d": 1 } }, { itemValues: new Map() }, { value: "1" }];
  for (const one of wrong)
    await assert.rejects(outbox.reward({ bandit: "home", recommendationId: ids[0], value: 1, ...one }), { code: "INVALID_ARGUMENT" });
  await assert.rejects(outbox.activate({ bandit: "home", recommendationId: ids[0], shown: "te" }), { code: "INVALID_ARGUMENT", message: /shown_item_ids: expected a list/ });
  outbox.close();
  // As a page left them that knew no better.
  for (const [place, recommendationId] of ids.entries())
    storage.put(`000000000000000${place}-aaaaaaaa`, JSON.stringify({ tenant: "acme", bandit: "home", recommendationId, value: 1, rewardId: place === 4 ? 7 : "", final: false, written: Date.now(), due: 0, tries: 0 }));
  const { outbox: later } = outboxOf(context, { storage });
  assert.equal(await later.flush(PATIENCE), 0);
  const { delivered, refused } = await later.status();
  assert.deepEqual([delivered, refused], [8, { INVALID_ARGUMENT: 1 }]);
});

test("a page whose browser keeps nothing has its memory", async (context) => {
  const { shop, outbox } = outboxOf(context, { storage: pageStorage() }); // Node has no localStorage, as a page may have none
  const [recommendationId] = await slates(shop, "home", 1);
  assert.equal(await outbox.reward({ bandit: "home", recommendationId, value: 1 }), true);
  assert.equal(await outbox.flush(PATIENCE), 0);
  assert.equal((await outbox.status()).delivered, 1);
});

test("options that can't be are refused", () => {
  const shop = createClient({ url: service.url, tenant: "acme" });
  const options = [{ maxWaiting: 0 }, { timeoutMs: NaN }, { timeoutMs: Infinity }, { timeoutMs: 2 ** 31 }, { timeoutMs: "5000" }, { rewardWaitMs: -1 }, { retry: { ...QUICK, multiplier: 0 } }];
  for (const bad of options) assert.throws(() => shop.outbox(memoryStorage(), bad), { code: "INVALID_ARGUMENT", message: new RegExp(Object.keys(bad)[0]) });
});

test("what could never be delivered is not kept", async (context) => {
  const { outbox } = outboxOf(context);
  for (const bandit of [undefined, "", "a/b", 5])
    await assert.rejects(outbox.reward({ bandit, recommendationId: "1", value: 1 }), { code: "INVALID_ARGUMENT", message: /bandit/ });
  assert.equal(await outbox.rewardPage({ page: { bandits: ["home", "home"], slates: [null, undefined] }, value: 1 }), 0);
  for (const page of [null, { bandits: ["home"] }]) await assert.rejects(outbox.rewardPage({ page, value: 1 }), { code: "INVALID_ARGUMENT" });
  const page = { bandits: ["home", "b c", "a/b"], slates: [{ id: "1" }, { id: "", source: "fallback" }, { id: "2" }] };
  await assert.rejects(outbox.rewardPage({ page, value: 1 }), { code: "INVALID_ARGUMENT", message: /page\.bandits\[2\]/ }); // and none is kept
  assert.equal(await outbox.reward({ bandit: "b c", recommendationId: "", value: 1 }), false);
  for (const now of [NaN, 1e16]) {
    const { outbox: timeless } = outboxOf(context, {}, { now: () => now });
    await assert.rejects(timeless.reward({ bandit: "home", recommendationId: "1", value: 1 }), { code: "UNAVAILABLE", message: /no time/ });
  }
  assert.equal((await outbox.status()).pending, 0);
});

test("a folder in the outbox's folder is left alone", async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "tkb-"));
  context.after(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, "0000000000000001-aaaaaaaa.json"));
  const { shop, outbox } = outboxOf(context, { storage: fileStorage(folder) });
  const [recommendationId] = await slates(shop, "home", 1);
  assert.equal(await outbox.reward({ bandit: "home", recommendationId, value: 1 }), true);
  assert.equal(await outbox.flush(PATIENCE), 0);
  assert.deepEqual(readdirSync(folder), ["0000000000000001-aaaaaaaa.json"]);
});

test("nothing that was kept is lost when the process that keeps it is killed", async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "tkb-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const before = await observations("careful");
  const ids = await slates(createClient({ url: service.url, tenant: "acme", timeoutMs: 20_000 }), "careful", 80);
  const promised = [];
  const shop = spawn(process.execPath, [join(ROOT, "test/storefront.mjs"), service.url, folder, ...ids], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(shop, "exit");
  for await (const line of createInterface({ input: shop.stdout })) {
    promised.push(line);
    if (promised.length === 10) service.freeze(); // what is kept from now on is not delivered
    if (promised.length === 60) shop.kill("SIGKILL");
  }
  assert.equal((await ended)[1], "SIGKILL");
  writeFileSync(join(folder, "0000000000000000-aaaaaaaa.0.part"), '{"tena'); // as if it had been killed in the middle of a write
  service.thaw();
  const { outbox } = outboxOf(context, { storage: fileStorage(folder) });
  const left = (await outbox.status()).pending;
  assert.ok(left > 0);
  assert.equal(await outbox.flush(PATIENCE), 0);
  assert.deepEqual((await outbox.status()).refused, {});
  assert.deepEqual(readdirSync(folder), []);
  assert.ok(promised.length >= 60);
  for (const recommendationId of promised) {
    const told = await service.post("RecommenderService/Reward", { bandit: "tenants/acme/bandits/careful", recommendationId, value: 0.5 });
    assert.equal(told.outcome, "REWARD_OUTCOME_DUPLICATE");
  }
  const counted = await observations("careful");
  assert.ok(counted - before >= promised.length && counted - before <= promised.length + 1);
});
