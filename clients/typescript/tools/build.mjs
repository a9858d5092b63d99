// Bundles the client into one readable and one minified file, and what only Node has into another; prints what a page loads.

import { copyFileSync, readFileSync, rmSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const SHARED = { bundle: true, format: "esm", target: "es2022", legalComments: "none" };

rmSync("dist", { recursive: true, force: true });
const PAGE = { ...SHARED, entryPoints: ["src/index.ts"] };
await build({ ...PAGE, outfile: "dist/topk-bandit.js" });
await build({ ...PAGE, outfile: "dist/topk-bandit.min.js", minify: true });
await build({ ...SHARED, entryPoints: ["src/node.ts"], outfile: "dist/node.js", external: ["node:*"] });

copyFileSync("../../LICENSE", "LICENSE"); // npm packs what is in the package's own folder

const bundle = readFileSync("dist/topk-bandit.min.js");
console.log(`minified with its dependencies: ${bundle.length} bytes, ${gzipSync(bundle, { level: 9 }).length} with gzip`);
