#include "nodes/ask_nodes.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/file_descriptor.h"
#include "nodes/answer_book.h"
#include "nodes/gateways.h"
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
  if (question.start_at && !copying) return question.start_at;
  if (question.start_in.count() == 0) return std::nullopt;
  constexpr std::chrono::seconds kToCopy{1};
  const std::chrono::milliseconds delay = question.start_in + (copying ? kToCopy : std::chrono::seconds(0));
  return system_clock::now() + std::min<std::chrono::milliseconds>(delay, kMaxStartDelay);
}

// `limit`: of what the gateway runs. It asks at once; the nodes behind it wait for the common start.
std::vector<std::string> gateway_call(const NodeQuestion& question, const ToolFile& tool, const std::string& nonce,
                                      const std::string& gateway, const std::vector<std::string>& behind,
                                      std::chrono::seconds limit, std::optional<system_clock::time_point> start,
                                      bool copying) {
  EngineSettings engine = question.engine;
  engine.node_limit = limit + kMarginOfGateway;
  const NodeTask task{nonce, engine.node_limit, std::nullopt,
                      words_of_gateway(question.gateway_words, behind, limit, start)};
  return engine_call(engine, {gateway}, copying ? copy_and_run(tool, task) : find_and_run(tool, task), copying);
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
    EngineSettings engine = question_.engine;
    const known::Calls calls = known::rule_of(engine.engine).calls;
    relay_of_.assign(question_.hosts.size(), kNone);
    const std::vector<std::vector<std::size_t>> relayed = add_relays();
    std::vector<std::size_t> direct;
    for (std::size_t page = 0; page < question_.hosts.size(); ++page)
      if (relay_of_[page] == kNone) direct.push_back(page);
    std::vector<std::vector<std::size_t>> groups = groups_of(direct, calls);
    if (known::asks_once(engine.engine)) {
      ask(engine, groups, first_input());
      return answers();
    }
    groups.insert(groups.end(), relayed.begin(), relayed.end());
    ask(engine, groups, nullptr);
    if (calls == known::Calls::kOneForAll && direct.size() > 1 && nobody_answered() && goes_on()) {
      for (const std::size_t page : direct) book_.forget(page);
      ask(engine, groups_of(direct, known::Calls::kOneForEach), nullptr);
    }
    copy_where_needed(engine, asked_pages());
    ask_past_dead_gateways(engine);
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
  // A gateway that does not even begin: there may be time for another one.
  bool is_given_up(std::size_t call) const override {
    const std::size_t page = asked_[call].front();
    return relays_.contains(page) && !is_copying_ && !book_.pages()[page].node.clock_offset_ms &&
           !book_.is_answered(page) && system_clock::now() - started_[call] > question_.engine.connect + kMargin;
  }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;

  // Not those of nodes that have answered without being asked: their names are their own words.
  std::vector<std::size_t> asked_pages() const {
    std::vector<std::size_t> pages(question_.hosts.size());
    std::iota(pages.begin(), pages.end(), std::size_t{0});
    for (const auto& [page, relay] : relays_) pages.push_back(page);
    return pages;
  }

  // A group of one page for each.
  std::vector<std::vector<std::size_t>> add_pages_of(std::vector<Relay> relays) {
    std::vector<std::vector<std::size_t>> groups;
    for (Relay& relay : relays) {
      const std::size_t page = book_.add_page(relay.host);
      for (const std::size_t behind : relay.behind) relay_of_[behind] = page;
      relays_.emplace(page, std::move(relay));
      groups.push_back({page});
    }
    return groups;
  }

  std::vector<std::vector<std::size_t>> add_relays() {
    std::vector<Relay> relays;
    for (std::size_t b = 0; b < question_.tree.branches.size(); ++b) {
      const Branch& branch = question_.tree.branches[b];
      std::vector<std::size_t> behind;
      for (const std::string& host : branch.behind) behind.push_back(book_.page_of_host(host));
      std::vector<Relay> shared = share(b, branch.gateways, behind);
      std::move(shared.begin(), shared.end(), std::back_inserter(relays));
    }
    return add_pages_of(std::move(relays));
  }

  bool has_answer(std::size_t page) const {
    const NodePage& p = book_.pages()[page];
    return !p.has_fault && !p.lacks_tool && p.answer.has_ended();
  }

  // Nodes whose gateway has not answered are asked through another one that has; where there is none, by ssh.
  void ask_past_dead_gateways(const EngineSettings& engine) {
    while (goes_on() && has_time_to_ask_again(engine, question_.start_in, deadline_)) {
      std::set<std::string> alive, dead;
      for (const auto& [page, relay] : relays_) (has_answer(page) ? alive : dead).insert(relay.host);
      std::map<std::size_t, std::vector<std::size_t>> orphans;  // by branch
      for (std::size_t page = 0; page < relay_of_.size(); ++page)
        if (relay_of_[page] != kNone && !has_answer(relay_of_[page]))
          orphans[relays_.at(relay_of_[page]).branch].push_back(page);
      std::vector<std::size_t> alone;
      std::vector<Relay> again;
      for (const auto& [branch, pages] : orphans) {
        std::vector<std::string> gateways = question_.tree.branches[branch].gateways;
        std::erase_if(gateways, [&](const std::string& host) { return !alive.contains(host) || dead.contains(host); });
        std::vector<Relay> shared = share(branch, gateways, pages);
        if (shared.empty()) alone.insert(alone.end(), pages.begin(), pages.end());
        std::move(shared.begin(), shared.end(), std::back_inserter(again));
      }
      if (again.empty()) return ask_alone(alone);
      ask(engine, add_pages_of(std::move(again)), nullptr);
      copy_where_needed(engine, asked_pages());
    }
  }

  void ask_alone(const std::vector<std::size_t>& pages) {
    if (pages.empty()) return;
    EngineSettings ssh = question_.engine;
    ssh.engine = known::Engine::kSsh;
    ssh.options.clear();
    for (const std::size_t page : pages) {
      book_.pages()[page].node.engine = known::rule_of(ssh.engine).name;
      alone_.insert(page);
    }
    ask(ssh, groups_of(pages, known::Calls::kOneForEach), nullptr);
    copy_where_needed(ssh, pages);
  }

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
    is_copying_ = packed_tool != nullptr;
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
      if (const auto relay = relays_.find(pages.front()); relay != relays_.end()) {
        calls.push_back(call_of(relay->second, start, packed_tool));
        continue;
      }
      std::vector<std::string> hosts;
      for (const std::size_t page : pages) hosts.push_back(book_.pages()[page].node.name);
      calls.push_back({engine_call(engine, hosts, words, packed_tool != nullptr), packed_tool,
                       engine.node_limit + engine.connect + kMargin, known::asks_once(engine.engine)});
    }
    // A gateway that had to wait for its turn would have less time than it was given.
    const std::size_t at_once = relays_.empty() ? engine.fanout : std::max(engine.fanout, calls.size());
    const std::vector<Outcome> outcomes = fan_out(calls, at_once, deadline_, interrupts_, *this);
    for (std::size_t call = 0; call < calls.size(); ++call)
      book_.end_call(asked_[call], outcomes[call], is_given_up(call) ? engine.connect + kMargin : engine.node_limit);
    if (known::asks_once(engine.engine)) blame_containers();
  }

  Call call_of(const Relay& relay, std::optional<system_clock::time_point> start,
               const std::shared_ptr<const std::string>& packed_tool) const {
    std::vector<std::string> behind;
    for (const std::size_t page : relay.behind) behind.push_back(book_.pages()[page].node.name);
    const std::chrono::seconds limit = limit_of_gateway(question_.engine, deadline_);
    return {gateway_call(question_, tool_, nonce_, relay.host, behind, limit, start, packed_tool != nullptr),
            packed_tool, limit + question_.engine.connect + kMarginOfGateway + kMargin};
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

  // Of `pages` those that lack it.
  void copy_where_needed(EngineSettings engine, const std::vector<std::size_t>& pages) {
    std::vector<std::size_t> lacking, relays;
    for (const std::size_t page : pages)
      if (book_.pages()[page].lacks_tool) (relays_.contains(page) ? relays : lacking).push_back(page);
    if ((lacking.empty() && relays.empty()) || !question_.copies || !goes_on()) return;
    auto bytes = read_own_file();
    auto packed = bytes ? report::pack(*bytes, report::Packing::kGzip, "the tool") : std::move(bytes);
    if (!packed) return;
    // One that gives its input to no node is helped by ssh, which pdsh and mpirun use themselves.
    if (!known::rule_of(engine.engine).gives_input) {
      engine.engine = known::Engine::kSsh;
      engine.options.clear();
    }
    std::vector<std::vector<std::size_t>> groups = groups_of(lacking, known::rule_of(engine.engine).calls);
    for (const std::size_t page : relays) groups.push_back({page});
    for (const std::vector<std::size_t>& group : groups)
      for (const std::size_t page : group) book_.forget(page);
    ask(engine, std::move(groups), std::make_shared<const std::string>(std::move(*packed)));
  }

  // What is said of a node that has not answered, and its gateway neither. That there is no way to it does not show
  // that it is dead.
  void blame_gateway(std::size_t page) {
    NodePage& silent = book_.pages()[page];
    const NodePage& gateway = book_.pages()[relay_of_[page]];
    const NodeFault fault = gateway.lacks_tool                ? NodeFault::kCannotCopy
                            : may_be_dead(gateway.node.fault) ? NodeFault::kConnectionLost
                                                              : gateway.node.fault;
    std::string& said = silent.node.said;
    if (!alone_.contains(page)) silent.has_fault = true, silent.node.fault = fault;  // there was no time left
    else if (may_be_dead(silent.node.fault)) silent.node.fault = fault;
    const std::string why = gateway.lacks_tool ? "the tool is not there" : gateway.node.said;
    said = fmt::format("its gateway {}{}{}{}{}", gateway.node.name, why.empty() ? "" : ": ", why,
                       said.empty() ? "" : "; ", said);
    said.resize(std::min(said.size(), AnswerBook::kMaxSaid));
  }

  std::vector<NodeAnswer> answers() {
    std::vector<NodeAnswer> answers;
    for (std::size_t number = 0; number < book_.pages().size(); ++number) {
      const std::size_t relay = number < relay_of_.size() ? relay_of_[number] : kNone;
      const bool is_relay = relays_.contains(number);
      // Of a gateway that has not answered, the nodes behind it say it.
      if (is_relay && !has_answer(number)) continue;
      const bool is_behind = relay != kNone && has_answer(relay);
      if (relay != kNone && !is_behind && !has_answer(number)) blame_gateway(number);
      NodePage& page = book_.pages()[number];
      NodeAnswer& answer = answers.emplace_back();
      answer.is_gateway = is_relay;
      if (is_behind) answer.gateway = book_.pages()[relay].node.name;
      answer.node = std::move(page.node);
      if (is_behind) continue;
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
  std::map<std::size_t, Relay> relays_;          // by page
  std::vector<std::size_t> relay_of_;  // by page of a host: the page of the gateway that was asked for it last
  std::set<std::size_t> alone_;        // pages that were asked without their gateway
  known::Engine asking_ = known::Engine::kSsh;
  bool is_copying_ = false;
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
    std::set<std::string> behind;
    for (const Branch& branch : question.tree.branches) behind.insert(branch.behind.begin(), branch.behind.end());
    std::vector<std::string> direct;
    for (const std::string& host : question.hosts)
      if (!behind.contains(host)) direct.push_back(host);
    if (known::rule_of(engine.engine).calls == known::Calls::kOneForAll) {
      if (!direct.empty()) calls.push_back(engine_call(engine, direct, words, copying));
    } else {
      for (const std::string& host : direct) calls.push_back(engine_call(engine, {host}, words, copying));
    }
    for (const Branch& branch : question.tree.branches) {
      std::vector<std::size_t> places(branch.behind.size());
      std::iota(places.begin(), places.end(), std::size_t{0});
      for (const Relay& relay : share(0, branch.gateways, places)) {
        std::vector<std::string> of_gateway;
        for (const std::size_t place : relay.behind) of_gateway.push_back(branch.behind[place]);
        calls.push_back(gateway_call(question, tool, task.nonce, relay.host, of_gateway,
                                     limit_of_gateway(engine, Deadline::never()), task.start_at, copying));
      }
    }
  }
  return planned;
}

std::vector<NodeAnswer> ask_nodes(const NodeQuestion& question, const ToolFile& tool, const Deadline& deadline,
                                  const Interrupts& interrupts) {
  return Asking(question, tool, deadline, interrupts).run();
}

}  // namespace rankstacks::nodes
