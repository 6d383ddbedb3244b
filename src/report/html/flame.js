"use strict";
// A flame graph of all chosen threads, hanging from the top: roles, then their frames. A box is as wide as the number
// of its threads. A click makes a box as wide as the page.

const flame = {
  path: null,
  row: 21,
  least: 0.0012
};  // path: keys from the root; least: the narrowest box, of the width

function flameTree() {
  const root = {key: "all", name: "all threads", kind: "", clusters: chosen.clusters, children: []};
  for (const group of roleGroups()) {
    const of = {
      key: `${group.key}`,
      name: group.child ? `child processes, ${group.role}` : group.role,
      kind: "role",
      clusters: group.clusters,
      children: []
    };
    const add = (to, node) => {
      const frame = report.tree.frames[node.entry];
      const box = {
        key: `${node.entry}`,
        frame,
        name: text(report.frames[frame][FRAME.NAME]),
        kind: frameKind(frame),
        clusters: node.clusters,
        children: []
      };
      to.children.push(box);
      inOrder(node.children).forEach(child => add(box, child));
    };
    inOrder(mergedTree(group.clusters).children).forEach(node => add(of, node));
    root.children.push(of);
  }
  const count = node => {
    node.threads = node.clusters.reduce((sum, c) => sum + c.threads, 0);
    node.children.forEach(count);
  };
  count(root);
  return root;
}

// The boxes from the root to the one that is as wide as the page.
function flamePath(root) {
  const path = [root];
  for (const key of flame.path || ["0"]) {
    const next = path[path.length - 1].children.find(child => child.key === key);
    if (!next) break;
    path.push(next);
  }
  return path;
}

function flameBoxes(path) {
  const boxes =
      path.slice(0, -1).map((node, depth) => ({node, depth, left: 0, width: 1, path: path.slice(1, depth + 1)}));
  const put = (node, depth, left, width, above) => {
    boxes.push({node, depth, left, width, path: above});
    let at = left;
    for (const child of node.children) {
      const w = width * child.threads / node.threads;
      if (w >= flame.least) put(child, depth + 1, at, w, [...above, child]);
      at += w;
    }
  };
  put(path[path.length - 1], path.length - 1, 0, 1, path.slice(1));
  return boxes;
}

const flameWords = node => {
  const sum = sumOfNode(node);
  return `${plural(node.threads, "thread")} of ${chosen.count.toLocaleString("en")}, ranks ${rankSet(sum.ranks, 8)}`;
};

function flameElement(box) {
  const {node} = box;
  const odd = node.clusters.every(c => report.clusters[c.id].odd) || node.clusters.every(isSuspected);
  const hit = search.frames && node.frame !== undefined && search.frames[node.frame];
  const element = make(
      "div", {
        class: `box ${node.kind}${odd ? " odd" : ""}${hit ? " hit" : ""}`,
        role: "treeitem",
        tabindex: "-1",
        "aria-level": String(box.depth + 1),
        "aria-label": `${node.name}, ${flameWords(node)}`
      },
      node.name);
  element.style.left = `${100 * box.left}%`;
  element.style.width = `calc(${100 * box.width}% - 1px)`;
  element.style.top = `${box.depth * flame.row}px`;
  element.box = box;
  return element;
}

// The line above the graph: the whole name, where it is, and whose it is.
function flameStatus(node) {
  const row = node.frame === undefined ? null : report.frames[node.frame];
  return [
    make("b", {}, row ? text(row[FRAME.FULL]) : node.name), " ",
    make("span", {class: "muted"}, row && `${text(row[FRAME.FULL_PLACE])} · `, flameWords(node))
  ];
}

function showFlame(container) {
  if (!chosen.count)
    return replace(container, make("p", {class: "muted"}, "No thread passes the filters and the search."));
  const root = flameTree();
  const status = make("div", {class: "flame-status", "aria-live": "polite"});
  const draw = focus => {
    const path = flamePath(root), boxes = flameBoxes(path);
    const elements = boxes.map(flameElement), zoomed = elements.find(e => e.box.node === path[path.length - 1]);
    area.style.height = `${(Math.max(...boxes.map(box => box.depth)) + 1) * flame.row}px`;
    replace(area, elements);
    zoomed.tabIndex = 0;
    if (focus) zoomed.focus();
    replace(status, flameStatus(zoomed.box.node));
  };
  const zoom = ({node, path}) => {
    flame.path = path.map(above => above.key);
    draw(true);
    if (node.frame !== undefined)
      select({type: "place", ...sumOfNode(node), role: roleWord(report.clusters[node.clusters[0].id].role)});
  };
  const say = event => event.target.box && replace(status, flameStatus(event.target.box.node));
  const area = make("div", {
    class: "flame",
    role: "tree",
    "aria-label": "flame graph, outermost frames at the top",
    on: {
      click: event => event.target.box && zoom(event.target.box),
      mouseover: say,
      focusin: say,
      keydown: event => flameKey(area, event, zoom)
    }
  });
  replace(
      container,
      make(
          "p", {class: "muted hint"},
          "The wider, the more threads. A click, or Enter, makes a box as wide as the page; ",
          "the boxes above it lead back."),
      status, area);
  draw(false);
}

function flameKey(area, event, zoom) {
  const box = event.target.box;
  if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = [...area.children];
  const near = (depth, left) => all.filter(e => e.box.depth === depth)
                                    .sort((a, b) => Math.abs(a.box.left - left) - Math.abs(b.box.left - left))[0];
  const row = all.filter(e => e.box.depth === box.depth).sort((a, b) => a.box.left - b.box.left);
  const at = row.indexOf(event.target);
  const above = () => all.filter(e => e.box.depth === box.depth - 1 && e.box.left <= box.left + 1e-9);
  const to = {
    ArrowUp: () => above().sort((a, b) => b.box.left - a.box.left)[0],
    ArrowDown: () => near(box.depth + 1, box.left),
    ArrowLeft: () => row[at - 1],
    ArrowRight: () => row[at + 1]
  }[event.key];
  if (to) {
    const next = to();
    if (next) focusOnly(area, "[role=treeitem]", next);
  } else if (event.key === "Enter" || event.key === " ") {
    zoom(box);
  } else {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
}
