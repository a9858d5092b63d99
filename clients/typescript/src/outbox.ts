/** Rewards and activations that are kept until the service has answered for them. */

import { idOf, listOf, LONGEST_TIMER, objectOf, positiveOf, textOf } from "./checks.js";
import type { Edges } from "./edges.js";
import { ClientError, invalidArgument } from "./errors.js";
import { activateOperation, batchOperation, type Operation, postedReward, someOf } from "./operations.js";
import { checkedRetry, pauseOf, type RetryPolicy } from "./retries.js";
import { type Entry, KEY, type OutboxStorage } from "./storage.js";
import type { ActivationReceipt, ItemValues, OutboxStatus, Refusal, RewardReceipt, SlatePage } from "./values.js";

export interface OutboxOptions {
  /** How many rewards and activations may wait: 1000. With more, `reward` and `activate` reject (OUTBOX_FULL). */
  readonly maxWaiting?: number;
  /** Milliseconds that a call of the delivery may take, all tries together; the client's by default. */
  readonly timeoutMs?: number;
  /** The pauses between calls about the same slate that failed: from half a second to half a minute. */
  readonly retry?: RetryPolicy;
  /**
   * Milliseconds after which what the service does not answer for is given up: 24 hours. Make it the longest reward wait of your
   * bandits; what the service does answer for, it judges by its own clock.
   */
  readonly rewardWaitMs?: number;
  /** Told of each that is taken out undelivered, perhaps twice; else the first of each kind is a warning. */
  readonly onRefused?: (refusal: Refusal) => void;
}

/** What of a client its outbox uses. */
export interface Sender {
  readonly edges: Edges;
  readonly timeoutMs: number;
  send<T>(operation: Operation<T>, deadlineMs: number): Promise<T>;
  /** Return the tenant of a call, or the client's. */
  tenantOf(tenant: string | undefined): string;
  countLate(tenant: string, bandit: string): void;
}

interface About {
  readonly bandit: string;
  readonly tenant?: string;
  readonly recommendationId: string;
}

export interface KeptReward extends About {
  readonly value: number;
  /** The same id is the same reward, which counts once; one is made for each call by default. */
  readonly rewardId?: string;
  /** Whether no more will come. */
  readonly final?: boolean;
  /** What single items of the slate did, by their ids. */
  readonly itemValues?: ItemValues;
}

export interface KeptPageReward extends Omit<KeptReward, "bandit" | "recommendationId" | "itemValues"> {
  /** The page, as `recommendPage` returned it, or as it was read back from JSON. */
  readonly page: Pick<SlatePage, "bandits" | "slates">;
}

export interface KeptActivation extends About {
  /** What was shown instead of the slate, as many items; the slate itself by default. */
  readonly shown?: readonly string[];
}

/** What is written under a key: a reward has a value, an activation has what was shown. */
interface Kept {
  readonly tenant: string;
  readonly bandit: string;
  readonly recommendationId: string;
  readonly value?: number;
  readonly rewardId?: string;
  readonly final?: boolean;
  readonly shown?: readonly string[];
  readonly itemValues?: ItemValues;
  readonly written: number;
  /** Until then those who wrote it have it alone, or it rests after a failure. */
  readonly due: number;
  readonly tries: number;
}

interface Waiting extends Kept {
  readonly key: string;
  readonly slate: string;
}

type Answer = RewardReceipt | ActivationReceipt | ClientError;

const RETRY: RetryPolicy = { initialBackoffMs: 500, multiplier: 2, maxBackoffMs: 30_000 };
const DAY_MS = 86_400_000;
// A longer pause than this is not waited for, whoever asks for it; a later time is from a clock that was set back.
const LONGEST_PAUSE_MS = 3_600_000;
// A call that is to outlive its page has at most 64 kB together with others.
const MAX_BATCH = 100;
const MAX_CALLS = 4;
const FLUSH_LOOK_MS = 20;
const FLUSH_TRY_MS = 1000;

// What another try would be answered with, too. A key can be mended, and most quotas pass.
const REFUSALS = new Set(["INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION"]);
const FINAL_QUOTA = "REWARD_COUNT";

/**
 * What is written here is delivered at least once, also after the page or process has ended, if the storage outlives it; the
 * service counts it once. What is about one slate goes in the order in which it was written.
 */
export class Outbox {
  readonly #maxWaiting: number;
  readonly #timeoutMs: number;
  readonly #retry: RetryPolicy;
  readonly #rewardWaitMs: number;
  readonly #onRefused: ((refusal: Refusal) => void) | undefined;
  readonly #stopWatching: (() => void) | undefined;
  /** Keys that are due for this outbox, whatever is written of them. */
  readonly #own = new Set<string>();
  /** How many writes and calls about a slate are under way. */
  readonly #busy = new Map<string, number>();
  readonly #refused = new Map<string, number>();
  readonly #told = new Set<string>();
  /** What was read last, so that of thousands only what is new is parsed. */
  #read = new Map<string, { text: string; one: Waiting | null }>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #newest = 0;
  #writing = 0;
  #calls = 0;
  #batch = MAX_BATCH;
  #delivered = 0;
  #closed = false;

  constructor(
    private readonly sender: Sender,
    private readonly storage: OutboxStorage,
    options: OutboxOptions = {},
  ) {
    this.#maxWaiting = positiveOf("maxWaiting", options.maxWaiting ?? 1000);
    this.#timeoutMs = positiveOf("timeoutMs", options.timeoutMs ?? sender.timeoutMs, LONGEST_TIMER);
    this.#retry = checkedRetry(options.retry ?? RETRY);
    this.#rewardWaitMs = positiveOf("rewardWaitMs", options.rewardWaitMs ?? DAY_MS);
    this.#onRefused = options.onRefused;
    this.#stopWatching = storage.watch?.(() => void this.#work());
    void this.#work();
  }

  /**
   * Write down what a slate earned. Resolves once it is kept, with whether there was something to keep: a slate without an id
   * takes no reward. Rejects with INVALID_ARGUMENT, RESOURCE_EXHAUSTED (OUTBOX_FULL) or UNAVAILABLE (OUTBOX_FAILED).
   */
  async reward({ rewardId, ...posted }: KeptReward): Promise<boolean> {
    const { value, final, itemValues = {}, ...what } = postedReward({ ...posted, rewardId: rewardId ?? this.sender.edges.newRequestId() });
    const numbers = Object.entries(itemValues).map(([id, one]) => [`item_values["${id}"]`, one] as const);
    for (const [field, one] of [["value", value] as const, ...numbers])
      if (typeof one !== "number") throw invalidArgument(field, `must be a finite number, not ${one}`);
    const kept = { ...what, value, final, ...(numbers.length ? { itemValues } : {}) } as Partial<Kept>;
    return this.#keep(posted, kept);
  }

  /**
   * Write down what a page earned: a reward of each of its slates that takes one, all with the same id. Resolves once they are
   * kept, with their number. Rejects as `reward` does; then some may be kept, and the same call with a `rewardId` counts once.
   */
  async rewardPage({ page, rewardId, ...what }: KeptPageReward): Promise<number> {
    const id = rewardId ?? this.sender.edges.newRequestId();
    let kept = 0;
    const { bandits, slates } = objectOf("page", page);
    const given = listOf("page.slates", slates) as ({ id?: string } | null)[];
    const rewards = (listOf("page.bandits", bandits) as string[]).flatMap((bandit, place) => {
      const recommendationId = given[place]?.id;
      return recommendationId ? [{ ...what, bandit: idOf(`page.bandits[${place}]`, bandit), recommendationId, rewardId: id }] : [];
    });
    for (const one of rewards) kept += Number(await this.reward(one));
    return kept;
  }

  /** Write down that a slate was shown, or `shown` instead of it; do so before the slate's rewards. */
  async activate({ shown, ...about }: KeptActivation): Promise<boolean> {
    // What is written for the slate itself is an empty list.
    return this.#keep(about, { shown: someOf("shownItemIds", shown, "the recommended slate").shownItemIds ?? [] });
  }

  /** Return how many wait, since when, and what became of the others. */
  async status(): Promise<OutboxStatus> {
    const [first, ...others] = (await this.#waiting()).map(({ written }) => written);
    return {
      pending: first === undefined ? 0 : 1 + others.length,
      oldest: first === undefined ? null : new Date(Math.min(first, ...others)),
      delivered: this.#delivered,
      refused: Object.fromEntries(this.#refused),
    };
  }

  /** Deliver what waits, whatever pauses it is in, for so many milliseconds at most; return how many are left. */
  async flush(ms: number): Promise<number> {
    const { clock, sleep } = this.sender.edges;
    const end = clock() + ms;
    for (let hurried = -Infinity; ; await sleep(FLUSH_LOOK_MS)) {
      const left = await this.#waiting();
      if (left.length === 0 || clock() >= end || this.#closed) return left.length;
      if (clock() < hurried + FLUSH_TRY_MS) continue;
      hurried = clock();
      for (const { key } of left) this.#own.add(key);
      void this.#work();
    }
  }

  /** Begin no more calls; what is left stays in the storage. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#stopWatching?.();
  }

  async #keep({ bandit, tenant, recommendationId }: About, what: Partial<Kept>): Promise<boolean> {
    const id = textOf("recommendation_id", recommendationId);
    if (!id) return false;
    const about = { tenant: this.sender.tenantOf(tenant), bandit: idOf("bandit", bandit), recommendationId: id };
    const now = this.sender.edges.now();
    const key = this.#nextKey(now);
    if (!KEY.test(key)) throw failed(`the clock gives ${now}, which is no time`);
    const kept = { ...what, ...about, written: now, tries: 0 };
    const slate = slateOf(kept);
    this.#hold(slate);
    this.#own.add(key);
    try {
      await this.#write(key, { ...kept, due: now + this.#lease });
    } catch (error) {
      this.#own.delete(key);
      throw error;
    } finally {
      this.#release(slate);
    }
    void this.#work();
    return true;
  }

  /** Keys are in the order of the calls, also where a clock is set back, and different in each page. */
  #nextKey(now: number): string {
    this.#newest = Math.max(Math.floor(now), this.#newest + 1);
    return `${String(this.#newest).padStart(16, "0")}-${Math.floor(Math.random() * 2 ** 32).toString(16).padStart(8, "0")}`;
  }

  async #write(key: string, kept: Kept): Promise<void> {
    if (this.#closed) throw failed("it was closed");
    try {
      const { length } = await this.#entries();
      if (length + this.#writing >= this.#maxWaiting) throw full(this.#maxWaiting);
      await this.#put(key, JSON.stringify(kept));
    } catch (error) {
      throw error instanceof ClientError ? error : failed(String(error));
    }
  }

  async #put(key: string, text: string): Promise<void> {
    this.#writing++;
    try {
      await this.storage.put(key, text);
    } finally {
      this.#writing--;
    }
  }

  /** For so long those who take something have it alone. */
  get #lease(): number {
    return 2 * this.#timeoutMs;
  }

  /** Make the next call, and others beside it as long as there is something to deliver; come again when it has ended. */
  async #work(): Promise<void> {
    if (this.#closed || this.#calls >= MAX_CALLS) return;
    this.#calls++;
    let taken: Waiting[] = [];
    let more = false;
    try {
      taken = await this.#take();
      if (taken.length > 0) {
        void this.#work();
        await this.#deliver(taken);
        more = true;
      }
    } catch (error) {
      this.#warnOnce("storage", `the outbox's storage fails: ${String(error)}`);
      this.#comeAgain(this.#retry.maxBackoffMs);
    } finally {
      this.#calls--;
      for (const { slate } of taken) this.#release(slate);
    }
    if (more) void this.#work();
  }

  /** Return calls that are due, of one bandit and one kind, one of each slate; others leave them alone. */
  async #take(): Promise<Waiting[]> {
    const waiting = await this.#waiting();
    const now = this.sender.edges.now();
    const free = firstOfSlates(waiting).filter(({ slate }) => !this.#busy.has(slate));
    const [first, ...others] = free.filter((one) => this.#own.has(one.key) || isDue(one, now));
    if (first === undefined) {
      if (free.length > 0) this.#comeAgain(Math.min(...free.map(({ due }) => due)) - now);
      return [];
    }
    const alike = others.filter((one) => isLike(one, first)).slice(0, this.#batch - 1);
    const taken = first.shown ? [first] : [first, ...alike];
    for (const { slate } of taken) this.#hold(slate);
    await Promise.allSettled(taken.map((one) => this.#lay(one, now)));
    return taken;
  }

  /** Take what nobody has any more. */
  async #lay(one: Waiting, now: number): Promise<void> {
    if (this.#own.has(one.key)) return;
    this.#own.add(one.key);
    await this.storage.put(one.key, serialized({ ...one, due: now + this.#lease }));
  }

  async #deliver(taken: readonly Waiting[]): Promise<void> {
    const answers = await this.#answers(taken);
    const again = await Promise.all(taken.map((one, index) => this.#settle(one, answers[index]!)));
    // A service that is slow may answer for fewer in time.
    this.#batch = again.every(Boolean) ? Math.max(1, this.#batch >> 1) : Math.min(MAX_BATCH, 2 * this.#batch);
  }

  async #answers(taken: readonly Waiting[]): Promise<readonly Answer[]> {
    const { tenant, bandit, recommendationId, shown } = taken[0]!;
    const name = `tenants/${tenant}/bandits/${bandit}`;
    try {
      if (!shown) return await this.sender.send(batchOperation(name, taken), this.#timeoutMs);
      const instead = shown.length ? shown : undefined;
      return [await this.sender.send(activateOperation(name, recommendationId, instead), this.#timeoutMs)];
    } catch (error) {
      const failure = error instanceof ClientError ? error : new ClientError("UNKNOWN", String(error));
      const isOfEntry = failure.code === "INVALID_ARGUMENT" && failure.details.field !== "bandit";
      return isOfEntry && taken.length > 1 ? this.#answersOfHalves(taken) : taken.map(() => failure);
    }
  }

  /** One that can't be read makes the service refuse all that it is sent with. */
  async #answersOfHalves(taken: readonly Waiting[]): Promise<readonly Answer[]> {
    const half = taken.length >> 1;
    return [...(await this.#answers(taken.slice(0, half))), ...(await this.#answers(taken.slice(half)))];
  }

  /** Take out what was answered for, or put it back; return whether it comes again. */
  async #settle(one: Waiting, answer: Answer): Promise<boolean> {
    const error = answer instanceof ClientError ? answer : this.#late(one, answer);
    const waits = error !== null && !isRefusal(error);
    const now = this.sender.edges.now();
    this.#own.delete(one.key);
    if (waits && now - one.written <= this.#rewardWaitMs) {
      await this.#putBack(one, error, now);
      return true;
    }
    await this.storage.remove(one.key);
    if (error === null) this.#delivered++;
    else this.#refuse(one, waits ? expired(error) : error);
    return false;
  }

  #late(one: Waiting, { outcome }: RewardReceipt | ActivationReceipt): ClientError | null {
    if (outcome !== "late") return null;
    if (!one.shown) this.sender.countLate(one.tenant, one.bandit);
    return new ClientError("FAILED_PRECONDITION", "it came after its deadline", {
      reason: one.shown ? "ACTIVATION_LATE" : "REWARD_LATE",
    });
  }

  async #putBack(one: Waiting, error: ClientError, now: number): Promise<void> {
    this.#warnOnce(error.code, `calls wait in the outbox: ${error.message}`);
    const pause = pauseOf(this.#retry, one.tries, this.sender.edges.random) + (error.details.retryAfterMs ?? 0);
    const due = now + Math.min(pause, LONGEST_PAUSE_MS);
    await this.storage.put(one.key, serialized({ ...one, due, tries: one.tries + 1 }));
  }

  #refuse(one: Waiting, error: ClientError): void {
    const reason = error.details.reason || error.code;
    this.#refused.set(reason, (this.#refused.get(reason) ?? 0) + 1);
    if (!this.#onRefused) {
      const what = one.shown ? "an activation" : "a reward";
      return this.#warnOnce(`${one.bandit} ${reason}`, `${what} of ${one.bandit} is not taken: ${error.message}`);
    }
    const { tenant, bandit, recommendationId, value = null, rewardId = "", shown = [], itemValues = {} } = one;
    try {
      this.#onRefused({ tenant, bandit, recommendationId, value, rewardId, shown, itemValues, error });
    } catch (fault) {
      this.sender.edges.log.error(`onRefused failed for ${recommendationId}: ${String(fault)}`);
    }
  }

  /** Return all that waits, in its order; what nobody can read is taken out. */
  async #waiting(): Promise<Waiting[]> {
    const entries = await this.#entries();
    const before = this.#read;
    this.#read = new Map();
    for (const [key, text] of entries) {
      const known = before.get(key);
      this.#read.set(key, known?.text === text ? known : { text, one: waitingOf(key, text) });
      this.#newest = Math.max(this.#newest, parseInt(key, 10) || 0);
    }
    const all = [...this.#read].sort(([one], [other]) => (one < other ? -1 : 1));
    for (const [key, { one }] of all) if (!one) await this.#drop(key);
    return all.flatMap(([, { one }]) => one ?? []);
  }

  /** Return what outboxes have written there: a folder or a page's storage may have more. */
  async #entries(): Promise<readonly Entry[]> {
    return (await this.storage.entries()).filter(([key]) => KEY.test(key));
  }

  async #drop(key: string): Promise<void> {
    await this.storage.remove(key);
    this.#warnOnce("UNREADABLE", `what is under ${key} in the outbox's storage can't be read`);
    this.#refused.set("UNREADABLE", (this.#refused.get("UNREADABLE") ?? 0) + 1);
  }

  #comeAgain(ms: number): void {
    clearTimeout(this.#timer);
    if (!this.#closed) this.#timer = setTimeout(() => void this.#work(), Math.max(ms, 1));
  }

  #hold(slate: string): void {
    this.#busy.set(slate, (this.#busy.get(slate) ?? 0) + 1);
  }

  #release(slate: string): void {
    const left = (this.#busy.get(slate) ?? 0) - 1;
    if (left > 0) this.#busy.set(slate, left);
    else this.#busy.delete(slate);
  }

  #warnOnce(kind: string, message: string): void {
    if (this.#told.has(kind)) return;
    this.#told.add(kind);
    this.sender.edges.log.warn(`${message} (this is said once, outbox.status() counts)`);
  }
}

function slateOf({ tenant, bandit, recommendationId }: Pick<Kept, "tenant" | "bandit" | "recommendationId">): string {
  return `${tenant}/${bandit}/${recommendationId}`;
}

function serialized({ key: _key, slate: _slate, ...kept }: Waiting): string {
  return JSON.stringify(kept);
}

function waitingOf(key: string, text: string): Waiting | null {
  try {
    const kept = JSON.parse(text) as Kept | null;
    return kept?.recommendationId ? { ...kept, key, slate: slateOf(kept) } : null;
  } catch {
    return null;
  }
}

function firstOfSlates(waiting: readonly Waiting[]): Waiting[] {
  const seen = new Set<string>();
  return waiting.filter(({ slate }) => !seen.has(slate) && seen.add(slate));
}

function isDue({ due }: Kept, now: number): boolean {
  return !(due > now) || due > now + 2 * LONGEST_PAUSE_MS;
}

function isLike(one: Kept, other: Kept): boolean {
  return one.tenant === other.tenant && one.bandit === other.bandit && !one.shown && !other.shown;
}

function isRefusal({ code, details }: ClientError): boolean {
  return REFUSALS.has(code) || details.reason === FINAL_QUOTA;
}

function expired({ message }: ClientError): ClientError {
  return new ClientError("DEADLINE_EXCEEDED", `it waited longer than rewardWaitMs: ${message}`, { reason: "OUTBOX_EXPIRED" });
}

function full(most: number): ClientError {
  const problem = `the outbox holds ${most} rewards and activations that are not delivered yet, as many as it may`;
  return new ClientError("RESOURCE_EXHAUSTED", problem, { reason: "OUTBOX_FULL" });
}

function failed(problem: string): ClientError {
  return new ClientError("UNAVAILABLE", `the outbox: ${problem}`, { reason: "OUTBOX_FAILED" });
}
