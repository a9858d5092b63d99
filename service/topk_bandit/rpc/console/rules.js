// A bandit's rules: in words and as JSON, which were given up lately, and a form to try others and to save them.

import { settings, topSlates, updateRules } from "./calls.js";
import { element, facts, replace, section, soft, table } from "./elements.js";
import { count, instant, number } from "./figures.js";

const NO_CHANGES = "Nothing can be changed here, since the service has no keys: topk-bandit bandits update BANDIT --rules FILE.";

// What is left out is what the service takes for nothing. No item at most is something.
const isEmpty = (value) => [false, 0, ""].includes(value) || (Array.isArray(value) && !value.length);
const isSaid = ([name, value]) => name === "atMost" || !isEmpty(value);

function shortened(value) {
  if (Array.isArray(value)) return value.map(shortened);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).filter(isSaid).map(([name, one]) => [name, shortened(one)]));
}

const written = (rules) => JSON.stringify({ rules: shortened(rules) }, null, 2);

function inWords(rules) {
  return rules.length ? element("ol", {}, rules.map((rule) => element("li", {}, rule))) : soft("None.");
}

// How the newest slates of the log kept to rules: the bandit's own, and those of their requests.
export function keptLately(recommended) {
  const given = new Map();
  let all = 0, asked = 0;
  for (const { time, request, recommendation } of recommended) {
    if (request.rules?.length) asked += 1;
    const relaxed = recommendation.relaxed ?? [];
    if (!relaxed.length) all += 1;
    for (const rule of relaxed) given.set(rule, { total: (given.get(rule)?.total ?? 0) + 1, time });
  }
  return { all, asked, given: [...given].sort(([, one], [, other]) => other.total - one.total) };
}

function lately(recommended) {
  if (recommended.length === 0) return [soft("No slate was given out in the newest 1,000 events.")];
  const { all, asked, given } = keptLately(recommended);
  const rows = given.map(([rule, { total, time }]) => [rule, count(total), instant(time)]);
  return [
    facts([
      ["Newest slates of the log", count(recommended.length)],
      ["With rules of their request", count(asked)],
      ["Kept every rule", count(all)],
      ["Gave up a rule", count(recommended.length - all)],
    ]),
    rows.length ? table("Given up lately", ["Rule", "#Slates", "Newest"], rows) : soft("No rule was given up."),
    soft("A request whose rules no slate keeps gets none, and is not in the log: topk_bandit_rules_clashes_total counts them."),
  ];
}

// What slates would be under rules that were tried.
function outcome({ itemCount, rules, relaxedRules, slates }, available) {
  const rows = slates.map((slate, at) => [String(at + 1), slate.itemIds.join(", "), number(slate.mean)]);
  return [
    element("p", { class: relaxedRules.length ? "bad" : "good" }, relaxedRules.length
      ? `No slate keeps all of them. Given up: ${relaxedRules.join("; ")}.`
      : `They leave ${count(itemCount)} of ${count(available)} available items, and some slates keep them all.`),
    element("h3", {}, "In words"), inWords(rules),
    table("Best slates under these rules", ["#Rank", "Slate", "#Mean"], rows),
  ];
}

// A context to try rules at before there is a slate.
function anyContext({ contextDimension, contextSchema }) {
  return contextDimension > 1 && !contextSchema ? { context: [1, ...Array(contextDimension - 1).fill(0)] } : {};
}

export class Rules {
  constructor(name) {
    this.name = name;
    this.saved = this.checked = null;
    this.available = 0;
    this.context = undefined;
    this.words = element("div");
    this.lately = element("div");
    this.json = element("pre", { tabindex: "0", role: "group", "aria-label": "The rules as JSON" });
    this.text = element("textarea", { id: "rules-text", rows: "8", spellcheck: "false", autocomplete: "off", "aria-describedby": "rules-about" });
    this.save = element("button", { type: "button", disabled: true, onclick: () => this.run(() => this.store()) }, "Save");
    this.said = element("div", { id: "rules-said", role: "status" });
    this.text.addEventListener("input", () => this.forget());
    const check = (event) => {
      event.preventDefault();
      this.run(() => this.check());
    };
    this.element = section("Rules", "rules", element("div", { class: "columns" },
      element("div", {}, element("h3", {}, "Each slate keeps"), this.words, element("h3", {}, "As JSON"), this.json),
      element("div", {}, element("h3", {}, "Lately"), this.lately)),
    element("details", { id: "rules-edit" }, element("summary", {}, "Change them"),
      element("form", { class: "editor", onsubmit: check },
        element("label", { for: "rules-text" }, "Rules as JSON"), this.text,
        element("p", { class: "soft", id: "rules-about" }, "Check them first: that changes nothing. Saving needs a key with the scope manage."),
        element("div", {}, element("button", {}, "Check"), " ", this.save)),
      this.said));
  }

  // Shows the rules of now; what is being written stays.
  async show(current, signal) {
    const made = await settings(this.name, signal);
    const text = written(made.rules);
    this.context ??= anyContext(made);
    this.available = current.availableItemCount;
    replace(this.words, inWords(current.rules));
    if (this.json.textContent !== text) this.json.textContent = text;
    if (text !== this.saved && (this.saved === null || this.text.value === this.saved)) {
      this.text.value = text;
      this.forget();
    }
    this.saved = text;
  }

  showLately(recommended) {
    replace(this.lately, ...lately(recommended));
  }

  forget() {
    this.checked = null;
    this.save.disabled = true;
    this.said.replaceChildren();
  }

  // Does one thing after the other, and says why it could not be done.
  async run(work) {
    if (this.isBusy) return;
    this.isBusy = true;
    try {
      this.said.replaceChildren(...(await work()));
    } catch (error) {
      this.forget();
      this.said.replaceChildren(element("p", { class: "bad" }, problemOf(error)));
    }
    this.isBusy = false;
  }

  async check() {
    this.forget();
    const text = this.text.value;
    const tried = await topSlates(this.name, { ...this.context, proposed: rulesIn(text) });
    if (this.text.value === text) {
      this.checked = { text, base: this.saved };
      this.save.disabled = false;
    }
    return outcome(tried, this.available);
  }

  // Saves what was checked, unless the rules were changed elsewhere meanwhile.
  async store() {
    const { text, base } = this.checked;
    const now = written((await settings(this.name)).rules);
    if (now !== base) {
      this.forget();
      return [element("p", { class: "bad" }, "The rules were changed elsewhere meanwhile. Look at them, and check yours again.")];
    }
    const { rules } = await updateRules(this.name, rulesIn(text).rules);
    this.forget();
    this.saved = this.text.value = this.json.textContent = written(rules);
    return [element("p", { class: "good" }, "Saved. Each slate that is recorded from now on keeps them.")];
  }
}

function rulesIn(text) {
  const content = JSON.parse(text);
  const names = typeof content === "object" && content !== null && !Array.isArray(content) ? Object.keys(content) : [];
  if (names.join() !== "rules" || !Array.isArray(content.rules)) throw new SyntaxError('write {"rules": [...]}');
  return content;
}

function problemOf(error) {
  if (error instanceof SyntaxError) return `This is no JSON of rules: ${error.message}`;
  if (error.code === "unimplemented") return NO_CHANGES;
  if (error.code === "permission_denied") return `${error.message}. Saving needs a key with the scope manage.`;
  return error.code ? error.message : "The service does not answer.";
}
