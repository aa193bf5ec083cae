// The overview: brokers, quorum, traffic, remote storage, changes.

import { live } from "./api.js";
import { card, h, pill, plot, replace, svg, table } from "./dom.js";
import * as f from "./format.js";

export const stateKind = (state) => (state === "running" ? "good" : state === "fenced" ? "bad" : "warn");

function figure(label, value, kind, href) {
  return h("li", { class: kind || null }, h("b", null, value), h("span", null, href ? h("a", { href }, label) : label));
}

export function meter(used, total, label) {
  if (!total) return null;
  const share = Math.min(1, Math.max(0, used / total));
  const kind = share > 0.9 ? "fill-bad" : share > 0.75 ? "fill-warn" : "fill-local";
  return svg(
    "svg",
    { class: "meter", viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("rect", { class: "fill-none", width: 100, height: 8 }),
    svg("rect", { class: kind, width: share * 100, height: 8 }),
  );
}

function disk(broker) {
  if (!broker.log_dirs) return f.DASH;
  return broker.log_dirs.map((dir) => {
    if (dir.error) return h("div", { title: dir.path }, pill("offline", "bad"), h("span", { class: "sub" }, " " + dir.error));
    const used = dir.total_bytes - dir.usable_bytes;
    const text = `${f.bytes(dir.size_bytes)} in logs, ${f.bytes(dir.usable_bytes)} free`;
    return h("div", { title: dir.path }, text, dir.total_bytes ? meter(used, dir.total_bytes, `disk ${f.percent(used / dir.total_bytes)} full`) : null);
  });
}

function brokers(view) {
  const load = (get) => (broker) => (broker.load ? get(broker.load) : f.DASH);
  return table(
    "Brokers with load, event loop, and disks",
    [
      {
        title: "Broker",
        cell: (b) => [
          h("a", { href: `#/broker/${b.id}` }, `${b.id}`),
          b.is_controller ? [" ", pill("controller")] : null,
          h("div", { class: "sub" }, b.rack ? `rack ${b.rack}` : b.listeners.map((l) => `${l.host}:${l.port}`)[0] || ""),
        ],
      },
      { title: "State", cell: (b) => pill(b.state, stateKind(b.state)) },
      { title: "Leaders", num: true, cell: (b) => f.number(b.leaders) },
      { title: "Replicas", num: true, cell: (b) => f.number(b.replicas) },
      { title: "In", num: true, cell: load((l) => f.perSecond(l.bytes_in_per_s)) },
      { title: "Out", num: true, cell: load((l) => f.perSecond(l.bytes_out_per_s)) },
      { title: "Requests", num: true, cell: load((l) => f.rate(l.requests_per_s)) },
      { title: "CPU", num: true, cell: load((l) => f.percent(l.cpu)) },
      { title: "Loop lag", num: true, cell: load((l) => f.millis(l.loop_lag_max_ms)) },
      { title: "Memory", num: true, cell: load((l) => f.bytes(l.memory_bytes)) },
      { title: "Clients", num: true, cell: load((l) => f.number(l.connections)) },
      { title: "Disks", cell: disk },
    ],
    view.brokers,
  );
}

function quorum(view) {
  const rows = [...view.quorum.voters.map((v) => ({ ...v, voter: true })), ...view.quorum.observers.map((o) => ({ ...o, voter: false }))];
  const age = (ms) => (ms === null ? f.DASH : `${f.duration(Math.max(0, view.time_ms - ms))} ago`);
  return table(
    `Replicas of the metadata log; leader epoch ${view.quorum.leader_epoch ?? f.DASH}, high watermark ${f.number(view.quorum.high_watermark)}`,
    [
      { title: "Node", cell: (r) => [String(r.id), " ", r.id === view.quorum.leader_id ? pill("leader", "good") : r.voter ? pill("voter") : pill("observer")] },
      { title: "End offset", num: true, cell: (r) => f.number(r.log_end_offset) },
      { title: "Lag", num: true, cell: (r) => (r.lag > 0 ? pill(f.number(r.lag), r.lag > 1000 ? "bad" : "warn") : f.number(r.lag)) },
      { title: "Caught up", cell: (r) => (r.id === view.quorum.leader_id ? "leads" : age(r.last_caught_up_ms)) },
      { title: "Newest snapshot", num: true, cell: (r) => (r.snapshot && r.snapshot.offset > 0 ? h("a", { href: `#/timeline/${Math.max(0, r.snapshot.offset - 1)}` }, f.number(r.snapshot.offset)) : f.DASH) },
    ],
    rows,
    { empty: "The quorum has no leader, or it does not answer." },
  );
}

function remote(view) {
  const r = view.remote;
  if (!r.enabled) return h("p", { class: "empty" }, "No broker has remote storage.");
  return h(
    "ul",
    { class: "figures" },
    figure("copy lag", f.bytes(r.copy_lag_bytes)),
    figure("segments to copy", f.number(r.copy_lag_segments)),
    figure("copied", f.perSecond(r.copy_bytes_per_s)),
    figure("read", f.perSecond(r.fetch_bytes_per_s)),
    figure("failed copies", f.number(r.copy_errors), r.copy_errors_per_s > 0 ? "bad" : r.copy_errors ? "warn" : ""),
    figure("failed reads", f.number(r.fetch_errors), r.fetch_errors_per_s > 0 ? "bad" : r.fetch_errors ? "warn" : ""),
  );
}

export function changeList(items) {
  if (!items.length) return h("p", { class: "empty" }, "No changes in this part of the metadata log.");
  return h(
    "ol",
    { class: "changes", tabindex: "0", "aria-label": "changes" },
    items.map((change) =>
      h(
        "li",
        null,
        h("time", { datetime: f.iso(change.time_ms), title: f.iso(change.time_ms) }, f.moment(change.time_ms)),
        h("span", null, change.sentence, " ", h("a", { class: "sub", href: `#/timeline/${change.offset}`, "aria-label": `time line at offset ${change.offset}` }, `@${change.offset}`)),
      ),
    ),
  );
}

function totals(view) {
  const t = view.totals;
  return h(
    "ul",
    { class: "figures", "aria-label": "Totals" },
    figure("brokers running", `${view.brokers.filter((b) => b.state === "running").length} of ${view.brokers.length}`, view.brokers.some((b) => b.state === "fenced") ? "bad" : ""),
    figure("topics", f.number(t.topics), "", "#/topics"),
    figure("partitions", f.number(t.partitions)),
    figure("offline", f.number(t.offline), t.offline ? "bad" : "", "#/topics?sort=-offline&internal=1"),
    figure("under-replicated", f.number(t.under_replicated), t.under_replicated ? "warn" : "", "#/topics?sort=-under_replicated&internal=1"),
    figure("under min ISR", f.number(t.under_min_isr), t.under_min_isr ? "bad" : "", "#/topics?sort=-under_replicated&internal=1"),
    figure("records in", f.rate(t.messages_in_per_s)),
    figure("requests", f.rate(t.requests_per_s)),
  );
}

export async function show(page) {
  let history = null;
  const parts = { totals: h("div"), plots: h("div", { class: "grid" }), brokers: h("div"), quorum: h("div"), remote: h("div"), changes: h("div") };
  let offset = -1;
  const samples = () => {
    const newest = live.samples.length ? live.samples[0].time_ms : Infinity;
    return [...(history || []).filter((sample) => sample.time_ms < newest), ...live.samples];
  };
  async function changes(view) {
    if (view.metadata_offset === offset) return;
    offset = view.metadata_offset;
    try {
      const found = await page.get("timeline/changes", { limit: 15 });
      replace(parts.changes, changeList(found.items.slice(0, 15)));
    } catch (error) {
      if (error.name !== "AbortError") replace(parts.changes, h("p", { class: "empty" }, error.message));
    }
  }
  function draw(view) {
    replace(parts.totals, totals(view));
    replace(
      parts.plots,
      h("section", { class: "card", "aria-label": "Bytes in" }, plot("Bytes in", samples(), (s) => s.bytes_in_per_s, f.perSecond)),
      h("section", { class: "card", "aria-label": "Bytes out" }, plot("Bytes out", samples(), (s) => s.bytes_out_per_s, f.perSecond)),
    );
    page.keepFocus(() => {
      replace(parts.brokers, brokers(view));
      replace(parts.quorum, quorum(view));
    });
    replace(parts.remote, remote(view));
    page.missing(view.missing);
    changes(view);
  }
  async function load() {
    const view = await page.get("overview");
    const isFirst = history === null;
    if (isFirst) history = view.samples;
    draw((isFirst && live.latest) || view);
  }
  page.show(
    h("h1", { tabindex: "-1" }, "Overview"),
    parts.totals,
    parts.plots,
    card("Brokers", parts.brokers),
    h("div", { class: "grid" }, card("Quorum", parts.quorum), card("Recent changes", parts.changes)),
    card("Remote storage", parts.remote),
  );
  page.onEnd(live.listen((now) => now.latest && now.connected && draw(now.latest)));
  await page.every(5000, async () => (history && live.connected) || load());
}
