/** Where an outbox keeps what is not delivered yet: in a page's storage, or in memory. */

/**
 * Keeps texts by key. A method may answer at once or with a promise; what `put` was given has to be kept by then. Several
 * outboxes may share one: pages of an origin, for example.
 */
export interface OutboxStorage {
  /** Return all that is kept, in any order. */
  entries(): readonly Entry[] | Promise<readonly Entry[]>;
  /** Keep a text, in place of the one that the key has. */
  put(key: string, text: string): void | Promise<void>;
  /** Let go of a key, which may be gone already. */
  remove(key: string): void | Promise<void>;
  /** Call `changed` when others have changed what is kept, if that can be heard of; return what ends that. */
  watch?(changed: () => void): () => void;
}

/** What keys of an outbox are like: its own, and nothing else, are read and taken out. */
export const KEY = /^\d{16}-[0-9a-f]{8}$/;

/** A key and its text. */
export type Entry = readonly [key: string, text: string];

/** Keep what is written for as long as this page, worker or process lives. */
export function memoryStorage(): OutboxStorage {
  const kept = new Map<string, string>();
  return {
    entries: () => [...kept],
    put: (key, text) => void kept.set(key, text),
    remove: (key) => void kept.delete(key),
  };
}

/**
 * Keep what is written in the browser, for all pages of the origin: in `localStorage`, under keys that begin with `name`. It is
 * the one that has kept what it was given when its call returns, so that a page may end at any moment after; each entry has a
 * key of its own, so that pages do not overwrite each other's. What the browser refuses to keep stays in the page's memory.
 */
export function pageStorage(name = "topk-bandit"): OutboxStorage {
  const prefix = `${name}/`;
  const refused = new Map<string, string>();
  return {
    entries: () => [...stored(prefix), ...refused],
    put(key, text) {
      refused.delete(key);
      if (!attempt(() => localStorage.setItem(prefix + key, text))) refused.set(key, text);
    },
    remove(key) {
      refused.delete(key);
      attempt(() => localStorage.removeItem(prefix + key));
    },
    watch(changed) {
      const heard = ({ key }: StorageEvent) => void (key?.startsWith(prefix) && changed());
      attempt(() => addEventListener("storage", heard)); // Node has none
      return () => void attempt(() => removeEventListener("storage", heard));
    },
  };
}

function stored(prefix: string): Entry[] {
  const found: Entry[] = [];
  attempt(() => {
    for (const key of Object.keys(localStorage).filter((one) => one.startsWith(prefix)))
      found.push([key.slice(prefix.length), localStorage.getItem(key) ?? ""]);
  });
  return found;
}

/** Return whether the browser lets a page use its storage: it may be full, or forbidden. */
function attempt(use: () => void): boolean {
  try {
    use();
    return true;
  } catch {
    return false;
  }
}
