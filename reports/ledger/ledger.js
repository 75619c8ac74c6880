// The page: what is broken, the list of events, and moving among them.

function $(id) { return document.getElementById(id); }

function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function eventList() {
  const shown = new Set(visible()), items = [];
  let run = [];
  const fold = () => {
    if (run.length) items.push(folded(run[0], run[run.length - 1]));
    run = [];
  };
  DATA.steps.forEach((step, index) => {
    if (!shown.has(index + 1)) { run.push(index + 1); return; }
    fold();
    items.push(listed(step, index + 1));
  });
  fold();
  $("events").replaceChildren(...items);
  const current = $("events").querySelector(".now");
  if (current) $("events").scrollTop = current.offsetTop - $("events").offsetTop - 100;
}

function folded(first, last) {
  const label = (number) => DATA.steps[number - 1].label;
  const text = first === last ? `event ${label(first)} does not matter here` : `events ${label(first)} to ${label(last)} do not matter here`;
  const item = make("li", undefined, { class: "fold" }), button = make("button", text, { type: "button", title: "Show all events" });
  button.addEventListener("click", () => { $("all").checked = true; go(now); });
  item.append(button);
  return item;
}

function listed(step, number) {
  const item = make("li"), button = make("button", `${step.label}  ${step.text}`, { type: "button" });
  if (number === now) { item.classList.add("now"); button.setAttribute("aria-current", "step"); }
  if (!step.near) item.classList.add("far");
  if (step.found.length) item.classList.add("bad");
  explained(button, eventWords(number));
  button.addEventListener("click", () => go(number));
  item.append(button);
  return item;
}

const EVENTS = DATA.steps.filter((step) => step.label !== "end").length;

function go(number) {
  now = Math.min(Math.max(number, 0), LAST);
  $("slider").value = now;
  const step = DATA.steps[now - 1];
  $("event").textContent = !step ? `Before the first of ${EVENTS} events`
    : step.label === "end" ? `The end: ${step.text}` : `Event ${step.label} of ${EVENTS}: ${step.text}`;
  $("cell").textContent = eventWords(now);
  $("slider").setAttribute("aria-valuetext", $("event").textContent);
  if (RECORDED) { ledger(); transfers(); }
  eventList();
}

// The next event that matters, in a direction.

function nearest(by) {
  let number = now + by;
  while (number > 0 && number < LAST && !DATA.steps[number - 1].near) number += by;
  return number;
}

const KEYS = { ArrowLeft: () => go(now - 1), ArrowRight: () => go(now + 1), Home: () => go(0), End: () => go(LAST),
  PageUp: () => go(nearest(-1)), PageDown: () => go(nearest(1)) };
const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function pressed(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key in MOVES && move(...MOVES[event.key])) event.preventDefault();
  else if (event.key in KEYS) { KEYS[event.key](); event.preventDefault(); }
}

function broken(finding) {
  const part = make("section", undefined, { class: "finding" });
  part.append(make("p", `BROKEN: ${finding.name}${finding.severity ? ` (severity: ${finding.severity})` : ""}`, { class: "broken" }),
    make("p", finding.must));
  const reasons = make("ul");
  reasons.append(...finding.reasons.map((reason, i) => {
    const item = make("li");
    item.append(make("b", i + 1 === finding.reasons.length ? "yet " : "because "), reason);
    return item;
  }));
  const step = DATA.steps[finding.step - 1], where = make("p", "Where: ");
  const button = make("button", `event ${step.label}`, { type: "button" });
  button.addEventListener("click", () => go(finding.step));
  const fault = DATA.at_fault.length ? ` In vLLM, at fault: ${DATA.at_fault.join(", ")}.` : "";
  where.append(button, `, ${step.text}.${fault || (DATA.hang ? "" : functionsOf(step))}`);
  part.append(reasons, where);
  return part;
}

// A hang: who waits for what, each with a button to its last cell, and what repeats.

function hang() {
  if (!DATA.hang) return;
  const { begins, waits } = DATA.hang, part = make("section", undefined, { class: "hang" });
  part.append(make("h2", "Who waits for what, without end"), waitPicture(waits));
  const list = make("ul");
  if (!DATA.hang.printed) list.append(...waits.map((wait) => make("li", wait.words, wait.root ? { class: "root" } : {})));
  part.append(list);
  if (begins) {
    const loop = make("p", "Repeats for ever: "), first = DATA.steps[begins - 1];
    const button = make("button", begins === LAST ? `event ${first.label}` : `events ${first.label} to ${DATA.steps[LAST - 1].label}`, { type: "button" });
    button.addEventListener("click", () => go(begins));
    loop.append(button, `, ${[...new Set(DATA.steps.slice(begins - 1).map((step) => step.text))].join("; ")}.`);
    part.append(loop);
  }
  $("hang").append(part);
}

// An arrow from each request to what it waits for.

function waitPicture(waits) {
  const chain = make("div", undefined, { class: "chain", "aria-hidden": "true" });
  for (const wait of waits) {
    const line = make("p");
    line.append(make("span", `${wait.request} on ${wait.engine}`, { class: wait.root ? "box stuck" : "box waits" }), " \u2192 ",
      make("span", wait.on.length ? `${wait.on[1]} on ${wait.on[0]}` : `lacks ${wait.lack}`, { class: "box" }));
    chain.append(line);
  }
  return chain;
}

function begin() {
  document.title = FOUND ? `${FOUND.name}: block ledger` : "kvproof: block ledger";
  if (FOUND) $("verdict").append(broken(FOUND));
  else $("verdict").append(make("p", "No invariant is broken in this trace."));
  hang();
  if (DATA.replay) $("replay").append(DATA.replay.split(": ")[0] + ": ", make("code", DATA.replay.split(": ").slice(1).join(": ")));
  $("title").textContent = DATA.title;
  $("notes").replaceChildren(...DATA.notes.map((text) => make("p", text)));
  if (!RECORDED) $("ledger").textContent = "The states were not recorded.";
  $("slider").max = LAST;
  $("slider").addEventListener("input", () => go(Number($("slider").value)));
  for (const [id, key] of [["first", "Home"], ["before", "PageUp"], ["back", "ArrowLeft"], ["next", "ArrowRight"], ["after", "PageDown"], ["last", "End"]])
    $(id).addEventListener("click", KEYS[key]);
  $("all").addEventListener("change", () => go(now));
  document.addEventListener("keydown", pressed);
  window.addEventListener("resize", () => { if (RECORDED) ledger(); });
  go(FOUND ? FOUND.step : LAST);
  $("transfers").parentElement.classList.toggle("first", Boolean($("transfers").querySelector(".wrong")));
}

begin();
