// Connect's own clients against the real service: over HTTP as browsers and Node call it, and over gRPC.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { build } from "esbuild";
import { ROOT, Service } from "./service.mjs";

const BANDIT = "tenants/acme/bandits/home";
const CONTENTS = `
  export { RecommenderService, RewardOutcome } from "./src/gen/topk_bandit/v1/recommender_service_pb.js";
  export { Code, ConnectError, createClient } from "@connectrpc/connect";
  export { createConnectTransport as inBrowser } from "@connectrpc/connect-web";
  export { compressionGzip, createConnectTransport as inNode, createGrpcTransport as overGrpc } from "@connectrpc/connect-node";
`;
const stdin = { contents: CONTENTS, resolveDir: ROOT, loader: "ts" };
const { outputFiles } = await build({ stdin, bundle: true, format: "esm", platform: "node", write: false, logLevel: "warning" });
const connect = await import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString("base64")}`);

const service = new Service();

before(async () => {
  await service.start();
  await service.create("home", { contextDimension: 2 });
});
after(() => service.close());

const TRANSPORTS = {
  "a browser's client, in JSON": () => connect.inBrowser({ baseUrl: service.url }),
  "a browser's client, in binary messages": () => connect.inBrowser({ baseUrl: service.url, useBinaryFormat: true }),
  "Node's client, in JSON": () => connect.inNode({ baseUrl: service.url, httpVersion: "1.1", useBinaryFormat: false }),
  "Node's client, in binary messages that are compressed": () =>
    connect.inNode({ baseUrl: service.url, httpVersion: "1.1", sendCompression: connect.compressionGzip, compressMinBytes: 0 }),
  "Node's client over gRPC": () => connect.overGrpc({ baseUrl: service.grpcUrl }),
};

for (const [number, [name, transport]] of Object.entries(TRANSPORTS).entries()) {
  const open = () => connect.createClient(connect.RecommenderService, transport());
  const asked = { bandit: BANDIT, context: [1, 0.3], requestId: `view-${number}` };

  test(`${name}: a slate, the same slate again, and its reward once`, async () => {
    const slate = await open().recommend(asked);
    assert.deepEqual(await open().recommend(asked), slate);
    assert.equal(slate.itemIds.length, 3);
    assert.ok(slate.propensity > 0 && slate.rewardDeadline.seconds > 0n);
    const reward = { bandit: BANDIT, recommendationId: slate.recommendationId, value: 0 };
    assert.equal((await open().reward(reward)).outcome, connect.RewardOutcome.ACCEPTED);
    assert.equal((await open().reward(reward)).outcome, connect.RewardOutcome.DUPLICATE);
  });

  test(`${name}: an error has its code, and names the field`, async () => {
    const error = await open().recommend({ ...asked, context: [1], requestId: "" }).catch((thrown) => thrown);
    assert.ok(error instanceof connect.ConnectError, error);
    assert.equal(error.code, connect.Code.InvalidArgument);
    assert.match(error.rawMessage, /^context: expected 2 numbers, got 1/);
    const bad = error.details.find(({ type }) => type === "google.rpc.BadRequest");
    assert.match(new TextDecoder().decode(bad.value), /context/);
    const gone = await open().recommend({ ...asked, bandit: "tenants/acme/bandits/none" }).catch((thrown) => thrown);
    assert.equal(gone.code, connect.Code.NotFound);
  });

  test(`${name}: what is sent along comes back, and a deadline is kept`, async () => {
    const told = [];
    const keep = (metadata) => told.push(metadata.get("x-request-id"));
    await open().recommend(asked, { headers: { "X-Request-Id": `call-${number}` }, onHeader: keep, onTrailer: keep });
    assert.ok(told.includes(`call-${number}`), told); // over gRPC it is in the trailing metadata
    service.freeze();
    try {
      const late = await open().recommend({ ...asked, requestId: "" }, { timeoutMs: 200 }).catch((thrown) => thrown);
      assert.equal(late.code, connect.Code.DeadlineExceeded);
    } finally {
      service.thaw();
    }
  });
}
