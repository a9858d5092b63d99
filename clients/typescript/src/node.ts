/** What needs Node: the files of an outbox. */

import { mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";

import { KEY, type OutboxStorage } from "./storage.js";

const OURS = /^(.+)(\.json|\.\d+\.part)$/;

/**
 * Keep what is written in a folder, on the disk before it counts as kept: a file for each entry, which is synced. A folder is for
 * one process at a time; what one has left there, killed or not, is found by the next. Other files are left alone.
 */
export function fileStorage(folder: string): OutboxStorage {
  const files = new Folder(folder);
  return {
    entries: async () => [...(await files.kept())],
    put: (key, text) => files.put(key, text),
    remove: (key) => files.remove(key),
  };
}

class Folder {
  #kept: Promise<Map<string, string>> | undefined;
  #parts = 0;

  constructor(private readonly folder: string) {}

  /** Return what is in the folder, which is read once; a folder that can't be read is tried again. */
  kept(): Promise<Map<string, string>> {
    this.#kept ??= this.#read().catch((error: unknown) => {
      this.#kept = undefined;
      throw error;
    });
    return this.#kept;
  }

  async put(key: string, text: string): Promise<void> {
    const kept = await this.kept();
    const part = `${this.folder}/${key}.${this.#parts++}.part`;
    await synced(part, "wx", text);
    await rename(part, this.#path(key));
    await synced(this.folder, "r").catch(() => {}); // not every system opens folders
    kept.set(key, text);
  }

  async remove(key: string): Promise<void> {
    const kept = await this.kept();
    await rm(this.#path(key), { force: true });
    kept.delete(key);
  }

  async #read(): Promise<Map<string, string>> {
    await mkdir(this.folder, { recursive: true });
    const kept = new Map<string, string>();
    for (const entry of await readdir(this.folder, { withFileTypes: true })) {
      const { name } = entry;
      const [, key = "", end] = OURS.exec(name) ?? [];
      if (!KEY.test(key) || entry.isDirectory()) continue;
      if (end === ".json") kept.set(key, await readFile(this.#path(key), "utf8"));
      else await rm(`${this.folder}/${name}`, { force: true }); // its writing was broken off
    }
    return kept;
  }

  #path(key: string): string {
    return `${this.folder}/${key}.json`;
  }
}

async function synced(path: string, flags: string, text?: string): Promise<void> {
  const handle = await open(path, flags);
  try {
    if (text !== undefined) await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
}
