// The example's page in a real browser, from another origin than the real service.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, request as ask } from "node:http";
import { extname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Browser, skip } from "./browser.mjs";
import { ROOT, Service } from "./service.mjs";

const KINDS = { ".html": "text/html", ".js": "text/javascript" };
const OWN = ["milk", "cocoa", "coffee"];
const CONTEXT = [{ name: "device", categorical: { values: ["phone", "desktop"] } }, { name: "hour", numeric: { min: 0, max: 24 } }];

const pages = createServer((request, response) => {
  const path = new URL(request.url, "http://here").pathname;
  if (path === "/elsewhere") return response.writeHead(200, { "Content-Type": "text/html" }).end("<title>elsewhere</title>");
  if (!KINDS[extname(path)]) return response.writeHead(404).end();
  response.writeHead(200, { "Content-Type": KINDS[extname(path)] }).end(readFileSync(join(ROOT, path)));
});
const browser = new Browser();
let service, origin;

const stats = () => service.post("BanditService/GetBanditStats", { bandit: "tenants/acme/bandits/home" });
const items = () => browser.run("[...document.querySelectorAll('main button')].map(one => one.value)");
const status = (text) => browser.until(`document.querySelector("[role=status]").textContent === ${JSON.stringify(text)}`);

async function visit(url = service.url) {
  await browser.open(`${origin}/example/shop.html?service=${encodeURIComponent(url)}`);
  await browser.until("document.querySelector('main').ariaBusy === 'false'");
  return browser.run("document.querySelector('main').dataset.source");
}

/** The first calls of a service and a browser may be slower than a page waits. */
async function visitUntilServed(url = service.url) {
  const end = performance.now() + 30_000;
  while ((await visit(url)) !== "service") assert.ok(performance.now() < end, (await browser.console()).join("\n"));
}

/** Serve what a service does, but let a browser wait for the leave to post rewards, and take none while that is `away`. */
async function forwarding(url, ms) {
  const server = createServer(async (request, response) => {
    const rewards = request.url.endsWith("/BatchReward");
    if (rewards && far.away) return request.socket.destroy();
    if (rewards && request.method === "OPTIONS") await new Promise((resolve) => setTimeout(resolve, ms));
    const { method, headers } = request;
    request.pipe(ask(url + request.url, { method, headers }, (answer) => answer.pipe(response.writeHead(answer.statusCode, answer.headers))));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const far = { url: `http://127.0.0.1:${server.address().port}`, away: false, close: () => (server.close(), server.closeAllConnections()) };
  return far;
}

/** A reward waits for the answer to its slate's activation. */
const untilDelivered = () => browser.until("localStorage.length === 0");

async function until(holds) {
  const end = performance.now() + 30_000;
  while (!(await holds())) {
    assert.ok(performance.now() < end);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

describe("the page of the example", { skip }, () => {
  before(async () => {
    await new Promise((resolve) => pages.listen(0, "127.0.0.1", resolve));
    origin = `http://127.0.0.1:${pages.address().port}`;
    service = new Service(`--http-origins=${origin}`);
    await service.start();
    await service.create("home", { requiresActivation: true, defaultReward: 0, contextSchema: { features: CONTEXT } });
    await browser.start();
  });
  after(async () => {
    await browser.close();
    await service.close();
    pages.close();
    pages.closeAllConnections();
  });

  test("a slate is shown and activated, and a click on it is learned once", async () => {
    await visitUntilServed();
    await status("shown: kept");
    assert.equal(new Set(await items()).size, 3);
    const { observationCount } = await stats();
    await browser.console();
    await browser.click("main button");
    await status("clicked: kept");
    await browser.click("main button"); // a reward of its own, of which the service keeps the first
    await until(async () => Number((await stats()).observationCount) === Number(observationCount) + 1);
    assert.ok((await stats()).meanReward > 0);
    assert.deepEqual(await browser.console(), []);
  });

  test("a click that leads away is rewarded all the same", async () => {
    const far = await forwarding(service.url, 1000);
    try {
      await visitUntilServed(far.url);
      await status("shown: kept");
      await untilDelivered();
      const { observationCount } = await stats();
      await browser.run("(document.querySelector('main button').click(), location.assign('/elsewhere'))");
      await browser.until("document.title === 'elsewhere'");
      assert.equal((await stats()).observationCount, observationCount);
      await until(async () => Number((await stats()).observationCount) === Number(observationCount) + 1);
    } finally {
      far.close();
    }
  });

  test("a click while the service takes no rewards is kept, and delivered once by the page that is loaded next", async () => {
    const far = await forwarding(service.url, 0);
    try {
      await visitUntilServed(far.url);
      await untilDelivered();
      const { observationCount } = await stats();
      far.away = true;
      await browser.click("main button");
      await status("clicked: kept");
      await browser.reload();
      await status("shown: kept");
      assert.ok((await browser.run("localStorage.length")) >= 1);
      assert.equal((await stats()).observationCount, observationCount);
      far.away = false;
      await untilDelivered();
      await until(async () => Number((await stats()).observationCount) === Number(observationCount) + 1);
    } finally {
      far.close();
    }
  });

  test("what a tab that is closed has left, another one delivers", async () => {
    const far = await forwarding(service.url, 0);
    try {
      await visitUntilServed(far.url);
      const first = await browser.openTab();
      await visitUntilServed(far.url);
      await untilDelivered();
      const { observationCount } = await stats();
      far.away = true;
      await browser.click("main button");
      await status("clicked: kept");
      await browser.closeTab(first);
      assert.equal((await stats()).observationCount, observationCount);
      far.away = false;
      await untilDelivered();
      await until(async () => Number((await stats()).observationCount) === Number(observationCount) + 1);
    } finally {
      far.close();
    }
  });

  test("a page whose origin may not call shows the shop's own ranking", async () => {
    const other = new Service("--http-origins=https://shop.example");
    try {
      await other.start();
      assert.equal(await visit(other.url), "fallback");
      assert.deepEqual(await items(), OWN);
    } finally {
      await other.close();
    }
  });

  test("a page with a service that hangs, and with none", async () => {
    service.freeze();
    try {
      assert.equal(await visit(), "fallback");
      assert.deepEqual(await items(), OWN);
    } finally {
      service.thaw();
    }
    await service.kill();
    assert.equal(await visit(), "fallback");
    assert.deepEqual(await items(), OWN);
    await browser.click("main button");
    await status("milk is in the basket");
  });
});
