// Pages and batches against the real service: no item twice, whatever is missing, and what they earned is counted once.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { transformSync } from "esbuild";
import { ClientError, createClient, memoryStorage } from "../dist/topk-bandit.js";
import { ROOT, Service } from "./service.mjs";

const ITEMS = Array.from({ length: 12 }, (_, place) => `item-${place}`);
const SCHEMA = { features: [{ name: "country", categorical: { values: ["DE", "FR"] } }] };
const BANDITS = ["hero", "below", "footer"];
const COMPILED_MS = 180_000; // the first decision under rules on a machine waits until their code is compiled
const QUIET = { warn() {}, error() {} };

const service = new Service();

before(async () => {
  await service.start();
  for (const bandit of BANDITS) await service.create(bandit, bandit === "below" ? { contextSchema: SCHEMA } : {}, ITEMS);
  await service.create("hasty", { rewardWait: "1s" });
});
after(() => service.close());

const client = (options = {}) => createClient({ url: service.url, tenant: "acme", timeoutMs: COMPILED_MS, fallbackTimeoutMs: COMPILED_MS, log: QUIET, ...options });
const DRINKS = ["tea", "coffee", "cocoa", "milk", "juice", "water", "soda", "lemonade", "cider"];

/** Return the programs under a headline of a document. */
function examples() {
  const text = readFileSync(join(ROOT, "../../docs/clients.md"), "utf8");
  const [, section] = text.split("### Several slates from TypeScript\n");
  return [...section.split("\n### ")[0].matchAll(/^```ts\n(.*?)^```$/gms)].map(([, block]) => block);
}

const placements = (more = {}) => BANDITS.map((bandit) => ({ bandit, ...more }));
const itemsOf = (page) => page.slates.flatMap(({ items }) => items);
const observed = async (bandit) => Number((await service.post("BanditService/GetBanditStats", { bandit: `tenants/acme/bandits/${bandit}` })).observationCount);

function noItemTwice(page) {
  assert.equal(new Set(itemsOf(page)).size, itemsOf(page).length, JSON.stringify(itemsOf(page)));
}

async function until(holds) {
  const end = performance.now() + 60_000;
  while (!(await holds())) {
    assert.ok(performance.now() < end);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test("a page has a slate for each placement, no item twice, and is the same again", async () => {
  const asked = { placements: placements(), features: { country: "DE" }, pageId: "page", groupKey: "visitor" };
  const page = await client().recommendPage(asked);
  assert.deepEqual([page.id, page.bandits, page.slates.map(({ source }) => source)], ["page", BANDITS, ["service", "service", "service"]]);
  assert.equal(itemsOf(page).length, 9);
  noItemTwice(page);
  assert.deepEqual(await client().recommendPage(asked), page);
  assert.notEqual((await client().recommendPage({ placements: placements() })).id, (await client().recommendPage({ placements: placements() })).id);
});

test("a placement has rules, candidates, a context and features of its own", async () => {
  const page = await client().recommendPage({
    placements: [
      { bandit: "hero", rules: [{ pin: ["item-7"], position: 1 }] },
      { bandit: "below", features: { country: "FR" }, rules: [{ exclude: ["item-1"] }] },
      { bandit: "footer", candidates: ["item-7", "item-1", "item-2", "item-3", "item-4", "item-5", "item-6", "item-8"] },
    ],
    context: [],
  });
  assert.equal(page.slates[0].items[0], "item-7");
  assert.ok(!page.slates[1].items.includes("item-1"));
  noItemTwice(page);
});

test("a placement that is refused has its error, and the others have their slates", async () => {
  const page = await client().recommendPage({ placements: [{ bandit: "hero" }, { bandit: "gone" }, { bandit: "footer" }] });
  const [, error] = page.slates;
  assert.ok(error instanceof ClientError);
  assert.equal(error.code, "NOT_FOUND");
  assert.deepEqual([page.slates[0].source, page.slates[2].source], ["service", "service"]);
  const nothing = await client().recommendPage({ placements: [{ bandit: "gone" }], pageId: "mine" });
  assert.deepEqual([nothing.id, nothing.slates.length], ["mine", 1]);
  await assert.rejects(client().recommendPage({ placements: [] }), { code: "INVALID_ARGUMENT", details: { field: "placements", reason: "", reference: "", quota: "", retryAfterMs: null, numbers: {} } });
  await assert.rejects(createClient({ url: service.url }).recommendPage({ placements: placements() }), /tenant/);
});

test("a placement that is refused shows what its own ranking has that the page does not", async () => {
  const shop = client();
  const page = await shop.recommendPage({
    placements: [{ bandit: "gone", fallback: [...ITEMS, ...ITEMS], fallbackSize: 4 }, { bandit: "hero" }, { bandit: "footer", fallback: ITEMS }],
  });
  assert.deepEqual(page.slates.map(({ source }) => source), ["fallback", "service", "service"]);
  assert.equal(page.slates[0].items.length, 4);
  noItemTwice(page);
  assert.deepEqual([shop.slates, shop.fallbacks], [{ service: 2, degraded: 0, fallback: 1 }, { NOT_FOUND: 1 }]);
});

test("a batch has a slate for each request, in more than one call where they are many", async () => {
  const shop = client();
  const requests = Array.from({ length: 103 }, (_, reader) => ({ requestId: `mail-${reader}` }));
  const slates = await shop.recommendBatch({ bandit: "hero", requests });
  assert.deepEqual([slates.length, new Set(slates.map(({ id }) => id)).size], [103, 103]);
  const alone = await shop.recommend({ bandit: "hero", requestId: "mail-102" });
  assert.deepEqual(slates[102].items, alone.items);
  assert.deepEqual((await shop.recommendBatch({ bandit: "hero", requests: requests.slice(0, 2) })).map(({ id }) => id), slates.slice(0, 2).map(({ id }) => id));
  const mixed = await shop.recommendBatch({ bandit: "hero", requests: [{ candidates: ["item-1", "gone", "lost"] }, {}, { context: [1, 2] }] });
  assert.deepEqual(mixed.map((one) => one.code ?? one.source), ["FAILED_PRECONDITION", "service", "INVALID_ARGUMENT"]);
  assert.deepEqual(await shop.recommendBatch({ bandit: "hero", requests: [] }), []);
  await assert.rejects(shop.recommendBatch({ bandit: "gone", requests: [{}] }), { code: "NOT_FOUND" });
});

test("a page's reward is one of each slate, once", async () => {
  const shop = client();
  const page = await shop.recommendPage({ placements: placements() });
  const posted = { pageId: page.id, bandits: page.bandits, value: 0.5 };
  assert.deepEqual((await shop.rewardPage(posted)).map(({ outcome }) => outcome), ["accepted", "accepted", "accepted"]);
  assert.deepEqual((await shop.rewardPage(posted)).map(({ outcome }) => outcome), ["duplicate", "duplicate", "duplicate"]);
  assert.deepEqual((await shop.rewardPage({ ...posted, value: 1 })).map(({ code }) => code), ["ALREADY_EXISTS", "ALREADY_EXISTS", "ALREADY_EXISTS"]);
  const [known, none] = await shop.rewardPage({ ...posted, bandits: ["hero", "gone"] });
  assert.deepEqual([known.outcome, none.code], ["duplicate", "NOT_FOUND"]);
  await assert.rejects(shop.rewardPage({ ...posted, value: NaN }), { code: "INVALID_ARGUMENT" });
  await assert.rejects(shop.rewardPage({ ...posted, pageId: "" }), /page_id/);
});

test("late rewards of a page are counted, or are errors in their places", async () => {
  for (const [shop, raised] of [[client(), false], [client({ raiseLate: true }), true]]) {
    const page = await shop.recommendPage({ placements: [{ bandit: "hasty" }, { bandit: "hero" }] });
    await new Promise((resolve) => setTimeout(resolve, page.slates[0].rewardDeadline - Date.now() + 200));
    const [late, other] = await shop.rewardPage({ pageId: page.id, bandits: page.bandits, value: 1 });
    assert.equal(raised ? late.details.reason : late.outcome, raised ? "REWARD_LATE" : "late");
    assert.deepEqual([other.outcome, shop.lateRewards], ["accepted", { hasty: 1 }]);
  }
});

test("an outbox keeps the rewards of a page, also of one that was read back", async () => {
  const shop = client();
  const outbox = shop.outbox(memoryStorage());
  const before = await Promise.all(BANDITS.map(observed));
  const page = await shop.recommendPage({ placements: [...placements({ fallback: ITEMS }), { bandit: "gone" }] });
  const kept = { page: JSON.parse(JSON.stringify(page)), value: 1, rewardId: "order" };
  assert.deepEqual([await outbox.rewardPage(kept), await outbox.rewardPage(kept)], [3, 3]);
  assert.equal(await outbox.flush(30_000), 0);
  assert.deepEqual((await outbox.status()).refused, {});
  await until(async () => (await Promise.all(BANDITS.map(observed))).every((count, place) => count === before[place] + 1));
  await assert.rejects(outbox.rewardPage({ page, value: NaN }), /value: must be a finite number/);
  outbox.close();
});

test("the examples of the documents run", async () => {
  for (const bandit of ["hero", "below", "footer"]) await service.create(`doc-${bandit}`, { slateSize: 2, ...(bandit === "below" ? { contextSchema: SCHEMA } : {}) }, DRINKS);
  await service.create("doc-mail", { slateSize: 2 }, DRINKS);
  const printed = examples().map((block) => {
    const moved = block.replace("https://recommender.example", service.url).replaceAll(/bandit: "/g, '$&doc-').replace(/tenant: "acme"/, `$&, fallbackTimeoutMs: ${COMPILED_MS}, timeoutMs: ${COMPILED_MS}`);
    const { code } = transformSync(moved.replace('"topk-bandit"', '"./dist/topk-bandit.js"'), { loader: "ts", format: "esm" });
    return execFileSync(process.execPath, ["--input-type=module", "--eval", code], { cwd: ROOT, encoding: "utf8" }).trim().split("\n");
  });
  const [page, rewards, batch] = printed;
  const shown = page.flatMap((line) => line.split(" "));
  assert.deepEqual([page.length, new Set(shown).size], [3, 6]);
  assert.deepEqual(rewards, ["accepted", "accepted"]);
  await until(async () => (await observed("doc-hero")) === 2 && (await observed("doc-footer")) === 1);
  assert.deepEqual(batch.map((line) => line.split(" ").length), [3, 3]);
});

test("a frozen or dead service leaves a page of own rankings, in time and no item twice", async () => {
  const shop = client({ fallbackTimeoutMs: 150, breaker: { failures: 2, pauseMs: 60_000 } });
  const asked = { placements: BANDITS.map((bandit) => ({ bandit, fallback: ITEMS, fallbackSize: 3, rules: [{ exclude: ["item-1"] }] })) };
  const shown = async (options = asked) => {
    const page = await shop.recommendPage(options);
    noItemTwice(page);
    assert.deepEqual([page.id, page.bandits], ["", ["", "", ""]]);
    return page;
  };
  service.freeze();
  try {
    const began = performance.now();
    const page = await shown();
    assert.ok(performance.now() - began < 150 + 1500);
    assert.deepEqual(page.slates.map(({ items }) => items), [["item-0", "item-2", "item-3"], ["item-4", "item-5", "item-6"], ["item-7", "item-8", "item-9"]]);
    const [own, missing] = (await shown({ placements: [{ bandit: "hero", fallback: ITEMS, fallbackSize: 2 }, { bandit: "below" }, { bandit: "footer", fallback: ITEMS }] })).slates;
    assert.deepEqual([own.items, missing.code], [["item-0", "item-1"], "DEADLINE_EXCEEDED"]);
  } finally {
    service.thaw();
  }
  // Two calls of several slates were two without an answer, and now none is sent.
  assert.deepEqual((await shown({ placements: [{ bandit: "hero" }, ...asked.placements.slice(1)] })).slates.map((one) => one.details?.reason ?? one.source), ["BREAKER_OPEN", "fallback", "fallback"]);
  assert.deepEqual(shop.fallbacks, { DEADLINE_EXCEEDED: 5, BREAKER_OPEN: 2 });
  const outbox = shop.outbox(memoryStorage());
  assert.equal(await outbox.rewardPage({ page: await shown(), value: 1 }), 0);
  assert.equal((await outbox.status()).pending, 0);
  outbox.close();
  await service.kill();
  const dead = client({ deadlineMs: 1000 });
  await assert.rejects(dead.recommendPage({ placements: placements(), deadlineMs: 1000 }), { code: "UNAVAILABLE" });
  assert.equal((await dead.recommendPage({ ...asked, deadlineMs: 1000 })).slates[0].source, "fallback");
});
