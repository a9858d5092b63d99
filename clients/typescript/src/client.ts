/** The client: its options, its calls, and the loop that tries them again. */

import { BREAKER, type BreakerPolicy } from "./breakers.js";
import { idOf, listOf, LONGEST_TIMER, objectOf, positiveOf, textsOf } from "./checks.js";
import { type Edges, edgesOf } from "./edges.js";
import { ClientError, invalidArgument } from "./errors.js";
import { FALLBACK_MS, Fallbacks, type Place } from "./fallbacks.js";
import { hedged } from "./hedging.js";
import { LateRewards } from "./late_rewards.js";
import { activateOperation, amendOperation, type Operation, recommendOperation, rewardOperation, voidOperation } from "./operations.js";
import { Outbox, type OutboxOptions } from "./outbox.js";
import { type AnsweredPage, batchOperations, pageOperation, rewardPageOperation } from "./pages.js";
import { Attempts, checkedRetry, RETRY, type RetryPolicy } from "./retries.js";
import { allowedOf } from "./rules.js";
import type { OutboxStorage } from "./storage.js";
import { Door } from "./transport.js";
import type { ActivationReceipt, Features, ItemValues, Recommendation, RewardReceipt, Rule, SlatePage, Source } from "./values.js";

export interface ClientOptions extends Partial<Edges> {
  /** Where the service's HTTP listener is: `https://recommender.example`. */
  readonly url: string;
  /** Whose bandits are meant, where a call does not say. */
  readonly tenant?: string;
  /** `id.secret`, for a service that asks for keys. What is in a page is read by all who visit it. */
  readonly key?: string;
  /** Milliseconds that a call may take, all tries and pauses together, if it does not say otherwise: 2000. */
  readonly timeoutMs?: number;
  /** The same for a slate that there is a fallback for: 150. */
  readonly fallbackTimeoutMs?: number;
  readonly retry?: RetryPolicy;
  /** When such slates are not asked for, because the service does not answer; null asks always. */
  readonly breaker?: BreakerPolicy | null;
  /**
   * Milliseconds after which a `recommend` that is not answered is sent once more, over another connection where the platform
   * opens one; null sends it once, as each costs the service a decision.
   */
  readonly hedgeAfterMs?: number | null;
  /** Whether a reward that came after its deadline is an error. Else the first of each bandit is a warning. */
  readonly raiseLate?: boolean;
}

const BATCH_MS = 60_000;

interface Call {
  readonly bandit: string;
  readonly tenant?: string;
  /** Milliseconds that this call may take. */
  readonly deadlineMs?: number;
}

/** What one slate is asked for with. */
interface Asked<F> {
  /** Numbers that tell of the request, as many as the bandit takes. */
  readonly context?: readonly number[];
  /** The features by name, for a bandit with a context schema. */
  readonly features?: F;
  /** Ids of the items that may be shown now; none given means every available item. */
  readonly candidates?: readonly string[];
  /** The shop's own slate, best first, for the control group and for a bandit in shadow or off; by default the bandit's. */
  readonly baseline?: readonly string[];
  /** What is drawn to a group, such as a visitor's pseudonym: equal keys stay in one group. The request itself by default. */
  readonly groupKey?: string;
  /** Whom rules of frequency count for, such as an id of a session. A digest of it is kept as long as they count. */
  readonly frequencyKey?: string;
  /** What the slate keeps beside the bandit's own rules. A fallback keeps excludes alone. */
  readonly rules?: readonly Rule[];
}

interface WithFallback {
  /** Item ids in the shop's own order, to show when the service gives no slate in time: then nothing is thrown. */
  readonly fallback?: readonly string[];
  /** How many of these to show: as many as the bandit's last slate had, and all before the first. */
  readonly fallbackSize?: number;
}

/** For all slates that a call asks for. */
interface ForAll {
  /** The slate is chosen by a model that has learned from the log up to there at least. */
  readonly minModelVersion?: number;
  /** Whether a candidate that is unknown or retired is NOT_FOUND, instead of passed over and counted. */
  readonly strictCandidates?: boolean;
}

export interface RecommendOptions<F> extends Call, Asked<F>, WithFallback, ForAll {
  /** The same id, with the same context, features and candidates, gives the same slate again; a new one by default. */
  readonly requestId?: string;
  /** Items of which `absentItems` says why they are not there, at most 100. */
  readonly explain?: readonly string[];
}

/** One of many requests for slates of a bandit. */
export interface SlateRequest<F> extends Asked<F> {
  /** As for `recommend`: with ids of your own the same batch gives the same slates again. */
  readonly requestId?: string;
}

export interface BatchOptions<F> extends Call, ForAll {
  /** What is asked for each slate; they go in calls of up to 100, each with its own `deadlineMs`: 60,000 by default. */
  readonly requests: readonly SlateRequest<F>[];
}

/** One of the slates of a page; without a context, features and a group key of its own it has those of the page. */
export interface PagePlacement<F> extends Asked<Partial<F>>, WithFallback {
  readonly bandit: string;
}

export interface PageOptions<F> extends Omit<Call, "bandit"> {
  /** What is asked for each slate, the most important one first: what it shows is in no other. Ten at most. */
  readonly placements: readonly PagePlacement<F>[];
  /** As for `recommend`, for each placement that has neither a context nor features of its own. */
  readonly context?: readonly number[];
  /** The same; each placement takes the features that its bandit knows. */
  readonly features?: F;
  /** As for `recommend`, for each placement that has none of its own. */
  readonly groupKey?: string;
  /** As for `recommend`, for each placement that has none of its own. */
  readonly frequencyKey?: string;
  /** The same id, with the same placements, gives the same slates again; a new one by default. */
  readonly pageId?: string;
}

export interface ActivateOptions extends Call {
  readonly recommendationId: string;
  /** What was shown instead of the slate, as many items; the slate itself by default. */
  readonly shown?: readonly string[];
}

export interface RewardOptions extends Call {
  readonly recommendationId: string;
  /** The number that the slate earned. */
  readonly value: number;
  /** Tells several rewards of a slate apart, where the bandit takes several. */
  readonly rewardId?: string;
  /** Whether no more will come, so that what they come to is learned now. */
  readonly final?: boolean;
  /**
   * What single items of the slate did, by their ids: 1 for a click, the minutes that were watched. They teach which items are
   * liked, and `value` alone is maximised.
   */
  readonly itemValues?: ItemValues;
}

export interface RewardPageOptions extends Omit<Call, "bandit"> {
  /** The page's `id`. */
  readonly pageId: string;
  /** The page's `bandits`: those of its placements, in their order. */
  readonly bandits: readonly string[];
  /** The number that each slate of the page earned. */
  readonly value: number;
  /** Tells several rewards of a slate apart, where the bandits take several. */
  readonly rewardId?: string;
  /** Whether no more will come. */
  readonly final?: boolean;
}

export interface VoidOptions extends Call {
  readonly recommendationId: string;
  /** Which of several rewards; all of them by default, those too that have not come. */
  readonly rewardId?: string;
}

export interface AmendOptions extends Call {
  readonly recommendationId: string;
  /** The number that the slate earned after all. */
  readonly value: number;
  /** Which of several rewards; the only one by default. */
  readonly rewardId?: string;
  /** What single items did after all: all that the reward said of items is replaced by them. It stays by default. */
  readonly itemValues?: ItemValues;
}

/** Return a storefront's client. `F` is the type of its features: `createClient<{ country: string }>({ ... })`. */
export function createClient<F extends Features<F> = Features>(options: ClientOptions): Client<F> {
  return new Client(options);
}

/**
 * A storefront's client. Every call has a deadline, within which it is tried again when that may help, with the same ids, so
 * that it has its effect once; each rejects with a `ClientError`, but for a `recommend` with a fallback, which never does.
 */
export class Client<F extends Features<F> = Features> {
  readonly #tenant: string | undefined;
  readonly #timeoutMs: number;
  readonly #fallbackTimeoutMs: number;
  readonly #hedgeAfterMs: number | null;
  readonly #retry: RetryPolicy;
  readonly #edges: Edges;
  readonly #door: Door;
  readonly #fallbacks: Fallbacks;
  readonly #late: LateRewards;

  constructor(options: ClientOptions) {
    this.#edges = edgesOf(options);
    this.#tenant = options.tenant;
    this.#timeoutMs = positiveOf("timeoutMs", options.timeoutMs ?? 2000, LONGEST_TIMER);
    this.#fallbackTimeoutMs = positiveOf("fallbackTimeoutMs", options.fallbackTimeoutMs ?? FALLBACK_MS, LONGEST_TIMER);
    this.#hedgeAfterMs = options.hedgeAfterMs == null ? null : positiveOf("hedgeAfterMs", options.hedgeAfterMs, LONGEST_TIMER);
    this.#retry = checkedRetry(options.retry ?? RETRY);
    this.#door = new Door(options.url, options.key, this.#edges);
    this.#fallbacks = new Fallbacks(options.breaker === undefined ? BREAKER : options.breaker, this.#edges);
    this.#late = new LateRewards(options.raiseLate ?? false, this.#edges.log);
  }

  /** How many slates were given here, by where they come from. */
  get slates(): Readonly<Record<Source, number>> {
    return this.#fallbacks.sources;
  }

  /** How many slates were the shop's own ranking, by an error's reason or code, or `BREAKER_OPEN`. */
  get fallbacks(): Readonly<Record<string, number>> {
    return this.#fallbacks.reasons;
  }

  /** How many of the rewards posted here came after their deadline and were not learned, by bandit. */
  get lateRewards(): Readonly<Record<string, number>> {
    return this.#late.counts;
  }

  /** Return the slate to show; with a `fallback` always, and within the deadline. */
  async recommend(options: RecommendOptions<F>): Promise<Recommendation> {
    const { fallbackSize } = options;
    const own = textsOf("fallback", options.fallback);
    const fallback = own && allowedOf(own, options.rules);
    const bandit = told(options);
    if (fallback === undefined) return this.#fallbacks.came(bandit, await this.#slate(options, this.#timeoutMs));
    if (!this.#fallbacks.asks()) return this.#fallbacks.instead(bandit, fallback, fallbackSize);
    try {
      return this.#fallbacks.came(bandit, await this.#slate(options, this.#fallbackTimeoutMs));
    } catch (error) {
      return this.#fallbacks.instead(bandit, fallback, fallbackSize, error);
    }
  }

  /**
   * Return a slate for each of many requests, such as one for each reader of a mail, in their order. A request that is refused has
   * its error in the place of its slate, and stops no other; a call that fails is thrown.
   */
  async recommendBatch(options: BatchOptions<F>): Promise<(Recommendation | ClientError)[]> {
    const { deadlineMs = BATCH_MS, minModelVersion, strictCandidates } = options;
    const requests = listOf("requests", options.requests) as SlateRequest<F>[];
    const asked = requests.map((one, place) => ({
      ...objectOf(`requests[${place}]`, one),
      minModelVersion,
      strictCandidates,
      requestId: one.requestId || this.#edges.newRequestId(),
    }));
    const slates: (Recommendation | ClientError)[] = [];
    for (const part of batchOperations(this.#name(options), asked)) slates.push(...(await this.#run(part, deadlineMs)));
    return slates;
  }

  /**
   * Return the slates of a page, none with an item that another one shows. A placement without a slate has its own fallback, which
   * leaves out what the page shows elsewhere, or else its error in the place of its slate. With a fallback of any placement it never
   * rejects, and returns within the deadline.
   */
  async recommendPage(options: PageOptions<F>): Promise<SlatePage> {
    const { tenant } = options;
    const placements = (listOf("placements", options.placements) as (PagePlacement<F> | null)[]).map((one) => ({ ...one, bandit: one?.bandit ?? "" }));
    const places = placements.map((one, place) => ({
      ...one,
      bandit: told(tenant === undefined ? one : { ...one, tenant }),
      fallback: textsOf(`placements[${place}].fallback`, one.fallback),
    }));
    const { id, slates } = await this.#filledPage({ ...options, placements }, places);
    const bandits = slates.map((slate, place) => (slate instanceof ClientError || !slate.id ? "" : placements[place]!.bandit));
    return { id, bandits, slates };
  }

  /** Say that a slate was shown, or that `shown` was instead of it: needed where the bandit requires activation. */
  async activate(options: ActivateOptions): Promise<ActivationReceipt> {
    const asked = activateOperation(this.#name(options), options.recommendationId, options.shown);
    return this.#run(asked, options.deadlineMs ?? this.#timeoutMs);
  }

  /** Post the number that a slate earned; return what became of it. */
  async reward(options: RewardOptions): Promise<RewardReceipt> {
    const asked = rewardOperation(this.#name(options), options.recommendationId, options.value, options);
    return this.#late.note(told(options), await this.#run(asked, options.deadlineMs ?? this.#timeoutMs));
  }

  /** Post one number for all slates of a page; return what became of each, or its error, in the order of the bandits. */
  async rewardPage(options: RewardPageOptions): Promise<(RewardReceipt | ClientError)[]> {
    const { tenant } = options;
    const bandits = listOf("bandits", options.bandits) as string[];
    const parent = this.#parent(options);
    const asked = rewardPageOperation(parent, bandits.map((bandit) => bandit && `${parent}/bandits/${bandit}`), options);
    const results = await this.#run(asked, options.deadlineMs ?? this.#timeoutMs);
    return results.map((one, place) => this.#late.noteOne(told(tenant === undefined ? { bandit: bandits[place]! } : { bandit: bandits[place]!, tenant }), one));
  }

  /**
   * Replace a reward by another value: exact until the model is refit, and FAILED_PRECONDITION (REWARD_FOLDED) after. Where
   * the bandit has provisional_after it is taken until reward_wait ends, and so is a reward that is not learned yet.
   */
  async amendReward(options: AmendOptions): Promise<RewardReceipt> {
    const asked = amendOperation(this.#name(options), options.recommendationId, options.value, options);
    return this.#run(asked, options.deadlineMs ?? this.#timeoutMs);
  }

  /** Take a reward back, for as long as it could be amended. */
  async voidReward(options: VoidOptions): Promise<RewardReceipt> {
    const asked = voidOperation(this.#name(options), options.recommendationId, options.rewardId);
    return this.#run(asked, options.deadlineMs ?? this.#timeoutMs);
  }

  /** Return where rewards and activations can be left: they wait in `storage` until the service has answered for them. */
  outbox(storage: OutboxStorage, options: OutboxOptions = {}): Outbox {
    const sender = {
      edges: this.#edges,
      timeoutMs: this.#timeoutMs,
      send: <T>(operation: Operation<T>, deadlineMs: number) => this.#run(operation, deadlineMs),
      tenantOf: (tenant: string | undefined) => this.#tenantOf(tenant),
      countLate: (tenant: string, bandit: string) =>
        void this.#late.count(told(tenant === this.#tenant ? { bandit } : { bandit, tenant })),
    };
    return new Outbox(sender, storage, options);
  }

  async #slate(options: RecommendOptions<F>, usualMs: number): Promise<Recommendation> {
    const requestId = options.requestId || this.#edges.newRequestId();
    const asked = recommendOperation(this.#name(options), { ...options, requestId });
    return this.#run(asked, options.deadlineMs ?? usualMs);
  }

  async #filledPage(options: PageOptions<F>, places: readonly Place[]): Promise<AnsweredPage> {
    const isSafe = places.some(({ fallback }) => fallback !== undefined);
    if (!isSafe) return this.#fallbacks.pageCame(places, await this.#page(options, this.#timeoutMs));
    if (!this.#fallbacks.asks()) return this.#fallbacks.pageInstead(places);
    let page: AnsweredPage;
    try {
      page = await this.#page(options, this.#fallbackTimeoutMs);
    } catch (error) {
      return this.#fallbacks.pageInstead(places, error);
    }
    return this.#fallbacks.pageCame(places, page);
  }

  async #page(options: PageOptions<F>, usualMs: number): Promise<AnsweredPage> {
    const pageId = options.pageId || this.#edges.newRequestId();
    const parent = this.#parent(options);
    // What is no name is answered in the place of its slate.
    const asked = options.placements.map((one) => [`${parent}/bandits/${one.bandit}`, one] as const);
    return this.#run(pageOperation(parent, { ...options, pageId }, asked), options.deadlineMs ?? usualMs);
  }

  async #run<T>(operation: Operation<T>, deadlineMs: number): Promise<T> {
    const attempts = new Attempts(this.#retry, positiveOf("deadlineMs", deadlineMs, LONGEST_TIMER), this.#edges.clock, this.#edges.random);
    for (;;) {
      try {
        return read(operation, await this.#ask(operation, attempts.remaining()));
      } catch (error) {
        const pause = error instanceof ClientError ? attempts.pauseAfter(error) : null;
        if (pause === null) throw error;
        await this.#edges.sleep(pause);
      }
    }
  }

  #ask(operation: Operation<unknown>, deadlineMs: number): Promise<object> {
    if (this.#hedgeAfterMs === null || operation.method !== "Recommend") return this.#door.ask(operation, deadlineMs);
    const send = (ms: number, lost: AbortSignal) => this.#door.ask(operation, ms, lost);
    return hedged(send, deadlineMs, this.#hedgeAfterMs, this.#edges.sleep);
  }

  #name({ bandit, tenant }: Call): string {
    return `${this.#parent(tenant === undefined ? {} : { tenant })}/bandits/${idOf("bandit", bandit)}`;
  }

  #parent({ tenant }: Pick<Call, "tenant">): string {
    return `tenants/${this.#tenantOf(tenant)}`;
  }

  #tenantOf(tenant: string | undefined): string {
    const meant = tenant ?? this.#tenant;
    if (meant === undefined) throw invalidArgument("tenant", "neither the call nor the client has one");
    return idOf("tenant", meant);
  }
}

/** Return what is in an answer; one that is not as the service writes it, such as a proxy's, is UNKNOWN. */
function read<T>(operation: Operation<T>, answer: object): T {
  try {
    return operation.read(answer);
  } catch (error) {
    throw error instanceof ClientError ? error : new ClientError("UNKNOWN", "the answer can't be read");
  }
}

/** Return what a bandit is counted by: its name, after the tenant if the call has one. */
function told({ bandit, tenant }: Pick<Call, "bandit" | "tenant">): string {
  return tenant === undefined ? String(bandit) : `${String(tenant)}/${String(bandit)}`;
}
