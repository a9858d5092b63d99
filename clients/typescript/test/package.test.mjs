// What is packed: how much, which version, which files, and that a stranger's compiler takes it.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import { ROOT } from "./service.mjs";

const LARGEST = 31_500;
const json = (name) => JSON.parse(readFileSync(join(ROOT, name), "utf8"));

test("a page loads 31 kB, minified and with all that it needs", () => {
  const bundle = readFileSync(join(ROOT, "dist/topk-bandit.min.js"), "utf8");
  assert.ok(bundle.length < LARGEST, `${bundle.length} bytes`);
  assert.doesNotMatch(bundle, /\bimport\b|\brequire\(|\bprocess\.|\bBuffer\b/);
  assert.doesNotMatch(readFileSync(join(ROOT, "dist/topk-bandit.js"), "utf8"), /^import\b|\brequire\(|\bprocess\.|\bBuffer\b/m);
});

test("it runs where there is no more than a worker at the edge has", async () => {
  const program = readFileSync(join(ROOT, "dist/topk-bandit.js"), "utf8").replace(/^export \{[^}]*\};$/m, "");
  const use = `createClient({ url: "https://shop.test", tenant: "acme" })
    .recommend({ bandit: "home", features: { likes: new Set(["tea"]) }, fallback: ["own"] })`;
  const answer = { status: 200, text: async () => '{"recommendationId": "1", "itemIds": ["tea"]}' };
  const edge = { AbortController, URL, clearTimeout, console, crypto, fetch: async () => answer, performance, setTimeout };
  assert.equal((await runInNewContext(`${program}\n${use}`, edge)).source, "service");
  const keep = `(async () => {
    const outbox = createClient({ url: "https://shop.test", tenant: "acme" }).outbox(memoryStorage());
    await outbox.reward({ bandit: "home", recommendationId: "1", value: 1 });
    return outbox.flush(10000);
  })()`;
  const taken = { status: 200, text: async () => '{"results": [{"outcome": "REWARD_OUTCOME_ACCEPTED"}]}' };
  assert.equal(await runInNewContext(`${program}\n${keep}`, { ...edge, fetch: async () => taken }), 0);
});

test("its version is the service's", () => {
  const [, version] = readFileSync(join(ROOT, "../../pyproject.toml"), "utf8").match(/^version = "(.*)"$/m);
  assert.deepEqual([json("package.json").version, json("package-lock.json").version], [version, version]);
});

test("what is packed installs, runs and type-checks elsewhere", () => {
  const folder = mkdtempSync(join(tmpdir(), "tkb-"));
  const run = (command, ...rest) => execFileSync(command, rest, { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  try {
    const [packed] = JSON.parse(run("npm", "pack", "--json", "--ignore-scripts", `--pack-destination=${folder}`, ROOT));
    const types = ["breakers", "checks", "client", "edges", "errors", "fallbacks", "features", "hedging", "index", "late_rewards", "node", "operations", "outbox", "pages", "retries", "rules", "storage", "transport", "values"];
    const expected = ["LICENSE", "README.md", "dist/node.js", "dist/topk-bandit.js", "dist/topk-bandit.min.js", "example/shop.html", "package.json"];
    assert.deepEqual(packed.files.map(({ path }) => path).sort(), [...expected, ...types.map((name) => `dist/types/${name}.d.ts`)].sort());
    assert.equal(json("package.json").dependencies, undefined);
    writeFileSync(join(folder, "package.json"), '{"type": "module", "private": true}');
    run("npm", "install", "--offline", "--no-audit", "--no-fund", packed.filename);
    writeFileSync(join(folder, "shop.mjs"), 'import { createClient } from "topk-bandit";\nimport * as min from "topk-bandit/min";\nimport { fileStorage } from "topk-bandit/node";\nconsole.log(typeof createClient, Object.keys(min).join(), typeof fileStorage);');
    assert.equal(run(process.execPath, "shop.mjs").trim(), "function Client,ClientError,createClient,memoryStorage,pageStorage function");
    const program = 'import { createClient, type Recommendation } from "topk-bandit";\nimport { fileStorage } from "topk-bandit/node";\nvoid createClient({ url: "http://x" }).outbox(fileStorage("rewards")).reward({ bandit: "home", recommendationId: "1", value: 1 });\nexport const slate: Promise<Recommendation> = createClient<{ age: number }>({ url: "http://x", tenant: "acme" }).recommend({ bandit: "home", features: { age: 3 } });\n';
    writeFileSync(join(folder, "shop.ts"), program);
    const documented = [...readFileSync(join(ROOT, "../../docs/clients.md"), "utf8").matchAll(/^```ts\n(.*?)^```$/gms)].map(([, block], place) => {
      writeFileSync(join(folder, `document-${place}.ts`), block);
      return `document-${place}.ts`;
    });
    assert.ok(documented.length >= 4);
    run(process.execPath, join(ROOT, "node_modules/typescript/bin/tsc"), "--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom", "shop.ts", ...documented);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
