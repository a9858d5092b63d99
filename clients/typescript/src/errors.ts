/** What a call throws: one class, with the service's code to switch on. */

// In the order of their numbers, from 1 on.
const NUMBERED = [
  "CANCELLED",
  "UNKNOWN",
  "INVALID_ARGUMENT",
  "DEADLINE_EXCEEDED",
  "NOT_FOUND",
  "ALREADY_EXISTS",
  "PERMISSION_DENIED",
  "RESOURCE_EXHAUSTED",
  "FAILED_PRECONDITION",
  "ABORTED",
  "OUT_OF_RANGE",
  "UNIMPLEMENTED",
  "INTERNAL",
  "UNAVAILABLE",
  "DATA_LOSS",
  "UNAUTHENTICATED",
] as const;

/** A status of gRPC. `UNKNOWN` is one that the service itself never sends, but a proxy may. */
export type Code = (typeof NUMBERED)[number];

/** What the service said about a failure; texts are empty where they do not apply. */
export interface ErrorDetails {
  /** Path of the bad field, for example `context[3]`. */
  readonly field: string;
  /** A stable word to switch on, for example `TOO_FEW_ITEMS`. */
  readonly reason: string;
  /** What the service's log has a failure of its own under. */
  readonly reference: string;
  /** The quota that is used up. */
  readonly quota: string;
  /** Milliseconds after which another try may help; null when the service did not say. */
  readonly retryAfterMs: number | null;
  /** What the message counts, by name. */
  readonly numbers: Readonly<Record<string, number>>;
}

const NONE: ErrorDetails = { field: "", reason: "", reference: "", quota: "", retryAfterMs: null, numbers: {} };

/** A call that failed. */
export class ClientError extends Error {
  override readonly name = "ClientError";
  readonly details: ErrorDetails;

  constructor(
    readonly code: Code,
    message: string,
    details: Partial<ErrorDetails> = {},
  ) {
    super(`${code}: ${message}`);
    this.details = { ...NONE, ...details };
  }
}

/** Return the error for a field that the client itself refuses. */
export function invalidArgument(field: string, problem: string): ClientError {
  return new ClientError("INVALID_ARGUMENT", `${field}: ${problem}`, { field });
}

/** Return what `make` does; the field of its error is one of what stands at `path`. */
export function errorsBelow<T>(path: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof ClientError) || !error.details.field) throw error;
    const { field } = error.details;
    throw invalidArgument(`${path}.${field}`, error.message.slice(`${error.code}: ${field}: `.length));
  }
}

const FINAL: ReadonlySet<Code> = new Set([
  "UNAUTHENTICATED",
  "PERMISSION_DENIED",
  "INVALID_ARGUMENT",
  "NOT_FOUND",
  "ALREADY_EXISTS",
  "FAILED_PRECONDITION",
]);

/** Return whether only another call, or another key, can do better; an error that is not the service's is the caller's. */
export function isMistake(error: unknown): boolean {
  if (!(error instanceof ClientError)) return true;
  if (error.code === "RESOURCE_EXHAUSTED") return error.details.retryAfterMs === null;
  return FINAL.has(error.code);
}

// What the Connect protocol takes a status for whose body is not the service's, such as a proxy's page.
const CODES_OF_STATUS: Readonly<Record<number, Code>> = {
  400: "INTERNAL",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "UNIMPLEMENTED",
  429: "UNAVAILABLE",
  502: "UNAVAILABLE",
  503: "UNAVAILABLE",
  504: "UNAVAILABLE",
};

const CODES: ReadonlyMap<unknown, Code> = new Map(NUMBERED.map((code) => [connectName(code), code]));

function connectName(code: Code): string {
  return code === "CANCELLED" ? "canceled" : code.toLowerCase();
}

/** Return the error that an answer with another status than 200 is, from its body: JSON, or whatever a proxy wrote. */
export function errorOfAnswer(status: number, body: unknown): ClientError {
  const { code, message, details } = (isObject(body) ? body : {}) as Partial<WireError>;
  const known = CODES.get(code);
  if (known === undefined) return new ClientError(CODES_OF_STATUS[status] ?? "UNKNOWN", `HTTP status ${status}`);
  const said = typeof message === "string" && message ? message : "no message";
  return new ClientError(known, said, detailsOf(Array.isArray(details) ? details.filter(isObject) : []));
}

/** Return the error that one entry of a batch has, which has a number where an answer has a name. */
export function errorOfEntry({ code = 0, message = "", field = "", reason = "" }: WireEntryError): ClientError {
  return new ClientError(NUMBERED[code - 1] ?? "UNKNOWN", message, { field, reason });
}

interface WireEntryError {
  code?: number;
  message?: string;
  field?: string;
  reason?: string;
}

interface WireError {
  code: string;
  message: string;
  details: { type?: string; debug?: WireDetail }[];
}

/** `google.rpc` BadRequest, ErrorInfo and RetryInfo, as JSON. */
interface WireDetail {
  fieldViolations?: { field?: string }[];
  reason?: string;
  metadata?: Record<string, string>;
  retryDelay?: string;
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

function detailsOf(packed: WireError["details"]): Partial<ErrorDetails> {
  return Object.assign({}, ...packed.map(({ type, debug }) => detailOf(type, isObject(debug) ? debug : {}))) as Partial<ErrorDetails>;
}

function detailOf(type: string | undefined, debug: WireDetail): Partial<ErrorDetails> {
  switch (type) {
    case "google.rpc.BadRequest":
      return { field: String(debug.fieldViolations?.[0]?.field ?? "") };
    case "google.rpc.ErrorInfo":
      return errorInfo(String(debug.reason ?? ""), debug.metadata ?? {});
    case "google.rpc.RetryInfo":
      return { retryAfterMs: Math.max(1000 * parseFloat(String(debug.retryDelay)) || 0, 0) };
    default:
      return {};
  }
}

function errorInfo(reason: string, metadata: Record<string, string>): Partial<ErrorDetails> {
  const counted = Object.entries(metadata).filter(([, value]) => /^\d+$/.test(value));
  const numbers = Object.fromEntries(counted.map(([name, value]) => [name, Number(value)]));
  return { reason, numbers, reference: metadata["reference"] ?? "", quota: metadata["quota"] ?? "" };
}
