"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const LAST = DATA.steps.length;
const EVERY = 64; // a state is kept each so many events
const $ = (id) => document.getElementById(id);
const kept = new Map([[0, DATA.initial]]);
const RECORDED = DATA.steps.every((step) => step.changed !== null);
let now = LAST, focus = null;

function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// States: flat, from JSON pointers to values, made from the changes of each event.

function flatAt(number) {
  let from = number;
  while (!kept.has(from)) from--;
  let state = kept.get(from);
  for (let i = from; i < number; i++) {
    const { changed, removed } = DATA.steps[i];
    state = { ...state };
    for (const pointer of removed) delete state[pointer];
    Object.assign(state, changed);
    if ((i + 1) % EVERY === 0) kept.set(i + 1, state);
  }
  return state;
}

const nestedStates = new Map();

function stateAt(number) {
  if (!nestedStates.has(number)) {
    if (nestedStates.size > 400) nestedStates.clear();
    nestedStates.set(number, nested(flatAt(number)));
  }
  return nestedStates.get(number);
}

function nested(flat) {
  const root = { engines: {}, transfers: {} };
  for (const [pointer, value] of Object.entries(flat)) {
    const names = pointer.split("/").slice(1).map((n) => n.replace(/~1/g, "/").replace(/~0/g, "~"));
    let place = root;
    for (const name of names.slice(0, -1)) place = place[name] ??= {};
    place[names[names.length - 1]] = value;
  }
  return root;
}

// What a lane shows of a state: a short text, classes, and a sentence.

const hues = new Map(); // one colour for each request, far from the one before

function hue(name) {
  if (!hues.has(name)) hues.set(name, Math.round(hues.size * 137.5 + 210) % 360);
  return hues.get(name);
}

const STATUS = { waiting: "wait", running: "run", preempted: "preempt", loading: "load", sending: "send", aborted: "abort" };

function short(prefix) {
  const letters = [...prefix];
  return letters.length > 5 ? `…${letters.slice(-4).join("")}` : prefix;
}

function owners(engine, block) {
  return Object.keys(engine.requests ?? {}).filter((name) =>
    (engine.requests[name].tables ?? []).some((table) => table.includes(block)));
}

function inFlight(state, engine, block) {
  return Object.values(state.transfers).some((transfer) =>
    [transfer.remote, transfer.local].some((lists, side) =>
      (lists ?? []).some((list) => list.includes(block)) &&
      engine.name === DATA.engines[side === 0 ? 0 : DATA.engines.length - 1].name));
}

function blockCell(state, name, block) {
  const engine = state.engines[name], fields = engine.blocks?.[block];
  if (fields === undefined) return { text: "", classes: [], words: "No block." };
  const held = owners(engine, block), content = engine.memory?.[block];
  const slots = (content?.slots ?? []).map((slot) => slot || "_").join(" ");
  const classes = [], words = [];
  let text = held.join(" ");
  if (block === 0) { text = "null"; words.push("it is the null block, which holds no KV"); }
  else if (held.length) {
    classes.push("held");
    words.push(`it is in the block table of ${held.join(" and ")}`);
  } else { text = fields.refs ? "?" : "free"; classes.push("free"); words.push("it is in no block table"); }
  if (block !== 0) {
    if (fields.refs !== held.length) text += ` ×${fields.refs}`;
    words.push(`its reference count is ${fields.refs}`);
  }
  if (fields.key) {
    classes.push("cached");
    words.push(`it is in the prefix cache as “${fields.key[1]}” of group ${fields.key[0]}`);
  }
  const last = (content?.slots ?? []).filter(Boolean).at(-1) ?? "";
  const small = fields.key ? `${short(fields.key[1])} (${fields.key[0]})` : last ? `${short(last)}` : "";
  if (slots) words.push(`it holds ${slots} (group ${content.group})`);
  if (inFlight(state, { name }, block)) { classes.push("flight"); words.push("a transfer names it"); }
  return { text, small, classes, hue: held.length ? hue(held[0]) : null, words: `block ${block} of ${name}: ${words.join("; ")}.`,
    same: JSON.stringify([fields, content, held]) };
}

function requestCell(state, name, request) {
  const fields = state.engines[name].requests?.[request];
  if (!fields) return { text: "", classes: ["far"], words: `${request} is not on ${name}.`, same: "" };
  const words = [`${request} on ${name} is ${fields.status}`,
    `${fields.computed} tokens are computed (num_computed_tokens)`,
    `its prompt has ${[...(fields.prompt ?? "")].length} tokens`,
    `its blocks are ${tables(fields.tables)}`];
  if (fields.num_cached_blocks?.length) words.push(`num_cached_blocks is ${fields.num_cached_blocks.join(", ")}`);
  return { text: `${STATUS[fields.status] ?? fields.status} ${fields.computed}`, classes: ["held"], hue: hue(request),
    words: `${words.join("; ")}.`, same: JSON.stringify(fields) };
}

const tables = (lists) =>
  (lists?.length ? lists.map((list, group) => `(${group}) ${list.join(" ") || "none"}`).join(" | ") : "none");

// The ledger: a lane for each request and block, a column for each event around the current one.

function lanes(engine, wide) {
  const names = new Set(), used = new Set(), all = $("all").checked;
  for (const number of wide) {
    const state = stateAt(number), here = state.engines[engine.name];
    Object.keys(here.requests ?? {}).forEach((name) => names.add(name));
    for (let block = 0; block < engine.blocks; block++) {
      const cell = blockCell(state, engine.name, block);
      if (block && !(cell.text === "free" && !cell.classes.includes("cached"))) used.add(block);
    }
  }
  const blocks = [...Array(engine.blocks).keys()].filter((block) => all || used.has(block));
  return { requests: [...names], blocks, left: engine.blocks - blocks.length };
}

function columns() {
  const room = Math.max(4, Math.floor(($("ledger").clientWidth - 90) / 62));
  const begin = Math.max(0, Math.min(now - Math.ceil(room * 0.7), LAST - room + 1));
  return Array.from({ length: Math.min(room, LAST + 1) }, (_, i) => begin + i).filter((n) => n <= LAST);
}

function heading(number) {
  const head = make("th", number === 0 ? "start" : String(number), { scope: "col" });
  if (number === now) { head.classList.add("now"); head.setAttribute("aria-current", "step"); }
  if (number === LAST && DATA.finding) head.classList.add("bad");
  if (number === DATA.point) head.classList.add("edge");
  head.title = number ? DATA.steps[number - 1].text : "before the first event";
  return head;
}

function lane(title, wide, cellOf, row, body) {
  const line = make("tr");
  line.append(make("th", title, { scope: "row" }));
  wide.forEach((number, column) => {
    const cell = cellOf(stateAt(number));
    const before = number ? cellOf(stateAt(number - 1)) : cell;
    const box = make("td", cell.text, { tabindex: "-1", "aria-label": `after event ${number}, ${cell.words}` });
    if (cell.small) box.append(make("small", cell.small));
    box.classList.add(...cell.classes);
    if (cell.hue != null) box.style.setProperty("--hue", cell.hue);
    if (cell.same !== before.same) box.classList.add("changed");
    if (number === DATA.point) box.classList.add("edge");
    const sentence = `After event ${number}, ${cell.words}${before.same !== cell.same ? ` Before: ${before.words}` : ""}`;
    const show = () => explain(sentence, number);
    box.addEventListener("mouseenter", show);
    box.addEventListener("focus", () => { focus = [row, column]; show(); });
    box.addEventListener("click", () => go(number));
    line.append(box);
  });
  body.append(line);
}

function explain(text, number) {
  const step = DATA.steps[number - 1];
  $("cell").textContent = step ? `${text} Event ${number}: ${step.text}. In vLLM: ${step.functions.join(", ")}.` : text;
}

function ledger() {
  const wide = columns();
  $("ledger").replaceChildren(...DATA.engines.map((engine) => {
    const part = make("div", undefined, { class: "engine" }), table = make("table");
    const caption = make("caption", `${engine.name} `);
    caption.append(make("small", engine.groups.map((g, i) => `(${i}) ${g}`).join("; ")));
    const head = make("thead"), body = make("tbody"), top = make("tr");
    top.append(make("th", "after event", { scope: "col" }), ...wide.map(heading));
    head.append(top);
    const { requests, blocks, left } = lanes(engine, wide);
    let row = 0;
    for (const request of requests)
      lane(request, wide, (state) => requestCell(state, engine.name, request), row++, body);
    for (const block of blocks)
      lane(`block ${block}`, wide, (state) => blockCell(state, engine.name, block), row++, body);
    table.append(caption, head, body);
    part.append(table);
    if (left) part.append(make("p", `${left} further blocks are free, or the null block, in all of these columns.`, { class: "far" }));
    return part;
  }));
  const first = document.querySelector("#ledger td");
  if (first) first.tabIndex = 0;
}

// Transfers: the blocks of both sides above the tokens that they hold, so that a shift is seen.

function transfers() {
  const state = stateAt(now), pictures = [];
  for (const [name, transfer] of Object.entries(state.transfers)) {
    pictures.push(make("p", `${name}: ${transfer.phase}, ${transfer.tokens} tokens offered`));
    (transfer.pairs ?? []).forEach(([to, from], group) => {
      if (to.length || from.length) pictures.push(picture(name, group, to, from, state));
    });
  }
  $("transfers").replaceChildren(...(pictures.length ? pictures : [make("p", "none", { class: "far" })]));
}

function picture(name, group, to, from, state) {
  const [p, d] = [DATA.engines[0], DATA.engines[DATA.engines.length - 1]];
  const place = (engine, block) => {
    const table = state.engines[engine.name].requests?.[name]?.tables?.[group] ?? [];
    const index = table.indexOf(Math.floor(block / engine.split));
    const size = engine.sizes[group] / engine.split;
    return { at: index < 0 ? null : index * engine.sizes[group] + (block % engine.split) * size, size };
  };
  const many = Math.max(to.length, from.length), sides = [from.map((b) => place(p, b)), to.map((b) => place(d, b))];
  sides.forEach((side) => side.forEach((each, i) => { each.at ??= i * each.size; }));
  const end = Math.max(...sides.flat().map((each) => each.at + each.size), 1), unit = 320 / end;
  const draw = (tag, attributes, text) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const shifted = Array.from({ length: many }, (_, i) => sides[0][i]?.at !== sides[1][i]?.at);
  const wrong = shifted.some(Boolean) && DATA.engines[0].kinds[group] !== "mamba";
  const svg = draw("svg", { viewBox: "0 0 360 118", role: "img", "aria-label":
    `group ${group} of ${name}: P's blocks ${from.join(" ")} go to D's blocks ${to.join(" ")}` +
    (wrong ? ", and some begin at other tokens" : "") });
  [[p.name, from, 14], [d.name, to, 80]].forEach(([who, list, y], side) => {
    svg.append(draw("text", { x: 0, y: y + 15 }, who));
    list.forEach((block, i) => {
      const { at, size } = sides[side][i];
      svg.append(draw("rect", { x: 24 + at * unit, y, width: Math.max(size * unit - 2, 8), height: 22, rx: 3,
        fill: "none", stroke: "currentColor" }));
      svg.append(draw("text", { x: 24 + at * unit + 4, y: y + 15 }, String(block)));
      svg.append(draw("text", { x: 24 + at * unit, y: side ? y + 33 : y - 3, class: "token" }, `token ${at}`));
    });
  });
  for (let i = 0; i < Math.min(to.length, from.length); i++) {
    const [a, b] = [sides[0][i], sides[1][i]];
    svg.append(draw("line", { x1: 24 + a.at * unit + 8, y1: 38, x2: 24 + b.at * unit + 8, y2: 78,
      stroke: shifted[i] && wrong ? "var(--bad)" : "currentColor", "stroke-width": shifted[i] && wrong ? 3 : 1.5 }));
  }
  return svg;
}

// Events, and moving among them.

function eventList() {
  const all = $("all").checked, items = [];
  let run = [];
  const fold = () => {
    if (run.length) items.push(make("li", run.length === 1 ? `event ${run[0]} does not matter here`
      : `events ${run[0]} to ${run[run.length - 1]} do not matter here`, { class: "fold" }));
    run = [];
  };
  DATA.steps.forEach((step, index) => {
    const number = index + 1;
    if (!all && !step.near && number !== now) { run.push(number); if (number === DATA.point) { fold(); items.at(-1).classList.add("edge"); } return; }
    fold();
    const item = make("li", step.text, { value: number });
    if (!step.near) item.classList.add("far");
    if (number === now) item.classList.add("now");
    if (number === LAST && DATA.finding) item.classList.add("bad");
    if (number === DATA.point) { item.classList.add("edge"); item.title = "From here on the violation could no longer be avoided."; }
    item.addEventListener("click", () => go(number));
    items.push(item);
  });
  fold();
  $("events").replaceChildren(...items);
  const current = $("events").querySelector(".now");
  if (current) $("events").scrollTop = current.offsetTop - $("events").offsetTop - 100;
}

function go(number) {
  now = Math.min(Math.max(number, 0), LAST);
  $("slider").value = now;
  const step = DATA.steps[now - 1];
  $("event").textContent = step ? `Event ${now} of ${LAST}: ${step.text}` : `Before the first of ${LAST} events`;
  if (RECORDED) { ledger(); transfers(); }
  eventList();
}

function move(rows, columnsBy) {
  const boxes = [...document.querySelectorAll("#ledger tbody tr")].map((line) => [...line.querySelectorAll("td")]);
  const box = document.activeElement, row = boxes.findIndex((line) => line.includes(box));
  if (row < 0) return false;
  const next = boxes[row + rows]?.[boxes[row].indexOf(box) + columnsBy];
  if (next) next.focus();
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.target.matches?.("input[type=checkbox], button") || event.ctrlKey || event.altKey || event.metaKey) return;
  const keys = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  if (event.key in keys && move(...keys[event.key])) { event.preventDefault(); return; }
  if (event.key === "ArrowLeft") go(now - 1);
  else if (event.key === "ArrowRight") go(now + 1);
  else if (event.key === "Home") go(0);
  else if (event.key === "End") go(LAST);
  else return;
  event.preventDefault();
});

function begin() {
  const found = DATA.finding;
  document.title = found ? `${found.name}: block ledger` : "kvproof: block ledger";
  $("verdict").textContent = found ? `BROKEN: ${found.name}${found.severity ? `: ${found.severity}` : ""}` : "No invariant is broken in this trace.";
  if (found) {
    $("verdict").className = "broken";
    $("must").textContent = found.must;
    $("reasons").replaceChildren(...found.reasons.map((reason, i) =>
      make("li", `${i + 1 === found.reasons.length ? "yet" : "because"} ${reason}`)));
    const step = DATA.steps[LAST - 1];
    $("where").textContent = `Event ${LAST}: ${step.text}. In vLLM: ${step.functions.join(", ")}.`;
  }
  $("replay").append(make("code", DATA.replay), make("small", ` ${DATA.title}`));
  if (!RECORDED) $("ledger").textContent = "The states were not recorded.";
  $("legend").textContent = "A cell of a block names the requests that hold it; × is a reference count that differs from " +
    "their number. A bar below: it is in the prefix cache. A dotted frame: a transfer names it. A thick frame: the event " +
    "changed it. The double red line: from there on the violation could no longer be avoided. Left and right arrows move " +
    "from event to event; Tab and the arrow keys move among cells.";
  $("slider").max = LAST;
  $("slider").addEventListener("input", () => go(Number($("slider").value)));
  $("first").addEventListener("click", () => go(0));
  $("back").addEventListener("click", () => go(now - 1));
  $("next").addEventListener("click", () => go(now + 1));
  $("last").addEventListener("click", () => go(LAST));
  $("all").addEventListener("change", () => go(now));
  window.addEventListener("resize", () => { if (RECORDED) ledger(); });
  go(LAST);
}

begin();
