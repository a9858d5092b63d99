/** What the client has from outside: the network, time, chance and somebody to tell. */

export interface Log {
  warn(message: string): void;
  error(message: string): void;
}

export interface Edges {
  readonly fetch: (address: string, init: RequestInit) => Promise<Response>;
  /** Returns milliseconds, monotonic. */
  readonly clock: () => number;
  /** Returns milliseconds since 1970. */
  readonly now: () => number;
  /** Draws from [0, 1). */
  readonly random: () => number;
  readonly sleep: (ms: number) => Promise<void>;
  /** Makes an id that is different each time. */
  readonly newRequestId: () => string;
  readonly log: Log;
}

const EDGES: Edges = {
  fetch: (address, init) => fetch(address, init),
  clock: () => performance.now(),
  now: Date.now,
  random: Math.random,
  sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  newRequestId: hexId,
  log: {
    warn: (message) => console.warn(`topk-bandit: ${message}`),
    error: (message) => console.error(`topk-bandit: ${message}`),
  },
};

/** Return what is given, and the platform's own for what is missing; to tell somebody never fails. */
export function edgesOf(given: Partial<Edges>): Edges {
  const names = Object.keys(EDGES) as (keyof Edges)[];
  const edges = Object.fromEntries(names.map((name) => [name, given[name] ?? EDGES[name]])) as unknown as Edges;
  return { ...edges, log: { warn: (message) => tell("warn", message), error: (message) => tell("error", message) } };

  function tell(how: keyof Log, message: string): void {
    try {
      edges.log[how](message);
    } catch {
      EDGES.log[how](message);
    }
  }
}

// Not crypto.randomUUID: a page that came over plain HTTP has none.
function hexId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
