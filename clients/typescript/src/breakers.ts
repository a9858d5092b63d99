/** When the service is left alone: pages do not wait for what failed again and again. */

import { positiveOf } from "./checks.js";
import type { Log } from "./edges.js";
import { invalidArgument } from "./errors.js";

/** When a client stops to ask for slates that it has a fallback for, and how often it tries again. */
export interface BreakerPolicy {
  /** So many in a row open the breaker: the fallback is shown at once. */
  readonly failures: number;
  /** Milliseconds between two tries while it is open; the first one that is answered closes it. */
  readonly pauseMs: number;
}

export const BREAKER: BreakerPolicy = { failures: 5, pauseMs: 1000 };

/** Counts failures in a row; a policy that is null lets every call through. */
export class Breaker {
  #failures = 0;
  #nextTry = 0;

  constructor(
    private readonly policy: BreakerPolicy | null,
    private readonly clock: () => number,
    private readonly log: Log,
  ) {
    if (policy === null) return;
    if (positiveOf("breaker.failures", policy.failures) < 1) throw invalidArgument("breaker.failures", "must be at least 1");
    positiveOf("breaker.pauseMs", policy.pauseMs, Number.MAX_VALUE);
  }

  /** Return whether to ask the service now; while it is open, one caller is told so in each pause. */
  letsThrough(): boolean {
    if (this.policy === null || this.#failures < this.policy.failures) return true;
    const now = this.clock();
    if (now < this.#nextTry) return false;
    this.#nextTry = now + this.policy.pauseMs;
    return true;
  }

  /** Hear how a call ended. */
  note(answered: boolean): void {
    if (this.policy === null) return;
    const before = this.#failures;
    this.#failures = answered ? 0 : before + 1;
    if (!answered) this.#nextTry = this.clock() + this.policy.pauseMs;
    this.#tell(this.policy, before, answered);
  }

  #tell({ failures, pauseMs }: BreakerPolicy, before: number, answered: boolean): void {
    if (answered && before >= failures)
      this.log.warn(`the service answers again, after ${before} calls that it did not answer`);
    if (!answered && before === failures - 1)
      this.log.warn(
        `the service did not answer ${failures} calls in a row: own rankings are shown, and one call is tried each ${pauseMs} ms`,
      );
  }
}
