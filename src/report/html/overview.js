"use strict";
// The top of the page: the verdict with its chain, and a map with a square for each rank.

function chainList(chain) {
  return make(
      "ol", {class: "chain", "aria-label": "chain of waits"},
      chain.links.map(([label, evidence, group, rank, thread]) => {
        const t = rank >= 0 && thread >= 0 ? threadAt(rank, thread) : -1;
        const what = t >= 0 ? {type: "thread", thread: t} :
            rank >= 0       ? {type: "rank", rank} :
            group >= 0      ? {type: "wait", group: report.waits.groups[group]} :
                              null;
        const suspect = group >= 0 && report.waits.groups[group].suspect;
        return make(
            "li", {class: suspect ? "suspect" : ""}, what ? linkTo(what, text(label)) : make("span", {}, text(label)),
            evidence >= 0 ? make("span", {class: "because", title: `known by: ${text(evidence)}`}, text(evidence)) :
                            null);
      }));
}

function suspectBox(suspect) {
  return make(
      "li", {}, suspect.rank === undefined ? make("b", {}, text(suspect.name)) : rankLink(suspect.rank), " ",
      make("span", {class: "badge alarm"}, text(suspect.reason)), " ", text(suspect.summary),
      make("span", {class: "muted"}, ` confidence ${suspect.confidence.toFixed(2)}`));
}

function showVerdict() {
  const {verdict} = report, [first] = verdict.suspects, chains = report.waits.chains;
  const status = text(verdict.status);
  byId("verdict").className = status;
  replace(
      byId("verdict"),
      make("h1", {}, make("span", {class: "status"}, status.toUpperCase()), " ", text(verdict.summary), "."),
      first ? make(
                  "p", {class: "advice"}, "→ ", text(first.advice),
                  make("span", {class: "muted"}, ` confidence ${first.confidence.toFixed(2)}`)) :
              null,
      chains.length ? chainList(chains[0]) : null,
      chains.length > 1 ? make(
                              "details", {}, make("summary", {}, `${plural(chains.length - 1, "more chain")} of waits`),
                              chains.slice(1).map(chainList)) :
                          null,
      verdict.suspects.length > 1 ? make(
                                        "details", {}, make("summary", {}, `${verdict.suspects.length} suspects`),
                                        make("ul", {class: "list"}, verdict.suspects.map(suspectBox))) :
                                    null,
      verdict.candidates.map(
          c => make(
              "p", {class: "advice"}, "If it hangs, look first at ", rankLink(c.rank), `: it ${text(c.summary)}. `,
              make("span", {class: "muted"}, `What would decide: ${text(c.would_decide)}`))),
      (report.flight_recorder || []).length ?
          make(
              "details", {}, make("summary", {}, "Flight Recorder: ranks at different operations"),
              make(
                  "ul", {},
                  report.flight_recorder.map(
                      p => make("li", {}, `${text(p.group)}: ${rankSet(fromRanges(p.ranks))} ${text(p.text)}`)))) :
          null,
      make("p", {class: "muted"}, text(report.totals), report.redacted ? "; names are pseudonyms" : ""));
}

const map = {
  cells: []
};

function mainCluster(r) {
  return threads.first[r] < threads.first[r + 1] ? kindOf(threads.first[r])[KIND.CLUSTER] : -1;
}

function showMap() {
  const ranks = report.ranks.map((_, r) => r).filter(r => !isChild(r));
  const box = make("div", {
    class: `cells${
        ranks.length > 1200    ? " tiny" :
            ranks.length > 600 ? " small" :
                                 ""}`,
    role: "listbox",
    "aria-label": `${plural(ranks.length, "rank")}, coloured by the stack of the main thread`
  });
  map.cells = ranks.map((r, i) => {
    const colour = mainClusters.get(mainCluster(r));
    const cell = make("i", {
      role: "option",
      tabindex: i ? "-1" : "0",
      class: `${colour || "gone"}${suspectRanks.has(r) ? " suspect" : ""}`,
      "aria-label": `${rankName(r)}${suspectRanks.has(r) ? ", suspect" : ""}`,
      title: `${rankName(r)} on ${text(report.ranks[r].host)}\n${rankSummary(r)}`
    });
    cell.rank = r;
    return cell;
  });
  append(box, map.cells);
  box.addEventListener(
      "click", event => event.target.rank !== undefined && select({type: "rank", rank: event.target.rank}));
  box.addEventListener("keydown", event => {
    const across = map.cells.filter(cell => cell.offsetTop === map.cells[0].offsetTop).length;
    const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across}[event.key];
    if (step) moveFocus(box, "[role=option]", at => at + step);
    else if (event.key === "Enter" || event.key === " ") select({type: "rank", rank: event.target.rank});
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const byCluster = new Map();
  for (const r of ranks) byCluster.set(mainCluster(r), [...(byCluster.get(mainCluster(r)) || []), r]);
  const legend = [...byCluster].filter(([c]) => c >= 0).sort((a, b) => b[1].length - a[1].length);
  replace(
      byId("map"), box,
      make(
          "ul", {class: "legend"},
          legend.slice(0, 5).map(
              ([c, of]) => make(
                  "li", {}, make("i", {class: mainClusters.get(c)}),
                  make(
                      "button",
                      {type: "button", class: "link", on: {click: () => setFilters({ranks: rankSet(of, Infinity)})}},
                      rankSet(of, 5)),
                  " ", make("span", {class: "muted"}, rankSummary(of[0])))),
          legend.length > 5 ? make("li", {class: "muted"}, `and ${legend.length - 5} more stacks`) : null,
          byCluster.has(-1) ?
              make("li", {}, make("i", {class: "gone"}), `${rankSet(byCluster.get(-1), 5)} could not be read`) :
              null));
}

function dimMap() {
  for (const cell of map.cells) cell.classList.toggle("dim", !chosen.rankShown[cell.rank]);
}
