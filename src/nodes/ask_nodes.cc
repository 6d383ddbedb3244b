#include "nodes/ask_nodes.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <random>

#include <fmt/format.h>

#include "base/file_descriptor.h"
#include "nodes/answer_book.h"
#include "report/packed.h"

namespace rankstacks::nodes {
namespace {

using std::chrono::system_clock;

constexpr std::size_t kMaxTool = std::size_t{1} << 30;
// Beyond what the node itself takes: the start of the engine, and its end.
constexpr std::chrono::seconds kMargin{5};

Result<std::string> read_own_file() {
  const FileDescriptor file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  std::string bytes;
  bytes.reserve(std::size_t{1} << 26);
  char piece[65536];
  ssize_t n = 0;
  while (file.is_open() && ((n = read(file.get(), piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR)))
    if (n > 0 && bytes.size() < kMaxTool) bytes.append(piece, static_cast<std::size_t>(n));
  if (!file.is_open() || n < 0 || bytes.size() >= kMaxTool)
    return fail({.subject = "/proc/self/exe", .what = "cannot be read", .os_errno = errno});
  return bytes;
}

std::string new_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::vector<std::vector<std::size_t>> groups_of(const std::vector<std::size_t>& pages, known::Calls calls) {
  std::vector<std::vector<std::size_t>> groups;
  if (calls == known::Calls::kOneForAll && !pages.empty()) groups.push_back(pages);
  else
    for (const std::size_t page : pages) groups.push_back({page});
  return groups;
}

// When nodes that are asked now begin. To take the tool along takes longer.
std::optional<system_clock::time_point> start_of(const NodeQuestion& question, bool copying) {
  if (question.start_in.count() == 0) return std::nullopt;
  constexpr std::chrono::seconds kToCopy{1};
  const std::chrono::milliseconds delay = question.start_in + (copying ? kToCopy : std::chrono::seconds(0));
  return system_clock::now() + std::min<std::chrono::milliseconds>(delay, kMaxStartDelay);
}

class Asking : public CallListener {
 public:
  Asking(const NodeQuestion& question, const ToolFile& tool, const Deadline& deadline, const Interrupts& interrupts)
      : question_(question),
        tool_(tool),
        deadline_(deadline),
        interrupts_(interrupts),
        nonce_(new_nonce()),
        book_(question.hosts, nonce_, std::string(known::rule_of(question.engine.engine).name)) {}

  std::vector<NodeAnswer> run() {
    std::vector<std::size_t> all;
    for (std::size_t page = 0; page < question_.hosts.size(); ++page) all.push_back(page);
    EngineSettings engine = question_.engine;
    const known::Calls calls = known::rule_of(engine.engine).calls;
    if (known::asks_once(engine.engine)) {
      ask(engine, groups_of(all, calls), first_input());
      return answers();
    }
    ask(engine, groups_of(all, calls), nullptr);
    if (calls == known::Calls::kOneForAll && all.size() > 1 && nobody_answered() && goes_on()) {
      for (const std::size_t page : all) book_.forget(page);
      ask(engine, groups_of(all, known::Calls::kOneForEach), nullptr);
    }
    copy_where_needed(engine);
    return answers();
  }

  void started(std::size_t call) override { started_[call] = system_clock::now(); }
  void line(std::size_t call, bool is_error, std::string_view text) override {
    book_.take_line(asked_[call], started_[call], is_error, text);
  }
  bool is_done(std::size_t call) const override {
    return std::all_of(asked_[call].begin(), asked_[call].end(), [&](std::size_t page) {
      return book_.is_answered(page) || (known::outlives_refusals(asking_) && book_.is_refused(page));
    });
  }

 private:
  bool goes_on() const { return !interrupts_.have_come() && !deadline_.passed(); }

  bool nobody_answered() const {
    return std::none_of(book_.pages().begin(), book_.pages().end(), [](const NodePage& page) {
      return page.lacks_tool || !page.answer.is_empty() || (page.has_fault && page.node.fault == NodeFault::kCannotRun);
    });
  }

  void ask(const EngineSettings& engine, std::vector<std::vector<std::size_t>> groups,
           const std::shared_ptr<const std::string>& packed_tool) {
    asked_ = std::move(groups);
    asking_ = engine.engine;
    started_.assign(asked_.size(), {});
    const auto start = start_of(question_, packed_tool != nullptr);
    book_.set_start(start);
    const NodeTask task{nonce_, engine.node_limit, start, question_.words};
    const std::vector<std::string> words = known::asks_once(engine.engine)
                                               ? await_and_run(tool_, task, question_.copies)
                                           : packed_tool ? copy_and_run(tool_, task)
                                                         : find_and_run(tool_, task);
    std::vector<Call> calls;
    for (const std::vector<std::size_t>& pages : asked_) {
      std::vector<std::string> hosts;
      for (const std::size_t page : pages) hosts.push_back(question_.hosts[page]);
      calls.push_back({engine_call(engine, hosts, words, packed_tool != nullptr), packed_tool,
                       engine.node_limit + engine.connect + kMargin, known::asks_once(engine.engine)});
    }
    const std::vector<Outcome> outcomes = fan_out(calls, engine.fanout, deadline_, interrupts_, *this);
    for (std::size_t call = 0; call < calls.size(); ++call)
      book_.end_call(asked_[call], outcomes[call], engine.node_limit);
    if (known::asks_once(engine.engine)) blame_containers();
  }

  // A container that has not started in time says nothing of its node.
  void blame_containers() {
    for (NodePage& page : book_.pages()) {
      NodeSnapshot& node = page.node;
      if (node.fault != NodeFault::kTimeout || node.clock_offset_ms) continue;
      node.fault = NodeFault::kCannotRun;
      node.hint =
          "the ephemeral container has not started: its image may still be pulled, or cannot be, or the pod has no "
          "container of the name that --container gives; `kubectl describe pod` says";
    }
  }

  // The line for which a node waits, with the bytes of the tool behind it, and the tool.
  std::shared_ptr<const std::string> first_input() const {
    auto bytes = question_.copies ? read_own_file() : Result<std::string>(std::string());
    auto packed =
        bytes && !bytes->empty() ? report::pack(*bytes, report::Packing::kGzip, "the tool") : std::move(bytes);
    if (!packed) packed = std::string();
    return std::make_shared<const std::string>(fmt::format("{}\n", packed->size()) + *packed);
  }

  void copy_where_needed(EngineSettings engine) {
    std::vector<std::size_t> lacking;
    for (std::size_t page = 0; page < question_.hosts.size(); ++page)
      if (book_.pages()[page].lacks_tool) lacking.push_back(page);
    if (lacking.empty() || !question_.copies || !goes_on()) return;
    auto bytes = read_own_file();
    auto packed = bytes ? report::pack(*bytes, report::Packing::kGzip, "the tool") : std::move(bytes);
    if (!packed) return;
    // One that gives its input to no node is helped by ssh, which pdsh and mpirun use themselves.
    if (!known::rule_of(engine.engine).gives_input) {
      engine.engine = known::Engine::kSsh;
      engine.options.clear();
    }
    for (const std::size_t page : lacking) book_.forget(page);
    ask(engine, groups_of(lacking, known::rule_of(engine.engine).calls),
        std::make_shared<const std::string>(std::move(*packed)));
  }

  std::vector<NodeAnswer> answers() {
    std::vector<NodeAnswer> answers;
    for (NodePage& page : book_.pages()) {
      NodeAnswer& answer = answers.emplace_back();
      answer.node = std::move(page.node);
      if (page.lacks_tool) {
        answer.node.fault = NodeFault::kCannotCopy;
        answer.node.said = "the tool is not there";
        answer.node.hint = "it has to be at the same path as here, or in PATH, and the same build";
        continue;
      }
      if (!page.has_fault) answer.answer = std::move(page.answer);
    }
    return answers;
  }

  const NodeQuestion& question_;
  const ToolFile& tool_;
  const Deadline& deadline_;
  const Interrupts& interrupts_;
  std::string nonce_;
  AnswerBook book_;
  std::vector<std::vector<std::size_t>> asked_;  // by call: pages
  known::Engine asking_ = known::Engine::kSsh;
  std::vector<system_clock::time_point> started_;
};

}  // namespace

Result<ToolFile> own_file() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  auto bytes = read_own_file();
  if (!bytes) return fail(bytes.error());
  return ToolFile{length > 0 ? std::string(path, static_cast<std::size_t>(length)) : "", hex_sha256(*bytes),
                  bytes->size()};
}

std::optional<NodeReply> take_reply(NodeAnswer& answer) {
  if (!answer.answer) return std::nullopt;
  auto reply = answer.answer->take(answer.node.name);
  answer.answer.reset();
  if (reply) return std::move(*reply);
  answer.node.fault = NodeFault::kMalformed;
  answer.node.said = reply.error().what;
  return std::nullopt;
}

PlannedCalls plan_calls(const NodeQuestion& question, const ToolFile& tool) {
  PlannedCalls planned;
  for (const bool copying : {false, true}) {
    const NodeTask task{new_nonce(), question.engine.node_limit, start_of(question, copying), question.words};
    EngineSettings engine = question.engine;
    if (known::asks_once(engine.engine)) {
      if (copying) break;
      const std::vector<std::string> words = await_and_run(tool, task, question.copies);
      for (const std::string& host : question.hosts) planned.first.push_back(engine_call(engine, {host}, words, true));
      continue;
    }
    if (copying && !known::rule_of(engine.engine).gives_input) engine.engine = known::Engine::kSsh;
    const std::vector<std::string> words = copying ? copy_and_run(tool, task) : find_and_run(tool, task);
    auto& calls = copying ? planned.copying : planned.first;
    if (known::rule_of(engine.engine).calls == known::Calls::kOneForAll) {
      calls.push_back(engine_call(engine, question.hosts, words, copying));
      continue;
    }
    for (const std::string& host : question.hosts) calls.push_back(engine_call(engine, {host}, words, copying));
  }
  return planned;
}

std::vector<NodeAnswer> ask_nodes(const NodeQuestion& question, const ToolFile& tool, const Deadline& deadline,
                                  const Interrupts& interrupts) {
  return Asking(question, tool, deadline, interrupts).run();
}

}  // namespace rankstacks::nodes
