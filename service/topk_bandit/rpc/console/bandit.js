// One bandit: how it did over time, what it is made of, what it shows and what it thinks best.

import { history, newestEvents, stats, topSlates } from "./calls.js";
import { chart } from "./charts.js";
import { element, facts, replace, section, soft, table } from "./elements.js";
import { bytes, count, duration, instant, number, share } from "./figures.js";
import { Rules } from "./rules.js";
import { worth, worthRemarks } from "./worth.js";

const MOST_ITEMS = 15, MOST_RECENT = 20;

// The log and the search for the best slates are asked for less often: of the latter a worker takes few at once.
const SELDOM = 20_000;

// What the reward of a slate is by: the last one of its events.
const ENDS = new Set(["rewarded", "reward_amended", "reward_revised", "expired", "lapsed"]);

// By so many slates it is judged how long they should wait; much too long is so many times as long as rewards take.
const FEWEST_SLATES = 100, MOST_TIMES = 4;

const ratio = (part, whole) => (Number(whole) ? share(Number(part) / Number(whole)) : "–");

function charts(points) {
  const ends = points.map(({ endTime }) => endTime);
  const of = (name, field) => ({ name, values: points.map((point) => point[field]) });
  const totals = points.map(({ regretBoundSum, estimatedRegretSum }) => ({ regretBoundSum, estimatedRegretSum }));
  return element("div", { class: "charts" },
    chart("regret", "Regret over time, added up", ends, [
      { name: "bound", values: totals.map((one) => one.regretBoundSum) },
      { name: "estimated", values: totals.map((one) => one.estimatedRegretSum) },
    ]),
    chart("reward", "Mean reward in each interval", ends, [of("mean reward", "meanReward")]),
    chart("exploration", "Share of slates that explored", ends, [of("explored", "exploredShare")], { show: share }),
    chart("joins", "Join rate of slates that ended", ends, [of("join rate", "joinRate")], { show: share }),
    chart("rounds", "Slates and rewards, added up", ends, [
      { name: "slates", values: points.map((point) => Number(point.recommendationCount)) },
      { name: "rewards learned", values: points.map((point) => Number(point.observationCount)) },
    ], { show: (value) => (Number.isInteger(value) ? count(value) : number(value)) }));
}

const did = (current, last) => facts([
  ["Slates", count(current.recommendationCount)],
  ["Rewards learned", `${count(current.observationCount)}, of them default ${count(current.defaultCount)}, imported ${count(current.importedCount)}`],
  ["Mean reward", Number(current.observationCount) ? number(current.meanReward) : "–"],
  ["Regret bounds, added up", number(current.regretBoundSum)],
  ["Estimated regrets, added up", number(current.estimatedRegretSum)],
  ["Explored", ratio(current.exploredCount, current.recommendationCount)],
  ["Join rate", last ? ratio(last.rewardedCount, Number(last.rewardedCount) + Number(last.expiredCount)) : "–"],
  ["Waiting for a reward", count(current.pendingCount)],
  ["Late rewards", count(current.lateRewardCount)],
  ["Expired", count(current.expirationCount)],
  ["Lost by the store", `${count(current.lostEventCount)} events, ${count(current.lostRewardCount)} rewards`],
]);

const made = (current) => facts([
  ["Rows", count(current.posteriorRowCount)],
  ["Rows of waiting slates", count(current.pendingRowCount)],
  ["Memory", `${bytes(current.memoryBytes)} of ${bytes(current.memoryLimitBytes)}`],
  ["Items", `${count(current.itemCount)}, of them available ${count(current.availableItemCount)}`],
  ["Log position", count(current.logPosition)],
  ["Log reaches back to", `event ${count(current.logReach.firstPosition)}; in the store ${count(current.logReach.storedPosition)}`],
  ["Learned up to", count(current.modelVersion)],
  ["Snapshot at", Number(current.snapshotPosition) ? count(current.snapshotPosition) : "none yet"],
]);

const hyperparameters = (current) => facts([
  ["Noise variance", number(current.noiseVariance)],
  ["Prior variance", number(current.priorVariance)],
  ["Rank weight power", number(current.rankWeightPower)],
  ["Pair scale", number(current.pairScale)],
  ["Constant variance", number(current.constantVariance)],
  ["Shared context", number(current.sharedContext)],
  ["Content share", number(current.contentShare)],
  ["Prior slope", number(current.priorSlope)],
  ["At the edge of its range", current.edgesReached.join(", ") || "none"],
]);

// By when slates have earned what they end up with, of those whose wait is over.
function came({ points, slateCount, halfBy, nineTenthsBy, almostAllBy, rewardWait }) {
  if (!points.length) return [soft("Not known yet: no slate has a reward whose wait is over, or its rewards are learned when the wait ends.")];
  const known = facts([
    ["Half has come by", duration(halfBy)],
    ["Nine tenths by", duration(nineTenthsBy)],
    ["99 % by", duration(almostAllBy)],
    ["Slates wait", duration(rewardWait)],
    ["Known of slates with a reward", count(slateCount)],
  ]);
  const rows = points.map((point) => [duration(point.delay), share(point.share)]);
  return [known, table("What has come by an age", ["#Age of a slate", "#Of what it ends up with"], rows)];
}

// Whether slates wait much longer than their rewards take, or not long enough.
function waiting({ points, slateCount, nineTenthsBy, almostAllBy, rewardWait }) {
  const wait = Number.parseFloat(rewardWait);
  if (!points.length || Number(slateCount) < FEWEST_SLATES) return [];
  if (Number.parseFloat(nineTenthsBy) >= wait) return [`More than a tenth of what slates earn comes at the end of their wait, ${duration(rewardWait)}: what comes later is refused. A longer one: topk-bandit bandits update --reward-wait SECONDS.`];
  if (Number.parseFloat(almostAllBy) * MOST_TIMES > wait) return [];
  return [`99 % of what slates earn has come by ${duration(almostAllBy)}, and they wait ${duration(rewardWait)}. A shorter wait costs the store less: topk-bandit bandits update --reward-wait SECONDS.`];
}

// What an operator may want to change, or to know of before others do.
export function remarksOn(current) {
  const remarks = [];
  if (current.damage) remarks.push(`Its learner stands still: ${current.damage}. Slates are chosen by what it learned before: topk-bandit events skip.`);
  const [rewards, contexts] = [Number(current.outlierCount), Number(current.outlierContextCount)];
  if (!current.hasRewardRange) remarks.push("It takes rewards of any size. With a reward_range a wrong one is refused: topk-bandit bandits update --reward-range LOW:HIGH.");
  if (current.selectionShare) remarks.push(`It learns from visitors who buy alone: ${share(current.selectionShare)} of its slates end without a reward and are not learned. It needs a default reward: topk-bandit bandits update --default-reward 0.`);
  remarks.push(...worthRemarks(current), ...waiting(current.rewardTimes));
  if (rewards + contexts) remarks.push(`Far from all others, and not learned: ${count(rewards)} rewards, and those of ${count(contexts)} contexts.`);
  if (current.spreadFactor > 1) remarks.push(`The latest rewards lay farther from what was expected than was stated: spreads are ${number(current.spreadFactor)} times as wide.`);
  if (current.itemFeatures?.length && !current.contentShare) remarks.push("The items' features count for nothing now. That is chosen anew as rewards come.");
  return remarks.length ? element("ul", {}, remarks.map((remark) => element("li", {}, remark))) : soft("None.");
}

function slates({ slates: best }) {
  const rows = best.map((slate, at) => [String(at + 1), slate.itemIds.join(", "), number(slate.mean), number(slate.standardDeviation)]);
  return [soft("For the context of the newest slate."), table("Best slates", ["#Rank", "Slate", "#Mean", "#Spread"], rows)];
}

// How often each item was shown at each position of the given slates.
export function shownByPosition(slatesShown) {
  const width = Math.max(0, ...slatesShown.map((slate) => slate.length));
  const shown = new Map();
  for (const slate of slatesShown) slate.forEach((item, at) => {
    if (!shown.has(item)) shown.set(item, { item, total: 0, at: Array(width).fill(0) });
    shown.get(item).total += 1;
    shown.get(item).at[at] += 1;
  });
  return { width, items: [...shown.values()].sort((one, other) => other.total - one.total) };
}

function mostShown(recommended) {
  const { width, items } = shownByPosition(recommended.map(({ recommendation }) => recommendation.slate));
  const columns = ["Item", ...Array.from({ length: width }, (_, at) => `#At ${at + 1}`), "#Anywhere"];
  const rows = items.slice(0, MOST_ITEMS).map(({ item, total, at }) => [item, ...at.map(count), count(total)]);
  return [soft(`In the newest ${count(recommended.length)} slates of the log.`), table("Most shown items by position", columns, rows)];
}

function recent(name, recommended, events) {
  const ends = new Map(events.filter(({ type }) => ENDS.has(type)).map((event) => [event.recommendation_id, event]));
  const ended = ({ recommendation_id: id }) => {
    const end = ends.get(id);
    if (!end) return "waits";
    if (end.type === "reward_revised" && !end.is_final) return `${number(end.value)} so far`;
    return "value" in end ? number(end.value) : end.type;
  };
  const rows = recommended.slice(-MOST_RECENT).reverse().map(({ time, recommendation }) => [
    element("a", { href: `#/${name}/recommendations/${recommendation.recommendation_id}` }, recommendation.recommendation_id),
    instant(time), recommendation.slate.join(", "), recommendation.explored ? "explored" : "", ended(recommendation),
  ]);
  return table("Newest recommendations", ["Recommendation", "Time", "Slate", "Drawn", "#Reward"], rows);
}

// A request of the wire for the context that an event of the log has.
export function asked(context) {
  if (Array.isArray(context)) return { context };
  return { features: Object.fromEntries(Object.entries(context).map(([name, value]) => [name, featureOf(value)])) };
}

function featureOf(value) {
  if (typeof value === "number") return { number: value };
  if (typeof value === "boolean") return { boolean: value };
  if (typeof value === "string") return { text: value };
  return value.every((one) => typeof one === "number") && value.length ? { vector: { values: value } } : { labels: { values: value } };
}

export class Bandit {
  period = 5000;

  constructor(parent, name) {
    this.name = name;
    this.title = name.split("/").filter((_, at) => at % 2).join("/");
    this.known = this.asked = "";
    this.askedAt = -Infinity;
    const id = element("input", { id: "recommendation", autocomplete: "off", spellcheck: "false" });
    const explain = (event) => {
      event.preventDefault();
      if (id.value.trim()) location.hash = `#/${name}/recommendations/${encodeURIComponent(id.value.trim())}`;
    };
    this.rules = new Rules(name);
    this.places = Object.fromEntries(["over-time", "remarks", "figures", "worth", "rewards", "best", "shown", "newest"].map((place) => [place, element("div")]));
    parent.replaceChildren(
      element("h1", {}, this.title),
      section("Over time", "over-time", this.places["over-time"]),
      section("Remarks", "remarks", this.places.remarks),
      section("Now", "figures", this.places.figures),
      this.rules.element,
      section("What it is worth", "worth", this.places.worth),
      section("By when rewards come", "rewards", this.places.rewards),
      section("Best slates", "best", this.places.best),
      section("Most shown items", "shown", this.places.shown),
      section("Recommendations", "newest",
        element("form", { class: "search", onsubmit: explain }, element("label", { for: "recommendation" }, "Why was it shown? Id"), id, element("button", {}, "Explain")),
        this.places.newest),
    );
  }

  async update(signal) {
    const [current, points] = await Promise.all([stats(this.name, signal), history(this.name, signal)]);
    const version = `${current.logPosition} ${current.modelVersion} ${current.pendingCount} ${current.lateRewardCount} ${current.memoryBytes}`;
    if (version !== this.known) {
      this.show(current, points);
      await this.rules.show(current, signal);
    }
    this.known = version;
    if (version === this.asked || performance.now() - this.askedAt < SELDOM) return;
    await this.ask(current, signal);
    [this.asked, this.askedAt] = [version, performance.now()];
  }

  show(current, points) {
    replace(this.places["over-time"], charts(points));
    replace(this.places.remarks, remarksOn(current));
    replace(this.places.figures, element("div", { class: "columns" },
      element("div", {}, element("h3", {}, "What it did"), did(current, points.at(-1))),
      element("div", {}, element("h3", {}, "Model"), made(current)),
      element("div", {}, element("h3", {}, "Hyperparameters"), hyperparameters(current))));
    replace(this.places.worth, ...worth(current));
    replace(this.places.rewards, ...came(current.rewardTimes));
  }

  async ask(current, signal) {
    const events = await newestEvents(this.name, Number(current.logPosition), signal);
    const recommended = events.filter(({ type }) => type === "recommended");
    this.rules.showLately(recommended);
    if (recommended.length === 0) {
      for (const place of ["best", "shown", "newest"]) replace(this.places[place], soft("No slate was given out in the newest 1,000 events."));
      return;
    }
    replace(this.places.shown, ...mostShown(recommended));
    replace(this.places.newest, recent(this.name, recommended, events));
    this.rules.context = asked(recommended.at(-1).request.context);
    replace(this.places.best, ...(await this.best(this.rules.context, signal)));
  }

  // The best slates, or why there are none now: the worker takes few such calls at once, and too few items may be available.
  async best(request, signal) {
    try {
      return slates(await topSlates(this.name, request, signal));
    } catch (error) {
      if (!["failed_precondition", "resource_exhausted", "invalid_argument"].includes(error.code)) throw error;
      return [soft(error.message)];
    }
  }
}
