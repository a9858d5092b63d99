// What a bandit is worth: its lift over the control group, what it may lose, and what it would have shown in shadow.

import { element, facts, soft, table } from "./elements.js";
import { count, instant, number, share, signed } from "./figures.js";

const VERDICTS = {
  LIFT_VERDICT_TOO_EARLY: "too early: a group has too few slates that count",
  LIFT_VERDICT_UNDECIDED: "not decided yet",
  LIFT_VERDICT_BETTER: "decided: the bandit's group earns more",
  LIFT_VERDICT_WORSE: "decided: the bandit's group earns less",
};

const between = ({ value, low, high } = {}, show = signed) => (value === undefined ? "–" : `${show(value)} (${show(low)} to ${show(high)})`);
const percent = (ratio) => `${ratio > 1 ? "+" : ""}${share(ratio - 1)}`;

function further(lift) {
  if (lift.furtherRequestCount === undefined) return "not to be said yet";
  return Number(lift.furtherRequestCount) ? `about ${count(lift.furtherRequestCount)} more requests` : "none";
}

function byDay(days) {
  const rows = days.map(({ start, bandit, control, difference }) =>
    [start.slice(0, 10), count(bandit.countedCount), count(control.countedCount), between(difference)]);
  return table("Lift by day", ["Day", "#Bandit's slates", "#Control slates", "Difference a request"], rows);
}

const groupRow = ([name, group]) =>
  [name, count(group.drawnCount), count(group.countedCount), Number(group.countedCount) ? number(group.meanReward) : "–"];

function lifted(lift) {
  const rows = [["Bandit", lift.bandit], ["Control", lift.control]].map(groupRow);
  return [
    facts([
      ["Verdict", VERDICTS[lift.verdict]],
      ["Lift", between(lift.ratio, percent)],
      ["Difference a request", between(lift.difference)],
      ["Until it is decided", further(lift)],
      ["Compared since", instant(lift.since)],
    ]),
    soft(`The intervals hold at all times at once with ${share(lift.confidence)}: look as often as you like.`),
    table("Groups", ["Group", "#Requests", "#Count by now", "#Mean reward"], rows),
    ...(lift.days?.length ? [byDay(lift.days)] : []),
  ];
}

const shadowed = (shadow) => facts([
  ["Slates in shadow", count(shadow.slateCount)],
  ["As shown", share(Number(shadow.agreementCount) / Number(shadow.slateCount))],
  ["Items in common", number(shadow.sharedItemMean)],
  ["Expected gain a slate", between(shadow.gain)],
]);

function conserved({ own, baseline, reserve, showsOwn }) {
  const rows = [["Own slates", own], ["Baseline slates", baseline]].map(groupRow);
  return [
    element("h3", {}, "Conservative exploration"),
    facts([["Next slate", showsOwn ? "the bandit's own" : "the baseline slate"], ["Earned for sure above what is promised", reserve === undefined ? "–" : signed(reserve)]]),
    table("Conservative exploration", ["Requests with", "#Requests", "#Count by now", "#Mean reward"], rows),
  ];
}

export function worth({ lift, shadow, conservative }) {
  const parts = [...(lift ? lifted(lift) : []), ...(conservative ? conserved(conservative) : []), ...(Number(shadow?.slateCount) ? [element("h3", {}, "In shadow"), shadowed(shadow)] : [])];
  return parts.length ? parts : [soft("Nothing to compare with: topk-bandit bandits update --control-share 0.1 --stage live, or --stage shadow.")];
}

export function worthRemarks({ lift }) {
  if (!lift) return [];
  const remarks = [];
  if (lift.oddGroups) remarks.push("Its groups are not as large as the control share asks: something draws or drops requests of one group.");
  if (Number(lift.guardedPosition)) remarks.push(`Its guardrail put it in shadow, at ${count(lift.guardedPosition)} of the log: ${lift.guardedReason}. topk-bandit bandits update --stage live shows its slates again.`);
  return remarks;
}
