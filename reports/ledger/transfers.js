// Transfers: the blocks of both sides above the tokens that they hold, so that a shift is seen.

const NARROW = 26; // the least width of a block

function transfers() {
  const state = stateAt(now), parts = Object.entries(state.transfers).flatMap(([name, transfer]) => oneTransfer(name, transfer, state));
  $("transfers").replaceChildren(...(parts.length ? parts : [make("p", "There is none after this event.", { class: "far" })]));
}

function oneTransfer(name, transfer, state) {
  const { sender, receiver } = DATA.transfers[name] ?? { sender: {}, receiver: {} };
  const from = sender.engine || "another engine", to = receiver.engine || "another engine";
  const tokens = transfer.tokens ?? "an unknown number of";
  const parts = [make("p", `${name}: ${from} to ${to}, ${transfer.phase}, ${tokens} tokens offered`)];
  if (transfer.pairs?.length)
    transfer.pairs.forEach(([local, remote], group) => {
      if (local.length || remote.length) parts.push(picture(name, group, local, remote, state));
    });
  else for (const [who, lists] of [[from, transfer.remote], [to, transfer.local]])
    if (lists?.length) parts.push(make("p", `blocks of ${who}: ${tables(lists)}`, { class: "far" }));
  if (!transfer.pairs && transfer.local)
    parts.push(make("p", "Which blocks are paired is not known: one record does not say it." + (DATA.source === "record" ?
      " Use kvproof join with the records of both engines." : ""), { class: "far" }));
  return parts;
}

// Where a kernel block begins, in tokens of its request: by the block table, or else by its place in the list.

function places(side, list, whole, group, state) {
  const engine = ENGINES.get(side.engine), size = engine.sizes[group] / engine.split;
  const table = state.engines[side.engine].requests?.[side.request]?.tables?.[group] ?? whole?.[group] ?? [];
  return list.map((block, i) => {
    const index = table.indexOf(Math.floor(block / engine.split));
    const at = index < 0 ? i * size : index * engine.sizes[group] + (block % engine.split) * size;
    return { block, at, size, named: engine.split > 1 ? `kernel block ${block} (part ${block % engine.split} of block ${Math.floor(block / engine.split)})` : `block ${block}` };
  });
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
  const pairs = above.slice(0, below.length).map((a, i) => [a, below[i]]);
  const mamba = ENGINES.get(sender.engine).kinds[group] === "mamba";
  const wrong = ([a, b]) => (!mamba && a.at !== b.at) || !a.block || !b.block;
  const all = [...above, ...below], begin = Math.min(...all.map((each) => each.at)), end = Math.max(...all.map((each) => each.at + each.size));
  const step = Math.min(...all.map((each) => each.size)), unit = Math.max(NARROW, Math.min(60, 320 / ((end - begin) / step))) / step;
  const x = (token) => 26 + (token - begin) * unit, width = Math.max(360, x(end) + 6);
  const uneven = above.length !== below.length;
  const sentence = `group ${group} of ${name}: the blocks ${remote.join(" ")} of ${sender.engine} go to the blocks ` +
    `${local.join(" ")} of ${receiver.engine}${uneven ? ", and the lists are not equally long" : ""}` +
    `${pairs.some(([a, b]) => !mamba && a.at !== b.at) ? ", and some begin at other tokens" : ""}`;
  const svg = draw("svg", { viewBox: `0 0 ${width} 140`, width, role: "group", "aria-label": sentence });
  svg.append(draw("text", { x: 0, y: 10, class: "token" }, `group ${group}: ${DATA.engines[0].groups[group]}`));
  for (let token = begin; token <= end; token += step) {
    svg.append(draw("line", { x1: x(token), x2: x(token), y1: 18, y2: 122, class: "rule" }));
    if (token < end) svg.append(draw("text", { x: x(token) + 2, y: 134, class: "token" }, token));
  }
  svg.append(draw("text", { x: 0, y: 134, class: "token" }, "token"));
  for (const [side, list, y, verb] of [[sender, above, 22, "sends"], [receiver, below, 92, "receives"]]) {
    svg.append(draw("text", { x: 0, y: y + 16 }, side.engine));
    list.forEach((each, i) => svg.append(box(each, list === above ? pairs[i] : pairs[i], side, y, verb, x, unit, wrong)));
  }
  for (const [a, b] of pairs) svg.append(arrow(x(a.at) + 12, x(b.at) + 12, wrong([a, b])));
  return svg;
}

function box(each, pair, side, y, verb, x, unit, wrong) {
  const bad = !pair || wrong(pair) || !each.block, other = pair && (pair[0] === each ? pair[1] : pair[0]);
  const sentence = `Of ${side.engine}, ${each.named} ${verb} the KV of ${side.request || "the request"} from token ${each.at} on; ` +
    (pair ? `it is paired with a block that stands for the tokens from ${other.at} on.` : "it is paired with no block.") +
    (each.block ? "" : " It is the null block, which holds no KV.");
  const part = draw("g", { role: "img", tabindex: "0", class: bad ? "wrong" : "" });
  part.append(draw("rect", { x: x(each.at) + 1, y, width: each.size * unit - 3, height: 24, rx: 3 }),
    draw("text", { x: x(each.at) + 6, y: y + 16 }, String(each.block)));
  return explained(part, `${sentence} In vLLM: the connector's worker pairs the block lists.`);
}

function arrow(from, to, bad) {
  const length = Math.hypot(to - from, 42), [u, v] = [(to - from) / length, 42 / length];
  const part = draw("g", { class: bad ? "arrow wrong" : "arrow" });
  part.append(draw("line", { x1: from, y1: 47, x2: to - u * 6, y2: 90 - v * 6 }),
    draw("path", { d: `M ${to} 91 L ${to - u * 9 - v * 4} ${91 - v * 9 + u * 4} L ${to - u * 9 + v * 4} ${91 - v * 9 - u * 4} Z` }));
  return part;
}
