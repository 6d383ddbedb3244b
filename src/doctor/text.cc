// The examination for people: one line for each finding; what is wrong is followed by what fixes it.
//
//     This machine
//       ok       ptrace           tried on a process of its own: it can be seized
//       problem  core-limit       ulimit -c is 0: jobs started from here leave no core
//                                 -> ulimit -c unlimited, before the job is started
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>

#include "base/text.h"
#include "doctor/doctor.h"
#include "report/sanitize.h"
#include "report/text_style.h"

namespace rankstacks::doctor {
namespace {

constexpr std::size_t kCheckAt = 11;  // "  problem  "
constexpr std::size_t kMaxPids = 8;

const char* word_of(Severity severity) {
  return severity == Severity::kOk ? "ok" : severity == Severity::kNote ? "note" : "problem";
}

bool same(const Section& a, const Section& b) {
  return a.pid.has_value() && b.pid.has_value() && a.name == b.name &&
         std::equal(a.findings.begin(), a.findings.end(), b.findings.begin(), b.findings.end(),
                    [](const Finding& x, const Finding& y) {
                      // No two cores have one size: the largest one is shown.
                      const bool alike = x.core && y.core ? x.core->fate == y.core->fate : x.found == y.found;
                      return x.check == y.check && x.severity == y.severity && alike && x.mends == y.mends;
                    });
}

// Processes with the same findings, shown once.
struct Group {
  const Section* section;
  std::vector<Pid> pids;
  std::vector<const Section*> all = {};
};

// Of the findings at one place in the sections of a group, the one to be shown.
std::string found_in(const Group& g, std::size_t at) {
  const Finding* shown = &g.section->findings[at];
  bool differ = false;
  for (const Section* section : g.all) {
    const Finding& other = section->findings[at];
    differ |= other.found != shown->found;
    if (other.core && other.core->bytes > shown->core->bytes) shown = &other;
  }
  return (differ ? "of the largest one, " : "") + shown->found;
}

std::vector<Group> group(const std::vector<Section>& sections) {
  std::vector<Group> groups;
  for (const Section& section : sections) {
    const auto it =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return same(*g.section, section); });
    if (it != groups.end()) {
      it->pids.push_back(*section.pid);
      it->all.push_back(&section);
    } else {
      groups.push_back({&section, section.pid ? std::vector<Pid>{*section.pid} : std::vector<Pid>{}});
    }
  }
  return groups;
}

std::string heading(const Group& g) {
  const Section& s = *g.section;
  const std::string name = s.name.empty() ? "" : fmt::format(" ({})", report::sanitize(s.name));
  if (s.path) return fmt::format("Core {}{}", report::sanitize(*s.path), name);
  if (g.pids.empty()) return "This machine";
  if (g.pids.size() == 1) return fmt::format("Process {}{}", g.pids[0], name);
  const auto shown = std::min(g.pids.size(), kMaxPids);
  return fmt::format("{} processes{}: {}{}", g.pids.size(), name,
                     fmt::join(g.pids.begin(), g.pids.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     shown < g.pids.size() ? ", ..." : "");
}

std::string with_pids(std::string mend, const std::vector<Pid>& pids) {
  const std::size_t at = mend.find(kPid);
  if (at == std::string::npos) return mend;
  mend.replace(at, kPid.size(), pids.size() == 1 ? std::to_string(pids[0]) : "$pid");
  return pids.size() == 1 ? mend : fmt::format("for pid in {}; do {}; done", fmt::join(pids, " "), mend);
}

// `text` broken at blanks into lines of at most `width` columns, those after the first indented.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string out, line;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && indent + report::columns_of(line) + 1 + report::columns_of(word) > width) {
      out += line + '\n' + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  return out + line;
}

std::string verdict_on(const Examination& e, Area area, const char* nothing, const report::TextStyle& style) {
  std::size_t problems = 0;
  for (const Section& s : e.sections)
    problems += static_cast<std::size_t>(std::count_if(s.findings.begin(), s.findings.end(), [area](const Finding& f) {
      return f.area == area && f.severity == Severity::kProblem;
    }));
  return problems == 0 ? style.good(nothing) : style.alarm(counted(problems, "problem"));
}

// Whether there are GPUs: a machine without any says so in a single finding.
bool has_gpus(const Examination& e) {
  std::size_t findings = 0;
  for (const Section& s : e.sections)
    findings += static_cast<std::size_t>(
        std::count_if(s.findings.begin(), s.findings.end(), [](const Finding& f) { return f.area == Area::kGpu; }));
  return findings > 1;
}

}  // namespace

std::string text_of(const Examination& examination, const TextOptions& options) {
  const report::TextStyle style(options.color);
  std::size_t longest = 0;
  for (const Section& s : examination.sections)
    for (const Finding& f : s.findings) longest = std::max(longest, f.check.size());
  const std::size_t text_at = kCheckAt + longest + 2;

  std::string out;
  bool machine = false;
  for (const Group& g : group(examination.sections)) {
    if (!g.section->pid && !g.section->path) machine = true;
    out += style.strong(heading(g)) + '\n';
    for (std::size_t i = 0; i < g.section->findings.size(); ++i) {
      const Finding& f = g.section->findings[i];
      std::string word = fmt::format("{:<7}", word_of(f.severity));
      word = f.severity == Severity::kProblem ? style.alarm(word)
             : f.severity == Severity::kOk    ? style.good(word)
                                              : style.strong(word);
      out += fmt::format("  {}  {:<{}}{}\n", word, f.check, longest + 2,
                         wrapped(report::sanitize(found_in(g, i)), text_at, options.width));
      // Not broken into lines, so that they can be copied.
      for (const std::string& mend : f.mends)
        out += fmt::format("{:{}}-> {}\n", "", text_at, report::sanitize(with_pids(mend, g.pids)));
    }
    out += '\n';
  }
  if (machine) {
    out += fmt::format("Attach: {}. Cores: {}.", verdict_on(examination, Area::kAttach, "nothing stops it", style),
                       verdict_on(examination, Area::kCores, "nothing stops them", style));
    if (has_gpus(examination))
      out += fmt::format(" GPU state: {}.", verdict_on(examination, Area::kGpu, "nothing stops it", style));
    out += '\n';
  } else
    out += fmt::format("Cores: {}.\n", verdict_on(examination, Area::kCores, "they can be read as they are", style));
  return out;
}

}  // namespace rankstacks::doctor
