/** Each call as a value: its method, its request, and how its answer is read. No I/O here. */

import { booleanOf, countOf, membersOf, numberOf, numbersOf, textOf, textsOf, type WireNumber } from "./checks.js";
import { ClientError, errorOfEntry, invalidArgument } from "./errors.js";
import { featureValues } from "./features.js";
import type {
  AbsentItemJson,
  ActivateRequestJson,
  ActivateResponseJson,
  AmendRewardRequestJson,
  AmendRewardResponseJson,
  BatchRewardRequestJson,
  BatchRewardResponseJson,
  RecommendRequestJson,
  RecommendResponseJson,
  RewardRequestJson,
  RewardPageResponseJson,
  RewardResponseJson,
  RewardResultJson,
  VoidRewardRequestJson,
  VoidRewardResponseJson,
} from "./gen/topk_bandit/v1/recommender_service_pb.js";
import { rulesOf } from "./rules.js";
import type { AbsentItem, ActivationReceipt, Group, ItemValues, Recommendation, RewardReceipt, Rule, Stage } from "./values.js";

export interface Operation<T> {
  readonly method:
    | "Recommend"
    | "BatchRecommend"
    | "RecommendPage"
    | "Activate"
    | "Reward"
    | "BatchReward"
    | "RewardPage"
    | "AmendReward"
    | "VoidReward";
  readonly request: object;
  readonly read: (answer: object) => T;
}

export interface RecommendFields {
  readonly context?: readonly number[] | undefined;
  readonly features?: object | undefined;
  readonly candidates?: readonly string[] | undefined;
  readonly requestId: string;
  readonly minModelVersion?: number | undefined;
  readonly strictCandidates?: boolean | undefined;
  readonly baseline?: readonly string[] | undefined;
  readonly groupKey?: string | undefined;
  readonly frequencyKey?: string | undefined;
  readonly rules?: readonly Rule[] | undefined;
  readonly explain?: readonly string[] | undefined;
}

export function recommendOperation(bandit: string, asked: RecommendFields): Operation<Recommendation> {
  return { method: "Recommend", request: recommendRequest(bandit, asked), read: recommendationOf };
}

/** @internal Its message is no part of the package. */
export function recommendRequest(bandit: string, asked: RecommendFields): RecommendRequestJson {
  const explained = textsOf("explain_item_ids", asked.explain) ?? [];
  return {
    bandit,
    requestId: textOf("request_id", asked.requestId),
    context: numbersOf("context", asked.context),
    ...someOf("candidateItemIds", asked.candidates, "every available item"),
    minModelVersion: String(countOf("min_model_version", asked.minModelVersion ?? 0)),
    strictCandidates: booleanOf("strict_candidates", asked.strictCandidates),
    ...someOf("baselineItemIds", asked.baseline, "the bandit's baseline slate"),
    groupKey: textOf("group_key", asked.groupKey),
    ...frequencyOf(asked.frequencyKey),
    features: featureValues(asked.features),
    ...rulesOf(asked.rules),
    ...(explained.length ? { explainItemIds: explained } : {}),
  };
}

/** Return the key under its name, or nothing if there is none: a service that does not know it takes that too. */
export function frequencyOf(key: unknown): { frequencyKey?: string } {
  const frequencyKey = textOf("frequency_key", key);
  return frequencyKey ? { frequencyKey } : {};
}

/** Return a list under its name, or nothing if it is missing: an empty one would mean the opposite on the wire. */
export function someOf<K extends string>(name: K, given: unknown, absent: string): Partial<Record<K, string[]>> {
  const field = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const values = textsOf(field, given);
  if (values === undefined) return {};
  if (!values.length) throw invalidArgument(field, `must not be empty; undefined stands for ${absent}`);
  return { [name]: values } as Record<K, string[]>;
}

export function activateOperation(
  bandit: string,
  recommendationId: string,
  shown: readonly string[] | undefined,
): Operation<ActivationReceipt> {
  const instead = someOf("shownItemIds", shown, "the recommended slate");
  const request: ActivateRequestJson = { bandit, recommendationId: textOf("recommendation_id", recommendationId), ...instead };
  return { method: "Activate", request, read: activationOf };
}

export function rewardOperation(
  bandit: string,
  recommendationId: string,
  value: number,
  { rewardId, final, itemValues }: Omit<RewardFields, "recommendationId" | "value">,
): Operation<RewardReceipt> {
  const posted = postedReward({ recommendationId, value, rewardId, final, itemValues });
  const request: RewardRequestJson = { bandit, ...posted };
  return { method: "Reward", request, read: receiptOf };
}

/** A reward of a batch. */
export interface RewardFields {
  readonly recommendationId: string;
  readonly value?: number | undefined;
  readonly rewardId?: string | undefined;
  readonly final?: boolean | undefined;
  readonly itemValues?: ItemValues | undefined;
}

/** Return a reward as it is sent. */
export function postedReward({ recommendationId, value, rewardId, final, itemValues }: RewardFields): PostedReward {
  return {
    recommendationId: textOf("recommendation_id", recommendationId),
    value: numberOf("value", value),
    rewardId: textOf("reward_id", rewardId),
    final: booleanOf("final", final),
    ...valuesOf(itemValues),
  };
}

interface PostedReward {
  recommendationId: string;
  value: WireNumber;
  rewardId: string;
  final: boolean;
  itemValues?: Record<string, WireNumber>;
}

/** Return values of items under their name, or nothing if there are none: a service that does not know them takes that too. */
function valuesOf(itemValues: ItemValues | undefined): { itemValues?: Record<string, WireNumber> } {
  const given = membersOf("item_values", itemValues);
  const values = given.map(([id, value]) => [textOf("item_values", id), numberOf(`item_values["${id}"]`, value)] as const);
  return given.length ? { itemValues: Object.fromEntries(values) } : {};
}

/** Post many rewards; what became of each comes back in their order. */
export function batchOperation(
  bandit: string,
  posted: readonly RewardFields[],
): Operation<(RewardReceipt | ClientError)[]> {
  const request: BatchRewardRequestJson = { bandit, rewards: posted.map(postedReward) };
  return { method: "BatchReward", request, read: (answer: BatchRewardResponseJson) => resultsOf(answer, posted.length) };
}

/** @internal Return what became of each of so many rewards, or its error. */
export function resultsOf({ results }: BatchRewardResponseJson | RewardPageResponseJson, count: number): (RewardReceipt | ClientError)[] {
  if (results?.length !== count) throw new ClientError("UNKNOWN", "the answer does not tell of each reward");
  return results.map((one) => (one.error ? errorOfEntry(one.error) : receiptOf(one)));
}

export function amendOperation(
  bandit: string,
  recommendationId: string,
  value: number,
  { rewardId, itemValues }: Pick<RewardFields, "rewardId" | "itemValues">,
): Operation<RewardReceipt> {
  const request: AmendRewardRequestJson = {
    bandit,
    recommendationId: textOf("recommendation_id", recommendationId),
    value: numberOf("value", value),
    rewardId: textOf("reward_id", rewardId),
    ...valuesOf(itemValues),
  };
  return { method: "AmendReward", request, read: receiptOf };
}

export function voidOperation(bandit: string, recommendationId: string, rewardId?: string): Operation<RewardReceipt> {
  const request: VoidRewardRequestJson = {
    bandit,
    recommendationId: textOf("recommendation_id", recommendationId),
    rewardId: textOf("reward_id", rewardId),
  };
  return { method: "VoidReward", request, read: receiptOf };
}

const STAGES: Readonly<Record<NonNullable<RecommendResponseJson["stage"]>, Stage>> = {
  STAGE_UNSPECIFIED: "live",
  STAGE_LIVE: "live",
  STAGE_SHADOW: "shadow",
  STAGE_FROZEN: "frozen",
  STAGE_OFF: "off",
};

const GROUPS: Readonly<Record<NonNullable<RecommendResponseJson["group"]>, Group | null>> = {
  GROUP_UNSPECIFIED: null,
  GROUP_BANDIT: "bandit",
  GROUP_CONTROL: "control",
  GROUP_CONSERVATIVE: "conservative",
};

/** @internal */
export function recommendationOf(answer: RecommendResponseJson): Recommendation {
  return {
    id: answer.recommendationId ?? "",
    items: filled(answer.itemIds),
    propensity: Number(answer.propensity ?? 0),
    mean: Number(answer.mean ?? 0),
    standardDeviation: Number(answer.standardDeviation ?? 0),
    regretBound: Number(answer.regretBound ?? 0),
    estimatedRegret: Number(answer.estimatedRegret ?? 0),
    explored: answer.mode === "MODE_EXPLORED",
    baseline: answer.mode === "MODE_BASELINE",
    modelVersion: Number(answer.modelVersion ?? 0),
    observations: Number(answer.observationCount ?? 0),
    rewardDeadline: answer.rewardDeadline === undefined ? null : new Date(answer.rewardDeadline),
    source: answer.degraded ? "degraded" : "service",
    positionPropensities: manyOf(answer.positionPropensities).map(Number),
    regretConfidence: Number(answer.regretConfidence ?? 0),
    passedOver: answer.passedOverCount ?? 0,
    stage: STAGES[answer.stage ?? "STAGE_UNSPECIFIED"],
    group: GROUPS[answer.group ?? "GROUP_UNSPECIFIED"],
    relaxedRules: manyOf(answer.relaxedRules),
    absentItems: manyOf(answer.absentItems).map(absentOf),
    paidExposures: manyOf(answer.paidExposures),
  };
}

const ABSENCES: Readonly<Record<NonNullable<AbsentItemJson["reason"]>, AbsentItem["reason"] | undefined>> = {
  ABSENCE_REASON_UNSPECIFIED: undefined,
  ABSENCE_REASON_UNKNOWN: "unknown",
  ABSENCE_REASON_UNAVAILABLE: "unavailable",
  ABSENCE_REASON_NO_CANDIDATE: "no_candidate",
  ABSENCE_REASON_EXCLUDED: "excluded",
  ABSENCE_REASON_FILTERED: "filtered",
  ABSENCE_REASON_RULE: "rule",
  ABSENCE_REASON_NOT_CHOSEN: "not_chosen",
  ABSENCE_REASON_FREQUENT: "frequent",
};

function absentOf({ itemId = "", reason, rule = "" }: AbsentItemJson): AbsentItem {
  return { itemId, reason: outcomeOf(ABSENCES, reason), rule };
}

/** Return a list; an answer that has something else there has none. */
function manyOf<T>(values: readonly T[] | undefined): readonly T[] {
  return Array.isArray(values) ? values : [];
}

/** Return the items; the service gives no slate without any, but a page of something else that is JSON has none. */
function filled(items: unknown): string[] {
  if (Array.isArray(items) && items.length > 0 && items.every((one) => typeof one === "string")) return items;
  throw new ClientError("UNKNOWN", "the answer is no slate");
}

/** Every outcome of the wire, and what it is here: total, so that a new one is not forgotten. */
type Outcomes<Wire extends { outcome?: string }, Receipt extends { outcome: string }> = Readonly<
  Record<NonNullable<Wire["outcome"]>, Receipt["outcome"] | undefined>
>;

const ACTIVATIONS: Outcomes<ActivateResponseJson, ActivationReceipt> = {
  ACTIVATION_OUTCOME_UNSPECIFIED: undefined,
  ACTIVATION_OUTCOME_ACTIVATED: "activated",
  ACTIVATION_OUTCOME_DUPLICATE: "duplicate",
  ACTIVATION_OUTCOME_LATE: "late",
};

const REWARDS: Outcomes<RewardResponseJson, RewardReceipt> = {
  REWARD_OUTCOME_UNSPECIFIED: undefined,
  REWARD_OUTCOME_ACCEPTED: "accepted",
  REWARD_OUTCOME_DUPLICATE: "duplicate",
  REWARD_OUTCOME_LATE: "late",
};

function activationOf(answer: ActivateResponseJson): ActivationReceipt {
  return { outcome: outcomeOf(ACTIVATIONS, answer.outcome), logPosition: Number(answer.logPosition ?? 0) };
}

function receiptOf(answer: RewardResponseJson | RewardResultJson | AmendRewardResponseJson | VoidRewardResponseJson): RewardReceipt {
  const synced = answer.durability === "DURABILITY_FSYNC" || answer.durability === "DURABILITY_REPLICATED";
  return {
    outcome: outcomeOf(REWARDS, answer.outcome),
    logPosition: Number(answer.logPosition ?? 0),
    durability: { synced, replicas: answer.replicaCount ?? 0 },
  };
}

function outcomeOf<K extends string, V>(outcomes: Readonly<Record<K, V | undefined>>, told: K | undefined): V {
  const outcome = told === undefined ? undefined : outcomes[told];
  if (outcome === undefined) throw new ClientError("UNKNOWN", "the answer tells of no outcome");
  return outcome;
}
