// The real service in processes of its own, to be called over HTTP, frozen and killed.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { webcrypto } from "node:crypto";

globalThis.crypto ??= webcrypto; // Node 18, which Debian 12 has, keeps it to itself

export const ROOT = new URL("../", import.meta.url).pathname;
const COMMAND = join(ROOT, "../../.venv/bin/topk-bandit");
const LISTENERS = ["listen", "http-listen", "metrics-listen"].map((name) => `--${name}=127.0.0.1:0`);

export class Service {
  #folder = mkdtempSync(join(tmpdir(), "tkb-"));
  #flags;
  #process;
  #stores = new Set();
  #log = [];

  constructor(...flags) {
    this.#flags = ["serve", ...LISTENERS, `--data-dir=${this.#folder}`, ...flags];
  }

  async start() {
    const kept = Object.entries(process.env).filter(([name]) => !name.startsWith("TOPK_BANDIT_"));
    this.#process = spawn(COMMAND, this.#flags, { env: Object.fromEntries(kept), stdio: ["ignore", "ignore", "pipe"] });
    for await (const line of createInterface({ input: this.#process.stderr })) {
      this.#log.push(line);
      const record = line.startsWith("{") ? JSON.parse(line) : {};
      if (record.store_pid) this.#stores.add(record.store_pid);
      if (record.message === "serving") {
        this.url = `http://${record.http_address}`;
        this.grpcUrl = `http://${record.address}`;
        this.#process.stderr.resume();
        return;
      }
    }
    throw new Error(`the service ended: ${this.#log.join("\n")}`);
  }

  /** Make a call as curl would; return the answer's JSON. */
  async post(call, body) {
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch(`${this.url}/topk_bandit.v1.${call}`, { method: "POST", headers, body: JSON.stringify(body) });
    const told = await answer.json();
    if (!answer.ok) throw new Error(`${call}: ${told.message}`);
    return told;
  }

  /** Create a bandit with items. */
  async create(id, settings, items = ["tea", "coffee", "cocoa", "milk"]) {
    const name = `tenants/acme/bandits/${id}`;
    await this.post("BanditService/CreateBandit", { bandit: { name, slateSize: 3, itemCapacity: 20, ...settings } });
    await this.post("BanditService/UpsertItems", { bandit: name, items: items.map((itemId) => ({ itemId })) });
  }

  /** Hold the supervisor first: it would replace a worker that does not answer. */
  freeze() {
    this.#signal("SIGSTOP", this.#process.pid, ...this.#children());
  }

  thaw() {
    this.#signal("SIGCONT", ...this.#children(), this.#process.pid);
  }

  async kill() {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    this.#signal("SIGSTOP", this.#process.pid);
    const everything = [...this.#children(), ...this.#stores, this.#process.pid];
    const ended = once(this.#process, "exit");
    this.#signal("SIGKILL", ...everything);
    await ended;
  }

  async close() {
    await this.kill();
    this.#process.stderr.destroy();
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 20 });
  }

  #children() {
    const { stdout } = spawnSync("ps", ["-ax", "-o", "pid=,ppid="], { encoding: "utf8" });
    const rows = stdout.trim().split("\n").map((line) => line.trim().split(/\s+/).map(Number));
    return rows.filter(([pid, parent]) => parent === this.#process.pid && !this.#stores.has(pid)).map(([pid]) => pid);
  }

  #signal(name, ...pids) {
    for (const pid of pids) {
      try {
        process.kill(pid, name);
      } catch (error) {
        if (error.code !== "ESRCH") throw error;
      }
    }
  }
}
