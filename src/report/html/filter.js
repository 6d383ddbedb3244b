"use strict";
// Which threads are shown: those that pass the filters and hold what the search looks for. Every view is made of this
// choice. The search goes over the different texts, frames and stacks, of which there are few, not over the threads.

const filters = {
  ranks: "",
  role: "",
  state: "",
  host: ""
};
const search = {
  words: "",
  frames: null
};  // lower case; frames: by frame, whether it matches; null: no search

// The choice: by thread and by rank whether it is shown; the ranks in order; by cluster what is left of it.
let chosen = null;

let lowered = null;
const lower = () => lowered || (lowered = report.strings.map(s => s.toLowerCase()));

// A predicate over ranks, of "0-3,7,node-a:4711"; null if everything passes.
function rankFilter(wanted) {
  const parts = wanted.toLowerCase().split(/[,\s]+/).filter(part => part);
  if (!parts.length) return null;
  const tests = parts.map(part => {
    const range = /^(\d+)(?:-(\d*))?$/.exec(part);
    if (!range) return rank => nameOf(rank).toLowerCase().includes(part) || text(rank.host).toLowerCase() === part;
    const first = Number(range[1]), last = range[2] === undefined ? first : range[2] ? Number(range[2]) : Infinity;
    return rank => rank.number >= first && rank.number <= last || rank.number === undefined && rank.pid === first;
  });
  return r => tests.some(
             test => test(report.ranks[r]) ||
                 isChild(r) && report.ranks[r].child_of >= 0 && test(report.ranks[report.ranks[r].child_of]));
}

// What the words match: frames, kinds of threads, ranks with all of their threads; of what a rank does, the thread that
// shows it.
function find(words) {
  const hits = new Uint8Array(report.strings.length);
  lower().forEach((s, i) => {
    if (s.includes(words)) hits[i] = 1;
  });
  const hit = id => id >= 0 && hits[id] === 1;
  const frames = Uint8Array.from(
      report.frames,
      row =>
          hit(row[FRAME.NAME]) || hit(row[FRAME.FULL]) || hit(row[FRAME.PLACE]) || hit(row[FRAME.FULL_PLACE]) ? 1 : 0);
  const stacks = new Uint8Array(report.stacks.frames.length);
  for (let s = 0; s < stacks.length; s++) {  // a parent has a smaller index than its children
    const parent = report.stacks.parents[s];
    stacks[s] = frames[report.stacks.frames[s]] || (parent >= 0 ? stacks[parent] : 0);
  }
  const kinds = Uint8Array.from(
      report.thread_kinds,
      row => hit(row[KIND.NAME]) || hit(report.roles[row[KIND.ROLE]]) || row[KIND.NOTES].some(hit) ||
              row[KIND.STACK] >= 0 && stacks[row[KIND.STACK]] ?
          1 :
          0);
  const ranks = Uint8Array.from(
      report.ranks,
      rank => (rank.label === undefined ? nameOf(rank).includes(words) : hit(rank.label)) || hit(rank.host) ||
              hit(rank.command) || hit(rank.path) || hit(rank.coordinates) || (rank.death || []).some(hit) ?
          1 :
          0);
  const doing =
      report.ranks.map(({activity}, r) => activity && hit(activity.summary) ? threadAt(r, activity.thread) : -1);
  return {frames, kinds, ranks, doing};
}

function choose() {
  const rankCount = report.ranks.length;
  const passes = rankFilter(filters.ranks);
  const found = search.words ? find(search.words) : null;
  search.frames = found && found.frames;
  const shown = new Uint8Array(threads.count), rankShown = new Uint8Array(rankCount);
  const clusters = report.clusters.map(() => null);
  const ranks = [];
  let count = 0;
  for (let r = 0; r < rankCount; r++) {
    const rank = report.ranks[r];
    if (passes && !passes(r) || filters.host && text(rank.host) !== filters.host) continue;
    const all = !found || found.ranks[r] === 1;
    let any = rank.threads.length === 0 && all && !filters.role && !filters.state;
    for (let t = threads.first[r]; t < threads.first[r + 1]; t++) {
      const kind = kindOf(t);
      if (!all && !found.kinds[threads.kind[t]] && t !== found.doing[r]) continue;
      if (filters.role && roleWord(kind[KIND.ROLE]) !== filters.role) continue;
      if (filters.state && text(kind[KIND.STATE]) !== filters.state) continue;
      shown[t] = 1;
      count++;
      any = true;
      const c = kind[KIND.CLUSTER];
      if (c < 0) continue;
      const cluster = clusters[c] || (clusters[c] = {id: c, threads: 0, ranks: [], first: t});
      cluster.threads++;
      if (cluster.ranks[cluster.ranks.length - 1] !== r) cluster.ranks.push(r);
    }
    if (!any) continue;
    rankShown[r] = 1;
    ranks.push(r);
  }
  chosen = {shown, rankShown, ranks, count, clusters: clusters.filter(c => c)};
}

const isFiltered = () => Boolean(search.words || Object.values(filters).some(value => value));
