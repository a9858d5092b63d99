// A study: how far it is, and the links by which people answer, which are made and ended here where callers are known.

import { createLink, links, preferences, revokeLink, studies } from "./calls.js";
import { whiskers } from "./charts.js";
import { element, facts, replace, section, soft, table } from "./elements.js";
import { count, instant, share } from "./figures.js";

const DAY = 86400000;
const STATES = { STUDY_STATE_DESIGNING: "designing", STUDY_STATE_READY: "ready", STUDY_STATE_CANCELLED: "cancelled", STUDY_STATE_FAILED: "failed" };
const LINK_STATES = { LINK_STATE_OPEN: "open", LINK_STATE_REVOKED: "revoked", LINK_STATE_EXPIRED: "expired", LINK_STATE_USED_UP: "used up" };
const NO_CHANGES = "Nothing can be changed here, since the service has no keys: topk-bandit study link.";

const short = (name) => name.split("/").filter((_, at) => at % 2).join("/");

// A tenant's studies, below the list of its bandits.
export class Studies {
  constructor(tenant) {
    this.tenant = tenant;
    this.place = element("div");
    this.element = section("Studies", "studies", this.place);
  }

  async update(signal) {
    const rows = (await studies(this.tenant, signal)).map((study) => [
      element("a", { href: `#/${study.name}` }, short(study.name)), STATES[study.state] ?? "",
      count(study.answeredCount), count(study.budget), count(study.itemCount),
    ]);
    replace(this.place, rows.length ? table("Studies and their answers", ["Study", "Design", "#Answers", "#Of", "#Items"], rows) : soft("None."));
  }
}

const MOST_ITEMS = 40, MOST_NAMED = 5, DOUBTFUL = 0.9;

// Who seems to answer at random: such answers hardly count.
function doubtful({ respondents, respondentCount }) {
  if (!Number(respondentCount)) return "nobody is named";
  const found = respondents.filter(({ carelessProbability }) => carelessProbability >= DOUBTFUL).map(({ respondent }) => respondent);
  const named = found.length ? `: ${found.slice(0, MOST_NAMED).join(", ")}${found.length > MOST_NAMED ? ", …" : ""}` : "";
  return `${count(found.length)} of ${count(respondentCount)}${named}`;
}

// How sure the order is, and where another answer helps: neighbours that are as near to each other as they are uncertain.
function order(learned) {
  const { preferences: [first], agreement, agreementCount, gathered } = learned;
  const { queryId, items } = first;
  const gaps = items.slice(1).map((below, at) => {
    const above = items[at];
    return { pair: `${above.itemId} – ${below.itemId}`, gap: (above.utility - below.utility) / Math.hypot(above.standardDeviation, below.standardDeviation) };
  });
  const near = gaps.filter(({ gap }) => !(gap >= 1)).sort((one, other) => one.gap - other.gap);
  const named = near.slice(0, MOST_NAMED).map(({ pair }) => pair).join(", ");
  const pairs = Number(agreementCount);
  const rows = items.slice(0, MOST_ITEMS).map((item) => ({ name: item.itemId, mean: item.utility, deviation: item.standardDeviation }));
  return [
    facts([
      ["Answers that agree", pairs ? `${share(agreement)} of ${count(pairs)} pairs` : "no two are about the same items"],
      ["Respondents who answer as if at random", doubtful(learned)],
      ["Gathered", share(gathered)],
      ["Neighbours still worth asking about", near.length ? `${count(near.length)} of ${count(gaps.length)}: ${named}` : "none"],
    ]),
    whiskers("utilities", `Utilities${queryId ? ` for ${queryId}` : ""}, to two standard deviations`, rows),
    ...(items.length > MOST_ITEMS ? [soft(`The best ${MOST_ITEMS} of ${count(items.length)}.`)] : []),
  ];
}

const field = (name, label, attributes) => element("label", {}, `${label} `, element("input", { name, autocomplete: "off", ...attributes }));

export class Study {
  period = 3000;

  constructor(parent, name) {
    this.name = name;
    this.title = short(name);
    this.facts = element("div");
    this.list = element("div");
    this.order = element("div", {}, soft("No answers yet."));
    this.said = element("div", { id: "link-said", role: "status" });
    const make = (event) => {
      event.preventDefault();
      this.run(() => this.make(new FormData(event.target)));
    };
    const page = `${location.protocol}//${location.hostname}:50080`;
    parent.replaceChildren(
      element("h1", {}, this.title), this.facts, section("What people prefer", "preferences", this.order),
      section("Links", "links", this.list, this.said,
        element("details", { id: "link-make" }, element("summary", {}, "Make a link"),
          element("form", { class: "editor", onsubmit: make },
            field("mostAnswers", "Answers at most", { type: "number", min: "1", max: "100000", value: "100", required: true }),
            field("answersEach", "Questions for one person", { type: "number", min: "1", max: "100", value: "10", required: true }),
            field("days", "Days until it ends", { type: "number", min: "1", max: "400", value: "30", required: true }),
            field("title", "Heading", { maxlength: "200" }),
            field("accentColor", "Color of buttons, as #rrggbb", { pattern: "#[0-9a-fA-F]{6}" }),
            field("page", "Where people reach the service", { type: "url", value: page, required: true }),
            element("div", {}, element("button", {}, "Make")))),
        soft("Whoever has a link can answer. The service answers it if it was started with --answer-links.")),
    );
  }

  async update(signal) {
    const found = await links(this.name, signal);
    const [study] = (await studies(this.name.split("/")[1], signal)).filter(({ name }) => name === this.name);
    if (study) replace(this.facts, facts([["Design", STATES[study.state] ?? ""], ["Answers", `${count(study.answeredCount)} of ${count(study.budget)}`], ["Answers from elsewhere", count(study.importedCount)]]));
    if (study) await this.learn(study, signal);
    const columns = ["Link", "State", "#Answers", "#Of", "#People", "Newest answer", "Ends", "Heading", "End it"];
    replace(this.list, found.length ? table("Links and what came through them", columns, found.map((link) => this.row(link))) : soft("None."));
  }

  // Only when there are other answers: to learn may take seconds.
  async learn({ answeredCount, importedCount }, signal) {
    const seen = `${answeredCount} ${importedCount}`;
    if (seen === this.seen || !(Number(answeredCount) || Number(importedCount))) return;
    try {
      this.order.replaceChildren(...order(await preferences(this.name, signal)));
    } catch (error) {
      if (error.code !== "failed_precondition") throw error;
      this.order.replaceChildren(soft(error.message));
    }
    this.seen = seen;
  }

  row(link) {
    const state = LINK_STATES[link.state] ?? "";
    const end = () => this.run(() => this.end(link.linkId));
    const button = element("button", { type: "button", id: `end-${link.linkId}`, "aria-label": `Revoke ${link.linkId}`, onclick: end }, "Revoke");
    return [
      link.linkId, element("span", { class: state === "open" ? "good" : "resting" }, state), count(link.answeredCount), count(link.mostAnswers),
      count(link.respondentCount), link.lastAnswerTime ? instant(link.lastAnswerTime) : "", instant(link.expireTime), link.title, state === "revoked" ? "" : button,
    ];
  }

  async run(work) {
    if (this.isBusy) return;
    this.isBusy = true;
    try {
      this.said.replaceChildren(...(await work()));
      await this.update();
    } catch (error) {
      this.said.replaceChildren(element("p", { class: "bad" }, error.code === "unimplemented" ? NO_CHANGES : error.code ? error.message : "The service does not answer."));
    }
    this.isBusy = false;
  }

  async make(given) {
    const { days, page, ...link } = Object.fromEntries(given);
    for (const name of ["mostAnswers", "answersEach"]) link[name] = Number(link[name]);
    const { token } = await createLink(this.name, { ...link, expireTime: new Date(Date.now() + days * DAY).toISOString() });
    const address = `${page.replace(/\/+$/, "")}/ask#${this.name}/${token}`;
    return [
      element("p", { class: "good" }, "Copy the address now: it is shown this once."),
      element("p", {}, element("code", { id: "link-address" }, address)),
    ];
  }

  async end(id) {
    if (!confirm(`Revoke the link ${id} for good?`)) return [];
    await revokeLink(this.name, id);
    return [element("p", { class: "good" }, `The link ${id} is revoked.`)];
  }
}
