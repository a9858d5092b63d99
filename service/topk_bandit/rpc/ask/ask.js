// The page that asks: one list at a time, answers by taps, drags or keys. What can't be sent waits in this browser.
// What is shown is text that others wrote: it becomes text nodes alone, never HTML.

const SERVICE = "topk_bandit.v1.PreferenceService/";
const AHEAD = 3; // so many questions are there while there is no network
const STARS = 5;
const LONGEST_PAUSE = 30000;
const ENDED = {
  LINK_UNKNOWN: "This link is not known. Please check that its address is complete.",
  LINK_REVOKED: "This link takes no answers any more.",
  LINK_EXPIRED: "The time of this link is up.",
  LINK_USED_UP: "As many answers came as were asked for.",
  LINKS_OFF: "This link is not served here.",
};

const CODES = new Set(["invalid_argument", "not_found", "already_exists", "permission_denied", "failed_precondition", "out_of_range", "unimplemented"]);

const [, study, token] = location.hash.match(/^#(tenants\/[\w.-]+\/studies\/[\w.-]+)\/([\w.-]+)$/) || [];
const KEY = `topk-bandit ask ${study}/${(token || "").split(".")[0]}`;
const main = document.getElementById("main");

// What is kept: the device's name, what the page shows, questions to come, the answer so far, and answers that wait.
let state = load();
let busy = false;
let wanted = false; // whether to run once more when the one under way has ended
let stale = false; // whether to ask what is next, though there are questions: another tab may have answered them
let pause = 1000;
let timer = 0;
let retries = 0;
let drawn = -1000; // when that was drawn
let shown = ""; // the id of the question on the page

function load() {
  const fresh = { respondent: "", page: null, questions: [], draft: null, waiting: [], finished: false, ended: "" };
  try {
    return { ...fresh, ...JSON.parse(localStorage.getItem(KEY) || "{}") };
  } catch {
    return fresh;
  }
}

function save() {
  try {
    localStorage.setItem(KEY, JSON.stringify(state));
  } catch {
    // Without a store of its own the page works until it is closed.
  }
}

// Another tab is the same device. What waits in either is kept: sent twice it counts once.
function adopt() {
  const other = load();
  const known = new Set(other.waiting.map((one) => one.answer.questionId));
  other.waiting.push(...state.waiting.filter((one) => !known.has(one.answer.questionId)));
  const numbers = new Set(other.waiting.map((one) => one.number));
  other.questions = other.questions.filter((one) => !numbers.has(one.number));
  state = other;
  if (shown) shown = "another tab's";
  render();
  if (state.waiting.length && !retries) sync();
}

function make(tag, properties = {}, ...children) {
  const { dataset, aria, ...others } = properties;
  const made = Object.assign(document.createElement(tag), others);
  Object.assign(made.dataset, dataset);
  for (const [name, value] of Object.entries(aria || {})) made.setAttribute(`aria-${name}`, value);
  made.append(...children);
  return made;
}

// The second tap of two is for what stood there before: the page has changed beneath it.
function onTap(button, work) {
  button.addEventListener("click", (event) => {
    const isLate = event.pointerType === "touch" && performance.now() - drawn < 300;
    if (event.detail < 2 && !isLate) work();
  });
}

function say(text) {
  document.getElementById("said").textContent = text;
}

// --- The service

class Refused extends Error {
  constructor(answer, status) {
    super(String(answer.message));
    this.reason = (Array.isArray(answer.details) ? answer.details : []).map((one) => one.debug?.reason || "").join("");
    // What has no code of the service's comes from something between, such as a gateway, and says nothing of an answer.
    this.again = !CODES.has(answer.code) || status === 429 || status >= 500 || status === 401 || status === 408;
  }
}

async function call(method, fields) {
  const response = await fetch(SERVICE + method, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ study, token, ...fields }),
    credentials: "omit",
    keepalive: true,
    signal: AbortSignal.timeout(15000),
  });
  const answer = await response.json();
  if (!response.ok) throw new Refused(answer, response.status);
  return answer;
}

// Send what waits, then get more questions; one such run at a time, and another one later if the network fails.
async function sync() {
  if (busy) wanted = true;
  if (busy || state.ended) return;
  busy = true;
  wanted = false;
  clearTimeout(timer);
  try {
    while (state.waiting.length) await sendFirst();
    if (!state.finished && (stale || state.questions.length < AHEAD)) await getQuestions();
    pause = 1000;
    retries = 0;
  } catch (error) {
    if (error instanceof Refused && !error.again) {
      state.ended = error.reason in ENDED ? ENDED[error.reason] : "This link can't be used now.";
      if (!(error.reason in ENDED)) setTimeout(() => { state.ended = ""; sync(); }, LONGEST_PAUSE);
      state.questions = [];
    } else {
      retries += 1;
      timer = setTimeout(sync, pause);
      pause = Math.min(2 * pause, LONGEST_PAUSE);
    }
  } finally {
    busy = false;
  }
  save();
  render();
  if (wanted && !retries) sync();
}

async function sendFirst() {
  const { answer, respondent = state.respondent } = state.waiting[0];
  try {
    await call("SubmitLinkAnswer", { respondent, answer });
  } catch (error) {
    // An answer that was given otherwise, in another tab, or that does not fit, would be refused for ever.
    if (!(error instanceof Refused) || error.again || error.reason in ENDED) throw error;
  }
  state.waiting = state.waiting.filter((one) => one.answer.questionId !== answer.questionId);
  save();
  renderWaiting();
}

async function getQuestions() {
  const page = await call("GetLinkQuestions", { respondent: state.respondent, count: AHEAD });
  stale = false;
  const current = state.questions[0];
  const waits = new Set(state.waiting.map((one) => one.number));
  state.respondent = page.respondent;
  state.page = { kind: page.answerKind, link: page.link };
  // The question on the page stays, although its list may be drawn otherwise by now.
  state.questions = page.questions
    .filter((one) => !waits.has(one.number))
    .map((one) => (current && current.number === one.number ? current : one));
  state.finished = !page.questions.length;
}

// --- The answer so far: ranked item ids, which of them are as good as the one before, and ratings

function draft() {
  const { questionId } = state.questions[0];
  if (!state.draft || state.draft.questionId !== questionId) {
    state.draft = { questionId, ranked: [], ties: [], ratings: {}, ends: false };
  }
  return state.draft;
}

const kind = () => state.page.kind.replace("ANSWER_KIND_", "");
const nameOf = (item) => item.title || item.itemId;

function isComplete() {
  const { ranked, ratings, ends } = draft();
  const items = state.questions[0].items;
  if (kind() === "RATINGS") return items.every((item) => item.itemId in ratings);
  return ends ? ranked.length === 2 : ranked.length > 0;
}

function answerOf() {
  const { ranked, ties, ratings, ends } = draft();
  const items = state.questions[0].items;
  if (kind() === "RATINGS") {
    return { ratings: { ratings: items.map(({ itemId }) => ({ itemId, value: ratings[itemId] })) } };
  }
  if (ends) return { bestWorst: { bestItemId: ranked[0], worstItemId: ranked[1] } };
  if (kind() !== "RANKING") return { chosenItemId: ranked[0] };
  const left = items.map((item) => item.itemId).filter((id) => !ranked.includes(id));
  const order = left.length === 1 ? [...ranked, ...left] : ranked;
  const tied = ranked.some((id) => ties.includes(id));
  if (!tied && order.length === items.length) return { ranking: { itemIds: order } };
  const tiers = [];
  for (const id of ranked) {
    if (ties.includes(id) && tiers.length) tiers.at(-1).itemIds.push(id);
    else tiers.push({ itemIds: [id] });
  }
  return { tiers: { tiers } };
}

function submit(answer) {
  const question = state.questions.shift();
  if (!question) return;
  state.waiting.push({ number: question.number, respondent: state.respondent, answer: { questionId: question.questionId, ...answer } });
  state.draft = null;
  if (question.number >= state.page.link.answersEach) state.finished = true;
  save();
  render();
  sync();
}

// --- Ranking and choosing

function toggle(item) {
  const { ranked, ends } = draft();
  const place = ranked.indexOf(item.itemId);
  if (place >= 0) {
    setRanked(ranked.filter((id) => id !== item.itemId));
    say(`${nameOf(item)} is taken back`);
  } else if (ends && ranked.length === 2) {
    setRanked([ranked[0], item.itemId]);
    say(`${nameOf(item)} is the worst`);
  } else if (kind() === "RANKING" || ends) {
    setRanked([...ranked, item.itemId]);
    say(`${nameOf(item)} is ${placeName(ranked.length)}`);
  } else {
    setRanked([item.itemId]);
    say(`${nameOf(item)} is chosen`);
  }
  redraw(item.itemId);
}

function placeName(index) {
  if (draft().ends) return index ? "worst" : "best";
  return kind() === "RANKING" ? `${index + 1}` : "✓";
}

function setRanked(ranked) {
  const mine = draft();
  mine.ranked = ranked;
  mine.ties = mine.ties.filter((id) => ranked.indexOf(id) > 0);
  save();
}

function move(item, step) {
  const ranked = [...draft().ranked];
  const from = ranked.indexOf(item.itemId);
  const to = from + step;
  if (from < 0 || to < 0 || to >= ranked.length) return;
  ranked.splice(from, 1);
  ranked.splice(to, 0, item.itemId);
  setRanked(ranked);
  say(`${nameOf(item)} is ${placeName(to)}`);
  redraw(item.itemId);
}

function tie(item, above) {
  const mine = draft();
  const tied = mine.ties.includes(item.itemId);
  mine.ties = tied ? mine.ties.filter((id) => id !== item.itemId) : [...mine.ties, item.itemId];
  save();
  say(tied ? `${nameOf(above)} is better` : "as good as each other");
  redraw(item.itemId, ".tie");
}

// Items in the order of the page: those with a place, then all others.
function inOrder() {
  const { ranked, ends } = draft();
  const items = state.questions[0].items;
  if (kind() !== "RANKING" || ends) return items;
  const find = (id) => items.find((item) => item.itemId === id);
  return [...ranked.map(find), ...items.filter((item) => !ranked.includes(item.itemId))];
}

function pictured(item) {
  if (!/^https:\/\//.test(item.pictureUrl || "")) return [];
  const picture = make("img", { alt: "", decoding: "async", referrerPolicy: "no-referrer", src: item.pictureUrl });
  // Its place stays, so that nothing moves beneath a finger.
  picture.addEventListener("error", () => picture.classList.add("gone"));
  return [picture];
}

function card(item, above) {
  const { ranked, ties, ends } = draft();
  const place = ranked.indexOf(item.itemId);
  const name = make("span", { className: "name", textContent: nameOf(item) });
  const button = make("button", { type: "button", className: "item", aria: { pressed: place >= 0 } }, ...pictured(item), name);
  if (place >= 0) button.append(make("span", { className: "place", textContent: placeName(place) }));
  onTap(button, () => toggle(item));
  const row = make("li", { dataset: { id: item.itemId } }, button);
  if (kind() !== "RANKING" || ends) return row;
  button.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step || place < 0) return;
    event.preventDefault();
    move(item, step);
  });
  if (place > 0) {
    const label = `${nameOf(item)} is as good as ${nameOf(above)}`;
    const same = make("button", { type: "button", className: "tie", textContent: "=", title: label, aria: { label, pressed: ties.includes(item.itemId) } });
    same.addEventListener("click", () => tie(item, above));
    row.append(same);
  }
  row.append(make("span", { className: "grip", textContent: "⠿", aria: { hidden: true } }));
  return row;
}

function itemList() {
  const list = make("ol", { id: "items" });
  drawItems(list);
  if (kind() === "RANKING") makeDraggable(list);
  return list;
}

function drawItems(list, held = "") {
  const items = inOrder();
  list.replaceChildren(...items.map((item, index) => card(item, items[index - 1])));
  for (const row of list.children) row.classList.toggle("held", row.dataset.id === held);
}

function redraw(focus, part = ".item") {
  const list = document.getElementById("items");
  drawItems(list);
  const row = [...list.children].find((one) => one.dataset.id === focus);
  (row?.querySelector(part) || row?.querySelector(".item"))?.focus();
  main.querySelector(".next").disabled = !isComplete();
}

// A drag puts an item where it is dropped: what stands above it is better, and so has a place as well.
function makeDraggable(list) {
  let held = null;
  list.addEventListener("pointerdown", (event) => {
    if (!event.target.closest(".grip") || event.button) return;
    event.preventDefault();
    held = event.target.closest("li").dataset.id;
    list.setPointerCapture(event.pointerId); // of the list, whose rows are made anew
  });
  list.addEventListener("pointermove", (event) => {
    if (held === null) return;
    const rows = [...list.children].filter((row) => row.dataset.id !== held);
    const isAbove = (row) => row.getBoundingClientRect().top + row.offsetHeight / 2 < event.clientY;
    const to = rows.filter(isAbove).length;
    const order = rows.map((row) => row.dataset.id);
    order.splice(to, 0, held);
    const others = draft().ranked.filter((id) => id !== held).length;
    const ranked = order.slice(0, Math.max(to + 1, others + (to <= others ? 1 : 0)));
    if (ranked.join("\n") === draft().ranked.join("\n")) return;
    setRanked(ranked);
    drawItems(list, held);
  });
  const drop = () => {
    if (held === null) return;
    const item = state.questions[0].items.find((one) => one.itemId === held);
    const place = draft().ranked.indexOf(held);
    held = null;
    if (place >= 0) say(`${nameOf(item)} is ${placeName(place)}`);
    drawItems(list);
    main.querySelector(".next").disabled = !isComplete();
  };
  list.addEventListener("pointerup", drop);
  list.addEventListener("pointercancel", drop);
}

// --- Ratings

function ratingList() {
  const list = make("div", { id: "items" });
  for (const item of state.questions[0].items) {
    const stars = make("div", { className: "stars" });
    for (let value = 1; value <= STARS; value += 1) {
      const input = make("input", { type: "radio", name: `rating ${item.itemId}`, value, checked: draft().ratings[item.itemId] === value });
      input.addEventListener("change", () => {
        draft().ratings[item.itemId] = value;
        save();
        main.querySelector(".next").disabled = !isComplete();
      });
      stars.append(make("label", {}, input, `${value}`));
    }
    const head = make("span", { className: "item" }, ...pictured(item), make("span", { className: "name", textContent: nameOf(item) }));
    list.append(make("fieldset", {}, make("legend", {}, head), stars));
  }
  return list;
}

// --- The page

const TASKS = {
  RANKING: "Tap the items in the order in which you like them, best first, or drag them. The first few are enough.",
  CHOICE: "Which one do you like best?",
  PAIR: "Which one do you like better?",
  RATINGS: `How do you like each of these? 1 is the worst, ${STARS} the best.`,
};
const ENDS = "Tap the best one, then the worst one.";

function render() {
  dress();
  renderWaiting();
  const question = state.ended ? null : state.questions[0];
  if (question && question.questionId === shown) return;
  const isFirst = !shown;
  shown = question ? question.questionId : "";
  drawn = performance.now();
  main.replaceChildren(...(question ? asking(question) : ending()));
  main.setAttribute("aria-busy", String(!question && !state.ended && !state.finished && !retries));
  if (!isFirst) main.querySelector("h2")?.focus();
}

function asking(question) {
  const each = state.page.link.answersEach;
  const text = `Question ${question.number} of ${each}`;
  const parts = [
    make("progress", { max: each, value: question.number - 1, aria: { label: text } }),
    make("h2", { tabIndex: -1, textContent: question.queryId ? `${text}: for ${question.queryId}` : text }),
    make("p", { id: "task", textContent: draft().ends ? ENDS : TASKS[kind()] }),
    kind() === "RATINGS" ? ratingList() : itemList(),
  ];
  if (["RANKING", "CHOICE"].includes(kind()) && question.items.length > 2) parts.push(otherWay());
  return [...parts, actions()];
}

function otherWay() {
  const box = make("input", { type: "checkbox", checked: draft().ends });
  box.addEventListener("change", () => {
    draft().ends = box.checked;
    draft().ties = [];
    setRanked([]);
    document.getElementById("task").textContent = box.checked ? ENDS : TASKS[kind()];
    redraw("");
  });
  return make("label", { className: "way" }, box, "Say the best and the worst one only");
}

function actions() {
  const button = (text, work, className = "") => {
    const made = make("button", { type: "button", textContent: text, className });
    onTap(made, work);
    return made;
  };
  const decline = (reason) => submit({ declined: { reason: `DECLINE_REASON_${reason}` } });
  const next = button("Next", () => isComplete() && submit(answerOf()), "next");
  next.disabled = !isComplete();
  return make("div", { className: "actions" }, next, button("Skip", () => decline("SKIPPED")), button("None of these", () => decline("NONE_OF_THESE")));
}

function ending() {
  const thanks = state.page?.link.thanks || "Thank you for your answers!";
  if (state.finished) return [make("h2", { tabIndex: -1, textContent: thanks })];
  if (state.ended) return [make("h2", { tabIndex: -1, textContent: state.page ? thanks : "No questions" }), make("p", { textContent: state.ended })];
  return [make("h2", { tabIndex: -1, textContent: retries ? "No connection: the page tries again." : "One moment …" })];
}

function renderWaiting() {
  const count = state.waiting.length;
  const text = count && retries ? `${count} answers wait in this browser until there is a connection.` : "";
  const line = document.getElementById("waiting");
  if (line.textContent !== text) line.textContent = text;
}

// The shop's title and colors; each is checked once more, since it becomes a style.
function dress() {
  const link = state.page?.link;
  if (!link) return;
  if (link.title) document.title = document.getElementById("title").textContent = link.title;
  const root = document.documentElement;
  const set = (name, color) => /^#[0-9a-f]{6}$/.test(color || "") && root.style.setProperty(name, color);
  if (link.backgroundColor) root.classList.add("own");
  set("--back", link.backgroundColor);
  set("--ink", link.textColor);
  if (set("--accent", link.accentColor) !== false) set("--on-accent", luminance(link.accentColor) > 0.18 ? "#000000" : "#ffffff");
}

function luminance(color) {
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = [1, 3, 5].map((at) => linear(parseInt(color.slice(at, at + 2), 16) / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

if (token) {
  state.ended = "";
  addEventListener("online", sync);
  addEventListener("storage", ({ key }) => key === KEY && adopt());
  addEventListener("visibilitychange", () => {
    stale = document.visibilityState === "visible";
    if (stale) sync();
  });
  addEventListener("hashchange", () => location.reload());
  if (state.questions.length) render();
  sync();
} else {
  state.ended = ENDED.LINK_UNKNOWN;
  render();
}
