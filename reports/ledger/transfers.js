// Transfers: the blocks of both sides above the tokens that they hold, so that a shift is seen.

const NARROW = 34, HEIGHT = 34, LEFT = 56; // the least width of a block, its height, and where the first one begins

function transfers() {
  const state = stateAt(now), parts = Object.entries(state.transfers).flatMap(([name, transfer]) => oneTransfer(name, transfer, state));
  $("transfers").replaceChildren(...(parts.length ? parts : [make("p", "There is none after this event.", { class: "far" })]));
}

function oneTransfer(name, transfer, state) {
  const { sender, receiver } = DATA.transfers[name];
  const from = sender.engine, to = receiver.engine;
  const parts = [make("p", `${name}: ${from} to ${to}, ${transfer.phase}, ${transfer.tokens} tokens offered`)];
  const counted = disagrees(name, state);
  if (counted) parts[0].append(make("b", `, but ${to} counts ${counted}`, { class: "wrong" }));
  if (transfer.pairs?.length)
    transfer.pairs.forEach(([local, remote], group) => {
      if (local.length || remote.length) parts.push(make("p", caption(sender, receiver, group), { class: "far" }), picture(name, group, local, remote, state));
    });
  else for (const [who, lists] of [[from, transfer.remote], [to, transfer.local]])
    if (lists?.length) parts.push(make("p", `blocks of ${who}: ${tables(lists)}`, { class: "far" }));
  return parts;
}

// How many tokens the receiver counts as computed, where a finding says that it must be another number.

function disagrees(name, state) {
  const { engine, request } = DATA.transfers[name]?.receiver ?? {};
  const found = DATA.findings.some((f) => f.name === "prefill_and_decode_agree" && f.step === now && f.engine === engine && f.request === request);
  return found ? state.engines[engine].requests?.[request]?.computed : 0;
}

// Where a kernel block begins, in tokens of its request: by the block table, or else by its place in the list.

function places(side, list, whole, group, state) {
  const engine = ENGINES.get(side.engine), size = engine.sizes[group] / engine.split;
  const table = state.engines[side.engine].requests?.[side.request]?.tables?.[group] ?? whole?.[group] ?? [];
  return list.map((block, i) => {
    const logical = Math.floor(block / engine.split), index = table.indexOf(logical), part = block % engine.split;
    const at = index < 0 ? i * size : index * engine.sizes[group] + part * size;
    const held = (state.engines[side.engine].memory?.[logical]?.slots ?? []).filter(Boolean).at(-1) ?? "";
    return engine.split === 1 ? { block, at, size, small: block ? held : "null", named: `block ${block}${held ? `, which holds “${held}”,` : ""}` }
      : { block, at, size, small: `of ${logical}`, named: `kernel block ${block}, which is part ${part + 1} of block ${logical},` };
  });
}

// The kernel blocks of a side that the connector's worker leaves out of the pairs.

function leftOut(side, list, whole, group, state) {
  const { split } = ENGINES.get(side.engine), all = (whole?.[group] ?? []).filter(Boolean);
  const kernel = all.flatMap((block) => Array.from({ length: split }, (_, part) => block * split + part));
  return places(side, kernel.filter((block) => !list.includes(block)), whole, group, state);
}

function draw(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function picture(name, group, local, remote, state) {
  const { sender, receiver } = DATA.transfers[name], transfer = state.transfers[name];
  const above = places(sender, remote, transfer.remote, group, state), below = places(receiver, local, transfer.local, group, state);
  const out = [leftOut(sender, remote, transfer.remote, group, state), leftOut(receiver, local, transfer.local, group, state)];
  const pairs = above.slice(0, below.length).map((a, i) => [a, below[i]]), mamba = ENGINES.get(sender.engine).kinds[group] === "mamba";
  const shifted = ([a, b]) => (mamba ? disagrees(name, state) > 0 : a.at !== b.at), wrong = (pair) => shifted(pair) || pair.some((each) => !each.block);
  const all = [...above, ...below, ...out.flat()], begin = Math.min(...all.map((each) => each.at)), end = Math.max(...all.map((each) => each.at + each.size));
  const step = Math.min(...all.map((each) => each.size)), unit = Math.max(NARROW, Math.min(60, 280 / ((end - begin) / step))) / step;
  const x = (token) => LEFT + (token - begin) * unit, width = x(end) + 12;
  const sentence = `group ${group} of ${name}: the blocks ${remote.join(" ")} of ${sender.engine} go to the blocks ` +
    `${local.join(" ")} of ${receiver.engine}${above.length !== below.length ? ", and the lists are not equally long" : ""}` +
    `${pairs.some(shifted) ? ", and some begin at other tokens" : ""}`;
  const svg = draw("svg", { viewBox: `0 14 ${width} 146`, width, role: "group", "aria-label": sentence });
  for (let token = begin; token <= end; token += step) {
    svg.append(draw("line", { x1: x(token), x2: x(token), y1: 18, y2: 142, class: "rule" }));
    if (token < end) svg.append(draw("text", { x: x(token) + 2, y: 154, class: "token" }, token));
  }
  svg.append(draw("text", { x: 0, y: 154, class: "token" }, "token"));
  [[sender, above, 22, "sends"], [receiver, below, 104, "receives"]].forEach(([side, list, y, verb], row) => {
    svg.append(draw("text", { x: 0, y: y + 15, class: "side" }, side.engine), draw("text", { x: 0, y: y + 29, class: "token" }, verb));
    out[row].forEach((each) => svg.append(box(each, { side, y, x, unit, look: "out", words: `it is left out, and ${verb} nothing.` })));
    list.forEach((each, i) => {
      const look = !pairs[i] || wrong(pairs[i]) ? "wrong" : "";
      const words = !pairs[i] ? `it ${verb} KV, but is paired with no block.` : `it ${verb} KV, and is paired with a block that stands for ` +
        `the tokens from ${pairs[i][1 - row].at} on.${each.block ? "" : " It is the null block, which holds no KV."}`;
      svg.append(box(each, { side, y, x, unit, look, words }));
    });
  });
  for (const [a, b] of pairs) svg.append(arrow(x(a.at) + 12, x(b.at) + 12, wrong([a, b])));
  return svg;
}

function caption(sender, receiver, group) {
  const [from, to] = [sender, receiver].map((side) => ENGINES.get(side.engine).groups[group]);
  const kernel = [sender, receiver].filter((side) => ENGINES.get(side.engine).split > 1).map((side) => `; numbers of ${side.engine} are kernel blocks`);
  return `group ${group}: ${from === to ? from : `${sender.engine} ${from.split(", ").at(-1)}, ${receiver.engine} ${to.split(", ").at(-1)}`}${kernel.join("")}`;
}

function box(each, { side, y, x, unit, look, words }) {
  const part = draw("g", { role: "img", tabindex: "0", class: look });
  part.append(draw("rect", { x: x(each.at) + 1, y, width: each.size * unit - 3, height: HEIGHT, rx: 3 }),
    draw("text", { x: x(each.at) + 6, y: y + 15 }, String(each.block)),
    draw("text", { x: x(each.at) + 6, y: y + 28, class: "token" }, short(each.small, Math.floor((each.size * unit - 10) / 6.5))));
  return explained(part, `Of ${side.engine}, ${each.named} stands for the tokens of ${side.request || "the request"} from ${each.at} on; ${words} ` +
    "In vLLM: the connector's worker trims the two lists and pairs them.");
}

function arrow(from, to, bad) {
  const length = Math.hypot(to - from, 46), [u, v] = [(to - from) / length, 46 / length];
  const part = draw("g", { class: bad ? "arrow wrong" : "arrow" });
  part.append(draw("line", { x1: from, y1: 57, x2: to - u * 6, y2: 103 - v * 6 }),
    draw("path", { d: `M ${to} 103 L ${to - u * 9 - v * 4} ${103 - v * 9 + u * 4} L ${to - u * 9 + v * 4} ${103 - v * 9 - u * 4} Z` }));
  return part;
}
