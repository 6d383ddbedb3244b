"use strict";
// The graph of waits, drawn from left to right: who waits, for what, and where the waits end. Nodes that are alike are
// one (the tool has merged them).

const GRAPH = {
  width: 214,
  gapX: 66,
  gapY: 16,
  letters: 28,
  line: 15,
  lines: 4
};

// The layer of each node: to the right of all that wait for it, but for the edges that close a circle, which `back`
// names.
function layersOf(count, edges) {
  const out = Array.from({length: count}, () => []), state = new Uint8Array(count), order = [], back = new Set();
  const waited = new Uint8Array(count);
  edges.forEach(([from, to], e) => {
    if (from === to) back.add(e);
    else out[from].push([to, e]);
  });
  const visit = start => {
    const path = [[start, 0]];
    state[start] = 1;
    while (path.length) {
      const top = path[path.length - 1], next = out[top[0]][top[1]++];
      if (!next) {
        state[top[0]] = 2;
        order.push(top[0]);
        path.pop();
      } else if (state[next[0]] === 1) {
        back.add(next[1]);
      } else if (!state[next[0]]) {
        state[next[0]] = 1;
        path.push([next[0], 0]);
      }
    }
  };
  for (let n = 0; n < count; n++)
    if (!state[n]) visit(n);
  const layer = new Int32Array(count);
  const forward = n => out[n].filter(([, e]) => !back.has(e)).map(([to]) => to);
  for (const n of order.reverse())
    for (const to of forward(n)) {
      layer[to] = Math.max(layer[to], layer[n] + 1);
      waited[to] = 1;
    }
  // What nobody waits for stands next to what it waits for.
  for (let n = 0; n < count; n++)
    if (!waited[n] && forward(n).length) layer[n] = Math.min(...forward(n).map(to => layer[to])) - 1;
  return {layer, back};
}

// The layers, top to bottom, of nodes and of bends: an edge over several layers has a bend in each of those between, so
// that it passes no node. Bends have the numbers after those of the nodes; bends[e]: those of edge e.
function withBends(count, edges, {layer, back}) {
  const layers = [], bends = [], near = [];
  const put = (n, at) => {
    (layers[at] = layers[at] || []).push(n);
  };
  const join = (a, b) => {
    (near[a] = near[a] || []).push(b);
    (near[b] = near[b] || []).push(a);
  };
  for (let n = 0; n < count; n++) put(n, layer[n]);
  let next = count;
  edges.forEach(([from, to], e) => {
    bends[e] = [];
    if (back.has(e)) return;
    let last = from;
    for (let at = layer[from] + 1; at < layer[to]; at++) {
      bends[e].push(next);
      put(next, at);
      join(last, next);
      last = next++;
    }
    join(last, to);
  });
  return {layers: Array.from(layers, l => l || []), bends, near};
}

// Orders each layer so that few edges cross: everything goes to the mean place of its neighbours, a few times.
function untangle(layers, near) {
  const place = new Map();
  const note = layer => layer.forEach((n, i) => place.set(n, (i + 0.5) / layer.length));
  layers.forEach(note);
  for (let round = 0; round < 8; round++)
    for (const layer of round % 2 ? [...layers].reverse() : layers) {
      const means = new Map(layer.map(n => {
        const all = near[n] || [n];
        return [n, all.reduce((sum, m) => sum + place.get(m), 0) / all.length];
      }));
      layer.sort((a, b) => means.get(a) - means.get(b));
      note(layer);
    }
}

// The label in lines of a fixed number of letters.
function wrapped(label) {
  const lines = [];
  let line = "";
  const words = label.split(" ").flatMap(word => word.match(new RegExp(`.{1,${GRAPH.letters}}`, "gu")) || []);
  for (const word of words) {
    if (line && line.length + 1 + word.length > GRAPH.letters) {
      lines.push(line);
      line = word;
    } else {
      line = line ? `${line} ${word}` : word;
    }
  }
  lines.push(line);
  if (lines.length <= GRAPH.lines) return lines;
  return [...lines.slice(0, GRAPH.lines - 1), `${lines[GRAPH.lines - 1].slice(0, GRAPH.letters - 1)}…`];
}

function layOut(groups, edges) {
  const found = layersOf(groups.length, edges), {layers, bends, near} = withBends(groups.length, edges, found);
  untangle(layers, near);
  const boxes = [];
  const heights = layers.map(layer => layer.reduce((sum, n) => {
    const lines = n < groups.length ? wrapped(text(groups[n].label)) : [];
    boxes[n] = {lines, height: lines.length ? 26 + lines.length * GRAPH.line : 10};
    return sum + boxes[n].height + GRAPH.gapY;
  }, -GRAPH.gapY));
  const height = Math.max(...heights);
  layers.forEach((layer, l) => {
    let y = (height - heights[l]) / 2;
    for (const n of layer) {
      Object.assign(boxes[n], {x: l * (GRAPH.width + GRAPH.gapX), y, middle: y + boxes[n].height / 2});
      y += boxes[n].height + GRAPH.gapY;
    }
  });
  let lanes = 0;
  const paths = edges.map(
      ([from, to], e) => found.back.has(e) ? backwards(boxes[from], boxes[to], height + 24 + 16 * lanes++) :
                                             forwards(boxes[from], bends[e].map(n => boxes[n]), boxes[to]));
  return {
    boxes,
    paths,
    width: layers.length * (GRAPH.width + GRAPH.gapX) - GRAPH.gapX,
    height: height + (lanes ? 24 + 16 * lanes : 0)
  };
}

const HEAD = 7;  // length of an arrow's head

// From the right side of a box, across the bends, to the left side of another one.
function forwards(from, bends, to) {
  const half = GRAPH.gapX / 2;
  let x = from.x + GRAPH.width, y = from.middle, line = `M${x},${y}`;
  for (const bend of [...bends, to]) {
    const end = bend === to ? bend.x - HEAD : bend.x;
    line += ` C${x + half},${y} ${bend.x - half},${bend.middle} ${end},${bend.middle}`;
    if (bend !== to) line += ` L${bend.x + GRAPH.width},${bend.middle}`;
    x = bend.x + GRAPH.width;
    y = bend.middle;
  }
  const first = bends[0] || to;
  return {line, label: {x: from.x + GRAPH.width + half, y: (from.middle + first.middle) / 2 - 5}};
}

// An edge that closes a circle runs below all boxes.
function backwards(from, to, lane) {
  const x1 = from.x + GRAPH.width / 2 + 12, x2 = to.x + GRAPH.width / 2 - 12;
  return {
    line: `M${x1},${from.y + from.height} L${x1},${lane - 8} Q${x1},${lane} ${x1 - 8},${lane} L${x2 + 8},${lane} Q${
        x2},${lane} ${x2},${lane - 8} L${x2},${to.y + to.height + HEAD}`,
    label: {x: (x1 + x2) / 2, y: lane - 5}
  };
}

function edgeElement([, , evidence, certainty, chain], {line, label}) {
  return makeSvg(
      "g", {class: `edge ${text(certainty)}${chain ? " chain" : ""}`},
      makeSvg("path", {d: line, "marker-end": `url(#${chain ? "arrow-chain" : "arrow"})`}),
      makeSvg("text", {...label, "text-anchor": "middle"}, text(evidence)),
      makeSvg("title", {}, `by ${text(evidence)}, ${text(certainty)}`));
}

function nodeElement(group, box, shown) {
  const open = () => select({type: "wait", group});
  return makeSvg(
      "g", {
        class: `node ${text(group.kind)}${group.suspect ? " suspect" : ""}${group.chain ? " chain" : ""}${
            shown ? "" : " faded"}`,
        tabindex: "0",
        role: "button",
        "aria-label": `${text(group.kind)}: ${text(group.label)}${group.suspect ? ", suspect" : ""}`,
        transform: `translate(${box.x},${box.y})`,
        on: {
          click: open,
          keydown: e => {
            if (e.key === "Enter" || e.key === " ") {
              e.preventDefault();
              open();
            }
          }
        }
      },
      makeSvg("rect", {width: GRAPH.width, height: box.height, rx: 6}),
      makeSvg("text", {x: 10, y: 17, class: "kind"}, group.suspect ? `${text(group.kind)}, suspect` : text(group.kind)),
      box.lines.map((line, i) => makeSvg("text", {x: 10, y: 34 + i * GRAPH.line}, line)),
      makeSvg("title", {}, text(group.label)));
}

function arrowHead(id) {
  return makeSvg(
      "marker", {id, viewBox: "0 0 8 8", refX: 1, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto"},
      makeSvg("path", {d: "M0,0 L8,4 L0,8 z"}));
}

let layout = null;  // of the graph, which no filter changes

function showWaits(container) {
  const {groups, edges, left_out: leftOut} = report.waits;
  if (!groups.length)
    return replace(
        container,
        make("p", {class: "muted"}, "The frames show no thread that waits for another, or for something outside."));
  layout = layout || layOut(groups, edges);
  const {boxes, paths, width, height} = layout;
  const passes = group => !isFiltered() || search.words && text(group.label).toLowerCase().includes(search.words) ||
      fromRanges(group.ranks).some(r => chosen.rankShown[r]) || !group.ranks.length && !search.words;
  const svg = makeSvg(
      "svg", {
        class: "graph",
        width: width + 20,
        height: height + 20,
        viewBox: `-10 -10 ${width + 20} ${height + 20}`,
        role: "group",
        "aria-label": `graph of waits, ${plural(groups.length, "node")}`
      },
      makeSvg("defs", {}, arrowHead("arrow"), arrowHead("arrow-chain")),
      edges.map((edge, e) => edgeElement(edge, paths[e])),
      groups.map((group, n) => nodeElement(group, boxes[n], passes(group))));
  const area = make("div", {class: "graph-area"}, svg);
  replace(
      container,
      make(
          "p", {class: "muted hint"},
          "An arrow means: waits for. Its word says how that is known; dashed: only likely or possible. ",
          "Red: the chain to a suspect.", leftOut ? ` ${plural(leftOut, "node")} left out.` : ""),
      area);
  const first = groups.findIndex(group => group.suspect);
  if (first < 0) return;
  area.scrollTop = boxes[first].y - area.clientHeight / 3;
  area.scrollLeft = boxes[first].x - area.clientWidth / 2;
}
