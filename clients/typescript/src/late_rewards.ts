/** Makes rewards that came too late heard: nothing is learned from them, and a storefront would not notice. */

import type { Log } from "./edges.js";
import { ClientError } from "./errors.js";
import type { RewardReceipt } from "./values.js";

/** Counts late rewards by bandit, and warns of the first of each, or throws for all. */
export class LateRewards {
  readonly #counts = new Map<string, number>();

  constructor(
    private readonly raises: boolean,
    private readonly log: Log,
  ) {}

  get counts(): Record<string, number> {
    return Object.fromEntries(this.#counts);
  }

  /** Count one, and return how many there were before. */
  count(bandit: string): number {
    const before = this.#counts.get(bandit) ?? 0;
    this.#counts.set(bandit, before + 1);
    return before;
  }

  /** Look whether a reward was late, and return it; FAILED_PRECONDITION (REWARD_LATE) if that is an error here. */
  note(bandit: string, receipt: RewardReceipt): RewardReceipt {
    if (receipt.outcome !== "late") return receipt;
    const before = this.count(bandit);
    const problem = `a reward posted to ${bandit} came after its deadline and was not learned`;
    if (this.raises) throw new ClientError("FAILED_PRECONDITION", problem, { reason: "REWARD_LATE" });
    if (before === 0)
      this.log.warn(`${problem}; a longer reward_wait takes it (this is said once, client.lateRewards counts)`);
    return receipt;
  }

  /** Look at one of several: an error is in its place, and stops no other. */
  noteOne(bandit: string, receipt: RewardReceipt | ClientError): RewardReceipt | ClientError {
    if (receipt instanceof ClientError) return receipt;
    try {
      return this.note(bandit, receipt);
    } catch (error) {
      if (error instanceof ClientError) return error;
      throw error;
    }
  }
}
