"use strict";
// The states: flat, from JSON pointers to values, made from the changes of each event.

const DATA = JSON.parse(document.getElementById("data").textContent);
const LAST = DATA.steps.length;
const EVERY = 64; // a state is kept each so many events
const RECORDED = DATA.steps.every((step) => step.changed !== null);
const FOUND = DATA.findings[0];
const ENGINES = new Map(DATA.engines.map((engine) => [engine.name, engine]));
const kept = new Map([[0, DATA.initial]]);
const recent = new Map();
const nestedStates = new Map();

function flatAt(number) {
  let from = number;
  while (!kept.has(from) && !recent.has(from)) from--;
  const state = { ...(kept.get(from) ?? recent.get(from)) };
  for (let i = from; i < number; i++) {
    const { changed, removed } = DATA.steps[i];
    for (const pointer of removed) delete state[pointer];
    Object.assign(state, changed);
    if ((i + 1) % EVERY === 0) kept.set(i + 1, { ...state });
  }
  recent.set(number, state);
  return state;
}

function stateAt(number) {
  if (!nestedStates.has(number)) {
    if (nestedStates.size > 400) { nestedStates.clear(); recent.clear(); }
    nestedStates.set(number, looked(nested(flatAt(number))));
  }
  return nestedStates.get(number);
}

const namesIn = (pointer) => pointer.split("/").map((n) => n.replace(/~1/g, "/").replace(/~0/g, "~"));

function nested(flat) {
  const root = { engines: {}, transfers: {} };
  for (const [pointer, value] of Object.entries(flat)) {
    const names = namesIn(pointer).slice(1);
    let place = root;
    for (const name of names.slice(0, -1)) place = place[name] ??= {};
    place[names[names.length - 1]] = value;
  }
  return root;
}

// What a state says of each block: the requests with it in a table, and the transfers that name it.

function looked(state) {
  state.owners = {};
  state.flights = {};
  for (const [name, engine] of Object.entries(state.engines)) {
    const owners = state.owners[name] = new Map();
    for (const [request, { tables }] of Object.entries(engine.requests ?? {}))
      for (const block of (tables ?? []).flat()) note(owners, block, request);
    state.flights[name] = new Map();
  }
  for (const [name, transfer] of Object.entries(state.transfers)) {
    const sides = DATA.transfers[name];
    if (!sides) continue;
    for (const block of (transfer.remote ?? []).flat()) note(state.flights[sides.sender.engine], block, name);
    for (const block of (transfer.local ?? []).flat()) note(state.flights[sides.receiver.engine], block, name);
  }
  return state;
}

function note(map, block, name) {
  if (!map || block === 0) return;
  const names = map.get(block) ?? [];
  if (!names.includes(name)) map.set(block, [...names, name]);
}

const functionsOf = (step) => (step.functions.length ? ` Called in vLLM: ${step.functions.join(", ")}.` : "");
const and = (names) => names.join(" and ");
