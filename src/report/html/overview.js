"use strict";
// The top of the page: the verdict with its chain, and a map with a square for each rank.

// What a link of a chain is about, for the details; null: of nothing in this report.
function aboutLink(group, rank, thread) {
  const t = rank >= 0 && thread >= 0 ? threadAt(rank, thread) : -1;
  if (t >= 0) return {type: "thread", thread: t};
  if (rank >= 0) return {type: "rank", rank};
  return group >= 0 ? {type: "wait", group: report.waits.groups[group]} : null;
}

function chainList(chain) {
  const links = chain.links.map(([label, evidence, group, rank, thread]) => {
    const about = aboutLink(group, rank, thread), words = text(label), known = text(evidence);
    const isSuspect = group >= 0 && report.waits.groups[group].suspect;
    return make(
        "li", {class: isSuspect && "suspect"}, about ? linkTo(about, words) : make("span", {}, words),
        known && make("span", {class: "because", title: `known by: ${known}`}, known));
  });
  return make("ol", {class: "chain", "aria-label": "chain of waits"}, links);
}

const confidence = suspect => make("span", {class: "muted"}, ` confidence ${suspect.confidence.toFixed(2)}`);

// A link to the thread that shows what the suspect does.
function stackLink(suspect) {
  const t = suspect.evidence.length ? threadAt(...suspect.evidence[0]) : -1;
  return t >= 0 && [" ", linkTo({type: "thread", thread: t}, "its stack", {class: "link to-stack"})];
}

function suspectBox(suspect) {
  return make(
      "li", {}, suspect.rank === undefined ? make("b", {}, text(suspect.name)) : rankLink(suspect.rank), " ",
      make("span", {class: "badge alarm"}, text(suspect.reason)), " ", text(suspect.summary), confidence(suspect),
      stackLink(suspect));
}

function candidateBox(candidate) {
  return make(
      "p", {class: "advice"}, "If it hangs, look first at ", rankLink(candidate.rank),
      `: it ${text(candidate.summary)}. `,
      make("span", {class: "muted"}, `What would decide: ${text(candidate.would_decide)}`));
}

const foldedPart = (title, content) => make("details", {}, make("summary", {}, title), content);

function recordedPart() {
  const recorded = report.flight_recorder || [];
  const positions =
      recorded.map(p => make("li", {}, `${text(p.group)}: ${rankSet(fromRanges(p.ranks))} ${text(p.text)}`));
  return positions.length > 0 &&
      foldedPart("Flight Recorder: ranks at different operations", make("ul", {class: "list"}, positions));
}

// What differs between ranks that should be alike: the first few, and a link to all.
function differencesPart() {
  const most = 3, all = report.differences || [];
  const link = make("button", {type: "button", class: "link", on: {click: () => chooseView("differences")}}, "differs");
  return all.length > 0 &&
      make("p", {class: "advice"}, link, ": ", all.slice(0, most).map(d => text(d.summary)).join("; "),
           all.length > most && `; and ${all.length - most} more`);
}

function showVerdict() {
  const {verdict} = report, {suspects} = verdict, [first] = suspects, {chains} = report.waits;
  const status = text(verdict.status);
  byId("verdict").className = status;
  replace(
      byId("verdict"),
      make("h1", {}, make("span", {class: "status"}, status.toUpperCase()), " ", text(verdict.summary), "."),
      first && make("p", {class: "advice"}, "→ ", text(first.advice), confidence(first), stackLink(first)),
      chains.slice(0, 1).map(chainList),
      chains.length > 1 &&
          foldedPart(`${plural(chains.length - 1, "more chain")} of waits`, chains.slice(1).map(chainList)),
      suspects.length > 1 &&
          foldedPart(`${suspects.length} suspects`, make("ul", {class: "list"}, suspects.map(suspectBox))),
      verdict.candidates.map(candidateBox), recordedPart(), differencesPart(),
      make("p", {class: "muted"}, text(report.totals), report.redacted && "; names are pseudonyms"));
}

const map = {
  cells: []
};

function mainCluster(r) {
  return threads.first[r] < threads.first[r + 1] ? kindOf(threads.first[r])[KIND.CLUSTER] : -1;
}

const MOST_CELLS = 4096;  // of the map: more could neither be seen nor drawn in time

// A cell stands for one rank, in large jobs for several that follow one another: it then shows the one that is to be
// looked at.
function mapCell(ranks, i) {
  const isOdd = r => mainCluster(r) < 0 || report.clusters[mainCluster(r)].odd;
  const r = ranks.find(one => suspectRanks.has(one)) ?? ranks.find(isOdd) ?? ranks[0];
  const colour = mainClusters.get(mainCluster(r)) || "gone", suspect = suspectRanks.has(r);
  const among = ranks.length > 1 ? `, one of ${rankSet(ranks)}` : "";
  const cell = make("i", {
    role: "option",
    tabindex: i ? "-1" : "0",
    class: suspect ? `${colour} suspect` : colour,
    "aria-label": `${rankName(r)}${among}${suspect ? ", suspect" : ""}`,
    title: `${rankName(r)} on ${text(report.ranks[r].host)}${among}\n${rankSummary(r)}`
  });
  cell.rank = r;
  cell.ranks = ranks;
  return cell;
}

function mapKey(event) {
  const [first] = map.cells, across = map.cells.filter(cell => cell.offsetTop === first.offsetTop).length;
  const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across}[event.key];
  if (step) moveFocus(event.currentTarget, "[role=option]", at => at + step);
  else if (event.key === "Enter" || event.key === " ") select({type: "rank", rank: event.target.rank});
  else return;
  event.preventDefault();
  event.stopPropagation();
}

// What the colours stand for: the largest sets of ranks whose main threads have one stack.
function mapLegend(ranks) {
  const most = 5, byCluster = new Map();
  for (const r of ranks) {
    const cluster = mainCluster(r);
    if (!byCluster.has(cluster)) byCluster.set(cluster, []);
    byCluster.get(cluster).push(r);
  }
  const gone = byCluster.get(-1) || [];
  byCluster.delete(-1);
  const sets = [...byCluster].sort((a, b) => b[1].length - a[1].length);
  const onlyThese = of => ({click: () => setFilters({ranks: rankSet(of, Infinity)})});
  const items = sets.slice(0, most).map(
      ([cluster, of]) => make(
          "li", {}, make("i", {class: mainClusters.get(cluster)}),
          make("button", {type: "button", class: "link", title: "only these", on: onlyThese(of)}, rankSet(of, 5)), " ",
          make("span", {class: "muted"}, rankSummary(of[0]))));
  return make(
      "ul", {class: "legend"}, items,
      sets.length > most && make("li", {class: "muted"}, `and ${sets.length - most} more stacks`),
      gone.length > 0 && make("li", {}, make("i", {class: "gone"}), `${rankSet(gone, 5)} could not be read`));
}

function showMap() {
  const ranks = report.ranks.map((_, r) => r).filter(r => !isChild(r));
  const size = ranks.length > 1200 ? "tiny" : ranks.length > 600 ? "small" : "";
  const perCell = Math.ceil(ranks.length / MOST_CELLS);
  map.cells = Array.from(
      {length: Math.ceil(ranks.length / perCell)}, (_, i) => mapCell(ranks.slice(i * perCell, (i + 1) * perCell), i));
  const cells = make(
      "div", {
        class: `cells ${size}`,
        role: "listbox",
        "aria-label": `${plural(ranks.length, "rank")}${
            perCell > 1 ? `, ${perCell} in a cell` : ""}, coloured by the stack of the main thread`,
        on: {
          click: event => event.target.rank !== undefined && select({type: "rank", rank: event.target.rank}),
          keydown: mapKey
        }
      },
      map.cells);
  replace(byId("map"), cells, mapLegend(ranks));
}

function dimMap() {
  for (const cell of map.cells) cell.classList.toggle("dim", !cell.ranks.some(r => chosen.rankShown[r]));
}
