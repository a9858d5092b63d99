/** One call by the Connect protocol: a POST of JSON, with its deadline on both sides. */

import type { Edges } from "./edges.js";
import { ClientError, errorOfAnswer } from "./errors.js";
import type { Operation } from "./operations.js";

/** Where the service is, and how it is asked. */
export class Door {
  readonly #base: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(
    url: string,
    key: string | undefined,
    private readonly edges: Edges,
  ) {
    this.#base = `${checkedUrl(url)}/topk_bandit.v1.RecommenderService`;
    this.#headers = {
      "Content-Type": "application/json",
      "Connect-Protocol-Version": "1",
      ...(key === undefined ? {} : { Authorization: `Bearer ${checkedKey(key)}` }),
    };
  }

  /** Return the answer's body, or throw a `ClientError`, after `deadlineMs` at the latest, or once it is `lost`. */
  ask({ method, request }: Operation<unknown>, deadlineMs: number, lost?: AbortSignal): Promise<object> {
    const init: RequestInit = {
      method: "POST",
      headers: { ...this.#headers, "Connect-Timeout-Ms": String(Math.ceil(deadlineMs)) },
      body: JSON.stringify(request),
      redirect: "manual", // it could turn a reward into a GET
    };
    // A click that leads to another page ends this one: what it earned is sent all the same.
    if (!method.includes("Recommend") && typeof document !== "undefined") init.keepalive = true;
    return within(deadlineMs, lost, (signal) => this.#answer(`${this.#base}/${method}`, { ...init, signal }));
  }

  async #answer(address: string, init: RequestInit): Promise<object> {
    const [status, text] = await this.#received(address, init);
    const body = parsed(text);
    if (status !== 200) throw errorOfAnswer(status, body);
    if (typeof body === "object" && body !== null) return body;
    throw new ClientError("UNKNOWN", "the answer is no JSON object");
  }

  async #received(address: string, init: RequestInit): Promise<[number, string]> {
    try {
      const response = await this.edges.fetch(address, init);
      return [response.status, await response.text()];
    } catch (error) {
      // In a page fetch says no more, lest that learns of networks: it may also be that the page's origin may not call.
      throw new ClientError("UNAVAILABLE", `no answer from ${address}: ${String(error)}${causeOf(error)}`);
    }
  }
}

/** Race work with the clock: what does not heed the signal is not waited for either. */
function within<T>(
  deadlineMs: number,
  lost: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const ending = new AbortController();
  return new Promise((resolve, reject) => {
    const end = (error: ClientError) => (reject(error), ending.abort());
    const late = () => end(new ClientError("DEADLINE_EXCEEDED", "the service did not answer in time"));
    const timer = setTimeout(late, deadlineMs);
    lost?.addEventListener("abort", () => (clearTimeout(timer), end(new ClientError("CANCELLED", "not needed any more"))));
    void work(ending.signal).then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/** Return why, as Node says it; empty where nothing is said. */
function causeOf(error: unknown): string {
  const cause = (error as { cause?: { code?: string; message?: string } } | undefined)?.cause;
  const why = cause?.message || cause?.code;
  return why ? `: ${why}` : "";
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function checkedUrl(url: string | URL): string {
  const { protocol, origin, pathname, username, password, search, hash } = new URL(url);
  if (!/^https?:$/.test(protocol)) throw new TypeError("url must begin with http:// or https://");
  if (username || password || search || hash) throw new TypeError("url must have no user, password, query or fragment");
  return `${origin}${pathname.replace(/\/+$/, "")}`;
}

function checkedKey(key: string): string {
  if (!/^[\w-]+\.[\w-]+$/.test(key)) throw new TypeError("key must be id.secret, as `topk-bandit keys create` prints it");
  return key;
}
