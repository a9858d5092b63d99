// Whatever happens to the service, a page with a fallback has a slate within its deadline.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { createClient } from "../dist/topk-bandit.js";
import { Service } from "./service.mjs";

const OWN = ["z", "y", "x", "w"];
const DEADLINE = 150;
const GENEROUS = 1500; // what a machine that others use too may take more; every other limit here is far beyond it
const REFUSED = 1000; // on a busy machine even a refused connection may take longer than a page's deadline
const SILENT = { warn() {}, error() {} };

const service = new Service();
const shop = (url, options = {}) => createClient({ url, tenant: "acme", timeoutMs: 60_000, breaker: null, log: SILENT, ...options });

before(async () => {
  await service.start();
  await service.create("home", {});
});
after(() => service.close());

async function shown(client, options = {}) {
  const began = performance.now();
  const slate = await client.recommend({ bandit: "home", fallback: OWN, fallbackSize: 3, ...options });
  const ms = performance.now() - began;
  assert.equal(slate.items.length, 3);
  assert.ok(ms < DEADLINE + GENEROUS, `${ms} ms`);
  return { slate, ms };
}

async function answering(handle, use) {
  const server = createServer(handle);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await use(`http://127.0.0.1:${server.address().port}`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test("a service that hangs is not waited for, and found again", async () => {
  const client = shop(service.url);
  service.freeze();
  try {
    for (let time = 0; time < 4; time++) {
      const { slate, ms } = await shown(client);
      assert.equal(slate.source, "fallback");
      assert.ok(ms > DEADLINE - 5, `not before its time: ${ms} ms`);
    }
  } finally {
    service.thaw();
  }
  assert.deepEqual(client.fallbacks, { DEADLINE_EXCEEDED: 4 });
  assert.equal((await client.recommend({ bandit: "home", fallback: OWN, deadlineMs: 30_000 })).source, "service");
});

test("a slow service", async () => {
  const client = shop(service.url);
  let ended = false;
  const slowly = (async () => {
    while (!ended) {
      service.freeze();
      await new Promise((resolve) => setTimeout(resolve, 270));
      service.thaw();
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
  })();
  while (client.slates.fallback < 6) await shown(client);
  ended = true;
  await slowly;
  assert.ok(client.fallbacks.DEADLINE_EXCEEDED >= 1);
});

test("a reward is tried again until the service is back", async () => {
  const client = shop(service.url);
  const { id } = await client.recommend({ bandit: "home" });
  let refusals = 0;
  const forward = async (request, response) => {
    if (refusals++ < 3) return response.socket.destroy();
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const answer = await fetch(service.url + request.url, { method: "POST", headers: { "Content-Type": "application/json" }, body: Buffer.concat(pieces) });
    response.end(await answer.text());
  };
  await answering(forward, async (url) => {
    assert.equal((await shop(url).reward({ bandit: "home", recommendationId: id, value: 1 })).outcome, "accepted");
  });
  assert.equal(refusals, 4);
});

test("a recommend whose answer was lost is the same recommendation when it is sent again", async () => {
  const ids = [];
  const lossy = async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const answer = await fetch(service.url + request.url, { method: "POST", headers: { "Content-Type": "application/json" }, body: Buffer.concat(pieces) });
    const text = await answer.text();
    ids.push(JSON.parse(text).recommendationId);
    if (ids.length < 3) return response.socket.destroy();
    response.end(text);
  };
  const slate = await answering(lossy, (url) => shop(url).recommend({ bandit: "home" }));
  assert.deepEqual(ids, [slate.id, slate.id, slate.id]);
});

test("killed", async () => {
  const client = shop(service.url);
  assert.equal((await client.recommend({ bandit: "home", fallback: OWN, deadlineMs: 30_000 })).source, "service");
  await service.kill();
  for (let time = 0; time < 4; time++) assert.equal((await shown(client, { fallbackSize: undefined, deadlineMs: REFUSED })).slate.source, "fallback");
  assert.deepEqual(client.fallbacks, { UNAVAILABLE: 4 });
  assert.deepEqual(client.slates, { service: 1, degraded: 0, fallback: 4 });
  await assert.rejects(client.recommend({ bandit: "home", deadlineMs: REFUSED }), { code: "UNAVAILABLE" });
  await assert.rejects(client.reward({ bandit: "home", recommendationId: "1", value: 1, deadlineMs: REFUSED }), { code: "UNAVAILABLE" });
});

const STRANGE = {
  "a page that is no answer": (_, response) => response.end("<html>"),
  "JSON that is no slate": (_, response) => response.end('{"itemIds": []}'),
  "JSON that is no object": (_, response) => response.end("null"),
  "a list of numbers": (_, response) => response.end('{"itemIds": [1, 2, 3]}'),
  "a proxy's error": (_, response) => response.writeHead(502).end("Bad Gateway"),
  "a teapot": (_, response) => response.writeHead(418).end('{"code": 7, "details": 3}'),
  "an error whose details are none": (_, response) => response.writeHead(400).end('{"code": "invalid_argument", "details": [{}, {"type": "google.rpc.RetryInfo"}]}'),
  "headers without a body": (_, response) => response.writeHead(200, { "Content-Length": "100" }).write("{"),
  "a body that drips": (_, response) => setInterval(() => response.write(" "), 20).unref(),
  "nothing": () => {},
  "a connection that ends": (request) => request.socket.destroy(),
  "what is no HTTP": (request) => request.socket.end("nonsense\r\n\r\n"),
};
for (const [what, handle] of Object.entries(STRANGE)) {
  test(`instead of a slate: ${what}`, () =>
    answering(handle, async (url) => {
      const client = shop(url);
      assert.deepEqual((await shown(client)).slate.items, ["z", "y", "x"]);
      assert.equal(client.slates.fallback, 1);
    }));
}

test("a fetch that heeds no signal is not waited for either", async () => {
  const client = shop(service.url, { fetch: () => new Promise(() => {}) });
  assert.equal((await shown(client)).slate.source, "fallback");
});
