// ACLs, client quotas, and users with SCRAM credentials.

import { h, pager, pill, replace, table } from "./dom.js";
import * as f from "./format.js";

const VIEWS = {
  acls: {
    title: "ACLs",
    note: (session) => (session.authorizer ? null : "No authorizer is configured: every client may do everything, and ACLs have no effect."),
    columns: [
      { title: "Principal", sort: "principal", long: true, cell: (a) => a.principal },
      { title: "Permission", cell: (a) => pill(a.permission.toLowerCase(), a.permission === "DENY" ? "bad" : "good") },
      { title: "Operation", cell: (a) => a.operation.toLowerCase().replaceAll("_", " ") },
      { title: "Resource", sort: "resource_name", long: true, cell: (a) => [`${a.resource_type.toLowerCase().replaceAll("_", " ")} `, h("span", { class: "mono" }, a.resource_name), a.pattern_type === "PREFIXED" ? [" ", pill("prefix")] : null] },
      { title: "Host", cell: (a) => (a.host === "*" ? "any" : a.host) },
    ],
    empty: "No ACLs match.",
  },
  quotas: {
    title: "Quotas",
    columns: [
      { title: "Entity", long: true, cell: (q) => q.entity.map((part, index) => [index ? ", " : "", `${part.type} `, part.name === null ? pill("default") : h("b", null, part.name)]) },
      { title: "Limits", long: true, cell: (q) => Object.entries(q.values).map(([key, value]) => h("div", null, h("span", { class: "mono" }, key), ` ${key.endsWith("byte_rate") ? f.perSecond(value) : f.decimal(value)}`)) },
    ],
    empty: "No client quotas are set.",
  },
  users: {
    title: "Users",
    columns: [
      { title: "User", sort: "name", long: true, cell: (u) => u.name },
      { title: "Credentials", cell: (u) => u.mechanisms.map((m) => h("div", null, `${m.mechanism}, ${f.number(m.iterations)} iterations`)) },
    ],
    empty: "No user has SCRAM credentials.",
  },
};

const TABS = ["acls", "quotas", "users"];

export async function show(page, name = "acls") {
  const view = VIEWS[name];
  if (!view) return page.absent();
  const state = { page: 0, size: 50, search: page.query.search || "", sort: "" };
  const target = h("div");
  async function load() {
    page.remember({ search: state.search });
    const found = await page.get(name, state);
    page.keepFocus(() => replace(
      target,
      table(`${f.number(found.total)} ${view.title}`, view.columns, found.items, { sort: state.sort, onSort: (sort) => { state.sort = sort; page.run(load); }, empty: view.empty }),
      pager(found, (to) => { state.page = to; page.run(load); }),
    ));
  }
  const search = h("input", { type: "search", "data-search": true, value: state.search, placeholder: "name contains …" });
  search.addEventListener("input", page.debounce(() => { state.search = search.value; state.page = 0; page.run(load); }));
  const note = view.note && view.note(page.session);
  page.show(
    h("h1", { tabindex: "-1" }, "Security"),
    h("nav", { class: "tabs", "aria-label": "Security" }, TABS.map((tab) => h("a", { href: `#/security/${tab}`, "aria-current": tab === name ? "page" : null }, VIEWS[tab].title))),
    note ? h("p", { class: "sub" }, note) : null,
    h("div", { class: "tools" }, h("label", null, "Search", search)),
    h("section", { class: "card", "aria-label": view.title }, target),
  );
  await page.every(10000, load);
}
