// What is looked at, by the address, and when it is asked for again.

import { Bandit } from "./bandit.js";
import { key } from "./calls.js";
import { List } from "./list.js";
import { Recommendation } from "./recommendation.js";
import { Study } from "./study.js";

const main = document.getElementById("main"), status = document.getElementById("status");
const keyField = document.getElementById("key"), tenantField = document.getElementById("tenant"), updating = document.getElementById("updating");
const STUDY = /^#\/(tenants\/[\w.-]+\/studies\/[\w.-]+)$/;
const PLACE = /^#\/(tenants\/[\w.-]+\/bandits\/[\w.-]+)(?:\/recommendations\/([^/]+))?$/;

// How many times as long as an answer took nothing is asked: long lists are asked for less often.
const REST = 20;

let view, asking = new AbortController(), busy = false, timer, failures = 0;

function viewOf(hash) {
  const found = PLACE.exec(hash), study = STUDY.exec(hash);
  if (study) return new Study(main, study[1]);
  if (!found) return new List(main, tenantField.value.trim());
  return found[2] ? new Recommendation(main, found[1], decoded(found[2])) : new Bandit(main, found[1]);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function open({ focus = true } = {}) {
  asking.abort();
  asking = new AbortController();
  busy = false;
  failures = 0;
  main.setAttribute("aria-busy", "true");
  view = viewOf(location.hash);
  document.title = `${view.title} – topk-bandit console`;
  if (focus) { main.focus(); scrollTo(0, 0); }
  ask();
}

async function ask() {
  if (busy) return;
  clearTimeout(timer);
  const { signal } = asking, began = performance.now();
  busy = true;
  try {
    await view.update(signal);
    if (signal.aborted) return;
    failures = 0;
    say("");
  } catch (error) {
    if (signal.aborted) return;
    failures += 1;
    say(problemOf(error));
  }
  busy = false;
  main.setAttribute("aria-busy", "false");
  const wait = Math.max(view.period * Math.min(2 ** failures, 12), (performance.now() - began) * REST);
  timer = setTimeout(() => (updating.checked && !document.hidden ? ask() : undefined), wait);
}

function problemOf({ code, message }) {
  if (code === "unauthenticated") return "The service asks for a key.";
  if (code === "permission_denied") return `${message}. A key for one tenant needs its name under Tenant.`;
  return code ? message : "The service does not answer.";
}

// Only what is new is said, so that a screen reader does not read the same at each update.
function say(text) {
  if (status.textContent !== text) status.textContent = text;
}

document.getElementById("bar").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set(keyField.value.trim());
  sessionStorage.setItem("topk-bandit tenant", tenantField.value.trim());
  open({ focus: false });
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
updating.addEventListener("change", () => updating.checked && ask());
document.addEventListener("visibilitychange", () => !document.hidden && updating.checked && ask());
addEventListener("hashchange", () => open());
keyField.value = key.get();
tenantField.value = sessionStorage.getItem("topk-bandit tenant") ?? "";
open({ focus: false });
