"use strict";
// The report's data (docs/html.md), as the other scripts use it. Texts, frames, stacks and kinds of threads are
// referred to by their index; -1, or no member, stands for none.

const report = JSON.parse(document.getElementById("report").textContent);

// What processes have in common is in one row, which each of them inherits.
report.ranks = report.ranks.map(own => Object.assign(Object.create(report.rank_kinds[own.like]), own));

// Members of a row of report.frames and of report.thread_kinds.
const FRAME = {
  KIND: 0,
  NAME: 1,
  FULL: 2,
  PLACE: 3,
  FULL_PLACE: 4,
  KEEP: 5
};
const KIND = {
  NAME: 0,
  ROLE: 1,
  CLUSTER: 2,
  STACK: 3,
  STATE: 4,
  PLACE: 5,
  NOTES: 6
};

const text = id => id === undefined || id < 0 ? "" : report.strings[id];
const texts = ids => (ids || []).map(text);
const plural = (count, what, many) => `${count.toLocaleString("en")} ${count === 1 ? what : many || what + "s"}`;

// All threads of all ranks, rank by rank: thread t of the page has tid threads.tid[t] (0: in very large jobs the numbers
// are left out) ...
const threads = (() => {
  const count = report.ranks.reduce((sum, rank) => sum + rank.threads.length, 0);
  const all = {
    count,
    rank: new Int32Array(count),
    tid: new Int32Array(count),
    kind: new Int32Array(count),
    first: new Int32Array(report.ranks.length + 1)
  };
  let t = 0;
  report.ranks.forEach((rank, r) => {
    let tid = rank.pid;
    all.first[r] = t;
    for (let i = 0; i < rank.threads.length; i++, t++) {
      if (rank.tids) tid += rank.tids[i];
      all.rank[t] = r;
      all.tid[t] = rank.tids ? tid : 0;
      all.kind[t] = rank.threads[i];
    }
  });
  all.first[report.ranks.length] = t;
  return all;
})();

const kindOf = t => report.thread_kinds[threads.kind[t]];
const roleWord = role => text(report.roles[role]);
const isChild = r => report.ranks[r].child_of !== undefined;
// The thread of the page that is number `index` of rank r, or -1.
const threadAt = (r, index) => {
  const t = threads.first[r] + index;
  return index >= 0 && t < threads.first[r + 1] ? t : -1;
};
const cpuOf = t => {
  const times = report.ranks[threads.rank[t]].cpu_ms;
  return times ? times[t - threads.first[threads.rank[t]]] : -1;
};

const nameOf = rank => rank.label === undefined ? `${rank.number ?? ""}` : text(rank.label);
const labelOf = r => nameOf(report.ranks[r]);
const tidOf = t => threads.tid[t] ? `${threads.tid[t]}` : "";

const rankName = r => isChild(r) ? `child ${labelOf(r)}` : `rank ${labelOf(r)}`;

// [0, 1, 3, 7] stands for 0, 1, 3, 4, 5, 6, 7.
const fromRanges = ranges => {
  const all = [];
  for (let i = 0; i < ranges.length; i += 2)
    for (let r = ranges[i]; r <= ranges[i + 1]; r++) all.push(r);
  return all;
};

// "0-1,3-7", then the processes without a number by host and pid; after `most` items "and 12 more".
function rankSet(ranks, most = 16) {
  const numbers = [], items = [], labels = [];
  for (const r of ranks) {
    const rank = report.ranks[r];
    if (rank.number !== undefined && rank.child_of === undefined) numbers.push(rank.number);
    else labels.push(labelOf(r));
  }
  numbers.sort((a, b) => a - b);
  for (let i = 0; i < numbers.length;) {
    let last = i;
    while (last + 1 < numbers.length && numbers[last + 1] <= numbers[last] + 1) last++;
    items.push(last === i ? `${numbers[i]}` : `${numbers[i]}-${numbers[last]}`);
    i = last + 1;
  }
  items.push(...labels);
  return items.length <= most ? items.join(",") : `${items.slice(0, most).join(",")} and ${items.length - most} more`;
}

// The frames of a stack, innermost first.
function framesOf(stack) {
  const frames = [];
  for (let s = stack; s >= 0; s = report.stacks.parents[s]) frames.push(report.stacks.frames[s]);
  return frames;
}

const suspectRanks = new Set(report.verdict.suspects.filter(s => s.rank !== undefined).map(s => s.rank));
