/** When a failed call is tried again. All calls of this client may be: they have their effect once. */

import { positiveOf } from "./checks.js";
import { type ClientError, invalidArgument } from "./errors.js";

/**
 * Exponential back-off with jitter: pause n is drawn from the upper half of `initialBackoffMs * multiplier ** n`. The pause
 * that the service asks for comes on top. There is no limit on the number of tries but the call's deadline.
 */
export interface RetryPolicy {
  readonly initialBackoffMs: number;
  readonly multiplier: number;
  readonly maxBackoffMs: number;
}

export const RETRY: RetryPolicy = { initialBackoffMs: 50, multiplier: 2, maxBackoffMs: 1000 };

/** Refuse a policy that does not back off. */
export function checkedRetry(policy: RetryPolicy): RetryPolicy {
  positiveOf("retry.initialBackoffMs", policy.initialBackoffMs, positiveOf("retry.maxBackoffMs", policy.maxBackoffMs));
  if (positiveOf("retry.multiplier", policy.multiplier) < 1) throw invalidArgument("retry.multiplier", "must be at least 1");
  return policy;
}

/** Return how many milliseconds to wait before retry `number`, from 0 on. */
export function pauseOf(policy: RetryPolicy, number: number, random: () => number): number {
  return Math.min(policy.initialBackoffMs * policy.multiplier ** number, policy.maxBackoffMs) * (0.5 + random() / 2);
}

/** The tries of one call, which share its deadline. */
export class Attempts {
  #failures = 0;
  readonly #deadline: number;

  /** `clock` returns milliseconds, monotonic; `random` draws from [0, 1). */
  constructor(
    private readonly policy: RetryPolicy,
    deadlineMs: number,
    private readonly clock: () => number,
    private readonly random: () => number,
  ) {
    this.#deadline = clock() + deadlineMs;
  }

  /** Return how many milliseconds are left. */
  remaining(): number {
    return Math.max(this.#deadline - this.clock(), 0);
  }

  /** Return how many milliseconds to wait before the next try, null when there is none. */
  pauseAfter(error: ClientError): number | null {
    if (!mayPass(error)) return null;
    const pause = pauseOf(this.policy, this.#failures++, this.random) + (error.details.retryAfterMs ?? 0);
    return pause < this.remaining() ? pause : null;
  }
}

/** Return whether waiting may help; a message that is too large is exhausted too, but nobody says when. */
function mayPass(error: ClientError): boolean {
  if (error.code === "RESOURCE_EXHAUSTED") return error.details.retryAfterMs !== null;
  return error.code === "UNAVAILABLE";
}
