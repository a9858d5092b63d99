/** Pages and batches of slates: each call as a value, and how its answer is read. No I/O here. */

import { booleanOf, numberOf, numbersOf, textOf } from "./checks.js";
import { ClientError, errorOfEntry, errorsBelow } from "./errors.js";
import { featureValues } from "./features.js";
import type {
  BatchRecommendRequestJson,
  BatchRecommendResponseJson,
  RecommendPageRequestJson,
  RecommendPageResponseJson,
  RecommendResultJson,
  RewardPageRequestJson,
  RewardPageResponseJson,
} from "./gen/topk_bandit/v1/recommender_service_pb.js";
import { frequencyOf, type Operation, recommendationOf, type RecommendFields, recommendRequest, resultsOf } from "./operations.js";
import type { Recommendation, RewardReceipt } from "./values.js";

const MAX_SLATES = 100;

/** Ask for many slates of one bandit, in as many calls as the service makes of them; each answers in the order of its requests. */
export function batchOperations(bandit: string, asked: readonly RecommendFields[]): Operation<(Recommendation | ClientError)[]>[] {
  const requests = asked.map((one, place) => errorsBelow(`requests[${place}]`, () => recommendRequest("", one)));
  const parts = Array.from({ length: Math.ceil(requests.length / MAX_SLATES) }, (_, part) =>
    requests.slice(part * MAX_SLATES, (part + 1) * MAX_SLATES),
  );
  return parts.map((part) => {
    const request: BatchRecommendRequestJson = { bandit, requests: part };
    const read = ({ results }: BatchRecommendResponseJson) => slatesOf(results, part.length);
    return { method: "BatchRecommend", request, read };
  });
}

export interface PageFields {
  readonly pageId: string;
  readonly context?: readonly number[] | undefined;
  readonly features?: object | undefined;
  readonly groupKey?: string | undefined;
  readonly frequencyKey?: string | undefined;
}

/** The slates of a page as the service gives them: a slate for each placement, or the error that is in its place. */
export interface AnsweredPage {
  readonly id: string;
  readonly slates: readonly (Recommendation | ClientError)[];
}

/** Ask for the slates of a page; placements are the name of a bandit each, and what is asked of it. */
export function pageOperation(
  parent: string,
  { pageId, context, features, groupKey, frequencyKey }: PageFields,
  placements: readonly (readonly [bandit: string, asked: Omit<RecommendFields, "requestId">])[],
): Operation<AnsweredPage> {
  const request: RecommendPageRequestJson = {
    parent,
    pageId: textOf("page_id", pageId),
    context: numbersOf("context", context),
    features: featureValues(features),
    groupKey: textOf("group_key", groupKey),
    ...frequencyOf(frequencyKey),
    // The request id of a placement is made from the page's.
    placements: placements.map(([bandit, asked], place) =>
      errorsBelow(`placements[${place}]`, () => recommendRequest(bandit, { ...asked, requestId: "" })),
    ),
  };
  const read = (answer: RecommendPageResponseJson) => ({ id: answer.pageId ?? "", slates: slatesOf(answer.placements, placements.length) });
  return { method: "RecommendPage", request, read };
}

export interface PageRewardFields {
  readonly pageId: string;
  readonly value: number;
  readonly rewardId?: string | undefined;
  readonly final?: boolean | undefined;
}

/** Post one reward for the slates of a page; what became of each comes back in the order of the bandits. */
export function rewardPageOperation(
  parent: string,
  bandits: readonly string[],
  { pageId, value, rewardId, final }: PageRewardFields,
): Operation<(RewardReceipt | ClientError)[]> {
  const request: RewardPageRequestJson = {
    parent,
    pageId: textOf("page_id", pageId),
    bandits: [...bandits],
    value: numberOf("value", value),
    rewardId: textOf("reward_id", rewardId),
    final: booleanOf("final", final),
  };
  return { method: "RewardPage", request, read: (answer: RewardPageResponseJson) => resultsOf(answer, bandits.length) };
}

function slatesOf(results: readonly RecommendResultJson[] | undefined, count: number): (Recommendation | ClientError)[] {
  if (results?.length !== count) throw new ClientError("UNKNOWN", "the answer does not tell of each slate");
  return results.map(({ error, slate }) => (error ? errorOfEntry(error) : recommendationOf(slate ?? {})));
}
