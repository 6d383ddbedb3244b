#include "diff/diff_json.h"

#include "analyzers/difference_words.h"
#include "analyzers/place.h"
#include "diff/diff_words.h"
#include "report/json_frame.h"
#include "report/json_text.h"
#include "report/json_words.h"

namespace rankstacks::diff {
namespace {

class Writer {
 public:
  Writer(const Sides& sides, const JobDiff& diff) : sides_(sides), diff_(diff), json_(1 << 16) {}

  std::string write(const std::string& old_path, const std::string& now_path) {
    json_.open_document(RANKSTACKS_VERSION);
    side("old", sides_.old, old_path);
    side("new", sides_.now, now_path);
    json_.field("between_ms", diff_.between_ms);
    word("outcome", to_string(diff_.outcome));
    json_.field("summary", summary_of(sides_, diff_));
    array("processes", diff_.processes, [&](const ProcessChange& one) { process(one); });
    array("gone", diff_.gone, [&](const LoneProcess& one) { lone(sides_.old.job, one); });
    array("joined", diff_.joined, [&](const LoneProcess& one) { lone(sides_.now.job, one); });
    array("counters", diff_.counters, [&](const RankCounter& one) { counter(one); });
    array("clusters", diff_.clusters, [&](const ClusterChange& one) { cluster(one); });
    verdict();
    array("settings", diff_.settings, [&](const SettingChange& one) { setting(one); });
    array("differences", diff_.differences, [&](const DifferenceChange& one) { difference(one); });
    json_.close();
    return json_.take() + "\n";
  }

 private:
  template <class T, class F>
  void array(std::string_view name, const std::vector<T>& values, F&& write_one, bool lines = true) {
    json_.key(name);
    json_.open('[', lines);
    for (const T& value : values) write_one(value);
    json_.close();
  }

  void word(std::string_view name, std::string_view value) { json_.field(name, std::string(value)); }

  // As in the report: a rank's number, or "host:pid".
  void label(const JobSnapshot& job, std::size_t index) {
    const RankSnapshot& rank = job.ranks[index];
    if (rank.kind == RankKind::kRank && rank.rank) json_.number(*rank.rank);
    else json_.string(rank_label(rank));
  }
  void labels(std::string_view name, const JobSnapshot& job, const std::vector<std::size_t>& indices) {
    array(
        name, indices, [&](std::size_t index) { label(job, index); }, false);
  }

  void side(std::string_view name, const Side& side, const std::string& path) {
    json_.key(name);
    json_.open('{');
    json_.field("path", path);
    json_.field("captured_at", side.job.captured_at);
    json_.field("version", side.job.tool_version);
    json_.key("ranks"), json_.number(side.job.ranks.size());
    word("verdict", analyzers::to_string(side.analysis.verdict.status));
    json_.field("summary", side.analysis.verdict.summary);
    json_.close();
  }

  void process(const ProcessChange& change) {
    const RankSnapshot &old = sides_.old.job.ranks[change.pair.old], &now = sides_.now.job.ranks[change.pair.now];
    json_.open('{', true);
    json_.key("rank"), label(sides_.now.job, change.pair.now);
    word("kind", word_of(report::kRankKindWords, now.kind));
    word("match", to_string(change.pair.match));
    word("movement", to_string(change.movement));
    json_.field("host", now.host);
    json_.key("pid"), json_.number(now.pid);
    json_.field("old_host", old.host);
    json_.key("old_pid"), json_.number(old.pid);
    array("threads", change.threads, [&](const ThreadChange& one) { thread(change.pair, one); });
    lone_threads("ended", sides_.old, change.pair.old, change.pair.ended);
    lone_threads("begun", sides_.now, change.pair.now, change.pair.begun);
    json_.close();
  }

  std::string place(const Side& side, std::size_t process, std::size_t thread) const {
    return analyzers::describe_place(side.job, side.job.ranks[process].threads[thread]);
  }

  void thread(const ProcessPair& pair, const ThreadChange& change) {
    json_.open('{');
    json_.key("tid"), json_.number(sides_.now.job.ranks[pair.now].threads[change.pair.now].tid);
    json_.key("old_tid"), json_.number(sides_.old.job.ranks[pair.old].threads[change.pair.old].tid);
    json_.field("role", known::to_string(sides_.now.analysis.roles[pair.now][change.pair.now]));
    word("movement", to_string(change.movement));
    json_.key("moved_by");
    change.moved_by ? json_.string(to_string(*change.moved_by)) : json_.null();
    json_.field("ran_ms", change.ran_ms);
    json_.field("old_place", place(sides_.old, pair.old, change.pair.old));
    json_.field("place", place(sides_.now, pair.now, change.pair.now));
    if (!change.counters.empty())
      array(
          "counters", change.counters,
          [&](const Counter& one) {
            json_.open('{');
            json_.field("name", one.name);
            json_.key("old"), json_.number(one.old);
            json_.key("new"), json_.number(one.now);
            json_.close();
          },
          false);
    json_.close();
  }

  void lone_threads(std::string_view name, const Side& side, std::size_t process,
                    const std::vector<std::size_t>& threads) {
    array(name, threads, [&](std::size_t t) {
      json_.open('{');
      json_.key("tid"), json_.number(side.job.ranks[process].threads[t].tid);
      json_.field("role", known::to_string(side.analysis.roles[process][t]));
      json_.field("place", place(side, process, t));
      json_.close();
    });
  }

  void lone(const JobSnapshot& job, const LoneProcess& process) {
    const RankSnapshot& rank = job.ranks[process.index];
    json_.open('{');
    json_.key("rank"), label(job, process.index);
    word("kind", word_of(report::kRankKindWords, rank.kind));
    word("absence", to_string(process.absence));
    json_.field("host", rank.host);
    json_.key("pid"), json_.number(rank.pid);
    json_.close();
  }

  void counter(const RankCounter& counter) {
    json_.open('{');
    json_.key("rank"), label(sides_.now.job, counter.now_rank);
    word("counter", to_string(counter.kind));
    json_.field("group", counter.group);
    json_.key("old"), json_.number(counter.old);
    json_.key("new"), json_.number(counter.now);
    json_.close();
  }

  void cluster(const ClusterChange& change) {
    const auto* old = change.old ? &sides_.old.analysis.clusters[*change.old] : nullptr;
    const auto* now = change.now ? &sides_.now.analysis.clusters[*change.now] : nullptr;
    const analyzers::Cluster& either = now != nullptr ? *now : *old;
    json_.open('{', true);
    word("fate", to_string(change.fate));
    json_.field("role", known::to_string(either.role));
    labels("old_ranks", sides_.old.job, old != nullptr ? old->ranks : std::vector<std::size_t>());
    labels("ranks", sides_.now.job, now != nullptr ? now->ranks : std::vector<std::size_t>());
    json_.key("old_threads"), json_.number(old != nullptr ? old->members.size() : 0);
    json_.key("threads"), json_.number(now != nullptr ? now->members.size() : 0);
    labels("joined", sides_.now.job, change.joined);
    labels("left", sides_.old.job, change.left);
    array("frames", either.frames, [&](FrameId id) { json_.raw(report::json_of_frame(sides_.now.job.frames[id])); });
    json_.close();
  }

  void suspect_rank(const JobSnapshot& job, const analyzers::Suspect& suspect) {
    suspect.missing_rank >= 0 ? json_.number(suspect.missing_rank) : label(job, suspect.rank);
  }

  void suspect_side(std::string_view reason, std::string_view confidence, const analyzers::Suspect* suspect) {
    json_.key(reason);
    suspect != nullptr ? json_.string(analyzers::to_string(suspect->reason)) : json_.null();
    json_.key(confidence);
    suspect != nullptr ? json_.number(suspect->confidence) : json_.null();
  }

  void verdict() {
    const analyzers::Verdict &old = sides_.old.analysis.verdict, &now = sides_.now.analysis.verdict;
    json_.key("verdict");
    json_.open('{', true);
    json_.key("same"), json_.boolean(diff_.verdict.same);
    word("old", analyzers::to_string(old.status));
    word("new", analyzers::to_string(now.status));
    array("suspects", diff_.verdict.suspects, [&](const SuspectChange& change) {
      const auto* before = change.old ? &old.suspects[*change.old] : nullptr;
      const auto* after = change.now ? &now.suspects[*change.now] : nullptr;
      json_.open('{');
      json_.key("rank");
      after != nullptr ? suspect_rank(sides_.now.job, *after) : suspect_rank(sides_.old.job, *before);
      suspect_side("old_reason", "old_confidence", before);
      suspect_side("reason", "confidence", after);
      json_.close();
    });
    json_.close();
  }

  void setting(const SettingChange& change) {
    const auto known = [](const std::string& value) { return value.empty() ? std::nullopt : std::optional(value); };
    json_.open('{');
    word("setting", to_string(change.setting));
    if (!change.name.empty()) json_.field("name", change.name);
    json_.field("old", known(change.old));
    json_.field("new", known(change.now));
    labels("ranks", sides_.now.job, change.ranks);
    json_.close();
  }

  void difference(const DifferenceChange& change) {
    const bool came = change.fate == DifferenceFate::kCame;
    const Side& side = came ? sides_.now : sides_.old;
    const analyzers::Difference& difference = side.analysis.differences[change.index];
    json_.open('{');
    word("fate", came ? "came" : "went");
    word("kind", analyzers::to_string(difference.kind));
    if (!difference.name.empty()) json_.field("name", difference.name);
    json_.field("summary", analyzers::describe(side.job, difference));
    json_.close();
  }

  const Sides& sides_;
  const JobDiff& diff_;
  report::JsonText json_;
};

}  // namespace

std::string diff_json(const Sides& sides, const JobDiff& diff, const std::string& old_path,
                      const std::string& now_path) {
  return Writer(sides, diff).write(old_path, now_path);
}

}  // namespace rankstacks::diff
