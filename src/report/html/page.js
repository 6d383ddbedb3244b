"use strict";
// What is shown, the controls, the keys. The state of the page is in the address (after "#"), so that it can be sent.

const VIEWS = {
  tree: {title: "Tree", show: showTree},
  flame: {title: "Flame graph", show: showFlame},
  waits: {title: "Waits", show: showWaits},
  ranks: {title: "Ranks", show: showRanks},
  threads: {title: "Threads", show: showThreads},
  gpus: {title: "GPUs", show: showGpus, if: () => report.gpus},
  differences: {title: "Differences", show: showDifferences, if: () => report.differences},
  problems: {title: "Problems", show: showProblems, if: () => report.problems.length},
  about: {title: "About", show: showAbout},
};
let view = "tree";
const available = () => Object.keys(VIEWS).filter(name => !VIEWS[name].if || VIEWS[name].if());

function showView() {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const isShown = tab.dataset.view === view;
    tab.setAttribute("aria-selected", String(isShown));
    tab.tabIndex = isShown ? 0 : -1;
  }
  byId("view").className = `view-${view}`;
  byId("view").setAttribute("aria-labelledby", `tab-${view}`);
  VIEWS[view].show(byId("view"));
}

function chooseView(name) {
  view = name;
  showView();
  rememberState();
}

// Filters and search have changed.
function update() {
  choose();
  const processes = report.ranks.length;
  byId("count").textContent = `${chosen.count.toLocaleString("en")} of ${plural(threads.count, "thread")}, ${
      chosen.ranks.length.toLocaleString("en")} of ${plural(processes, "process", "processes")}`;
  byId("clear").hidden = !isFiltered();
  dimMap();
  showView();
  if (selected) showDetail();
  rememberState();
}

function setFilters(changed) {
  Object.assign(filters, changed);
  for (const name of Object.keys(filters)) byId(`filter-${name}`).value = filters[name];
  update();
}

function rememberState() {
  const state = new URLSearchParams();
  if (view !== "tree") state.set("view", view);
  if (search.words) state.set("search", search.words);
  for (const [name, value] of Object.entries(filters))
    if (value) state.set(name, value);
  if (selected && selected.type === "rank") state.set("rank", selected.rank);
  if (selected && selected.type === "thread") state.set("thread", selected.thread);
  const hash = `#${state}`;
  if (hash === (location.hash || "#")) return;
  try {
    history.replaceState(null, "", hash);
  } catch {
    // A page in a sandbox may not change its address.
  }
}

function recallState() {
  const state = new URLSearchParams(location.hash.slice(1));
  view = available().includes(state.get("view")) ? state.get("view") : "tree";
  search.words = (state.get("search") || "").toLowerCase();
  byId("search").value = search.words;
  for (const name of Object.keys(filters)) byId(`filter-${name}`).value = filters[name] = state.get(name) || "";
  const index = (name, count) =>
      state.has(name) && Number(state.get(name)) < count ? Math.trunc(Number(state.get(name))) : -1;
  const rank = index("rank", report.ranks.length), thread = index("thread", threads.count);
  update();
  select(thread >= 0 ? {type: "thread", thread} : rank >= 0 ? {type: "rank", rank} : null);
}

function makeTabs() {
  const tabs = available().map(
      (name, i) => make(
          "button", {
            type: "button",
            role: "tab",
            id: `tab-${name}`,
            "data-view": name,
            "aria-controls": "view",
            title: `key ${i + 1}`,
            on: {click: () => chooseView(name)}
          },
          VIEWS[name].title,
          ["differences", "problems"].includes(name) && make("span", {class: "number"}, `${report[name].length}`)));
  replace(byId("tabs"), tabs);
  byId("tabs").addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key], names = available();
    if (!step) return;
    event.preventDefault();
    chooseView(names[(names.indexOf(view) + step + names.length) % names.length]);
    byId(`tab-${view}`).focus();
  });
}

// A filter that has nothing to choose from is hidden.
function makeFilters() {
  const used = pick => [...new Set(report.thread_kinds.map(pick))].filter(word => word);
  const options = {
    role: used(kind => roleWord(kind[KIND.ROLE])),
    state: used(kind => text(kind[KIND.STATE])).sort(),
    host: [...new Set(report.ranks.map(rank => text(rank.host)))].sort()
  };
  for (const [name, words] of Object.entries(options)) {
    const field = byId(`filter-${name}`);
    append(field, words.map(word => make("option", {value: word}, name === "state" ? stateWords(word) : word)));
    field.parentElement.hidden = words.length < 2;
  }
  for (const name of Object.keys(filters))
    byId(`filter-${name}`).addEventListener("input", event => {
      filters[name] = event.target.value.trim();
      update();
    });
  byId("search").addEventListener("input", event => {
    search.words = event.target.value.trim().toLowerCase();
    update();
  });
  byId("filters").addEventListener("submit", event => event.preventDefault());
}

function makeButtons() {
  const isDark = () => document.documentElement.dataset.theme === "dark";
  const clicks = {
    clear: clearAll,
    close: () => select(null),
    theme: () => setTheme(isDark() ? "light" : "dark", true),
    keys: () => byId("help").showModal(),
    "help-close": () => byId("help").close()
  };
  for (const [id, action] of Object.entries(clicks)) byId(id).addEventListener("click", action);
}

function clearAll() {
  search.words = byId("search").value = "";
  setFilters({ranks: "", role: "", state: "", host: ""});
}

// Light or dark as the system says, until a person chooses. A page that may store nothing forgets the choice.
const THEME = "rankstacks-theme";
function setTheme(theme, keep) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
  if (!keep) return;
  try {
    localStorage.setItem(THEME, theme);
  } catch {
    // There is no storage for this page.
  }
}
function startTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const ofSystem = () => setTheme(dark.matches ? "dark" : "light", false);
  let kept = null;
  try {
    kept = localStorage.getItem(THEME);
  } catch {
    // There is no storage for this page.
  }
  if (kept === "dark" || kept === "light") setTheme(kept, false);
  else ofSystem();
  dark.addEventListener("change", ofSystem);
}

const KEYS = {
  "/": () => byId("search").focus(),
  "?": () => byId("help").showModal(),
  t: () => byId("theme").click(),
  e: () => setAllOpen(byId("view"), true),
  c: () => setAllOpen(byId("view"), false),
  x: clearAll,
  n: () => nextMatch(1),
  p: () => nextMatch(-1),
};

function nextMatch(step) {
  const hits = [...byId("view").querySelectorAll(".hit")];
  if (!hits.length) return;
  const at = hits.findIndex(hit => hit.classList.contains("current"));
  const next = hits[(at + step + hits.length) % hits.length];
  if (at >= 0) hits[at].classList.remove("current");
  next.classList.add("current");
  next.scrollIntoView({block: "center"});
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const inField = event.target.closest("input, select");
  if (event.key === "Escape" && !byId("help").open) {
    if (inField) inField.blur();
    else if (selected) select(null);
    else if (isFiltered()) clearAll();
    return;
  }
  if (event.key === "Enter" && event.target.id === "search") {
    event.preventDefault();
    nextMatch(1);
    return;
  }
  if (inField) return;
  const name = available()[Number(event.key) - 1];
  if (!KEYS[event.key] && !name) return;
  event.preventDefault();
  if (name) chooseView(name);
  else KEYS[event.key]();
}

// On paper: the tree with everything open, the waits, the GPUs and the problems.
function fillPrint() {
  const part = (title, show) => {
    const box = make("div", {});
    show(box);
    return [make("h2", {}, title), box];
  };
  replace(
      byId("print"),
      part(
          "Merged stacks",
          box => {
            showTree(box);
            setAllOpen(box, true, false);
          }),
      part("Waits", showWaits),
      report.gpus ? [make("h2", {}, "GPUs"), make("pre", {class: "lines"}, texts(report.gpu_summary).join("\n"))] :
                    null,
      report.differences && part("Differences", showDifferences),
      report.problems.length ? part("Problems", showProblems) : null, part("About", showAbout));
}

function start() {
  byId("page").hidden = false;
  document.title = `${text(report.verdict.status)}: ${text(report.verdict.summary).slice(0, 80)} - rankstacks`;
  byId("taken").textContent =
      `${text(report.version)} · ${text(report.captured_at).replace("T", " ").replace(/\.\d+Z$/, " UTC")}`;
  startTheme();
  colourClusters();
  makeTabs();
  makeFilters();
  makeButtons();
  showVerdict();
  showMap();
  recallState();
  addEventListener("keydown", onKey);
  addEventListener("hashchange", recallState);
  addEventListener("beforeprint", fillPrint);
  addEventListener("afterprint", () => replace(byId("print")));
  document.documentElement.dataset.ready = "yes";
}
start();
