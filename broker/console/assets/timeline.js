// The time line of the metadata log: the cluster at an offset, the difference to now, and the changes up to it.

import { card, h, pager, pill, replace, table } from "./dom.js";
import * as f from "./format.js";
import { changeList, stateKind } from "./overview.js";

const CHANGES_MAX = 1000;

function summary(then) {
  const s = then.summary;
  return [
    h(
      "ul",
      { class: "figures", "aria-label": "The cluster then" },
      [["topics", s.topics], ["partitions", s.partitions], ["offline", s.offline], ["under-replicated", s.under_replicated], ["ACLs", s.acls]].map(([label, value]) => h("li", null, h("b", null, f.number(value)), h("span", null, label))),
    ),
    h("p", null, "Brokers: ", s.brokers.length ? s.brokers.map((b) => [pill(`${b.id} ${b.state}`, stateKind(b.state)), " "]) : "none"),
  ];
}

function differences(then) {
  const d = then.difference;
  if (!d.total) return h("p", { class: "empty" }, "Nothing has changed since.");
  return [
    table(
      `${f.number(d.total)} differences to now${d.truncated ? `, the first ${d.items.length} of them` : ""}`,
      [
        { title: "Change since", long: true, cell: (c) => c.sentence },
        { title: "Kind", cell: (c) => c.kind },
        { title: "Then", long: true, cell: (c) => (c.then === null ? f.DASH : h("span", { class: "mono" }, c.then)) },
        { title: "Now", long: true, cell: (c) => (c.now === null ? f.DASH : h("span", { class: "mono" }, c.now)) },
      ],
      d.items,
    ),
  ];
}

export async function show(page, place) {
  const bounds = await page.get("timeline", {});
  const parts = { when: h("p", { class: "sub", role: "status" }), summary: h("div"), difference: h("div"), changes: h("div"), topics: h("div") };
  const clamp = (value) => Math.min(bounds.last_offset, Math.max(bounds.first_offset, Number.isFinite(value) ? Math.round(value) : bounds.last_offset));
  let offset = clamp(place === undefined ? bounds.last_offset : Number(place));
  const topics = { page: 0, size: 20, search: "" };
  const slider = h("input", { type: "range", min: String(bounds.first_offset), max: String(bounds.last_offset), step: "1", "aria-label": "Offset of the metadata log" });
  const field = h("input", { type: "number", min: String(bounds.first_offset), max: String(bounds.last_offset), step: "1" });

  function showChanges(items, before) {
    const more = h("button", { type: "button", onclick: () => page.run(async () => {
      const found = await page.get("timeline/changes", { before, limit: 100 });
      showChanges([...items, ...found.items].slice(-CHANGES_MAX), found.next_before);
    }) }, "Earlier changes");
    replace(parts.changes, changeList(items), before === null ? null : h("div", { class: "pager" }, more));
  }
  async function listTopics() {
    const found = await page.get("timeline/topics", { offset, ...topics });
    replace(
      parts.topics,
      table(
        `${f.number(found.total)} topics at offset ${f.number(offset)}`,
        [
          { title: "Topic", long: true, cell: (t) => t.name },
          { title: "Partitions", num: true, cell: (t) => f.number(t.partitions) },
          { title: "Replicas", num: true, cell: (t) => f.number(t.replication_factor) },
          { title: "Configs", long: true, cell: (t) => Object.entries(t.configs).map(([key, value]) => h("div", { class: "mono" }, `${key}=${value}`)) },
        ],
        found.items,
        { empty: "No topics match." },
      ),
      pager(found, (to) => { topics.page = to; page.run(listTopics); }),
    );
  }
  async function load() {
    slider.value = field.value = String(offset);
    page.keep(`#/timeline/${offset}`);
    const [then, changes] = await Promise.all([page.get("timeline/at", { offset }), page.get("timeline/changes", { before: offset + 1, limit: 40 })]);
    replace(parts.when, `Offset ${f.number(offset)} of ${f.number(bounds.last_offset)}`, then.time_ms ? [", ", h("time", { datetime: f.iso(then.time_ms), title: f.iso(then.time_ms) }, f.moment(then.time_ms))] : "");
    replace(parts.summary, summary(then));
    replace(parts.difference, differences(then));
    showChanges(changes.items, changes.next_before);
    await listTopics();
  }
  const go = (to) => { offset = clamp(to); topics.page = 0; page.run(load); };
  slider.addEventListener("input", () => { field.value = slider.value; });
  slider.addEventListener("change", () => go(Number(slider.value)));
  field.addEventListener("change", () => go(Number(field.value)));
  const search = h("input", { type: "search", "data-search": true, placeholder: "name contains …" });
  search.addEventListener("input", page.debounce(() => { topics.search = search.value; topics.page = 0; page.run(listTopics); }));
  page.show(
    h("h1", { tabindex: "-1" }, "Time line"),
    h(
      "section",
      { class: "card", "aria-label": "Position" },
      h(
        "div",
        { class: "range" },
        slider,
        h("label", null, "Offset", field),
        h("button", { type: "button", onclick: () => go(offset - 1) }, "Back"),
        h("button", { type: "button", onclick: () => go(offset + 1) }, "Forward"),
        h("button", { type: "button", onclick: () => go(bounds.last_offset) }, "Now"),
      ),
      parts.when,
      bounds.snapshots.some((s) => s.offset > 0) ? h("p", { class: "sub" }, "Snapshots end at ", bounds.snapshots.filter((s) => s.offset > 0).map((s, index) => [index ? ", " : "", h("a", { href: `#/timeline/${Math.max(0, s.offset - 1)}` }, f.number(s.offset))]), ".") : null,
    ),
    parts.summary,
    h("div", { class: "grid" }, card("Changes up to here", parts.changes), card("Difference to now", parts.difference)),
    card("Topics then", h("div", { class: "tools" }, h("label", null, "Search", search)), parts.topics),
  );
  await load();
}
