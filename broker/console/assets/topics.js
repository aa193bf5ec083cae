// Topics, partitions, configurations, and the reader of records.

import { ask } from "./actions.js";
import { h, pager, pill, replace, svg, table } from "./dom.js";
import * as f from "./format.js";

const topicLink = (name, tab = "") => `#/topic/${encodeURIComponent(name)}${tab}`;

export async function list(page) {
  const state = { page: 0, size: 50, search: page.query.search || "", sort: page.query.sort || "name", internal: page.query.internal || "" };
  const target = h("div");
  async function load() {
    page.remember({ search: state.search, sort: state.sort === "name" ? "" : state.sort, internal: state.internal });
    const found = await page.get("topics", state);
    page.missing(found.missing);
    page.keepFocus(() => replace(
      target,
      table(
        f.count(found.total, "topic"),
        [
          { title: "Topic", sort: "name", long: true, cell: (t) => h("a", { href: topicLink(t.name) }, t.name) },
          { title: "Partitions", sort: "partitions", num: true, cell: (t) => f.number(t.partitions) },
          { title: "Replicas", num: true, cell: (t) => f.number(t.replication_factor) },
          { title: "Offline", sort: "offline", num: true, cell: (t) => (t.offline ? pill(f.number(t.offline), "bad") : "0") },
          { title: "Under-replicated", sort: "under_replicated", num: true, cell: (t) => (t.under_replicated ? pill(f.number(t.under_replicated), "warn") : "0") },
          { title: "Local", num: true, cell: (t) => f.bytes(t.size_bytes) },
          { title: "Remote", num: true, cell: (t) => (t.tiered ? f.bytes(t.remote_bytes) : f.DASH) },
        ],
        found.items,
        { sort: state.sort, onSort: (sort) => { state.sort = sort; state.page = 0; page.run(load); }, empty: "No topics match." },
      ),
      pager(found, (to) => { state.page = to; page.run(load); }),
    ));
  }
  const search = h("input", { type: "search", "data-search": true, value: state.search, placeholder: "name contains …" });
  search.addEventListener("input", page.debounce(() => { state.search = search.value; state.page = 0; page.run(load); }));
  const internal = h("input", { type: "checkbox", checked: state.internal === "1" });
  internal.addEventListener("change", () => { state.internal = internal.checked ? "1" : ""; state.page = 0; page.run(load); });
  page.show(
    h("h1", { tabindex: "-1" }, "Topics"),
    h(
      "div",
      { class: "tools" },
      h("label", null, "Search", search),
      h("label", { class: "row" }, internal, "internal topics"),
      page.actions ? h("button", { type: "button", onclick: () => createTopic(() => page.run(load)) }, "Create topic") : null,
    ),
    h("section", { class: "card", "aria-label": "Topics" }, target),
  );
  await page.every(10000, load);
}

function createTopic(done) {
  ask("Create a topic", "Create", "create-topic", [
    { name: "name", label: "Name", required: true },
    { name: "partitions", label: "Partitions (-1: the default)", type: "number", value: "-1" },
    { name: "replication_factor", label: "Replication factor (-1: the default)", type: "number", value: "-1" },
    { name: "configs", label: "Configs, key=value on each line", type: "lines" },
  ], (values) => values, done);
}

const TABS = [["", "Partitions"], ["/records", "Records"], ["/configs", "Configuration"]];

export async function topic(page, name, tab = "partitions") {
  const found = await page.get("topic", { name });
  const body = h("div");
  const current = tab === "partitions" ? "" : "/" + tab;
  page.show(
    h("p", { class: "crumb" }, h("a", { href: "#/topics" }, "Topics")),
    h("h1", { tabindex: "-1" }, name, " ", found.internal ? pill("internal") : null, found.tiered ? pill("tiered") : null),
    h(
      "p",
      { class: "sub" },
      `${f.count(found.partitions, "partition")}, replication factor ${found.replication_factor}, ${f.bytes(found.size_bytes)} local`,
      found.tiered ? `, ${f.bytes(found.remote_bytes)} remote` : "",
      " · id ", h("span", { class: "mono" }, found.id),
    ),
    h("nav", { class: "tabs", "aria-label": "Topic" }, TABS.map(([path, title]) => h("a", { href: topicLink(name, path), "aria-current": path === current ? "page" : null }, title))),
    body,
  );
  page.missing(found.missing);
  if (tab === "records") await records(page, name, found, body);
  else if (tab === "configs") await configs(page, name, body);
  else await partitions(page, name, found, body);
}

/** A bar of a partition's offsets: remote only, remote and local, local only. */
export function offsetBar(p) {
  if (p.end_offset === null) return f.DASH;
  const begin = p.start_offset;
  const span = Math.max(1, p.end_offset - begin);
  const x = (offset) => Math.min(1000, Math.max(0, ((offset - begin) / span) * 1000));
  const parts = [svg("rect", { class: "fill-none", width: 1000, height: 14 })];
  const box = (from, to, kind, y, height, title) =>
    to > from && parts.push(svg("rect", { class: kind, x: x(from), width: Math.max(2, x(to) - x(from)), y, height }, svg("title", null, title)));
  const remote = p.remote;
  const local = `local: offsets ${f.number(p.local_start_offset)} to ${f.number(p.end_offset - 1)}, ${f.bytes(p.size_bytes)}`;
  const texts = p.end_offset > p.local_start_offset ? [local] : ["no local records"];
  box(p.local_start_offset, p.end_offset, "fill-local", remote ? 7 : 0, remote ? 7 : 14, local);
  if (remote && remote.last_offset !== null) {
    texts.push(`remote: offsets ${f.number(remote.first_offset)} to ${f.number(remote.last_offset)}, ${f.bytes(remote.size_bytes)} in ${f.count(remote.segments, "segment")}`);
    const listed = remote.segment_list.filter((s) => s.state === "copy finished");
    if (listed.length && listed.length === remote.segments) {
      for (const s of listed) box(s.start_offset, s.end_offset + 1, "fill-remote", 0, 7, `segment ${f.number(s.start_offset)} to ${f.number(s.end_offset)}, ${f.bytes(s.size_bytes)}, until ${f.moment(s.max_time_ms)}`);
    } else box(remote.first_offset, remote.last_offset + 1, "fill-remote", 0, 7, texts[1]);
  }
  return svg("svg", { class: "bar", viewBox: "0 0 1000 14", preserveAspectRatio: "none", role: "img", "aria-label": texts.join("; ") }, parts);
}

function replicas(p) {
  return p.replicas.map((id, index) => {
    const inSync = p.isr.includes(id);
    return [index ? " " : "", h("span", { class: "pill " + (inSync ? (id === p.leader ? "good" : "") : "bad"), title: inSync ? (id === p.leader ? "leader" : "in sync") : "not in sync" }, `${id}${inSync ? "" : " out"}`)];
  });
}

async function partitions(page, name, found, body) {
  const state = { name, page: 0, size: 50, sort: "partition" };
  const target = h("div");
  const shown = new Set();
  async function load() {
    const answer = await page.get("topic/partitions", state);
    page.missing(answer.missing);
    page.keepFocus(() => replace(
      target,
      table(
        f.count(answer.total, "partition"),
        [
          { title: "Partition", sort: "partition", num: true, cell: (p) => h("a", { href: `${topicLink(name, "/records")}?partition=${p.partition}`, title: "read records" }, p.partition) },
          { title: "Leader", num: true, cell: (p) => (p.leader === null ? pill("none", "bad") : [p.leader, h("span", { class: "sub" }, ` epoch ${p.leader_epoch}`)]) },
          { title: "Replicas", tight: true, cell: replicas },
          { title: "Start", num: true, cell: (p) => f.number(p.start_offset) },
          { title: "High watermark", num: true, cell: (p) => f.number(p.high_watermark) },
          { title: "Local", num: true, cell: (p) => f.bytes(p.size_bytes) },
          ...(found.tiered ? [{ title: "Remote", num: true, cell: (p) => (p.remote ? f.bytes(p.remote.size_bytes) : f.DASH) }, { title: "To copy", num: true, cell: (p) => (p.remote ? f.bytes(p.remote.copy_lag_bytes) : f.DASH) }] : []),
          { title: "Offsets", cell: (p) => [offsetBar(p), p.remote && p.remote.segment_list.length ? segments(p, shown) : null] },
        ],
        answer.items,
        { sort: state.sort, onSort: (sort) => { state.sort = sort; page.run(load); } },
      ),
      h("p", { class: "key" }, h("span", null, h("i", { class: "local" }), "local"), h("span", null, h("i", { class: "remote" }), "remote")),
      pager(answer, (to) => { state.page = to; page.run(load); }),
    ));
  }
  const refresh = () => page.run(load);
  replace(
    body,
    page.actions
      ? h(
          "div",
          { class: "tools" },
          h("button", { type: "button", onclick: () => ask("Add partitions", "Add", "create-partitions", [{ name: "count", label: "Number of partitions in all", type: "number", value: String(found.partitions + 1), required: true }], (v) => ({ ...v, name }), refresh) }, "Add partitions"),
          h("button", { type: "button", onclick: () => ask("Elect leaders", "Elect", "elect-leaders", [{ name: "kind", label: "Election", choices: ["preferred", "unclean"] }], (v) => ({ ...v, partitions: Array.from({ length: found.partitions }, (_, index) => ({ topic: name, partition: index })) }), refresh) }, "Elect leaders"),
          h("button", { type: "button", class: "danger", onclick: () => ask(`Delete topic ${name}`, "Delete", "delete-topic", [{ name: "typed", label: "Type the topic's name to delete it with all its records", required: true, match: name }], () => ({ name }), () => { location.hash = "#/topics"; }) }, "Delete topic"),
        )
      : null,
    h("section", { class: "card", "aria-label": "Partitions" }, target),
  );
  await page.every(5000, load);
}

function segments(p, shown) {
  const r = p.remote;
  const details = h(
    "details",
    { open: shown.has(p.partition) },
    h("summary", null, f.count(r.segments, "remote segment")),
    table(
      `Newest remote segments of partition ${p.partition}`,
      [
        { title: "From", num: true, cell: (s) => f.number(s.start_offset) },
        { title: "To", num: true, cell: (s) => f.number(s.end_offset) },
        { title: "Size", num: true, cell: (s) => f.bytes(s.size_bytes) },
        { title: "Newest record", cell: (s) => f.moment(s.max_time_ms) },
        { title: "State", cell: (s) => pill(s.state, s.state === "copy finished" ? "good" : "warn") },
      ],
      r.segment_list,
    ),
  );
  details.addEventListener("toggle", () => (details.open ? shown.add(p.partition) : shown.delete(p.partition)));
  return details;
}

async function configs(page, name, body) {
  await configTable(page, body, () => page.get("topic/configs", { name }), "topic", name);
}

export async function configTable(page, body, fetchItems, resource, name) {
  const target = h("div");
  const onlySet = h("input", { type: "checkbox", checked: true });
  const search = h("input", { type: "search", "data-search": true, placeholder: "key contains …" });
  let items = [];
  function draw() {
    const wanted = items.filter((c) => (!onlySet.checked || !c.is_default) && c.name.includes(search.value.trim().toLowerCase()));
    replace(
      target,
      table(
        `${wanted.length} of ${items.length} configs`,
        [
          { title: "Key", long: true, cell: (c) => [h("span", { class: "mono" }, c.name), c.documentation ? h("div", { class: "sub" }, c.documentation) : null] },
          { title: "Value", long: true, cell: (c) => (c.is_sensitive ? pill("hidden") : h("span", { class: "mono" }, c.value === null ? "unset" : c.value === "" ? "(empty)" : c.value)) },
          { title: "Source", cell: (c) => [pill(c.source, c.is_default ? "" : "good"), c.is_read_only ? [" ", pill("read-only")] : null] },
          ...(page.actions ? [{ title: "Action", cell: (c) => (c.is_read_only ? null : h("button", { type: "button", class: "quiet", "aria-label": `Change ${c.name}`, onclick: () => change(c) }, "Change")) }] : []),
        ],
        wanted,
        { empty: onlySet.checked ? "Every config has its default." : "No config matches." },
      ),
    );
  }
  function change(c) {
    ask(`Change ${c.name}`, "Change", "alter-configs", [{ name: "value", label: "Value; empty restores the default", value: c.is_sensitive ? "" : c.value || "" }], (v) => ({ resource, name, set: v.value === "" ? {} : { [c.name]: v.value }, delete: v.value === "" ? [c.name] : [] }), () => page.run(load));
  }
  async function load() {
    items = (await fetchItems()).items;
    draw();
  }
  onlySet.addEventListener("change", draw);
  search.addEventListener("input", draw);
  replace(
    body,
    h("div", { class: "tools" }, h("label", null, "Search", search), h("label", { class: "row" }, onlySet, "only what is set")),
    h("section", { class: "card", "aria-label": "Configuration" }, target),
  );
  await load();
}

function text(data, mode) {
  if (data === null) return "null";
  if (mode === "hex" || data.text === null) return data.hex.replace(/(..)/g, "$1 ").trim() + (data.size * 2 > data.hex.length ? " …" : "");
  if (mode === "json" && data.json) {
    try {
      return JSON.stringify(JSON.parse(data.text), null, 2);
    } catch {
      return data.text;
    }
  }
  return data.text + (data.cut ? " …" : "");
}

function record(r, mode) {
  const facts = [r.codec === "none" ? null : r.codec, `epoch ${r.leader_epoch}`, r.producer_id === null ? null : `producer ${r.producer_id}`].filter(Boolean).join(", ");
  return h(
    "article",
    { class: "record", "aria-label": `record at offset ${r.offset}` },
    h(
      "div",
      { class: "head" },
      h("b", null, `${f.number(r.offset)}`),
      h("time", { class: "sub", datetime: f.iso(r.time_ms), title: `${f.iso(r.time_ms)} (${r.timestamp_type} time)` }, f.moment(r.time_ms)),
      r.is_control ? pill(`${r.marker} marker`) : h("span", { class: "sub" }, `${f.bytes(r.size_bytes)}, ${facts}`),
      r.transaction && !r.is_control ? pill(`transaction ${r.transaction}`, r.transaction === "committed" ? "good" : r.transaction === "aborted" ? "bad" : "warn") : null,
    ),
    r.is_control ? null : [
      h("div", null, h("span", { class: "sub" }, "key "), r.key === null ? pill("null") : h("span", { class: "mono" }, text(r.key, mode === "json" ? "text" : mode))),
      r.value === null ? h("div", null, h("span", { class: "sub" }, "value "), pill("null")) : h("pre", { tabindex: "0", "aria-label": `value at offset ${r.offset}` }, text(r.value, mode)),
      r.headers.length ? h("details", null, h("summary", null, f.count(r.headers_count, "header")), r.headers.map((header) => h("div", { class: "mono" }, `${header.key}: ${text(header.value, mode)}`)), r.headers_count > r.headers.length ? h("div", { class: "sub" }, `and ${f.number(r.headers_count - r.headers.length)} more`) : null) : null,
    ],
  );
}

async function records(page, name, found, body) {
  const query = page.query;
  const partition = h("input", { type: "number", min: "0", max: String(found.partitions - 1), value: query.partition || "0" });
  const from = h("select", null, ["END", "START", "offset", "time"].map((value) => h("option", { value, selected: (query.from || "END") === value }, { END: "the newest", START: "the oldest", offset: "an offset", time: "a time" }[value])));
  const at = h("input", { type: "text", value: query.at || "", placeholder: "offset" });
  const limit = h("select", null, ["25", "50", "100", "200"].map((value) => h("option", { value, selected: value === "50" }, value)));
  const mode = h("select", null, ["json", "text", "hex"].map((value) => h("option", { value }, value === "json" ? "JSON" : value)));
  const target = h("div");
  const atLabel = h("label", null, "Offset", at);
  let last = null;
  function kinds() {
    const kind = from.value;
    atLabel.hidden = kind !== "offset" && kind !== "time";
    atLabel.firstChild.textContent = kind === "time" ? "Time" : "Offset";
    at.type = kind === "time" ? "datetime-local" : "text";
    at.step = "1";
  }
  function draw() {
    if (!last) return;
    replace(
      target,
      h("p", { class: "sub" }, `Partition ${partition.value} has offsets ${f.number(last.start_offset)} to ${f.number(last.end_offset - 1)}.`),
      last.truncated ? h("p", { class: "sub" }, "The page ends early: its records are large. “Later” goes on.") : null,
      last.problem ? h("p", { class: "notice bad" }, last.problem) : null,
      last.items.length ? last.items.map((r) => record(r, mode.value)) : h("p", { class: "empty" }, "No records here."),
      h(
        "div",
        { class: "pager" },
        h("button", { type: "button", disabled: last.previous_offset === null, onclick: () => page.run(() => load(last.previous_offset, "back")) }, "Earlier"),
        h("button", { type: "button", disabled: last.next_offset === null, onclick: () => page.run(() => load(last.next_offset, "forward")) }, "Later"),
      ),
    );
  }
  async function load(origin, direction) {
    let position = origin;
    if (position === undefined) {
      position = from.value;
      if (position === "offset") position = at.value.trim();
      if (position === "time") position = `time:${new Date(at.value).getTime() || 0}`;
    }
    page.remember({ partition: partition.value, from: from.value === "END" ? "" : from.value, at: atLabel.hidden ? "" : at.value });
    last = await page.get("topic/records", { name, partition: partition.value, from: position, limit: limit.value, direction });
    draw();
  }
  from.addEventListener("change", kinds);
  mode.addEventListener("change", draw);
  kinds();
  const form = h(
    "form",
    { class: "tools" },
    h("label", null, "Partition", partition),
    h("label", null, "From", from),
    atLabel,
    h("label", null, "Records", limit),
    h("label", null, "Show as", mode),
    h("button", { type: "submit", class: "primary" }, "Read"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    page.run(() => load());
  });
  replace(body, form, h("section", { class: "card", "aria-label": "Records" }, target));
  await load();
}

export async function broker(page, id) {
  const body = h("div");
  page.show(h("p", { class: "crumb" }, h("a", { href: "#/" }, "Overview")), h("h1", { tabindex: "-1" }, `Broker ${id}`), body);
  await configTable(page, body, () => page.get("broker/configs", { id }), "broker", id);
}

