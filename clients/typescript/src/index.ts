export type { BreakerPolicy } from "./breakers.js";
export { Client, createClient } from "./client.js";
export type { ActivateOptions, AmendOptions, ClientOptions, RecommendOptions, RewardOptions, VoidOptions } from "./client.js";
export { ClientError } from "./errors.js";
export type { Code, ErrorDetails } from "./errors.js";
export type { RetryPolicy } from "./retries.js";
export type { ActivationReceipt, Features, FeatureValue, Recommendation, RewardReceipt, Source } from "./values.js";
