/** A slow call is sent once more; the first answer counts. */

/**
 * Return the first answer of one call or two, or throw the error of the last one sent. The second begins `afterMs` after the
 * first, if that has not ended by then; both share the deadline, and the one that loses is cancelled.
 */
export async function hedged<T>(
  send: (deadlineMs: number, lost: AbortSignal) => Promise<T>,
  deadlineMs: number,
  afterMs: number,
  sleep: (ms: number) => Promise<void>,
): Promise<T> {
  const over = new AbortController();
  try {
    const first = send(deadlineMs, over.signal);
    if (deadlineMs <= afterMs || !(await outlasts(first, sleep(afterMs)))) return await first;
    return await firstAnswer([first, send(deadlineMs - afterMs, over.signal)]);
  } finally {
    over.abort();
  }
}

function outlasts(call: Promise<unknown>, pause: Promise<void>): Promise<boolean> {
  const ended = call.then(
    () => false,
    () => false,
  );
  return Promise.race([ended, pause.then(() => true)]);
}

async function firstAnswer<T>(calls: Promise<T>[]): Promise<T> {
  try {
    return await Promise.any(calls);
  } catch (failure) {
    throw (failure as AggregateError).errors.at(-1);
  }
}
