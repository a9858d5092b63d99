/** Named features: the values of a request in a shop's own words, and as they are sent. */

import { invalidArgument } from "./errors.js";
import type { FeatureValueJson } from "./gen/topk_bandit/v1/features_pb.js";

export type WireNumber = number | "NaN" | "Infinity" | "-Infinity";

/** Return the values as they are sent; those that are missing are left out. */
export function featureValues(features: object): Record<string, FeatureValueJson> {
  const given = Object.entries(features).filter(([, value]) => value !== null && value !== undefined);
  return Object.fromEntries(given.map(([name, value]) => [name, valueOf(`features["${name}"]`, value)]));
}

/** Return a number as JSON can have it: what is not finite is a text, which the service refuses with the field's name. */
export function wireNumber(value: number): WireNumber {
  return Number.isFinite(value) ? value : (String(value) as WireNumber);
}

function valueOf(path: string, value: unknown): FeatureValueJson {
  switch (typeof value) {
    case "number":
      return { number: wireNumber(value) };
    case "string":
      return { text: value };
    case "boolean":
      return { boolean: value };
  }
  return manyOf(path, value);
}

function manyOf(path: string, value: unknown): FeatureValueJson {
  if (value instanceof Float32Array || value instanceof Float64Array) return vectorOf([...value]);
  const values: unknown[] | null = Array.isArray(value) || value instanceof Set ? [...value] : null;
  if (values?.every((one) => typeof one === "string")) return { labels: { values } };
  if (values?.every((one) => typeof one === "number")) return vectorOf(values);
  const got = Object.prototype.toString.call(value).slice(8, -1);
  const hint = got === "Object" ? ': write nested features flat, such as "user.age"' : "";
  throw invalidArgument(path, `expected a number, a text, true or false, texts, or numbers, got ${got}${hint}`);
}

function vectorOf(values: number[]): FeatureValueJson {
  return { vector: { values: values.map(wireNumber) } };
}
