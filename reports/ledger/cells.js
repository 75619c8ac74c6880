// What a lane shows of a state: a short text, classes, a sentence, and facts.

const HUES = [210, 140, 280, 40, 180, 320, 90, 250]; // none is red, the colour of what is broken
const hues = new Map(); // a colour for each request, in the order in which they come

function hue(name) {
  if (!hues.has(name)) hues.set(name, HUES[hues.size % HUES.length]);
  return hues.get(name);
}

for (const changed of [DATA.initial, ...DATA.steps.map((step) => step.changed ?? {})])
  for (const pointer of Object.keys(changed)) {
    const [, engines, , requests, name] = namesIn(pointer);
    if (engines === "engines" && requests === "requests") hue(name);
  }

const STATUS = { waiting: "wait", running: "run", preempted: "preempt", loading: "load", sending: "send", loaded: "ready", aborted: "abort" };

function short(prefix, most = 7) {
  const letters = [...prefix];
  return letters.length > most ? `…${letters.slice(1 - most).join("")}` : prefix;
}

// Long names are cut: they differ at their ends.

const ending = (name) => (name.length > 11 ? `…${name.slice(-8)}` : name);

function blockCell(state, name, block) {
  const engine = state.engines[name], fields = engine.blocks?.[block] ?? {};
  if (block === 0) return { text: "null", classes: ["free"], words: `Block 0 of ${name} is the null block, which holds no KV.`, facts: {} };
  const held = state.owners[name].get(block) ?? [], flights = state.flights[name].get(block) ?? [];
  const content = engine.memory?.[block], words = [], classes = [];
  const cell = { text: held.map(ending).join(" "), small: "", classes, hue: held.length ? hue(held[0]) : null };
  if (held.length) {
    classes.push("held");
    words.push(`it is in the block table of ${and(held)} (req_to_blocks)`);
  } else {
    classes.push("free");
    cell.text = fields.refs ? "?" : "free";
    words.push("it is in no block table");
  }
  references(fields, held, cell, words);
  cached(fields, content, cell, words);
  holds(content, words);
  if (flights.length) {
    classes.push("flight");
    words.push(`the transfer of ${and(flights)} names it`);
  }
  cell.words = `Block ${block} of ${name}: ${words.join("; ")}.`;
  cell.facts = { held, refs: fields.refs, key: fields.key, content, flights };
  return cell;
}

function references(fields, held, cell, words) {
  if (fields.refs !== held.length) {
    cell.text += ` ×${fields.refs}`;
    cell.classes.push("miscounted");
  }
  words.push(`its reference count (ref_cnt) is ${fields.refs}`);
}

function cached(fields, content, cell, words) {
  const last = (content?.slots ?? []).filter(Boolean).at(-1) ?? "";
  if (fields.key) {
    cell.classes.push("cached");
    cell.small = `${short(fields.key[1])} (${fields.key[0]})`;
    words.push(`it is in the prefix cache as “${fields.key[1]}” of group ${fields.key[0]} (block_hash)`);
    if (last && !content.slots.includes(fields.key[1])) {
      cell.wrong = `holds ${short(last)}`;
      words.push("which is not what it holds");
    }
  } else {
    cell.small = last ? short(last) : "";
    words.push("it is not in the prefix cache");
  }
}

function holds(content, words) {
  if (content?.slots?.some(Boolean))
    words.push(`its slots hold ${content.slots.map((slot) => (slot ? `“${slot}”` : "nothing")).join(", ")} (group ${content.group})`);
  else words.push("it holds nothing");
}

function requestCell(state, name, request) {
  const fields = state.engines[name].requests?.[request];
  if (!fields) return { text: "", classes: ["far"], words: `${request} is not on ${name}.`, facts: { there: false } };
  const words = [`${request} on ${name} is ${fields.status}`];
  words.push(`${fields.computed} of its tokens are computed (num_computed_tokens)`);
  words.push(`its prompt has ${[...fields.prompt].length} tokens`);
  words.push(`its admission hit ${fields.hit} tokens and loads ${fields.external}`);
  words.push(`its blocks are ${tables(fields.tables)}`);
  if (fields.num_cached_blocks?.length) words.push(`num_cached_blocks is ${fields.num_cached_blocks.join(", ")}`);
  const small = fields.tables.map((list) => list.join(" ") || "–").join(" | ");
  return { text: `${STATUS[fields.status] ?? fields.status} ${fields.computed}`, small: fields.tables.flat().length ? small : "", classes: ["held"],
    hue: hue(request), words: `${words.join("; ")}.`, facts: { there: true, ...fields } };
}

const tables = (lists) =>
  (lists?.length ? lists.map((list, group) => `(${group}) ${list.join(" ") || "none"}`).join(" | ") : "none");

// What an admission took from the prefix cache, in the column of the admission.

const OUTSIDE = [undefined, "waiting", "preempted"];

function hitOf(before, cell) {
  const { hit, status } = cell.facts;
  return hit !== undefined && OUTSIDE.includes(before.facts.status) && !OUTSIDE.includes(status) ? `hit ${hit}` : "";
}

// Whether an event changed a cell. A field that there is only before or only after says nothing.

function changed(before, after) {
  const names = new Set([...Object.keys(before.facts), ...Object.keys(after.facts)]);
  if (before.facts.there !== after.facts.there) return true;
  return [...names].some((name) => before.facts[name] !== undefined && after.facts[name] !== undefined &&
    JSON.stringify(before.facts[name]) !== JSON.stringify(after.facts[name]));
}
