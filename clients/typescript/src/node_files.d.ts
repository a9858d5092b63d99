/** Of Node's own types the few that are used here: what is built for pages must not know the others. */
declare module "node:fs/promises" {
  interface FileHandle {
    writeFile(text: string): Promise<void>;
    sync(): Promise<void>;
    close(): Promise<void>;
  }
  export function mkdir(path: string, options: { recursive: true }): Promise<string | undefined>;
  export function open(path: string, flags: string): Promise<FileHandle>;
  interface Dirent {
    readonly name: string;
    isDirectory(): boolean;
  }
  export function readdir(path: string, options: { withFileTypes: true }): Promise<Dirent[]>;
  export function readFile(path: string, encoding: "utf8"): Promise<string>;
  export function rename(path: string, to: string): Promise<void>;
  export function rm(path: string, options: { force: true }): Promise<void>;
}
