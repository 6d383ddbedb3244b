"use strict";
// The panel at the side: everything about what is selected, a thread, a rank, a place in the tree or a group of waits.

let selected = null;  // {type: "thread" | "rank" | "place" | "wait", ...}

function select(what) {
  selected = what;
  showDetail();
  byId("detail").hidden = !what;
  document.body.classList.toggle("with-detail", Boolean(what));
  rememberState();
}

const linkTo = (what, words, properties) =>
    make("button", {type: "button", class: "link", ...properties, on: {click: () => select(what)}}, words);
const rankLink = r => linkTo({type: "rank", rank: r}, rankName(r));

function facts(rows) {
  return make(
      "dl", {class: "facts"},
      rows.filter(([, value]) => value !== "" && value !== undefined && value !== null)
          .map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

// A whole stack, innermost first.
function stackList(stack) {
  const frames = framesOf(stack);
  if (!frames.length) return make("p", {class: "muted"}, "no frames");
  return make("ol", {class: "stack", start: "0", "aria-label": "stack, innermost frame first"}, frames.map(frame => {
    const row = report.frames[frame];
    return make(
        "li", {class: `frame ${frameKind(frame)}${search.frames && search.frames[frame] ? " hit" : ""}`},
        make("span", {class: "name"}, marked(text(row[FRAME.FULL]))),
        make("span", {class: "place"}, marked(text(row[FRAME.FULL_PLACE]))));
  }));
}

const noteList = notes => notes.length ? make("ul", {class: "notes"}, notes.map(n => make("li", {}, marked(n)))) : null;

const STATES = {
  R: "running",
  S: "sleeping",
  D: "uninterruptible wait",
  T: "stopped by a signal",
  t: "stopped by a tracer",
  F: "frozen by its control group",
  Z: "zombie",
  X: "dead",
  I: "idle"
};
const stateWords = letter => STATES[letter] ? `${letter}, ${STATES[letter]}` : letter;

function threadTitle(t) {
  const kind = kindOf(t);
  return [text(kind[KIND.NAME]) || "thread", " ", make("span", {class: "muted"}, tidOf(t))];
}

function threadDetail(t) {
  const kind = kindOf(t), cpu = cpuOf(t), r = threads.rank[t];
  const cluster = kind[KIND.CLUSTER] >= 0 ? report.clusters[kind[KIND.CLUSTER]] : null;
  return [
    make("h2", {}, threadTitle(t)), facts([
      ["of", rankLink(r)], ["host", text(report.ranks[r].host)], ["role", roleWord(kind[KIND.ROLE])],
      ["state", stateWords(text(kind[KIND.STATE]))], ["processor time", cpu >= 0 ? `${cpu} ms` : ""],
      ["cluster", cluster ? `${kind[KIND.CLUSTER]}${cluster.odd ? ", odd" : ""}` : ""]
    ]),
    noteList(texts(kind[KIND.NOTES])), stackList(kind[KIND.STACK])
  ];
}

// A thread that opens; its stack is made when it does.
function foldedThread(t, open) {
  const kind = kindOf(t);
  const box = make(
      "details", {class: "thread"},
      make(
          "summary", {}, make("b", {}, text(kind[KIND.NAME]) || "thread"), " ",
          make("span", {class: "tag"}, roleWord(kind[KIND.ROLE])), " ",
          make("span", {class: "muted"}, `${tidOf(t)} ${text(kind[KIND.STATE])}`),
          make("div", {class: "where"}, marked(text(kind[KIND.PLACE])))));
  const show = () => {
    if (box.open && box.children.length === 1)
      append(box, [noteList(texts(kind[KIND.NOTES])), stackList(kind[KIND.STACK])]);
  };
  box.addEventListener("toggle", show);
  box.open = open;
  show();
  return box;
}

function stoppedFor(rank, count) {
  if (rank.stopped_ms === undefined) return "";
  if (rank.threads_stopped === 0) return "not stopped";
  const some = rank.threads_stopped < count ? `, ${rank.threads_stopped} of ${count} threads` : "";
  return `${rank.stopped_ms} ms${some}`;
}

function rankDetail(r) {
  const rank = report.ranks[r], all = [];
  for (let t = threads.first[r]; t < threads.first[r + 1]; t++) all.push(t);
  const children = report.ranks.flatMap((other, c) => other.child_of === r ? [c] : []);
  const problems = report.problems.filter(p => fromRanges(p.ranks).includes(r));
  return [
    make("h2", {}, rankName(r), suspectRanks.has(r) ? make("span", {class: "badge alarm"}, "suspect") : null),
    make("p", {}, rank.activity ? text(rank.activity.summary) : ""), facts([
      ["host", text(rank.host)], ["pid", `${rank.pid}`], ["place in the job", text(rank.coordinates)],
      ["child of", rank.child_of >= 0 ? rankLink(rank.child_of) : ""],
      ["children", children.length ? children.map(c => [rankLink(c), " "]) : ""], ["source", text(rank.source)],
      ["file", text(rank.path)], ["status", text(rank.status)], ["Python", text(rank.python)],
      ["stopped for", stoppedFor(rank, all.length)],
      ["read at", rank.offset_ms === undefined ? "" : `+${rank.offset_ms} ms`], ["command", text(rank.command)]
    ]),
    noteList(texts(rank.death)), problems.map(problemBox),
    rank.gpus ? [make("h3", {}, "GPUs"), make("pre", {class: "lines"}, texts(rank.gpus).join("\n"))] : null,
    make("h3", {}, plural(all.length, "thread")),
    all.map(t => foldedThread(t, rank.activity ? t - threads.first[r] === rank.activity.thread : t === all[0]))
  ];
}

function placeDetail(place) {
  const kind = kindOf(place.first);
  return [
    make(
        "h2", {},
        plural(
            place.ranks.length, isChild(place.ranks[0]) ? "process" : "rank",
            isChild(place.ranks[0]) ? "processes" : undefined),
        place.odd ? make("span", {class: "badge"}, "odd") : null),
    facts([["which", rankSet(place.ranks, 64)], ["role", place.role], ["threads", `${place.threads}`]]),
    make(
        "div", {class: "links"}, place.ranks.slice(0, 24).map(r => [rankLink(r), " "]),
        place.ranks.length > 24 ? `and ${place.ranks.length - 24} more` : ""),
    make(
        "h3", {},
        "Whole stack of the first: ", linkTo({type: "thread", thread: place.first}, threadTitle(place.first))),
    noteList(texts(kind[KIND.NOTES])), stackList(kind[KIND.STACK])
  ];
}

function waitDetail(group) {
  const ranks = fromRanges(group.ranks), t = group.thread ? threadAt(...group.thread) : -1;
  return [
    make("h2", {}, text(group.kind), group.suspect ? make("span", {class: "badge alarm"}, "suspect") : null),
    make("p", {}, text(group.label)), facts([["ranks", ranks.length ? rankSet(ranks, 64) : ""]]),
    make("div", {class: "links"}, ranks.slice(0, 24).map(r => [rankLink(r), " "])),
    t < 0 ? null : [make("h3", {}, "Its thread"), foldedThread(t, true)]
  ];
}

function showDetail() {
  if (!selected) return replace(byId("detail-body"));
  const bodyOf = {
    thread: s => threadDetail(s.thread),
    rank: s => rankDetail(s.rank),
    place: s => placeDetail(s),
    wait: s => waitDetail(s.group)
  }[selected.type];
  replace(byId("detail-body"), bodyOf(selected));
  byId("detail-body").scrollTop = 0;
}

function problemBox(problem) {
  const ranks = fromRanges(problem.ranks);
  return make(
      "div", {class: "problem"}, make("b", {}, `${rankSet(ranks)}: `), text(problem.message), " ",
      make("span", {class: "tag"}, text(problem.code)),
      problem.hint === undefined ? null : make("div", {class: "muted"}, `hint: ${text(problem.hint)}`));
}
