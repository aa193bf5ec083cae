// Groups of every kind, and open transactions.

import { ask } from "./actions.js";
import { card, h, pager, pill, plot, replace, spark, table } from "./dom.js";
import * as f from "./format.js";

const KINDS = ["", "classic", "consumer", "share", "streams"];
const groupLink = (id) => `#/group/${encodeURIComponent(id)}`;
const stateKind = (state) => (/stable/i.test(state) ? "good" : /dead/i.test(state) ? "bad" : /rebalanc|assigning|reconciling/i.test(state) ? "warn" : "");

export async function list(page) {
  const state = { page: 0, size: 50, search: page.query.search || "", type: page.query.type || "", sort: page.query.sort || "id" };
  const target = h("div");
  async function load() {
    page.remember({ search: state.search, type: state.type, sort: state.sort === "id" ? "" : state.sort });
    const found = await page.get("groups", state);
    page.missing(found.missing);
    page.keepFocus(() => replace(
      target,
      table(
        f.count(found.total, "group"),
        [
          { title: "Group", sort: "id", long: true, cell: (g) => h("a", { href: groupLink(g.id) }, g.id) },
          { title: "Kind", sort: "type", cell: (g) => g.type },
          { title: "State", sort: "state", cell: (g) => pill(g.state, stateKind(g.state)) },
          { title: "Members", num: true, cell: (g) => f.number(g.members) },
          { title: "Coordinator", num: true, cell: (g) => h("a", { href: `#/broker/${g.coordinator}` }, g.coordinator) },
        ],
        found.items,
        { sort: state.sort, onSort: (sort) => { state.sort = sort; state.page = 0; page.run(load); }, empty: "No groups match." },
      ),
      pager(found, (to) => { state.page = to; page.run(load); }),
    ));
  }
  const search = h("input", { type: "search", "data-search": true, value: state.search, placeholder: "id contains …" });
  search.addEventListener("input", page.debounce(() => { state.search = search.value; state.page = 0; page.run(load); }));
  const kind = h("select", null, KINDS.map((value) => h("option", { value, selected: value === state.type }, value || "all kinds")));
  kind.addEventListener("change", () => { state.type = kind.value; state.page = 0; page.run(load); });
  page.show(
    h("h1", { tabindex: "-1" }, "Groups"),
    h("div", { class: "tools" }, h("label", null, "Search", search), h("label", null, "Kind", kind)),
    h("section", { class: "card", "aria-label": "Groups" }, target),
  );
  await page.every(5000, load);
}

function assignment(member) {
  if (member.tasks) return ["active", "standby", "warmup"].filter((kind) => member.tasks[kind].length).map((kind) => h("div", null, `${kind}: ${member.tasks[kind].join(", ")}`));
  if (!member.assignment.length) return f.DASH;
  return member.assignment.map((one) => h("div", null, `${one.topic}: ${one.partitions.join(", ")}`));
}

export async function group(page, id) {
  const parts = { head: h("p", { class: "sub" }), plot: h("div"), members: h("div"), partitions: h("div") };
  const state = { id, page: 0, size: 50, sort: "partition" };
  let latest = null;
  async function load() {
    const found = await page.get("group", state);
    latest = found;
    const isShare = found.type === "share";
    page.missing(found.missing);
    replace(
      parts.head,
      pill(found.type), " ", pill(found.state, stateKind(found.state)),
      ` ${f.count(found.members, "member")}, coordinator ${found.coordinator}`,
      found.epoch === null ? "" : `, epoch ${found.epoch}`,
      found.assignor ? `, assignor ${found.assignor}` : "",
    );
    replace(parts.plot, plot("Lag", found.samples, (s) => s.lag, f.number));
    page.keepFocus(() => {
      replace(
        parts.members,
        table(
          f.count(found.member_list.length, "member"),
          [
            { title: "Client", long: true, cell: (m) => [m.client_id, h("div", { class: "sub mono" }, m.id), m.instance_id ? h("div", { class: "sub" }, `static member ${m.instance_id}`) : null] },
            { title: "Host", cell: (m) => m.host },
            { title: "Epoch", num: true, cell: (m) => f.number(m.epoch) },
            { title: "Assignment", long: true, cell: assignment },
          ],
          found.member_list,
          { empty: "The group has no members." },
        ),
      );
      replace(
        parts.partitions,
        table(
          `${f.count(found.partitions.total, "partition")}, lag ${found.lag === null ? "of the shown ones only" : f.count(found.lag, "record")}`,
          [
            { title: "Topic", long: true, cell: (p) => h("a", { href: `#/topic/${encodeURIComponent(p.topic)}` }, p.topic) },
            { title: "Partition", sort: "partition", num: true, cell: (p) => p.partition },
            { title: isShare ? "Start offset" : "Committed", num: true, cell: (p) => f.number(p.committed_offset) },
            { title: "High watermark", num: true, cell: (p) => f.number(p.end_offset) },
            { title: "Lag", sort: "lag", num: true, cell: (p) => f.number(p.lag) },
            { title: "Lag over time", cell: (p) => spark(`lag of ${p.topic}-${p.partition}`, p.lags, f.number) },
            ...(isShare
              ? [
                  { title: "In flight", num: true, cell: (p) => f.number(p.in_flight) },
                  { title: "Acquired", num: true, cell: (p) => f.number(p.acquired) },
                  { title: "Most deliveries", num: true, cell: (p) => f.number(p.delivery_count_max) },
                ]
              : [{ title: "Member", long: true, cell: (p) => (p.member_id ? h("span", { class: "mono sub" }, p.member_id) : f.DASH) }]),
          ],
          found.partitions.items,
          { sort: state.sort, onSort: (sort) => { state.sort = sort; state.page = 0; page.run(load); }, empty: "The group has no committed offsets and no assignment." },
        ),
        pager(found.partitions, (to) => { state.page = to; page.run(load); }),
      );
    });
  }
  page.show(
    h("p", { class: "crumb" }, h("a", { href: "#/groups" }, "Groups")),
    h("h1", { tabindex: "-1" }, id),
    parts.head,
    page.actions ? h("div", { class: "tools" }, h("button", { type: "button", onclick: () => reset(id, latest, () => page.run(load)) }, "Reset offsets")) : null,
    h("section", { class: "card", "aria-label": "Lag over time" }, parts.plot),
    card("Partitions", parts.partitions),
    card("Members", parts.members),
  );
  await page.every(2000, load);
}

function reset(id, latest, done) {
  const topics = latest ? [...new Set(latest.partitions.items.map((p) => p.topic))] : [];
  ask(
    `Reset offsets of group ${id}`,
    "Reset",
    "reset-offsets",
    [
      topics.length ? { name: "topic", label: "Topic", choices: topics } : { name: "topic", label: "Topic", required: true },
      { name: "to", label: "To: earliest, latest, an offset, or time:MILLISECONDS", value: "earliest", required: true },
    ],
    (values) => ({ group: id, topic: values.topic, to: /^\d+$/.test(values.to) ? Number(values.to) : values.to }),
    done,
  );
}

export async function transactions(page) {
  const state = { page: 0, size: 50, search: page.query.search || "", all: page.query.all || "" };
  const target = h("div");
  async function load() {
    page.remember({ search: state.search, all: state.all });
    const found = await page.get("transactions", state);
    page.missing(found.missing);
    page.keepFocus(() => replace(
      target,
      table(
        f.count(found.total, "transactional id"),
        [
          { title: "Transactional id", long: true, cell: (t) => t.id },
          { title: "State", cell: (t) => (t.state ? pill(t.state, t.state === "Ongoing" ? "warn" : "") : f.DASH) },
          { title: "Age", num: true, cell: (t) => (t.age_ms === null ? f.DASH : t.timeout_ms && t.age_ms > t.timeout_ms ? pill(f.duration(t.age_ms), "bad") : f.duration(t.age_ms)) },
          { title: "Time-out", num: true, cell: (t) => f.duration(t.timeout_ms) },
          { title: "Producer", num: true, cell: (t) => (t.producer_id === null ? f.DASH : `${t.producer_id}, epoch ${t.producer_epoch}`) },
          { title: "Coordinator", num: true, cell: (t) => t.coordinator },
          { title: "Partitions", long: true, cell: (t) => (t.partitions.length ? t.partitions.map((p) => h("div", null, `${p.topic}: ${p.partitions.join(", ")}`)) : f.DASH) },
        ],
        found.items,
        { empty: state.all ? "No transactional ids match." : "No transaction is open." },
      ),
      pager(found, (to) => { state.page = to; page.run(load); }),
    ));
  }
  const search = h("input", { type: "search", "data-search": true, value: state.search, placeholder: "id contains …" });
  search.addEventListener("input", page.debounce(() => { state.search = search.value; state.page = 0; page.run(load); }));
  const all = h("input", { type: "checkbox", checked: state.all === "1" });
  all.addEventListener("change", () => { state.all = all.checked ? "1" : ""; state.page = 0; page.run(load); });
  page.show(
    h("h1", { tabindex: "-1" }, "Transactions"),
    h("div", { class: "tools" }, h("label", null, "Search", search), h("label", { class: "row" }, all, "also ids without an open transaction")),
    h("section", { class: "card", "aria-label": "Transactions" }, target),
  );
  await page.every(3000, load);
}
