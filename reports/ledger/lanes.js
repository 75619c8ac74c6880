// The ledger: a lane for each request and block, a column for each event around the current one.

const COLUMN = 87, LANES_MAX = 120, REQUESTS_MAX = 40;
let now = LAST;

const wants = () => $("all").checked;

function visible() {
  const must = new Set([0, now, FOUND?.step, LAST]);
  return [...Array(LAST + 1).keys()].filter((n) => wants() || must.has(n) || DATA.steps[n - 1].near);
}

function columns() {
  const room = Math.max(3, Math.floor(($("ledger").clientWidth - 102) / COLUMN)), shown = visible();
  const begin = Math.max(0, Math.min(shown.indexOf(now) - Math.ceil(room * 0.7) + 1, shown.length - room));
  return shown.slice(begin, begin + room);
}

function lanes(engine, wide) {
  const requests = new Set(), blocks = new Set();
  for (const number of wide) {
    const state = stateAt(number);
    Object.keys(state.engines[engine.name].requests ?? {}).forEach((name) => requests.add(name));
    const known = state.engines[engine.name].blocks ?? {};
    for (const block of [...state.owners[engine.name].keys(), ...state.flights[engine.name].keys()]) blocks.add(block);
    for (const block of Object.keys(known)) if (known[block].refs || known[block].key) blocks.add(Number(block));
  }
  if (wants()) for (let block = 0; block < engine.blocks; block++) blocks.add(block);
  else blocks.delete(0);
  return { requests: foremost([...requests], REQUESTS_MAX, (name) => isAbout(engine, name)),
    blocks: foremost([...blocks].sort((a, b) => a - b), LANES_MAX, (block) => isAbout(engine, null, block) || blockChanges(engine, block)),
    of: requests.size, ofBlocks: blocks.size };
}

// Of very many lanes, those that the finding is about and those that the current event changes.

function foremost(all, most, matters) {
  if (all.length <= most) return all;
  const first = new Set([...all.filter(matters), ...all].slice(0, most));
  return all.filter((each) => first.has(each));
}

function findingsAbout(engine, request, block) {
  return DATA.findings.filter((f) => f.engine === engine.name && (request ? f.request === request : block !== null && f.block === block));
}

const isAbout = (...lane) => findingsAbout(...lane).length > 0;

function blockChanges(engine, block) {
  const owners = (number) => stateAt(number).owners[engine.name].get(block) ?? [];
  return now > 0 && owners(now - 1).join() !== owners(now).join();
}

function explained(element, sentence, row, column) {
  const show = () => { $("cell").textContent = sentence; };
  element.setAttribute("aria-label", sentence);
  element.addEventListener("mouseenter", show);
  element.addEventListener("focus", show);
  return element;
}

function eventWords(number) {
  const step = DATA.steps[number - 1];
  if (!step) return "The state before the first event.";
  const found = step.found.length ? ` Broken after it: ${step.found.join(", ")}.` : "";
  const far = step.near ? "" : " It does not matter to the finding.";
  const loop = repeats(number) ? " It repeats for ever." : "";
  return `${step.label === "end" ? "The end" : `Event ${step.label}`}: ${step.words}.${found}${far}${loop}${functionsOf(step)}`;
}

const repeats = (number) => Boolean(DATA.hang?.begins) && number >= DATA.hang.begins;

function heading(number, before) {
  const step = DATA.steps[number - 1];
  const head = make("th", step ? step.label : "start", { scope: "col", tabindex: "-1" });
  if (number === now) { head.classList.add("now"); head.setAttribute("aria-current", "step"); }
  if (step && !step.near) head.classList.add("far");
  if (step?.found.length) head.classList.add("bad");
  mark(head, number, before);
  head.addEventListener("mousedown", (event) => event.preventDefault());
  head.addEventListener("click", () => go(number));
  return explained(head, eventWords(number));
}

function mark(box, number, before) {
  if (repeats(number)) box.classList.add("loop");
  if (before !== undefined && number !== before + 1) box.classList.add("gap");
  if (number === now) box.classList.add("current");
}

function lane(title, words, about, wide, cellOf, body, waiting) {
  const line = make("tr"), head = make("th", title, { scope: "row", tabindex: "-1" });
  if (about.length) head.classList.add("about");
  line.append(explained(head, words));
  wide.forEach((number, column) => {
    const cell = cellOf(stateAt(number)), before = number ? cellOf(stateAt(number - 1)) : cell;
    const box = make("td", cell.text, { tabindex: "-1" });
    const hit = number ? hitOf(before, cell) : "";
    if (hit) box.append(make("small", hit));
    if (cell.small) box.append(make("small", cell.small));
    if (cell.wrong) box.append(make("small", cell.wrong, { class: "wrong" }));
    box.classList.add(...cell.classes);
    if (cell.hue != null) box.style.setProperty("--hue", cell.hue);
    const differs = changed(before, cell), step = DATA.steps[number - 1];
    if (differs) box.classList.add("changed");
    mark(box, number, wide[column - 1]);
    if (about.some((finding) => finding.step === number)) box.classList.add("breaks");
    const wait = number === LAST ? waiting : undefined;
    if (wait) {
      box.append(make("small", `lacks ${wait.lack}`, { class: "wrong" }));
      box.classList.add(wait.root ? "stuck" : "waits");
    }
    const when = step ? (step.label === "end" ? "At the end: " : `After event ${step.label}: `) : "At the start: ";
    explained(box, `${when}${cell.words}${wait ? ` It waits for ever: ${wait.words}.` : ""}${differs ? ` Before: ${before.words} Event ${step.label}: ${step.words}.` : ""}` +
      (step ? functionsOf(step) : ""));
    box.addEventListener("mousedown", (event) => event.preventDefault()); // the focus stays, and the arrow keys go on to step
    box.addEventListener("click", () => go(number));
    line.append(box);
  });
  body.append(line);
}

function ledger() {
  const wide = columns(), at = focused();
  $("ledger").replaceChildren(...DATA.engines.map((engine) => engineTable(engine, wide)));
  const cells = grid(), again = at && cells[at[0]]?.[at[1]];
  (again ?? cells[0]?.[0])?.setAttribute("tabindex", "0");
  if (again) again.focus();
}

function engineTable(engine, wide) {
  const part = make("div", undefined, { class: "engine" }), table = make("table", undefined, { "aria-label": `Engine ${engine.name}` });
  const title = make("h2", `Engine ${engine.name} `), groups = engine.groups.map((group, i) => `(${i}) ${group}`).join("; ");
  title.append(make("small", `${engine.role && `${engine.role}; `}${engine.blocks} blocks; groups: ${groups}`));
  const head = make("thead"), body = make("tbody"), top = make("tr");
  top.append(make("th", "after event", { scope: "col" }), ...wide.map((number, i) => heading(number, wide[i - 1])));
  head.append(top);
  const { requests, blocks, of, ofBlocks } = lanes(engine, wide);
  for (const name of requests)
    lane(ending(name), `${name} is a request on engine ${engine.name}. A cell has its status, its number of computed tokens, and its block tables.`,
      findingsAbout(engine, name), wide, (state) => requestCell(state, engine.name, name), body,
      DATA.hang?.waits.find((wait) => wait.engine === engine.name && wait.request === name));
  for (const block of blocks)
    lane(`block ${block}`, `Block ${block} is a KV block in the pool of engine ${engine.name}. A cell names the requests that hold it.`,
      findingsAbout(engine, null, block), wide, (state) => blockCell(state, engine.name, block), body);
  table.append(head, body);
  part.append(title, table);
  const hidden = [[of - requests.length, "request"], [ofBlocks - blocks.length, "used block"]].filter(([n]) => n > 0);
  if (hidden.length) part.append(make("p", `Not shown: ${hidden.map(([n, what]) => `${n} more ${what}s`).join(", ")}.`, { class: "far" }));
  const left = engine.blocks - ofBlocks, what = "free, or the null block,";
  if (left > 0) part.append(make("p", `${left} further ${left === 1 ? "block is" : "blocks are"} ${what} in all of these columns.`, { class: "far" }));
  return part;
}

// Moving among cells: the headings are cells, too.

const grid = () => [...document.querySelectorAll("#ledger tr")].map((line) => [...line.children]);

function focused() {
  const rows = grid(), row = rows.findIndex((line) => line.includes(document.activeElement));
  return row < 0 ? null : [row, rows[row].indexOf(document.activeElement)];
}

function move(rows, columnsBy) {
  const at = focused();
  if (!at) return false;
  const next = grid()[at[0] + rows]?.[at[1] + columnsBy];
  if (next) {
    document.activeElement.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  }
  return true;
}
