/** What a shop gave, as it is sent. What is of another kind is refused by its field, and never taken for nothing. */

import { type ClientError, invalidArgument } from "./errors.js";

export type WireNumber = number | "NaN" | "Infinity" | "-Infinity";

const HALF = /[\ud800-\udfff]/u;

/** Return the error for a value of another kind than what is expected. */
export function unexpected(field: string, expected: string, value: unknown, hint = ""): ClientError {
  return invalidArgument(field, `expected ${expected}, got ${Object.prototype.toString.call(value).slice(8, -1)}${hint}`);
}

/** Return a text, and an empty one for what is missing. */
export function textOf(field: string, value: unknown): string {
  return value == null ? "" : presentText(field, value);
}

function presentText(field: string, value: unknown): string {
  if (typeof value !== "string") throw unexpected(field, "a text", value);
  if (HALF.test(value)) throw invalidArgument(field, "has half of a character");
  return value;
}

/** Return true or false, and false for what is missing. */
export function booleanOf(field: string, value: unknown): boolean {
  if (value != null && typeof value !== "boolean") throw unexpected(field, "true or false", value);
  return value ?? false;
}

/** Return whether it is a list of numbers of a fixed type. */
export function isTyped(value: unknown): value is Float32Array | Float64Array {
  return value instanceof Float32Array || value instanceof Float64Array;
}

/** Return whether it is a list, also a set or one of a fixed type. */
export function isList(value: unknown): value is Iterable<unknown> {
  return Array.isArray(value) || value instanceof Set || isTyped(value);
}

/** Return what is in a list. */
export function listOf(field: string, values: unknown): unknown[] {
  if (isList(values)) return [...values];
  throw unexpected(field, "a list", values);
}

/** Return a list of texts; undefined for what is missing. */
export function textsOf(field: string, values: unknown): string[] | undefined {
  return values == null ? undefined : listOf(field, values).map((one, place) => presentText(`${field}[${place}]`, one));
}

/** Return a list of numbers; none for what is missing. */
export function numbersOf(field: string, values: unknown): WireNumber[] {
  return values == null ? [] : listOf(field, values).map((one, place) => numberOf(`${field}[${place}]`, one));
}

/** Return a number as JSON can have it: what is not finite is a text, which the service refuses with the field's name. */
export function numberOf(field: string, value: unknown): WireNumber {
  if (typeof value !== "number") throw unexpected(field, "a number", value);
  return Number.isFinite(value) ? value : (String(value) as WireNumber);
}

/** Return a whole number. */
export function countOf(field: string, value: unknown): number {
  const number = numberOf(field, value);
  if (!Number.isInteger(number)) throw invalidArgument(field, `must be a whole number, not ${number}`);
  return number as number;
}

/** A longer timer than 31 bits of milliseconds ends at once. */
export const LONGEST_TIMER = 2 ** 31 - 1;

/** Return a positive number; texts that look like one are none. */
export function positiveOf(field: string, value: unknown, most = Infinity): number {
  if (typeof value !== "number") throw unexpected(field, "a number", value);
  if (!(value > 0 && value <= most)) throw invalidArgument(field, `must be positive and at most ${most}, not ${value}`);
  return value;
}

/** Return the id of a bandit or of a tenant. */
export function idOf(field: string, value: unknown): string {
  const id = textOf(field, value);
  if (!/^[\w.-]{1,64}$/.test(id)) throw invalidArgument(field, `must be 1 to 64 letters of a-z, digits, '.', '_' or '-', not ${JSON.stringify(id)}`);
  return id;
}

/** Return an object. */
export function objectOf<T>(field: string, value: T): T & object {
  if (typeof value !== "object" || value === null) throw unexpected(field, "an object", value);
  return value;
}

/** Return the names and values of an object, those of a class's getters too; none for what is missing. */
export function membersOf(field: string, given: unknown): [string, unknown][] {
  if (given == null) return [];
  if (Object.prototype.toString.call(given) !== "[object Object]") throw unexpected(field, "an object", given);
  const found = new Map(Object.entries(given));
  for (let like: unknown = Object.getPrototypeOf(given); like && like !== Object.prototype; like = Object.getPrototypeOf(like))
    for (const [name, { get }] of Object.entries(Object.getOwnPropertyDescriptors(like)))
      if (get && name !== "__proto__" && !found.has(name)) found.set(name, Reflect.get(given, name));
  return [...found];
}
