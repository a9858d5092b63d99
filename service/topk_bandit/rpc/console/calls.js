// The calls that the console makes: those of the service, as JSON, with the operator's key.

const KEY = "topk-bandit key";

export class CallError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY)),
};

async function call(method, request, signal) {
  const headers = { "Content-Type": "application/json", "Connect-Protocol-Version": "1" };
  // No header can have other letters, and the browser would send nothing.
  if (/[^\x21-\x7e]/.test(key.get())) throw new CallError("invalid_argument", "The key has letters that no key has: copy it again.");
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  const init = { method: "POST", headers, body: JSON.stringify(request), signal, credentials: "omit" };
  const response = await fetch(`/topk_bandit.v1.${method}`, init);
  const answer = await response.json();
  if (!response.ok) throw new CallError(answer.code, answer.message);
  return answer;
}

// Pages of all bandits; the first one is short, so that there is something to see soon.
export async function* overviews(tenant, signal) {
  const request = { parent: `tenants/${tenant || "*"}`, pageSize: 100 };
  do {
    const page = await call("OperatorService/ListBanditOverviews", request, signal);
    yield page.overviews;
    Object.assign(request, { pageSize: 1000, pageToken: page.nextPageToken });
  } while (request.pageToken);
}

export const serviceStatus = (signal) => call("OperatorService/GetServiceStatus", {}, signal);

export const stats = (bandit, signal) => call("BanditService/GetBanditStats", { bandit }, signal);

export const history = async (bandit, signal) =>
  (await call("OperatorService/GetBanditHistory", { bandit }, signal)).points;

export const topSlates = (bandit, asked, signal) =>
  call("OperatorService/ListTopSlates", { bandit, limit: 5, ...asked }, signal);

export const settings = async (name, signal) => (await call("BanditService/GetBandit", { name }, signal)).bandit;

// Only where the service knows its callers, and with a key that may.
export const updateRules = async (name, rules, signal) =>
  (await call("BanditService/UpdateBandit", { bandit: { name, rules }, updateMask: "rules" }, signal)).bandit;

// A tenant's studies, and the links of one.
export async function studies(tenant, signal) {
  const found = [];
  const request = { parent: `tenants/${tenant}`, pageSize: 1000 };
  do {
    const page = await call("PreferenceService/ListStudies", request, signal);
    found.push(...page.studies);
    request.pageToken = page.nextPageToken;
  } while (request.pageToken);
  return found;
}

// What was learned for the first query, or for all there is where a study has none.
export const preferences = (study, signal) => call("PreferenceService/GetPreferences", { study, pageSize: 1 }, signal);

export const links = async (study, signal) => (await call("PreferenceService/ListLinks", { study }, signal)).links;

// Only where the service knows its callers, as for rules.
export const createLink = (study, link) => call("PreferenceService/CreateLink", { study, link });

export const revokeLink = (study, linkId) => call("PreferenceService/RevokeLink", { study, linkId });

// Why a slate was what it was, and why it lacks some items.
export const explanation = (bandit, recommendationId, signal, explainItemIds = []) =>
  call("OperatorService/ExplainRecommendation", { bandit, recommendationId, explainItemIds }, signal);

// A page of the log from a position on, with its events read.
async function events(request, signal) {
  const page = await call("OperatorService/ExportEvents", request, signal);
  const read = page.events.map(({ position, time, eventJson }) => ({ position: Number(position), time, ...JSON.parse(eventJson) }));
  return { ...page, events: read };
}

// The position from which on the log is there: what was before it may be trimmed.
async function beginning(bandit, signal) {
  const { events: oldest, logPosition } = await events({ bandit, pageSize: 1 }, signal);
  return oldest[0]?.position ?? Number(logPosition) + 1;
}

// The newest events, at most a page.
export async function newestEvents(bandit, logPosition, signal) {
  const first = Math.max(await beginning(bandit, signal), logPosition - 999);
  return (await events({ bandit, startPosition: String(first), pageSize: 1000 }, signal)).events;
}

// What the log has of one recommendation from its position on, until its end or for so many pages; `whole` says whether
// that was all there is.
export async function lifeOf(bandit, id, position, { pages = 10, isEnd }, signal) {
  const found = [];
  const first = Math.max(await beginning(bandit, signal), position);
  let request = { bandit, startPosition: String(first), pageSize: 1000 };
  for (let page = 0; page < pages; page += 1) {
    const part = await events(request, signal);
    found.push(...part.events.filter((event) => idOf(event) === id));
    const reached = part.events.at(-1)?.position ?? Number(part.logPosition);
    if (found.some(isEnd) || reached >= Number(part.logPosition)) return { events: found, whole: first === position };
    request = { bandit, cursor: part.nextCursor, pageSize: 1000 };
  }
  return { events: found, whole: false };
}

const idOf = (event) => event.recommendation_id ?? event.recommendation?.recommendation_id;
