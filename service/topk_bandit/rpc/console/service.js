// The service itself: how the worker that answered and the store are, and how long calls took lately.

import { serviceStatus } from "./calls.js";
import { element, facts, replace, section, soft, table } from "./elements.js";
import { bytes, count, instant, milliseconds } from "./figures.js";

const storeFacts = (store) => facts([
  ["Store", `${store.server} ${store.version}, ${store.mode}`],
  ["Keeps what it acknowledges", element("span", { class: store.problems.length ? "bad" : "good" }, store.problems.length ? "no" : "yes")],
  ["Awaited before that", store.durability],
  ["Its memory", `${bytes(store.memoryBytes)} of ${Number(store.memoryLimitBytes) ? bytes(store.memoryLimitBytes) : "no limit"}`],
]);

const workerFacts = ({ version, worker, startTime }) =>
  facts([["Service", version], ["Worker that answered", worker], ["Since", instant(startTime)]]);

function latencies({ calls, window }) {
  const caption = `Calls of the last ${count(Math.round(parseFloat(window)))} s in this worker, in milliseconds`;
  if (calls.length === 0) return soft("No call was answered lately.");
  const rows = calls.map((call) => [
    call.method.replace(/^.*\./, ""), count(call.callCount), count(call.failedCount),
    ...[call.medianSeconds, call.p90Seconds, call.p99Seconds].map(milliseconds),
  ]);
  return table(caption, ["Call", "#Calls", "#Failed", "#Median", "#90 %", "#99 %"], rows);
}

export class ServiceStatus {
  constructor() {
    this.place = element("div");
    this.warning = element("p", { class: "bad", role: "status" });
    this.element = section("The service", "service", this.place);
  }

  async update(signal) {
    const status = await serviceStatus(signal);
    const wrong = status.store ? status.store.problems.join(" ") : "The store is away: slates are given out and not recorded, and rewards are refused.";
    if (this.warning.textContent !== wrong) this.warning.textContent = wrong;
    replace(this.place, element("div", { class: "columns" }, workerFacts(status), status.store ? storeFacts(status.store) : ""), latencies(status));
  }
}
