"use strict";
// The lists: ranks, threads, GPUs, problems, how the report was taken.

const movesWords = activity => !activity || activity.moves === undefined ? "" : activity.moves ? "moves" : "stands";

function showRanks(container) {
  const number = r => report.ranks[r].number === undefined ? Infinity : report.ranks[r].number;
  new Grid(container, {
    label: "ranks",
    rows: chosen.ranks,
    open: r => select({type: "rank", rank: r}),
    mark: r => suspectRanks.has(r)                  ? "alarm" :
        text(report.ranks[r].status) !== "complete" ? "warn" :
                                                      "",
    columns: [
      {
        title: "Rank",
        width: "minmax(5rem, 9rem)",
        cell: r => make("b", {}, isChild(r) ? `↳ ${labelOf(r)}` : labelOf(r)),
        sort: number
      },
      {
        title: "Host",
        width: "minmax(5rem, 10rem)",
        cell: r => marked(text(report.ranks[r].host)),
        sort: r => text(report.ranks[r].host)
      },
      {title: "Pid", width: "5rem", cell: r => `${report.ranks[r].pid}`, sort: r => report.ranks[r].pid},
      {
        title: "Threads",
        width: "5rem",
        cell: r => `${threads.first[r + 1] - threads.first[r]}`,
        sort: r => threads.first[r + 1] - threads.first[r]
      },
      {
        title: "Read",
        width: "5.5rem",
        cell: r => text(report.ranks[r].status),
        sort: r => text(report.ranks[r].status)
      },
      {
        title: "Moves",
        width: "5rem",
        cell: r => movesWords(report.ranks[r].activity),
        sort: r => movesWords(report.ranks[r].activity)
      },
      {
        title: "What it does",
        width: "minmax(12rem, 1fr)",
        sort: r => rankSummary(r),
        cell: r =>
            [suspectRanks.has(r) ? make("span", {class: "badge alarm"}, "suspect") : null, " ", marked(rankSummary(r))]
      },
    ]
  });
}

// In one line: what the rank does, or where its first thread is.
function rankSummary(r) {
  const rank = report.ranks[r], death = texts(rank.death)[0];
  if (death) return death;
  if (rank.activity) return text(rank.activity.summary);
  return threads.first[r] < threads.first[r + 1] ? text(kindOf(threads.first[r])[KIND.PLACE]) : "";
}

function showThreads(container) {
  const rows = [];
  for (let t = 0; t < threads.count; t++)
    if (chosen.shown[t]) rows.push(t);
  const cluster = t => kindOf(t)[KIND.CLUSTER];
  const odd = t => cluster(t) >= 0 && report.clusters[cluster(t)].odd;
  const hasStates = report.thread_kinds.some(kind => kind[KIND.STATE] >= 0),
        hasTimes = report.ranks.some(rank => rank.cpu_ms);
  new Grid(container, {
    label: "threads",
    rows,
    open: t => select({type: "thread", thread: t}),
    mark: t => odd(t) ? "odd" : "",
    columns: [
      {
        title: "Rank",
        width: "minmax(4rem, 8rem)",
        cell: t => make("b", {}, labelOf(threads.rank[t])),
        sort: t => threads.rank[t]
      },
      {
        title: "Thread",
        width: "minmax(7rem, 11rem)",
        cell: t => marked(text(kindOf(t)[KIND.NAME])),
        sort: t => text(kindOf(t)[KIND.NAME])
      },
      {title: "Tid", width: "5rem", cell: tidOf, sort: t => threads.tid[t]},
      {
        title: "Role",
        width: "8rem",
        cell: t => marked(roleWord(kindOf(t)[KIND.ROLE])),
        sort: t => kindOf(t)[KIND.ROLE]
      },
      hasStates && {
        title: "State",
        width: "4rem",
        cell: t => text(kindOf(t)[KIND.STATE]),
        sort: t => text(kindOf(t)[KIND.STATE])
      },
      hasTimes && {title: "CPU ms", width: "5rem", cell: t => cpuOf(t) < 0 ? "" : `${cpuOf(t)}`, sort: cpuOf},
      {title: "Cluster", width: "4.5rem", cell: t => `${cluster(t)}`, sort: cluster},
      {
        title: "Where",
        width: "minmax(12rem, 1fr)",
        sort: t => text(kindOf(t)[KIND.PLACE]),
        cell: t =>
            [marked(text(kindOf(t)[KIND.PLACE])),
             make("span", {class: "muted"}, "  ", marked(texts(kindOf(t)[KIND.NOTES])[0] || ""))]
      },
    ]
  });
}

const GIB = 1024 ** 3;
function showGpus(container) {
  const list = make("div", {class: "fill"});
  replace(container, make("pre", {class: "lines"}, texts(report.gpu_summary).join("\n")), list);
  const memory = g => g.memory_used === undefined ?
      "" :
      `${(g.memory_used / GIB).toFixed(1)}${g.memory_total ? ` of ${(g.memory_total / GIB).toFixed(1)}` : ""} GiB`;
  const figure = (value, unit) => value === undefined ? "" : `${Math.round(value)} ${unit}`;
  new Grid(list, {
    label: "GPUs",
    rows: report.gpus.filter(g => chosen.rankShown[g.rank]),
    open: g => select({type: "rank", rank: g.rank}),
    mark: g => g.differs ? "odd" : "",
    columns: [
      {title: "Rank", width: "minmax(4rem, 7rem)", cell: g => make("b", {}, labelOf(g.rank)), sort: g => g.rank},
      {
        title: "GPU",
        width: "minmax(8rem, 15rem)",
        cell: g => `${g.index === undefined ? "" : `${g.index} `}${text(g.name) || text(g.pci)}`,
        sort: g => text(g.name)
      },
      {title: "Used", width: "4.5rem", cell: g => figure(g.utilization, "%"), sort: g => g.utilization || 0},
      {title: "Memory", width: "9rem", cell: memory, sort: g => g.memory_used || 0},
      {title: "Power", width: "4.5rem", cell: g => figure(g.power_w, "W"), sort: g => g.power_w || 0},
      {title: "Clock", width: "5.5rem", cell: g => figure(g.sm_clock, "MHz"), sort: g => g.sm_clock || 0},
      {title: "Temp.", width: "4.5rem", cell: g => figure(g.temperature_c, "°C"), sort: g => g.temperature_c || 0},
      {
        title: "Runs",
        width: "minmax(8rem, 1fr)",
        cell: g => texts(g.runs).join("; "),
        sort: g => texts(g.runs).join("; ")
      },
      {
        title: "Notes",
        width: "minmax(8rem, 1fr)",
        cell: g => texts(g.notes).join(", "),
        sort: g => texts(g.notes).join(", ")
      },
    ]
  });
}

// What differs between ranks that should be alike; what concerns communication comes first.
function showDifferences(container) {
  const box = difference => make(
      "div", {class: "problem"}, text(difference.summary), " ", make("span", {class: "tag"}, text(difference.kind)),
      difference.communication && make("span", {class: "badge"}, "concerns communication"),
      make("ul", {class: "list"}, difference.sides.map(side => {
        const ranks = fromRanges(side.ranks);
        return make(
            "li", {}, linkTo({type: "rank", rank: ranks[0]}, rankSet(ranks)), ": ",
            make("code", {}, marked(text(side.value)) || "not set"));
      })));
  replace(container, report.differences.map(box));
}

function showProblems(container) {
  const shown = report.problems.filter(p => fromRanges(p.ranks).some(r => chosen.rankShown[r]));
  replace(container, shown.length ? shown.map(problemBox) : make("p", {class: "muted"}, "No problem of these ranks."));
}

function showAbout(container) {
  const versions = new Map();
  report.ranks.forEach((rank, r) => {
    const version = text(rank.python);
    if (version) versions.set(version, [...(versions.get(version) || []), r]);
  });
  const commands = new Map();
  report.ranks.forEach((rank, r) => {
    if (text(rank.command)) commands.set(text(rank.command), [...(commands.get(text(rank.command)) || []), r]);
  });
  replace(
      container, make("h2", {}, "How the report was taken"), facts([
        ["rankstacks", text(report.version)], ["at", text(report.captured_at)], ["job", text(report.totals)],
        [
          "Python",
          [...versions].map(([v, ranks]) => make("div", {}, versions.size > 1 ? `${v} (${rankSet(ranks, 6)})` : v))
        ],
        ["versions", text(report.versions)], ["NCCL by RAS", text(report.nccl)],
        ["who should be alike", text(report.verdict.reference)],
        [
          "names",
          report.redacted ? "hosts, users, files of data, addresses, arguments and messages are pseudonyms" :
                            "as they are"
        ],
        ["not examined", texts(report.not_looked_at).join(", ")]
      ]),
      report.environment &&
          [
            make("h3", {}, "Versions, settings and limits"),
            make("pre", {class: "lines"}, texts(report.environment).join("\n"))
          ],
      make("h3", {}, "Commands"),
      [...commands].slice(0, 50).map(
          ([command, ranks]) =>
              make("p", {class: "command"}, make("b", {}, rankSet(ranks)), " ", make("code", {}, command))));
}
