/** Named features: the values of a request in a shop's own words, and as they are sent. */

import { isList, isTyped, membersOf, numberOf, numbersOf, textOf, textsOf, unexpected } from "./checks.js";
import type { FeatureValueJson } from "./gen/topk_bandit/v1/features_pb.js";

/** Return the values as they are sent; those that are missing are left out. */
export function featureValues(features: unknown): Record<string, FeatureValueJson> {
  const given = membersOf("features", features).filter(([, value]) => value != null);
  return Object.fromEntries(given.map(([name, value]) => [textOf("features", name), valueOf(`features["${name}"]`, value)]));
}

function valueOf(path: string, value: unknown): FeatureValueJson {
  switch (typeof value) {
    case "number":
      return { number: numberOf(path, value) };
    case "string":
      return { text: textOf(path, value) };
    case "boolean":
      return { boolean: value };
  }
  return manyOf(path, value);
}

function manyOf(path: string, value: unknown): FeatureValueJson {
  const values = isList(value) ? [...value] : null;
  if (!isTyped(value) && values?.every((one) => typeof one === "string")) return { labels: { values: textsOf(path, values) ?? [] } };
  if (values?.every((one) => typeof one === "number")) return { vector: { values: numbersOf(path, values) } };
  const hint = values || typeof value !== "object" ? "" : ': write nested features flat, such as "user.age"';
  throw unexpected(path, "a number, a text, true or false, texts, or numbers", value, hint);
}
