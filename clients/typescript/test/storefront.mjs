// A storefront's process, to be killed: each line that it prints is a recommendation id whose activation and reward are on disk.
// Arguments: the service's address, the outbox's folder, recommendation ids.

import { createClient } from "../dist/topk-bandit.js";
import { fileStorage } from "../dist/node.js";
import "./service.mjs";

const [url, folder, ...ids] = process.argv.slice(2);
const outbox = createClient({ url, tenant: "acme" }).outbox(fileStorage(folder));
for (const recommendationId of ids) {
  const about = { bandit: "careful", recommendationId };
  await Promise.all([outbox.activate({ ...about, shown: ["milk", "cocoa", "tea"] }), outbox.reward({ ...about, value: 0.5 })]);
  process.stdout.write(`${recommendationId}\n`);
}
