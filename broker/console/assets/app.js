// The page: routes, the frame around views, live state, keyboard, colours.

import { get, live } from "./api.js";
import { h, replace } from "./dom.js";
import * as f from "./format.js";
import * as groups from "./groups.js";
import * as overview from "./overview.js";
import * as security from "./security.js";
import * as timeline from "./timeline.js";
import * as topics from "./topics.js";

const main = document.getElementById("main");
const notice = document.getElementById("notice");
const pillOfLive = document.getElementById("live");

const MENU = [["", "Overview"], ["topics", "Topics"], ["groups", "Groups"], ["transactions", "Transactions"], ["security", "Security"], ["timeline", "Time line"]];
const OWNER = { topic: "topics", group: "groups", broker: "" };
const ROUTES = {
  "": (page) => overview.show(page),
  topics: (page) => topics.list(page),
  topic: (page, name, tab) => (name ? topics.topic(page, name, tab) : topics.list(page)),
  groups: (page) => groups.list(page),
  group: (page, id) => groups.group(page, id),
  transactions: (page) => groups.transactions(page),
  security: (page, tab) => security.show(page, tab),
  timeline: (page, offset) => timeline.show(page, offset),
  broker: (page, id) => topics.broker(page, id),
};

let session = { actions: false, authorizer: false, overview: true };
let current = null;
let kept = null;

/** One visit of a view: what it starts ends with it. */
class Page {
  constructor(query) {
    this.query = query;
    this.session = session;
    this.actions = session.actions;
    this.controller = new AbortController();
    this.signal = this.controller.signal;
    this.endings = [];
    this.requests = new Map();
    this.isOver = false;
    this.hasFocus = false;
  }

  show(...children) {
    if (this.isOver) return;
    replace(main, children);
    const heading = main.querySelector("h1");
    document.title = `${heading ? heading.textContent : "Ottla"} · Ottla`;
    if (this.hasFocus && heading) heading.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }

  /** Run work of the view; show its failure as a sentence. */
  async run(work) {
    try {
      await work();
      if (notice.dataset.failure) this.clear();
    } catch (error) {
      if (error.name === "AbortError" || this.isOver) return;
      notice.className = "notice bad";
      notice.dataset.failure = "1";
      notice.textContent = error instanceof TypeError ? "The node does not answer." : error.message;
      notice.hidden = false;
    }
  }

  /** Ask the node. A later request of the same path ends an earlier one, whose answer would be out of date. */
  async get(path, parameters) {
    const earlier = this.requests.get(path);
    if (earlier) earlier.abort();
    const own = new AbortController();
    this.requests.set(path, own);
    return get(path, parameters, AbortSignal.any([own.signal, this.signal]));
  }

  clear() {
    notice.hidden = true;
    delete notice.dataset.failure;
  }

  /** Run `work` now, and again and again while the tab is visible, also after a failure of the first run. */
  async every(ms, work) {
    let busy = true;
    const timer = setInterval(async () => {
      if (busy || document.hidden || this.isOver) return;
      busy = true;
      await this.run(work);
      busy = false;
    }, ms);
    this.onEnd(() => clearInterval(timer));
    try {
      await work();
    } finally {
      busy = false;
    }
  }

  onEnd(ending) {
    if (this.isOver) ending();
    else this.endings.push(ending);
  }

  debounce(work) {
    let timer = null;
    return () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.isOver || work(), 200);
    };
  }

  /** Name the brokers that did not answer. */
  missing(missing) {
    const text = (missing || []).map((one) => `Broker ${one.broker}: ${one.reason}.`).join(" ");
    let line = document.getElementById("missing");
    if (!text) {
      if (line) line.remove();
      return;
    }
    if (!line) {
      line = h("p", { id: "missing", class: "notice", role: "status" });
      const heading = main.querySelector("h1");
      if (heading) heading.after(line);
    }
    if (line.textContent !== text) line.textContent = text;
  }

  /** Keep the focus on the same control while `draw` replaces it. */
  keepFocus(draw) {
    const active = document.activeElement;
    const label = active && main.contains(active) && (active.getAttribute("aria-label") || active.textContent || "").trim();
    const tag = active && active.tagName;
    const scrolled = [...main.querySelectorAll(".scroll")].map((element) => element.scrollLeft);
    draw();
    [...main.querySelectorAll(".scroll")].forEach((element, index) => { if (scrolled[index]) element.scrollLeft = scrolled[index]; });
    if (label && !main.contains(active)) {
      const same = [...main.querySelectorAll(tag)].find((element) => (element.getAttribute("aria-label") || element.textContent || "").trim().replace(/[↑↓ ]+$/, "") === label.replace(/[↑↓ ]+$/, ""));
      if (same) same.focus({ preventScroll: true });
    }
  }

  /** Keep parameters of the view in the address. */
  remember(parameters) {
    const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== ""));
    const text = query.toString();
    this.keep(location.hash.split("?")[0] + (text ? "?" + text : ""));
  }

  keep(hash) {
    if (location.hash !== hash && !this.isOver) {
      kept = hash;
      history.replaceState(null, "", hash);
    }
  }

  absent() {
    this.show(h("h1", { tabindex: "-1" }, "Not found"), h("p", null, h("a", { href: "#/" }, "Overview")));
  }

  end() {
    this.isOver = true;
    this.controller.abort();
    for (const ending of this.endings) ending();
  }
}

async function route() {
  if (kept !== null && location.hash === kept && current && !current.isOver) {
    kept = null;
    return;
  }
  const isFirst = current === null;
  if (current) current.end();
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const steps = path.split("/").map(decode);
  const page = new Page(Object.fromEntries(new URLSearchParams(query || "")));
  page.hasFocus = !isFirst;
  current = page;
  page.clear();
  mark(steps[0]);
  replace(main, h("p", { class: "empty", role: "status" }, "Loading …"));
  const view = ROUTES[steps[0]];
  await page.run(async () => {
    try {
      await (view ? view(page, ...steps.slice(1)) : page.absent());
    } catch (error) {
      if (error.name !== "AbortError" && main.querySelector("h1") === null) page.show(h("h1", { tabindex: "-1" }, "Not available"), h("p", null, error.message));
      throw error;
    }
  });
}

function decode(step) {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}

function mark(name) {
  const owner = name in OWNER ? OWNER[name] : name;
  replace(
    document.getElementById("nav"),
    MENU.map(([path, title]) => h("a", { href: `#/${path}`, "aria-current": path === owner ? "page" : null }, title)),
  );
}

function showLive(now) {
  const text = now.connected ? "live" : `no connection since ${f.moment(now.since)}`;
  if (pillOfLive.textContent !== text) pillOfLive.textContent = text;
  pillOfLive.className = "pill " + (now.connected ? "good" : "bad");
}

function colours() {
  const root = document.documentElement;
  const saved = localStorage.getItem("ottla-theme");
  if (saved) root.dataset.theme = saved;
  document.getElementById("theme").addEventListener("click", () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem("ottla-theme", root.dataset.theme);
  });
}

function keys(event) {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest && event.target.closest("input, textarea, select, dialog")) return;
  const search = main.querySelector("[data-search]");
  if (search) {
    event.preventDefault();
    search.focus();
  }
}

async function meet() {
  try {
    session = await get("session");
    replace(document.getElementById("foot"), `Node ${session.node_id} of cluster ${session.cluster_id} · Ottla ${session.release} · ${session.principal} · ${session.actions ? "actions allowed" : "read-only"}`);
  } catch (error) {
    replace(document.getElementById("foot"), error.message);
  }
}

async function begin() {
  colours();
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  document.addEventListener("keydown", keys);
  await meet();
  if (session.overview) {
    live.listen(showLive);
    live.start(() => { if (live.opened) meet(); live.opened = true; });
  } else {
    pillOfLive.textContent = "not live";
    pillOfLive.title = "Events need the right to describe the cluster; the other views refresh every few seconds.";
  }
  window.addEventListener("hashchange", route);
  await route();
}

begin();
