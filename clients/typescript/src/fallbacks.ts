/** The shop's own ranking in place of a slate that did not come: cut, counted, and heard of. */

import { Breaker, type BreakerPolicy } from "./breakers.js";
import type { Edges } from "./edges.js";
import { ClientError, isMistake } from "./errors.js";
import type { Recommendation, Source } from "./values.js";

/** How long a page waits for a slate that it has a fallback for, unless told otherwise. */
export const FALLBACK_MS = 150;

/** What one client showed, and why. */
export class Fallbacks {
  readonly #breaker: Breaker;
  readonly #sources: Record<Source, number> = { service: 0, degraded: 0, fallback: 0 };
  readonly #reasons = new Map<string, number>();
  readonly #told = new Set<string>();
  readonly #sizes = new Map<string, number>();

  constructor(
    breaker: BreakerPolicy | null,
    private readonly edges: Edges,
  ) {
    this.#breaker = new Breaker(breaker, edges.clock, edges.log);
  }

  /** How many slates came from where. */
  get sources(): Record<Source, number> {
    return { ...this.#sources };
  }

  /** How many slates were the shop's own ranking, by why. */
  get reasons(): Record<string, number> {
    return Object.fromEntries(this.#reasons);
  }

  /** Return whether to ask the service at all. */
  asks(): boolean {
    return this.#breaker.letsThrough();
  }

  /** Note a slate of the service, and return it. */
  came(bandit: string, slate: Recommendation): Recommendation {
    this.#breaker.note(true);
    this.#sources[slate.source]++;
    this.#sizes.set(bandit, slate.items.length);
    return slate;
  }

  /** Return the shop's own slate, because of an error, or because the service was not asked. */
  instead(bandit: string, ranking: readonly string[], size: number | undefined, error?: unknown): Recommendation {
    const asked = error !== undefined;
    if (asked) this.#breaker.note(isMistake(error));
    const reason = asked ? reasonOf(error) : "BREAKER_OPEN";
    this.#sources.fallback++;
    this.#reasons.set(reason, (this.#reasons.get(reason) ?? 0) + 1);
    if (asked) this.#tellOnce(bandit, reason, error);
    return ownSlate(ranking.slice(0, size ?? this.#sizes.get(bandit)));
  }

  #tellOnce(bandit: string, reason: string, error: unknown): void {
    const kind = `${bandit} ${reason}`;
    if (this.#told.has(kind)) return;
    this.#told.add(kind);
    const told = error instanceof ClientError ? error.message : String(error);
    const message = `${bandit} shows the shop's own ranking: ${told} (this is said once, client.fallbacks counts)`;
    if (isMistake(error)) this.edges.log.error(message);
    else this.edges.log.warn(message);
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof ClientError) return error.details.reason || error.code;
  return error instanceof Error ? error.name : typeof error;
}

function ownSlate(items: readonly string[]): Recommendation {
  return {
    id: "",
    items,
    propensity: 0,
    mean: 0,
    standardDeviation: 0,
    regretBound: 0,
    estimatedRegret: 0,
    explored: false,
    baseline: false,
    modelVersion: 0,
    observations: 0,
    rewardDeadline: null,
    source: "fallback",
    positionPropensities: [],
    regretConfidence: 0,
    passedOver: 0,
    stage: "live",
    group: null,
    relaxedRules: [],
    absentItems: [],
  };
}
