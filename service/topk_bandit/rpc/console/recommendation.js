// One recommendation: its life, and why this slate.

import { explanation, lifeOf, stats } from "./calls.js";
import { element, facts, replace, section, shape, soft, table } from "./elements.js";
import { count, instant, number, share, signed } from "./figures.js";

const MODES = { MODE_EXPLOITED: "highest upper bound", MODE_EXPLORED: "drawn by a share of the exploration", MODE_BASELINE: "baseline slate" };
const GROUPS = { GROUP_CONTROL: ": the request was in the control group", GROUP_CONSERVATIVE: ": by its conservative_share the bandit had no more to lose" };
const STAGES = { STAGE_SHADOW: ": the bandit was in shadow", STAGE_OFF: ": the bandit was off" };

function chosenBy({ mode, stage, group }) {
  const known = MODES[mode] ?? mode.replace("MODE_", "").toLowerCase();
  if (mode !== "MODE_BASELINE") return known;
  return known + (GROUPS[group] ?? STAGES[stage] ?? ": too few candidates");
}

const SOURCES = {
  MODEL_SOURCE_LIVE: "the model in memory, which has learned nothing since",
  MODEL_SOURCE_REPLAYED: "the model that decided, folded again from the log",
  MODEL_SOURCE_TRIMMED: "gone",
};
const ABSENCES = {
  ABSENCE_REASON_UNKNOWN: "the bandit does not have it",
  ABSENCE_REASON_UNAVAILABLE: "it was unavailable",
  ABSENCE_REASON_NO_CANDIDATE: "it was not among the candidates of the request",
  ABSENCE_REASON_EXCLUDED: "a rule excludes it",
  ABSENCE_REASON_FILTERED: "it does not meet a rule's filter",
  ABSENCE_REASON_RULE: "no slate that keeps the rules shows it",
  ABSENCE_REASON_FREQUENT: "the visitor was shown it as often as a rule allows",
  ABSENCE_REASON_NOT_CHOSEN: "it could be shown: other slates were thought better, or another one was drawn",
};
const STEPS = {
  recommended: () => "recommended",
  activated: (event) => (event.instead ? `shown otherwise: ${event.shown.slate.join(", ")}` : "shown"),
  reward_collected: (event) => (event.value === null ? "reward taken back" : `reward ${number(event.value)} came in`),
  reward_amended: (event) => (event.value === null ? "reward voided" : `reward amended to ${number(event.value)}`),
  reward_revised: (event) => {
    if (event.value === null) return "reward taken back: it counts for nothing";
    if (event.is_final) return `rewarded with ${number(event.value)}`;
    return event.is_default ? `default reward ${number(event.value)} for now` : `reward ${number(event.value)} so far`;
  },
  rewarded: (event) => `rewarded with ${number(event.value)}`,
  expired: (event) => (event.default_reward === null ? "expired without a reward" : `expired; default reward ${number(event.default_reward)}`),
  lapsed: () => "never shown: lapsed",
};
const ENDS = new Set(["rewarded", "expired", "lapsed"]);
const isEnd = ({ type, is_final: isFinal }) => ENDS.has(type) || Boolean(isFinal);

function life({ events, whole }, version, deadline) {
  const rows = events.map((event) => [
    count(event.position), instant(event.time), (STEPS[event.type] ?? (() => event.type))(event),
    event.position <= version ? `yes, in version ${count(event.position)}` : "not yet",
  ]);
  const isLearned = events.some(({ type }) => type === "reward_revised");
  const open = whole ? `${isLearned ? "Its reward may change" : "It waits for its reward"} until ${instant(deadline)}.` : "Its end is not in the events that were looked at.";
  return [table("Its life", ["#Position", "Time", "What happened", "Folded"], rows), events.some(isEnd) ? null : soft(open)];
}

function bar(value, largest) {
  const width = largest ? (Math.abs(value) / largest) * 50 : 0;
  return shape("svg", { class: "bar", viewBox: "0 0 100 10", "aria-hidden": "true", preserveAspectRatio: "none" },
    shape("line", { class: "grid", x1: 50, x2: 50, y1: 0, y2: 10 }),
    shape("rect", { class: value < 0 ? "less" : "more", x: value < 0 ? 50 - width : 50, y: 1, width, height: 8 }));
}

export function partsOf({ offset, contextPart, items, pairs }) {
  const rows = [["Offset, common to all slates", offset]];
  if (contextPart) rows.push(["Context, common to all slates", contextPart]);
  for (const { itemId, position, own, content, prior } of items) {
    rows.push([`${itemId} at ${position}`, own]);
    if (content) rows.push([`${itemId}, by its features`, content]);
    if (prior) rows.push([`${itemId}, by the study`, prior]);
  }
  for (const { firstItemId, secondItemId, value } of pairs) rows.push([`${firstItemId} above ${secondItemId}`, value]);
  return rows;
}

function why(reasons) {
  const parts = partsOf(reasons), sum = parts.reduce((total, [, value]) => total + value, 0);
  const largest = Math.max(...parts.map(([, value]) => Math.abs(value)));
  const rows = parts.map(([name, value]) => [name, signed(value), bar(value, largest)]);
  rows.push([element("strong", {}, "Expected reward"), element("strong", {}, number(sum)), ""]);
  return [
    reasons.chosenAgain ? null : element("p", { class: "bad" }, "The model does not choose this slate again for this request: it was folded with another arithmetic, or something is wrong."),
    facts([
      ["Mean", number(reasons.shown.mean)], ["Spread", number(reasons.shown.standardDeviation)],
      ["Exploration width, beta", number(reasons.beta)], ["Upper bound", number(reasons.shown.upperBound)],
    ]),
    table("What adds up to the mean", ["Part", "#Adds", "Size"], rows),
    reasons.nextBest.length ? table("Next best slates", ["Slate", "#Mean", "#Spread", "#Upper bound", "#Score"], ranked(reasons)) : null,
  ];
}

const ranked = ({ shown, nextBest }) => [shown, ...nextBest].map((slate, at) => [
  at ? slate.itemIds.join(", ") : element("strong", {}, `${slate.itemIds.join(", ")} (shown)`),
  number(slate.mean), number(slate.standardDeviation), number(slate.upperBound), number(slate.score),
]);

const shownFor = ({ context, features }) => {
  if (context.length) return `[${context.map(number).join(", ")}]`;
  return Object.entries(features).map(([name, value]) => `${name} = ${JSON.stringify(Object.values(value)[0])}`).join(", ") || "none";
};

function about(explained) {
  const { recommendation } = explained;
  return facts([
    ["Slate", recommendation.itemIds.join(", ")],
    ["Chosen by", chosenBy(recommendation)],
    ["Best slate instead", explained.bestItemIds.join(", ") || "the same"],
    ["Context", shownFor(explained)],
    ["Candidates", explained.candidateItemIds.length ? explained.candidateItemIds.join(", ") : "every available item"],
    ["Rules given up", recommendation.relaxedRules.join("; ") || "none"],
    ["Promises paid", recommendation.paidExposures.join("; ") || "none"],
    ["Propensity", share(recommendation.propensity)],
    ["Regret bound", number(recommendation.regretBound)],
    ["Estimated regret", number(recommendation.estimatedRegret)],
    ["Decided at version", count(recommendation.modelVersion)],
    ["Model for the reasons", SOURCES[explained.modelSource] ?? explained.modelSource],
  ]);
}

// Why items are not in the slate.
function whyNot({ absentItems, modelSource }, ids) {
  if (modelSource === "MODEL_SOURCE_TRIMMED") return soft("The model that decided is gone.");
  if (!absentItems.length) return soft(ids.length ? "The slate shows all of these." : "Name an item.");
  const rows = absentItems.map(({ itemId, reason, rule }) => [itemId, ABSENCES[reason] ?? reason, rule || "–"]);
  return table("Why items are absent", ["Item", "Why", "Rule"], rows);
}

export class Recommendation {
  period = 5000;

  constructor(parent, name, id) {
    this.name = name;
    this.id = id;
    this.title = `Recommendation ${id}`;
    this.explained = null;
    this.done = false;
    this.life = element("div");
    this.why = element("div");
    this.about = element("div");
    this.absent = element("div", { role: "status" });
    const items = element("textarea", { id: "absent-items", rows: "3", spellcheck: "false", autocomplete: "off" });
    const ask = (event) => {
      event.preventDefault();
      this.askAbout(items.value.split("\n").map((one) => one.trim()).filter(Boolean));
    };
    const bandit = name.split("/").filter((_, at) => at % 2).join("/");
    parent.replaceChildren(
      element("h1", {}, this.title),
      element("p", {}, "of ", element("a", { href: `#/${name}` }, bandit)),
      section("What was shown", "about", this.about),
      section("Life", "life", this.life),
      section("Why this slate", "why", this.why),
      section("Why not another item", "why-not",
        element("form", { class: "editor", onsubmit: ask },
          element("label", { for: "absent-items" }, "Ids of items, one a line"), items,
          element("div", {}, element("button", {}, "Why not?"))),
        this.absent),
    );
  }

  async update(signal) {
    if (this.done) return;
    if (!this.explained) {
      this.explained = await explanation(this.name, this.id, signal);
      this.about.replaceChildren(about(this.explained));
      this.why.replaceChildren(...(this.explained.reasons ? why(this.explained.reasons) : [soft(`There are no reasons: ${this.explained.reasonsProblem}`)]).filter(Boolean));
    }
    await this.follow(signal);
  }

  async askAbout(ids) {
    try {
      this.absent.replaceChildren(whyNot(await explanation(this.name, this.id, undefined, ids), ids));
    } catch (error) {
      this.absent.replaceChildren(element("p", { class: "bad" }, error.code ? error.message : "The service does not answer."));
    }
  }

  async follow(signal) {
    const [now, lived] = await Promise.all([stats(this.name, signal), this.lived(signal)]);
    const version = Number(now.modelVersion);
    replace(this.life, ...life(lived, version, this.explained.recommendation.rewardDeadline).filter(Boolean));
    this.done = lived.events.some((event) => isEnd(event) && event.position <= version);
  }

  // What the log has of it; of what was trimmed, what the explanation knows.
  async lived(signal) {
    const { logPosition, recommendTime } = this.explained;
    const position = Number(logPosition);
    const found = await lifeOf(this.name, this.id, position, { isEnd }, signal);
    if (found.events[0]?.position !== position) found.events.unshift({ type: "recommended", position, time: recommendTime });
    return found;
  }
}
