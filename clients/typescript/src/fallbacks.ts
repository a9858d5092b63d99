/** The shop's own ranking in place of a slate that did not come: cut, counted, and heard of. */

import { Breaker, type BreakerPolicy } from "./breakers.js";
import type { Edges } from "./edges.js";
import { ClientError, isMistake } from "./errors.js";
import type { AnsweredPage } from "./pages.js";
import { allowedOf } from "./rules.js";
import type { Recommendation, Source } from "./values.js";

/** How long a page waits for a slate that it has a fallback for, unless told otherwise. */
export const FALLBACK_MS = 150;

const OPEN = "BREAKER_OPEN";

/** A slate of a page, as its fallback needs it; `bandit` is what it is counted by. */
export interface Place {
  readonly bandit: string;
  readonly fallback?: readonly string[] | undefined;
  readonly fallbackSize?: number | undefined;
  readonly rules?: unknown;
}

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
    return this.#served(bandit, slate);
  }

  /** Return the shop's own slate, because of an error, or because the service was not asked. */
  instead(bandit: string, ranking: readonly string[], size: number | undefined, error?: unknown): Recommendation {
    this.#heard(error);
    return this.#own(bandit, ranking, size, error);
  }

  /** Note a page of the service, and return it with own rankings where a slate is missing. */
  pageCame(places: readonly Place[], page: AnsweredPage): AnsweredPage {
    this.#breaker.note(true);
    const slates = this.#filled(places, page.slates);
    const given = slates.filter(isSlate);
    return { id: given.length > 0 && !given.some(hasId) ? "" : page.id, slates };
  }

  /** Return a page of own rankings, because of an error, or because the service was not asked. */
  pageInstead(places: readonly Place[], error?: unknown): AnsweredPage {
    this.#heard(error);
    return { id: "", slates: this.#filled(places, places.map(() => error)) };
  }

  #heard(error: unknown): void {
    if (error !== undefined) this.#breaker.note(isMistake(error));
  }

  /** Own rankings leave out what the page shows elsewhere: slates of the service, whatever their place, and rankings before. */
  #filled(places: readonly Place[], slates: readonly unknown[]): (Recommendation | ClientError)[] {
    const shown = new Set(slates.flatMap((one) => (isSlate(one) ? one.items : [])));
    return places.map(({ bandit, fallback, fallbackSize, rules }, place) => {
      const slate = slates[place];
      if (isSlate(slate)) return this.#served(bandit, slate);
      if (fallback === undefined) return errorOf(slate);
      const left = allowedOf(fallback, rules).filter((id) => !shown.has(id));
      const own = this.#own(bandit, left, fallbackSize, slate);
      for (const id of own.items) shown.add(id);
      return own;
    });
  }

  #served(bandit: string, slate: Recommendation): Recommendation {
    this.#sources[slate.source]++;
    this.#sizes.set(bandit, slate.items.length);
    return slate;
  }

  #own(bandit: string, ranking: readonly string[], size: number | undefined, error: unknown): Recommendation {
    const reason = error === undefined ? OPEN : reasonOf(error);
    this.#sources.fallback++;
    this.#reasons.set(reason, (this.#reasons.get(reason) ?? 0) + 1);
    if (error !== undefined) this.#tellOnce(bandit, reason, error);
    return ownSlate(isCount(size) ? ranking.slice(0, size) : size == null ? ranking.slice(0, this.#sizes.get(bandit)) : ranking);
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

function isCount(size: unknown): size is number {
  return Number.isInteger(size) && (size as number) >= 0;
}

function isSlate(one: unknown): one is Recommendation {
  return typeof one === "object" && one !== null && "items" in one;
}

function hasId(one: Recommendation | ClientError): boolean {
  return isSlate(one) && one.id !== "";
}

/** Return the error in the place of a slate that has no fallback. */
function errorOf(error: unknown): ClientError {
  if (error instanceof ClientError) return error;
  if (error === undefined) return new ClientError("UNAVAILABLE", "the service did not answer the calls before", { reason: OPEN });
  return new ClientError("UNKNOWN", String(error));
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
    paidExposures: [],
  };
}
