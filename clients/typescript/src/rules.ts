/** Rules of a slate, as a shop writes them and as they are sent. No I/O here. */

import { booleanOf, countOf, isList, listOf, membersOf, textOf, textsOf } from "./checks.js";
import { errorsBelow, invalidArgument } from "./errors.js";
import type { ItemGroupJson, SlateRuleJson } from "./gen/topk_bandit/v1/rules_pb.js";
import type { ItemGroup, NamedItems, NewItems, Rule } from "./values.js";

// What a rule, and a group, is known by, and what else each may have.
const RULES = { exclude: [], filter: [], pin: ["position"], count: ["atLeast", "atMost"], apart: [], frequency: ["atMost", "withinSeconds"] };
const GROUPS = { feature: ["value"], itemIds: [], shownFewerThan: [] };

/** Return rules as they are sent, or nothing if there are none: a service that does not know them takes that too. */
export function rulesOf(rules: readonly Rule[] | undefined): { rules?: SlateRuleJson[] } {
  const given = (rules == null ? [] : listOf("rules", rules)) as Rule[];
  return given.length ? { rules: given.map((rule, place) => ruleOf(`rules[${place}]`, rule)) } : {};
}

function ruleOf(path: string, rule: Rule): SlateRuleJson {
  if (typeof rule === "string") return { filter: textOf(path, rule) };
  checkKind(path, rule, RULES, ["mayRelax"]);
  const mayRelax = booleanOf(`${path}.mayRelax`, rule.mayRelax);
  const group = (kind: string, one: ItemGroup | NewItems | NamedItems) => errorsBelow(path, () => groupOf(kind, one));
  if (rule.exclude != null) return { exclude: { itemIds: idsOf(`${path}.exclude`, rule.exclude) }, mayRelax };
  if (rule.filter != null) return { filter: textOf(`${path}.filter`, rule.filter), mayRelax };
  if (rule.pin != null) return { pin: { position: countOf(`${path}.position`, rule.position), itemIds: idsOf(`${path}.pin`, rule.pin) }, mayRelax };
  if (rule.apart != null) return { apart: group("apart", rule.apart), mayRelax };
  if (rule.frequency != null) {
    const limits = { atMost: countOf(`${path}.atMost`, rule.atMost), withinSeconds: countOf(`${path}.withinSeconds`, rule.withinSeconds) };
    return { frequency: { ...(rule.frequency === "each item" ? {} : { group: group("frequency", rule.frequency) }), ...limits }, mayRelax };
  }
  const most = rule.atMost == null ? {} : { atMost: countOf(`${path}.atMost`, rule.atMost) };
  return { count: { group: group("count", rule.count), atLeast: countOf(`${path}.atLeast`, rule.atLeast ?? 0), ...most }, mayRelax };
}

function groupOf(path: string, group: ItemGroup | NewItems | NamedItems): ItemGroupJson {
  checkKind(path, group, GROUPS, []);
  if (group.itemIds != null) return { itemIds: idsOf(`${path}.itemIds`, group.itemIds) };
  if (group.shownFewerThan != null) return { shownFewerThan: countOf(`${path}.shownFewerThan`, group.shownFewerThan) };
  return { feature: textOf(`${path}.feature`, group.feature), value: textOf(`${path}.value`, group.value) };
}

/** Throw for what is none of these kinds, several at once, or has a member that the kind does not know. */
function checkKind(path: string, given: object, kinds: Readonly<Record<string, readonly string[]>>, also: readonly string[]): void {
  const members = membersOf(path, given).flatMap(([name, value]) => (value == null ? [] : [name]));
  const [kind, other] = Object.keys(kinds).filter((name) => members.includes(name));
  if (kind === undefined) throw invalidArgument(path, `is none of ${Object.keys(kinds).join(", ")}`);
  if (other !== undefined) throw invalidArgument(path, `has ${kind} and ${other}: leave one of them out`);
  const stranger = members.find((name) => name !== kind && !kinds[kind]?.includes(name) && !also.includes(name));
  if (stranger !== undefined) throw invalidArgument(path, `has ${stranger}, which is nothing to ${kind}`);
}

function idsOf(path: string, ids: unknown): string[] {
  return textsOf(path, ids) ?? [];
}

/** Return what the excludes among rules leave of the shop's own ranking, each item once; whatever is no rule excludes nothing. */
export function allowedOf(ranking: readonly string[], rules: unknown): readonly string[] {
  const given = isList(rules) ? [...rules] : [];
  const excluded = new Set(given.flatMap(excludedOf));
  return [...new Set(ranking)].filter((id) => !excluded.has(id));
}

function excludedOf(rule: unknown): unknown[] {
  const ids = typeof rule === "object" && rule !== null && "exclude" in rule ? rule.exclude : [];
  return Array.isArray(ids) || ids instanceof Set ? [...ids] : [];
}
