"use strict";
// The merged tree: the normalised stacks of all chosen threads of a role, outermost frame first. A branch is where they
// part, and says which ranks go on there.

// The tree of these clusters (of filter.js): nodes {entry, clusters, ending, children}, entry -1: the root.
function mergedTree(clusters) {
  const nodes = new Map([[-1, {entry: -1, clusters: [], ending: [], children: []}]]);
  for (const cluster of clusters) {
    const end = report.clusters[cluster.id].end;
    let below = null;  // a node that has just been made, and has no parent yet
    for (let entry = end;; entry = report.tree.parents[entry]) {
      const isNew = !nodes.has(entry);
      if (isNew) nodes.set(entry, {entry, clusters: [], ending: [], children: []});
      const node = nodes.get(entry);
      node.clusters.push(cluster);
      if (entry === end) node.ending.push(cluster);
      if (below) node.children.push(below);
      if (entry < 0) break;
      below = isNew ? node : null;
    }
  }
  return nodes.get(-1);
}

// The threads and ranks of some clusters.
function sumOf(clusters) {
  let count = 0;
  const all = () => [...new Set(clusters.flatMap(c => c.ranks))].sort((a, b) => a - b);
  const ranks = clusters.length === 1 ? clusters[0].ranks : all();
  for (const cluster of clusters) count += cluster.threads;
  return {threads: count, ranks, first: clusters[0].first, odd: clusters.every(c => report.clusters[c.id].odd)};
}

// The chosen clusters by role, those of child processes apart: [{role, child, clusters}], in the order of the roles.
function roleGroups() {
  const groups = new Map();
  for (const cluster of chosen.clusters) {
    const role = report.clusters[cluster.id].role, child = isChild(cluster.ranks[0]);
    const key = (child ? 1000 : 0) + role;
    if (!groups.has(key)) groups.set(key, {key, role: roleWord(role), child, clusters: []});
    groups.get(key).clusters.push(cluster);
  }
  return [...groups.values()].sort((a, b) => a.key - b.key);
}

// The main threads' clusters by the class of their colour, in the map of the ranks and at the branches: c0 is the
// largest; red is left to those of suspects alone, if these are few.
const mainClusters = new Map();
function colourClusters() {
  const sizes = new Map();
  report.ranks.forEach((rank, r) => {
    if (isChild(r) || threads.first[r] === threads.first[r + 1]) return;
    const c = kindOf(threads.first[r])[KIND.CLUSTER];
    sizes.set(c, (sizes.get(c) || 0) + 1);
  });
  const isInnocent = new Set();
  report.ranks.forEach((rank, r) => {
    if (!suspectRanks.has(r) && threads.first[r] < threads.first[r + 1])
      isInnocent.add(kindOf(threads.first[r])[KIND.CLUSTER]);
  });
  const few = 2 * suspectRanks.size < report.ranks.length;
  let next = 0;
  for (const [c] of [...sizes].sort((a, b) => b[1] - a[1] || a[0] - b[0]))
    mainClusters.set(c, !few || isInnocent.has(c) ? `c${Math.min(next++, 7)}` : "suspects");
}

const sumOfNode = node => node.sum || (node.sum = sumOf(node.clusters));

const isSuspected = cluster => cluster.ranks.some(r => suspectRanks.has(r));
const placeInOrder = node => {
  const sum = sumOfNode(node);
  return [node.clusters.some(isSuspected) ? 0 : 1, sum.odd ? 0 : 1, -sum.ranks.length, -sum.threads];
};
function inOrder(nodes) {
  return nodes.map(node => [placeInOrder(node), node])
      .sort(([a], [b]) => {
        const at = a.findIndex((v, i) => v !== b[i]);
        return at < 0 ? 0 : a[at] - b[at];
      })
      .map(([, node]) => node);
}

// Rows of a part without branches: runs of more than three native frames, or of a library's, are folded but for their
// ends and for frames that tell what the thread waits for.
const runOf = frame => (
    {native: "native", system: "native", interpreter: "native", start: "native", library: "library"})[frameKind(frame)];
function rowsOf(frames, isLeaf) {
  const rows = [];
  for (let i = 0; i < frames.length;) {
    const run = runOf(frames[i]);
    let end = i + 1;
    while (run && end < frames.length && runOf(frames[end]) === run) end++;
    const keep = k => end - i <= 3 || k === i || k === end - 1 || report.frames[frames[k]][FRAME.KEEP] ||
        isLeaf && k === frames.length - 1 || search.frames && search.frames[frames[k]];
    for (let k = i; k < end;) {
      let last = k;
      while (run && last < end && !keep(last)) last++;
      if (last - k > 1) rows.push({fold: frames.slice(k, last), run});
      else rows.push(...frames.slice(k, Math.max(last, k + 1)).map(frame => ({frame})));
      k = Math.max(last, k + 1);
    }
    i = end;
  }
  return rows;
}

function frameRow(frame) {
  const row = report.frames[frame];
  return make(
      "div", {
        class: `frame ${frameKind(frame)}${search.frames && search.frames[frame] ? " hit" : ""}`,
        title: `${text(row[FRAME.FULL])}\n${text(row[FRAME.FULL_PLACE])}`
      },
      make("span", {class: "name"}, marked(text(row[FRAME.NAME]))),
      make("span", {class: "place"}, make("bdi", {}, marked(text(row[FRAME.PLACE])))));
}

function rowElement(row) {
  if (row.frame !== undefined) return frameRow(row.frame);
  const button = make("button", {type: "button", class: "fold"}, `… ${plural(row.fold.length, row.run + " frame")}`);
  button.addEventListener("click", event => {
    event.stopPropagation();
    button.replaceWith(...row.fold.map(frameRow));
  });
  return button;
}

const openParts = new Map();  // by key of a branch: whether a person has opened or closed it

// A branch: the ranks that go on at this node, the frames down to the next branch, and the branches there.
function branch(node, group, key, total, open) {
  const frames = [];
  let last = node;
  if (node.entry >= 0) frames.push(report.tree.frames[node.entry]);
  while (last.children.length === 1 && !last.ending.length) {
    last = last.children[0];
    frames.push(report.tree.frames[last.entry]);
  }
  const sum = sumOfNode(node);
  const isOpen = openParts.has(key) ? openParts.get(key) : open;
  const names = frames.map(f => text(report.frames[f][FRAME.NAME]));
  const about = `${rankSet(sum.ranks)} (${countWords(sum)})${sum.odd ? ", odd" : ""}${
      holdsSuspect(node, group) ? ", suspect" : ""}`;
  const item = make("li", {
    role: "treeitem",
    "aria-expanded": String(isOpen),
    tabindex: "-1",
    class: "branch",
    "data-key": key,
    "aria-label": `${about}: ${names.slice(-4).join(", ") || "no frames"}`
  });
  const body = () => {
    const parts = [make("div", {class: "frames"}, rowsOf(frames, !last.children.length).map(rowElement))];
    const here = last.ending.length && last.children.length ?
        [make(
            "li", {role: "treeitem", class: "branch", tabindex: "-1"}, head({clusters: last.ending}, group, total),
            endNotes(last.ending))] :
        [];
    if (!last.children.length) parts.push(endNotes(last.ending));
    const below = branches(inOrder(last.children), group, key, total);
    if (here.length + below.length) parts.push(make("ul", {role: "group"}, here, below));
    return parts;
  };
  append(item, [head(node, group, total), isOpen ? body() : null]);
  item.branch = {place: {...sum, role: group.role}, body, key};
  return item;
}

// The elements of these branches, of many only the first ones and a button for more; the first are open.
function branches(nodes, group, key, total, from = 0) {
  const most = 100, open = nodes.length > 20 ? 5 : 20;
  const items = nodes.slice(from, from + most)
                    .map((child, i) => branch(child, group, `${key}/${child.entry}`, total, from + i < open));
  const left = nodes.length - from - items.length;
  if (left > 0) {
    const more = make(
        "li", {role: "none"},
        make("button", {type: "button", class: "fold"}, `… ${plural(left, "more branch", "more branches")}`));
    more.firstChild.addEventListener(
        "click", () => more.replaceWith(...branches(nodes, group, key, total, from + most)));
    items.push(more);
  }
  return items;
}

function countWords({ranks, threads: count}) {
  const what = isChild(ranks[0]) ? plural(ranks.length, "process", "processes") : plural(ranks.length, "rank");
  return count > ranks.length ? `${what}, ${plural(count, "thread")}` : what;
}

const holdsSuspect = (node, group) => group.role === "main" && node.clusters.some(isSuspected);

function head(node, group, total) {
  const sum = sumOfNode(node), one = node.clusters.length === 1 ? node.clusters[0] : null;
  const suspect = holdsSuspect(node, group);
  const colour = one && mainClusters.has(one.id) ? ` ${mainClusters.get(one.id)}` : "";
  const stages = one && text(report.clusters[one.id].stages);
  const share = make("span", {class: "share" + colour, "aria-hidden": "true"}, make("i", {}));
  share.firstChild.style.width = `${Math.max(3, 100 * sum.ranks.length / total)}%`;
  return make(
      "div", {class: `head${suspect && one ? " alarm" : ""}`}, make("span", {class: "arrow", "aria-hidden": "true"}),
      share, make("b", {class: "ranks"}, rankSet(sum.ranks)),
      make("span", {class: "muted"}, `(${countWords(sum)}${stages ? `, ${stages}` : ""})`),
      sum.odd ? make("span", {class: "badge"}, "odd") : null,
      suspect ? make("span", {class: "badge alarm"}, one ? "suspect" : "with a suspect") : null);
}

function endNotes(clusters) {
  return clusters.flatMap(c => texts(report.clusters[c.id].notes))
      .map(note => make("div", {class: "note"}, "= ", marked(note)));
}

function showTree(container) {
  const groups = roleGroups();
  const few = groups.length <= 2 || isFiltered();
  const items = groups.map(group => {
    const root = mergedTree(group.clusters), sum = sumOf(group.clusters);
    const key = `${group.key}`;
    const open = openParts.has(key) ? openParts.get(key) : few || group.key === 0;
    const title = group.child ? `Child processes, ${group.role}` : group.role === "main" ? "Main threads" : group.role;
    const different = group.clusters.length > 1 ? `${group.clusters.length} different stacks` : "one stack";
    const item = make("li", {
      role: "treeitem",
      "aria-expanded": String(open),
      tabindex: "-1",
      class: "role-group",
      "data-key": key,
      "aria-label": `${title}: ${different}`
    });
    const body = () => {
      const parts = root.children.length + (root.ending.length ? 1 : 0);
      const noFrames = {entry: -1, clusters: root.ending, ending: root.ending, children: []};
      const nodes = parts === 1 ? [root] : [...inOrder(root.children), ...(root.ending.length ? [noFrames] : [])];
      return [make("ul", {role: "group"}, branches(nodes, group, key, sum.ranks.length))];
    };
    append(item, [
      make(
          "div", {class: "head"}, make("span", {class: "arrow", "aria-hidden": "true"}), make("h3", {}, title),
          make("span", {class: "muted"}, `${different} of ${plural(sum.threads, "thread")}, ${rankSet(sum.ranks)}`),
          group.clusters.some(c => report.clusters[c.id].odd) ? make("span", {class: "badge"}, "odd") : null),
      open ? body() : null
    ]);
    item.branch = {place: {...sum, role: group.role}, body, key};
    return item;
  });
  const tree = make("ul", {role: "tree", class: "tree", "aria-label": "merged stacks by role"}, items);
  if (items.length) items[0].tabIndex = 0;
  tree.addEventListener("click", event => treeClick(tree, event));
  tree.addEventListener("keydown", event => treeKey(tree, event));
  replace(container, items.length ? tree : make("p", {class: "muted"}, "No thread passes the filters and the search."));
}

function setOpen(item, open, remember = true) {
  if (!item.branch || item.getAttribute("aria-expanded") === String(open)) return;
  item.setAttribute("aria-expanded", String(open));
  if (remember) openParts.set(item.branch.key, open);
  while (item.children.length > 1) item.lastChild.remove();
  if (open) append(item, item.branch.body());
}

function setAllOpen(container, open, remember = true) {
  const items = () => [...container.querySelectorAll("[role=treeitem][aria-expanded]")];
  // What is opened may have more in it that is closed.
  if (open)
    for (let closed; (closed = items().filter(item => item.getAttribute("aria-expanded") === "false")).length;)
      closed.forEach(item => setOpen(item, true, remember));
  else items().reverse().forEach(item => setOpen(item, false, remember));
}

function treeClick(tree, event) {
  const item = event.target.closest("[role=treeitem]");
  if (!item || !event.target.closest(".head, .frame")) return;
  focusOnly(tree, "[role=treeitem]", item);
  if (event.target.closest(".arrow") || item.classList.contains("role-group"))
    return setOpen(item, item.getAttribute("aria-expanded") !== "true");
  if (item.branch) select({type: "place", ...item.branch.place});
}

function treeKey(tree, event) {
  const item = event.target.closest("[role=treeitem]");
  if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
  const open = item.getAttribute("aria-expanded");
  const move = to => moveFocus(tree, "[role=treeitem]", to);
  const actions = {
    ArrowDown: () => move(at => at + 1),
    ArrowUp: () => move(at => at - 1),
    Home: () => move(() => 0),
    End: () => move((at, n) => n - 1),
    ArrowRight: () => open === "false" ? setOpen(item, true) : move(at => at + 1),
    ArrowLeft: () => {
      if (open === "true") return setOpen(item, false);
      const parent = item.parentElement.closest("[role=treeitem]");
      if (parent) focusOnly(tree, "[role=treeitem]", parent);
    },
    Enter: () => item.branch && select({type: "place", ...item.branch.place}),
    " ": () => setOpen(item, open !== "true"),
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  event.stopPropagation();
  actions[event.key]();
}
