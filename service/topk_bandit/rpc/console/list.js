// All bandits at a glance, and a search among them.

import { overviews } from "./calls.js";
import { element, soft } from "./elements.js";
import { bytes, count, number, share } from "./figures.js";

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

const short = (name) => name.split("/").filter((_, at) => at % 2).join("/");

export const addressOf = (name) => `#/${name}`;

function figures(overview) {
  const { glance, pendingCount, lateRewardCount } = overview;
  const stored = [count(pendingCount), count(lateRewardCount)];
  if (!glance) return ["", "", "", "", "", "", ...stored, "", ""];
  const slates = Number(glance.recommendationCount), rewards = Number(glance.observationCount);
  return [
    count(slates), count(rewards), rewards ? number(glance.meanReward) : "–", number(glance.regretBoundSum), number(glance.estimatedRegretSum),
    slates ? share(Number(glance.exploredCount) / slates) : "–", ...stored, count(glance.itemCount), bytes(glance.memoryBytes),
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
    figures(overview).forEach((text, at) => {
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
    const head = COLUMNS.map((name) => element("th", { scope: "col", class: name.startsWith("#") ? "figure" : undefined }, name.replace("#", "")));
    parent.replaceChildren(
      element("h1", {}, this.title),
      element("div", { class: "search", role: "search" }, element("label", { for: "search" }, "Search"), this.search, this.found),
      element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Bandits at a glance" },
        element("table", { id: "bandits" }, element("caption", { class: "hidden" }, "Bandits at a glance"), element("thead", {}, element("tr", {}, head)), this.body)),
      soft("A bandit that rests has no model in the memory of the worker that answered; opening it brings it back."),
    );
  }

  async update(signal) {
    const known = new Set();
    let before = null;
    for await (const page of overviews(this.tenant, signal)) {
      for (const overview of page) {
        known.add(overview.name);
        before = this.place(overview, before);
      }
      this.sift();
    }
    for (const [name, row] of this.rows) if (!known.has(name)) { row.element.remove(); this.rows.delete(name); }
    this.sift();
  }

  place(overview, before) {
    let row = this.rows.get(overview.name);
    if (!row) this.rows.set(overview.name, (row = new Row(overview.name)));
    row.show(overview);
    const next = before ? before.nextSibling : this.body.firstChild;
    if (next !== row.element) this.body.insertBefore(row.element, next);
    return row.element;
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
