/** What the client takes and returns. */

import type { ClientError } from "./errors.js";

/**
 * Where a slate comes from: chosen by the service and recorded (post what it earns), chosen by the service while its
 * store is away, or the shop's own ranking. The last has no id and takes no reward; one of the store away has an id where it may
 * be recorded later.
 */
export type Source = "service" | "degraded" | "fallback";

/** One slate to show. All numbers of the shop's own ranking are 0: the service said nothing of it. */
export interface Recommendation {
  /** What its reward is posted for; empty for a slate that takes none. */
  readonly id: string;
  /** Item ids, best first. */
  readonly items: readonly string[];
  /** Probability with which this slate is shown for this context, these candidates and this model version. */
  readonly propensity: number;
  /** What the model expects of the slate, in reward units. */
  readonly mean: number;
  readonly standardDeviation: number;
  readonly regretBound: number;
  readonly estimatedRegret: number;
  /** Whether the slate was drawn at random by one of the exploration's shares. */
  readonly explored: boolean;
  /** Whether it is the baseline slate: the stage or the group asks for it, or too few candidates could be shown. */
  readonly baseline: boolean;
  /** Position of the log that the model had learned from. */
  readonly modelVersion: number;
  /** Rewards that the model had learned from. */
  readonly observations: number;
  /** When its reward comes too late; null unless `source` is the service. */
  readonly rewardDeadline: Date | null;
  readonly source: Source;
  /** Probability with which each of its items is shown at its position. */
  readonly positionPropensities: readonly number[];
  /** Probability with which `regretBound` holds, if what the model believes does. */
  readonly regretConfidence: number;
  /** How many candidates were passed over: unknown, retired or unavailable. */
  readonly passedOver: number;
  /** Whose slates the bandit shows now, and whether it learns. */
  readonly stage: Stage;
  /** Whom the request was drawn to; null if the bandit has no control group, and for the shop's own ranking. */
  readonly group: Group | null;
  /** The rules that were given up, in words, because no slate keeps all of them. */
  readonly relaxedRules: readonly string[];
  /** The items of `explain` that it does not show, with the reason. */
  readonly absentItems: readonly AbsentItem[];
  /** The promised exposures that it paid for, in words: it shows items of their groups because slates were owed. */
  readonly paidExposures: readonly string[];
}

/** The slates of a page. */
export interface SlatePage {
  /** What one reward for all of them is posted for; empty where none of them takes one. */
  readonly id: string;
  /** The bandits of its placements, in their order; empty where the slate is the page's own or an error, which takes no reward. */
  readonly bandits: readonly string[];
  /** A slate for each placement, in their order, or the error that is in its place. */
  readonly slates: readonly (Recommendation | ClientError)[];
}

/** An item that a slate does not show. */
export interface AbsentItem {
  readonly itemId: string;
  /** `frequent` is an item that the visitor saw often enough; `rule` one that no slate that keeps the rules has; `not_chosen` one that could be shown. */
  readonly reason: "unknown" | "unavailable" | "no_candidate" | "excluded" | "filtered" | "frequent" | "rule" | "not_chosen";
  /** The rule in words; empty where it is none. */
  readonly rule: string;
}

/** The items with a value of a categorical feature, or with a label; without a value each one has a group of its own. */
export interface ItemGroup {
  readonly feature: string;
  readonly value?: string;
  readonly itemIds?: never;
  readonly shownFewerThan?: never;
}

/** New items: those that fewer of the slates that were learned have shown. */
export interface NewItems {
  readonly shownFewerThan: number;
  readonly feature?: never;
  readonly itemIds?: never;
}

/** Items by their ids, at most 100. */
export interface NamedItems {
  readonly itemIds: readonly string[];
  readonly feature?: never;
  readonly shownFewerThan?: never;
}

interface Relaxable {
  /** Whether a slate may break the rule where no slate keeps all rules; never by default. */
  readonly mayRelax?: boolean;
}

/** A rule of one kind alone. */
type Of<T> = T & Relaxable & { readonly [K in Exclude<"exclude" | "filter" | "pin" | "count" | "apart" | "frequency", keyof T>]?: never };

/** What a slate keeps. A text is a filter. */
export type Rule =
  | string
  /** These items are in no slate, such as those in the basket. A fallback keeps it, too. */
  | Of<{ readonly exclude: readonly string[] | ReadonlySet<string> }>
  /** Items that do not meet a condition are in no slate: `price < 20 and not (category in ["wine", "beer"])`. */
  | Of<{ readonly filter: string }>
  /** One of these items is at a position, from 1 to the slate size. */
  | Of<{ readonly pin: readonly string[]; readonly position: number }>
  /** A slate has at least and at most so many items of a group; `atLeast` needs a group of one value. */
  | Of<{ readonly count: ItemGroup | NewItems | NamedItems; readonly atLeast?: number; readonly atMost?: number }>
  /** No two items of a group are beside each other. */
  | Of<{ readonly apart: ItemGroup }>
  /** One visitor, by the `frequencyKey`, is shown each item, or one of a group, in at most so many slates in so many seconds. */
  | Of<{ readonly frequency: "each item" | ItemGroup | NamedItems; readonly atMost: number; readonly withinSeconds: number }>;

/** Whose slates are shown, and whether anything is learned. */
export type Stage = "live" | "shadow" | "frozen" | "off";

/**
 * Who gets the bandit's slates, and who gets baseline slates: the control group, and those of the bandit's group for whom it
 * had no more to lose.
 */
export type Group = "bandit" | "control" | "conservative";

/** What single items of a slate did, by their ids. */
export type ItemValues = Readonly<Record<string, number>>;

/** What became of a posted reward, and where it stands in the log: 0 for one that was late. */
export interface RewardReceipt {
  readonly outcome: "accepted" | "duplicate" | "late";
  readonly logPosition: number;
  /** What was awaited before the answer, and achieved: on the disk of the store's server, in so many replicas. */
  readonly durability: { readonly synced: boolean; readonly replicas: number };
}

/** What became of an activation, and where it stands in the log: 0 for one that is not there. */
export interface ActivationReceipt {
  readonly outcome: "activated" | "duplicate" | "late";
  readonly logPosition: number;
}

/** Where an outbox stands. */
export interface OutboxStatus {
  /** How many rewards and activations are in its storage, of all that share it. */
  readonly pending: number;
  /** When the oldest of these was written; null where there is none. */
  readonly oldest: Date | null;
  /** How many this outbox has delivered since it was made. */
  readonly delivered: number;
  /** How many it took out because the service will never take them, by reason, such as `REWARD_LATE`. */
  readonly refused: Readonly<Record<string, number>>;
}

/** What was taken out of an outbox undelivered: a reward, or an activation, whose value is null. */
export interface Refusal {
  readonly tenant: string;
  readonly bandit: string;
  readonly recommendationId: string;
  readonly value: number | null;
  readonly rewardId: string;
  readonly shown: readonly string[];
  /** What a reward says that single items did. */
  readonly itemValues: ItemValues;
  readonly error: ClientError;
}

/**
 * A value: a number, a text and a boolean are what they are, numbers in a row are a vector, and texts in a set or in a
 * row, also none, are labels. What is null or undefined is missing.
 */
export type FeatureValue =
  | number
  | string
  | boolean
  | readonly string[]
  | ReadonlySet<string>
  | readonly number[]
  | Float32Array
  | Float64Array
  | null
  | undefined;

/** Features by name; a type of one's own, whose fields are feature values, is checked by the compiler. */
export type Features<F = Record<string, FeatureValue>> = { readonly [K in keyof F]: FeatureValue };
