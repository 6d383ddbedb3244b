#include "capture/tensorflow_cluster.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "model/file_rank.h"

namespace rankstacks::capture {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxText = std::size_t{1} << 20;
constexpr std::size_t kMaxDepth = 8;  // of a TF_CONFIG: 3, and what launchers add

// In the order of their ranks.
constexpr std::array<std::string_view, 3> kRankTasks = {"chief", "master", "worker"};

bool is_loopback(std::string_view address) {
  return address.starts_with("localhost:") || address.starts_with("127.") || address.starts_with("[::1]:");
}

struct Tasks {
  std::int64_t count = 0;
  std::string first;
  bool on_one_machine = true;
};

// Takes the three members that count, and skips the others. An array's place in the path is "".
class Reader : public nlohmann::json_sax<Json> {
 public:
  std::array<Tasks, kRankTasks.size()> tasks;
  std::string type;
  std::int64_t index = -1;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return number(value <= number_unsigned_t{kMaxRank} ? static_cast<std::int64_t>(value) : -1);
  }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t& value) override {
    if (is_in_task() && key_ == "type") type = value;
    int stated = -1;
    const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), stated);
    if (error == std::errc() && stop == value.data() + value.size()) number(stated);
    Tasks* of_type = path_.size() == 3 && path_[1] == "cluster" ? tasks_of(path_[2]) : nullptr;
    if (of_type == nullptr) return true;
    if (of_type->count++ == 0) of_type->first = value;
    of_type->on_one_machine = of_type->on_one_machine && is_loopback(value);
    return true;
  }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& value) override { return key_ = value, true; }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool is_in_task() const { return path_.size() == 2 && path_[1] == "task"; }
  bool number(std::int64_t value) {
    if (is_in_task() && key_ == "index") index = value;
    return true;
  }
  Tasks* tasks_of(std::string_view name) {
    const auto* const it = std::find(kRankTasks.begin(), kRankTasks.end(), name);
    return it == kRankTasks.end() ? nullptr : &tasks[static_cast<std::size_t>(it - kRankTasks.begin())];
  }
  bool open() {
    if (path_.size() >= kMaxDepth) return false;
    path_.push_back(std::move(key_));
    key_.clear();
    // Of a key that is there twice the last one counts, as in Python.
    if (Tasks* again = path_.size() == 3 && path_[1] == "cluster" ? tasks_of(path_[2]) : nullptr) *again = {};
    return true;
  }

  bool close() {
    path_.pop_back();
    key_.clear();
    return true;
  }

  std::vector<std::string> path_;  // by which keys the present object or array is reached
  std::string key_;
};

}  // namespace

std::optional<TensorflowTask> task_of_tf_config(std::string_view text) {
  Reader reader;
  if (text.size() > kMaxText || !Json::sax_parse(text, &reader)) return std::nullopt;
  TensorflowTask task{.on_one_machine = true};
  std::int64_t all = 0, rank = -1;
  for (std::size_t i = 0; i < kRankTasks.size(); ++i) {
    const Tasks& tasks = reader.tasks[i];
    if (reader.type == kRankTasks[i] && reader.index >= 0 && reader.index < tasks.count) rank = all + reader.index;
    if (all == 0) task.first_address = tasks.first;
    all += tasks.count;
    task.on_one_machine = task.on_one_machine && tasks.on_one_machine;
  }
  if (rank < 0 || all > kMaxRank) return std::nullopt;
  task.rank = static_cast<int>(rank);
  task.world_size = static_cast<int>(all);
  return task;
}

bool is_no_rank_of_tf_config(std::string_view text) {
  Reader reader;
  if (text.size() > kMaxText || !Json::sax_parse(text, &reader)) return false;
  const bool has_ranks =
      std::any_of(reader.tasks.begin(), reader.tasks.end(), [](const Tasks& tasks) { return tasks.count > 0; });
  return has_ranks && reader.index >= 0 && !reader.type.empty() &&
         std::find(kRankTasks.begin(), kRankTasks.end(), reader.type) == kRankTasks.end();
}

}  // namespace rankstacks::capture
