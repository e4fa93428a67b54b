"use strict";

// The page of `sandfork server`. Text from guests is only ever inserted as text nodes.

const at = (id) => document.getElementById(id);
const PERIOD = 2000;

let token = sessionStorage.getItem("token") ?? "";
let session = null;
let last = null;

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

// Sends a request to the server, and returns the JSON of its response.
async function ask(method, path, body) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    throw new Refused(`${answer.status}: the response is not JSON`, answer.status);
  }
  if (!answer.ok) throw new Refused(value?.error?.message ?? `the server responded with status ${answer.status}`, answer.status);
  return value;
}

function showTrouble(error) {
  at("trouble").hidden = !error;
  at("trouble").textContent = !error ? "" : error instanceof Refused ? error.message : "The server cannot be reached.";
}

function ms(value) {
  if (value === null) return "–";
  return value < 10 ? `${value.toFixed(1)} ms` : value < 10000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`;
}

function age(seconds) {
  return seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`;
}

function showActivity(activity) {
  const ended = Object.values(activity.ended).reduce((sum, count) => sum + count, 0);
  const now = performance.now();
  if (last) at("rate").textContent = (Math.max(0, ended - last.ended) / ((now - last.now) / 1000)).toFixed(1);
  last = { ended, now };
  at("ended").textContent = ended.toLocaleString();
  at("p50").textContent = ms(activity.wall_ms.p50);
  at("p99").textContent = ms(activity.wall_ms.p99);
  at("statuses").textContent = Object.entries(activity.ended).map(([status, count]) => `${status} ${count}`).join(", ");
  at("failures").replaceChildren(...activity.failures.toReversed().map(failure));
  at("no-failures").hidden = activity.failures.length > 0;
}

function failure(of) {
  const item = element("li", `${new Date(of.at * 1000).toLocaleTimeString()} ${of.status}`);
  if (of.error) item.append(": ", of.error);
  item.append(...of.denied.map(denial));
  return item;
}

// Describes a denial, and the setting that allows it.
function denial(of) {
  const line = element("div");
  line.append(`refused: ${of.operation} ${of.target ?? ""}`, of.layer ? ` (${of.layer})` : "");
  if (of.set) line.append("; allowed by ", element("code", `--set ${of.set}`));
  return line;
}

function showSessions(sessions) {
  const now = Date.now() / 1000;
  at("sessions").replaceChildren(
    ...sessions.map((open) => {
      const row = element("tr");
      const path = `/v1/sessions/${open.id}`;
      const last = element("td");
      last.append(
        button("Use", () => use(open.id)),
        button("Fork", async () => use((await ask("POST", `${path}/fork`)).id)),
        button("Close", () => ask("DELETE", path)),
      );
      const seconds = Math.max(0, Math.floor(now - open.opened));
      const state = (open.busy ? "running" : "idle") + (open.id === session ? ", in the playground" : "");
      row.append(element("td", open.id), element("td", age(seconds)), element("td", state), last);
      return row;
    }),
  );
  at("no-sessions").hidden = sessions.length > 0;
}

function button(text, does) {
  const made = element("button", text);
  made.addEventListener("click", () => act(does));
  return made;
}

// Selects the session of the playground.
function use(id) {
  if (at("run").disabled) throw new Refused("A cell is running in the playground: interrupt it first.");
  session = id;
  setRunning(false);
}

// Performs an action, shows its error if it fails, and refreshes the page.
async function act(what) {
  try {
    await what();
    showTrouble(null);
  } catch (error) {
    showTrouble(error);
  }
  await look();
}

async function look() {
  try {
    const [activity, open] = await Promise.all([ask("GET", "/v1/activity"), ask("GET", "/v1/sessions")]);
    showActivity(activity);
    showSessions(open.sessions);
  } catch (error) {
    showTrouble(error);
  }
}

function block(text, kind) {
  return text ? [element("pre", text, kind)] : [];
}

function showOutcome(outcome) {
  const shown = [...block(outcome.stdout), ...block(outcome.stderr, "wrong")];
  for (const { data } of outcome.displays) {
    if (typeof data["image/png"] === "string") {
      const picture = element("img");
      picture.src = `data:image/png;base64,${data["image/png"].replace(/\s/g, "")}`;
      picture.alt = typeof data["text/plain"] === "string" ? data["text/plain"] : "a picture";
      shown.push(picture);
    } else if (typeof data["text/plain"] === "string") {
      shown.push(...block(data["text/plain"]));
    }
  }
  if (outcome.value !== null && !outcome.displays.some(({ main }) => main)) shown.push(...block(JSON.stringify(outcome.value)));
  if (outcome.error) shown.push(...block(outcome.error.traceback ?? `${outcome.error.name}: ${outcome.error.message}`, "wrong"));
  shown.push(...outcome.denied.map(denial));
  at("result").replaceChildren(...shown);
  at("state").textContent = `${outcome.status}, ${ms(outcome.usage.wall_ms)}`;
}

function setRunning(is) {
  at("run").disabled = is;
  at("interrupt").disabled = !is;
  at("close").disabled = is || !session;
  if (is) at("state").textContent = "running";
}

async function run() {
  setRunning(true);
  try {
    if (!session) session = (await ask("POST", "/v1/sessions", {})).id;
    const outcome = await ask("POST", `/v1/sessions/${session}/cells`, { code: at("code").value });
    showOutcome(outcome);
    if (outcome.session === "ended") {
      await ask("DELETE", `/v1/sessions/${session}`);
      session = null;
      at("state").textContent += "; the session has ended, and the next cell opens a new one";
    }
    showTrouble(null);
  } catch (error) {
    // The session was closed elsewhere: the next cell opens a new one.
    if (error.status === 404) session = null;
    at("state").textContent = "";
    showTrouble(error);
  }
  setRunning(false);
  await look();
}

at("access").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value;
  sessionStorage.setItem("token", token);
  session = last = null;
  act(async () => {});
});
at("playground").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
at("code").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.ctrlKey && !at("run").disabled) run();
});
at("interrupt").addEventListener("click", () => act(() => ask("POST", `/v1/sessions/${session}/interrupt`)));
at("close").addEventListener("click", () =>
  act(async () => {
    await ask("DELETE", `/v1/sessions/${session}`);
    session = null;
    setRunning(false);
  }),
);
at("token").value = token;
look();
setInterval(() => {
  if (!document.hidden) look();
}, PERIOD);
