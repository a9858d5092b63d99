// All bandits at a glance, and a search among them.

import { overviews } from "./calls.js";
import { element, soft } from "./elements.js";
import { bytes, count, number, share } from "./figures.js";
import { ServiceStatus } from "./service.js";
import { Studies } from "./study.js";

const COLUMNS = ["Bandit", "State", "#Slates", "#Rewards", "#Mean reward", "#Regret bound", "#Estimated regret", "#Explored", "#Waiting", "#Late", "#Items", "#Memory"];

const SAID = { bad: "behind", good: "learning", new: "without a reward", resting: "resting" };
const MOST_BEHIND = 1000;

// The state in words: what is wrong first.
export function stateOf({ glance, logPosition }) {
  if (!glance) return ["rests", "resting"];
  const behind = Number(logPosition) - Number(glance.modelVersion);
  if (behind > MOST_BEHIND) return [`${count(behind)} events behind`, "bad"];
  if (Number(glance.observationCount) === 0) return ["no reward yet", "new"];
  return ["learns", "good"];
}

const NOTHING = [-Infinity, ""];

const short = (name) => name.split("/").filter((_, at) => at % 2).join("/");

export const addressOf = (name) => `#/${name}`;

// What the columns from the third on show: numbers to sort by, and what is read. What rests has few.
function figures({ glance, pendingCount, lateRewardCount }) {
  const waiting = [Number(pendingCount), count(pendingCount)], late = [Number(lateRewardCount), count(lateRewardCount)];
  if (!glance) return [...Array(6).fill(NOTHING), waiting, late, NOTHING, NOTHING];
  const slates = Number(glance.recommendationCount), rewards = Number(glance.observationCount), memory = Number(glance.memoryBytes);
  const explored = Number(glance.exploredCount) / slates;
  return [
    [slates, count(slates)], [rewards, count(rewards)], rewards ? [glance.meanReward, number(glance.meanReward)] : NOTHING,
    [glance.regretBoundSum, number(glance.regretBoundSum)], [glance.estimatedRegretSum, number(glance.estimatedRegretSum)],
    slates ? [explored, share(explored)] : NOTHING, waiting, late, [glance.itemCount, count(glance.itemCount)], [memory, bytes(memory)],
  ];
}

class Row {
  constructor(name) {
    this.text = short(name).toLowerCase();
    this.kind = "";
    this.state = element("span", {});
    this.cells = COLUMNS.slice(2).map(() => element("td", { class: "figure" }));
    const link = element("a", { href: addressOf(name) }, short(name));
    this.element = element("tr", {}, element("th", { scope: "row" }, link), element("td", {}, this.state), this.cells);
  }

  show(overview) {
    const [words, kind] = stateOf(overview);
    if (this.state.textContent !== words) this.state.textContent = words;
    this.kind = kind;
    this.state.className = kind;
    const all = figures(overview);
    this.values = [this.text, words, ...all.map(([value]) => value)];
    all.forEach(([, text], at) => {
      if (this.cells[at].textContent !== text) this.cells[at].textContent = text;
    });
  }
}

export class List {
  title = "Bandits";
  period = 5000;

  constructor(parent, tenant) {
    this.tenant = tenant;
    this.rows = new Map();
    this.search = element("input", { id: "search", type: "search", autocomplete: "off", spellcheck: "false", oninput: () => this.sift() });
    this.found = element("p", { class: "soft", role: "status", id: "found" }, "");
    this.body = element("tbody");
    this.head = COLUMNS.map((name, at) => element("th", { scope: "col", class: name.startsWith("#") ? "figure" : undefined },
      element("button", { type: "button", onclick: () => this.sortBy(at) }, name.replace("#", ""))));
    this.sorting = { at: 0, down: false };
    this.service = tenant ? undefined : new ServiceStatus(); // a key for one tenant may not ask for it
    this.studies = tenant ? new Studies(tenant) : undefined; // which are listed by their tenant
    parent.replaceChildren(
      element("h1", {}, this.title),
      this.service?.warning ?? "",
      element("div", { class: "search", role: "search" }, element("label", { for: "search" }, "Search"), this.search, this.found),
      element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Bandits at a glance" },
        element("table", { id: "bandits" }, element("caption", { class: "hidden" }, "Bandits at a glance"), element("thead", {}, element("tr", {}, this.head)), this.body)),
      soft("A bandit that rests has no model in the memory of the worker that answered; opening it brings it back."),
      this.studies?.element ?? soft("Studies are listed once a tenant is named above."),
      this.service?.element ?? "",
    );
  }

  async update(signal) {
    const known = new Set();
    for await (const page of overviews(this.tenant, signal)) {
      for (const overview of page) {
        known.add(overview.name);
        this.show(overview);
      }
      this.order();
      this.sift();
    }
    for (const [name, row] of this.rows) if (!known.has(name)) { row.element.remove(); this.rows.delete(name); }
    this.sift();
    await this.studies?.update(signal);
    await this.service?.update(signal);
  }

  show(overview) {
    if (!this.rows.has(overview.name)) this.rows.set(overview.name, new Row(overview.name));
    this.rows.get(overview.name).show(overview);
  }

  // By a column: names upwards and figures downwards at first, and the other way round the next time.
  sortBy(at) {
    const down = this.sorting.at === at ? !this.sorting.down : COLUMNS[at].startsWith("#");
    this.sorting = { at, down };
    this.head.forEach((one, column) => (column === at ? one.setAttribute("aria-sort", down ? "descending" : "ascending") : one.removeAttribute("aria-sort")));
    this.order();
  }

  // Rows that stand right are not moved, and what is focused stays so.
  order() {
    const { at, down } = this.sorting, sign = down ? -1 : 1, held = document.activeElement;
    const compare = (one, other) => (one === other ? 0 : one < other ? -1 : 1);
    const rows = [...this.rows.values()].sort((one, other) => sign * compare(one.values[at], other.values[at]) || compare(one.text, other.text));
    let next = this.body.firstChild;
    for (const { element: row } of rows) {
      if (row === next) next = next.nextSibling;
      else this.body.insertBefore(row, next);
    }
    if (this.body.contains(held) && document.activeElement !== held) held.focus({ preventScroll: true });
  }

  // How many bandits are in which state, and how many are shown.
  sift() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { element: row, text } of this.rows.values()) {
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    const kinds = [...this.rows.values()].map(({ kind }) => kind);
    const states = Object.entries(SAID).map(([kind, say]) => [kinds.filter((one) => one === kind).length, say]);
    const all = `${count(kinds.length)} bandits: ${states.filter(([many]) => many).map(([many, say]) => `${count(many)} ${say}`).join(", ")}`;
    const said = words.length ? `${count(shown)} of ${count(kinds.length)} bandits` : kinds.length ? all : "no bandits";
    if (this.found.textContent !== said) this.found.textContent = said;
  }
}
