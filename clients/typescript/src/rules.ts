/** Rules of a slate, as a shop writes them and as they are sent. No I/O here. */

import { invalidArgument } from "./errors.js";
import type { ItemGroupJson, SlateRuleJson } from "./gen/topk_bandit/v1/rules_pb.js";
import type { ItemGroup, NamedItems, NewItems, Rule } from "./values.js";

/** Return rules as they are sent, or nothing if there are none: a service that does not know them takes that too. */
export function rulesOf(rules: readonly Rule[] = []): { rules?: SlateRuleJson[] } {
  return rules.length ? { rules: rules.map((rule, place) => ruleOf(`rules[${place}]`, rule)) } : {};
}

function ruleOf(path: string, rule: Rule): SlateRuleJson {
  if (typeof rule === "string") return { filter: rule };
  const mayRelax = rule.mayRelax ?? false;
  if ("exclude" in rule) return { exclude: { itemIds: [...rule.exclude] }, mayRelax };
  if ("filter" in rule) return { filter: rule.filter, mayRelax };
  if ("pin" in rule) return { pin: { position: rule.position, itemIds: [...rule.pin] }, mayRelax };
  if ("apart" in rule) return { apart: groupOf(rule.apart), mayRelax };
  if ("frequency" in rule) {
    const { frequency, atMost, withinSeconds } = rule;
    return { frequency: { ...(frequency === "each item" ? {} : { group: groupOf(frequency) }), atMost, withinSeconds }, mayRelax };
  }
  if (!("count" in rule)) throw invalidArgument(path, "is none of exclude, filter, pin, count, apart and frequency");
  const most = rule.atMost === undefined ? {} : { atMost: rule.atMost };
  return { count: { group: groupOf(rule.count), atLeast: rule.atLeast ?? 0, ...most }, mayRelax };
}

function groupOf(group: ItemGroup | NewItems | NamedItems): ItemGroupJson {
  if ("itemIds" in group) return { itemIds: [...group.itemIds] };
  if ("shownFewerThan" in group) return { shownFewerThan: group.shownFewerThan };
  return { feature: group.feature, value: group.value ?? "" };
}

/** Return what the excludes among rules leave of the shop's own ranking; whatever is no rule excludes nothing. */
export function allowedOf(ranking: readonly string[], rules: unknown): readonly string[] {
  const given: unknown[] = Array.isArray(rules) ? rules : [];
  const excluded = new Set(given.flatMap(excludedOf));
  return excluded.size ? ranking.filter((id) => !excluded.has(id)) : ranking;
}

function excludedOf(rule: unknown): unknown[] {
  const ids = typeof rule === "object" && rule !== null && "exclude" in rule ? rule.exclude : [];
  return Array.isArray(ids) || ids instanceof Set ? [...ids] : [];
}
