// A real headless Chromium, driven by the WebDriver protocol.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";

// A page that is left ends: the cache for going back would let its calls go on for a while.
const FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-features=BackForwardCache"];

const [CHROMIUM, DRIVER] = ["chromium", "chromedriver"].map((name) =>
  process.env.PATH.split(delimiter).map((folder) => join(folder, name)).find(runs),
);

/** Why there is no browser, on somebody's own machine; in CI there has to be one. */
export const skip = process.env.CI !== "true" && !(CHROMIUM && DRIVER) && "chromium or chromedriver is not installed";

function runs(path) {
  try {
    return accessSync(path, constants.X_OK) ?? true;
  } catch {
    return false;
  }
}

export class Browser {
  #folder = mkdtempSync(join(tmpdir(), "tkb-"));
  #driver;
  #session;

  async start() {
    this.#driver = spawn(DRIVER, ["--port=0"], { stdio: ["ignore", "pipe", "ignore"] });
    await once(this.#driver, "spawn");
    for await (const line of createInterface({ input: this.#driver.stdout })) {
      const port = line.match(/successfully on port (\d+)/)?.[1];
      if (port) {
        this.#session = `http://127.0.0.1:${port}/session`;
        break;
      }
    }
    const chrome = { binary: CHROMIUM, args: [...FLAGS, `--user-data-dir=${this.#folder}`] };
    const capabilities = { alwaysMatch: { "goog:chromeOptions": chrome, "goog:loggingPrefs": { browser: "ALL" } } };
    const { sessionId } = await this.#ask("POST", "", { capabilities });
    this.#session += `/${sessionId}`;
  }

  open(url) {
    return this.#ask("POST", "/url", { url });
  }

  reload() {
    return this.#ask("POST", "/refresh", {});
  }

  /** Go on in a new tab; return the one that was left. */
  async openTab() {
    const left = await this.#ask("GET", "/window");
    const { handle } = await this.#ask("POST", "/window/new", { type: "tab" });
    await this.#ask("POST", "/window", { handle });
    return left;
  }

  /** Close the tab, and go on in another one. */
  async closeTab(handle) {
    await this.#ask("DELETE", "/window");
    await this.#ask("POST", "/window", { handle });
  }

  run(script, ...args) {
    return this.#ask("POST", "/execute/sync", { script: `return ${script}`, args });
  }

  async click(selector) {
    const found = await this.#ask("POST", "/element", { using: "css selector", value: selector });
    await this.#ask("POST", `/element/${Object.values(found)[0]}/click`, {});
  }

  /** Return what a script gives once it is true. */
  async until(script, seconds = 30) {
    const end = performance.now() + seconds * 1000;
    while (performance.now() < end) {
      const seen = await this.run(script);
      if (seen) return seen;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    throw new Error(`not within ${seconds} s: ${script}; the page: ${await this.run("document.body.innerHTML")}`);
  }

  /** Return what the page said to the console since the last time. */
  async console() {
    return (await this.#ask("POST", "/se/log", { type: "browser" })).map(({ message }) => message);
  }

  async close() {
    await this.#ask("DELETE", "", undefined).catch(() => {});
    const ended = once(this.#driver, "exit");
    this.#driver.kill();
    await ended;
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 20 });
  }

  async #ask(method, path, body) {
    const answer = await fetch(this.#session + path, { method, body: body && JSON.stringify(body) });
    const { value } = await answer.json();
    if (!answer.ok) throw new Error(`${path}: ${value.message}`);
    return value;
  }
}
