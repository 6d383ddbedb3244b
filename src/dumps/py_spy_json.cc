// py-spy dump --json: an array of threads, read without a tree of values, so that one that was cut off gives the
// threads and frames before its end.
//
//     [{"pid": 4711, "thread_name": "MainThread", "os_thread_id": 4711, "active": false, "owns_gil": false,
//       "frames": [{"name": "step", "filename": "/x/train.py", "module": null, "line": 12, "locals": null, ...}]}]
#include <nlohmann/json.hpp>

#include "dumps/cursor.h"
#include "dumps/readers.h"

namespace rankstacks::dumps {
namespace {

using Json = nlohmann::json;

class Threads : public nlohmann::json_sax<Json> {
 public:
  explicit Threads(Draft& draft) : draft_(draft) {}

  bool null() override { return true; }
  bool boolean(bool value) override {
    if (depth_ == kThread && key_ == "active") thread_.state = value ? 'R' : 'S';
    if (depth_ == kThread && key_ == "owns_gil" && value) thread_.gil = Gil::kHolds;
    return true;
  }
  bool number_integer(std::int64_t value) override {
    return value < 0 || number_unsigned(static_cast<std::uint64_t>(value));
  }
  bool number_unsigned(std::uint64_t value) override {
    if (value > INT32_MAX) return true;
    if (depth_ == kThread && key_ == "pid") pid_ = static_cast<Pid>(value);
    if (depth_ == kThread && key_ == "os_thread_id") thread_.tid = static_cast<Tid>(value);
    if (depth_ == kFrame && key_ == "line") line_ = static_cast<int>(value);
    return true;
  }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string& value) override {
    if (depth_ == kThread && key_ == "thread_name") thread_.name = kept(value);
    if (depth_ != kFrame) return true;
    if (key_ == "name") name_ = value;
    if (key_ == "filename") file_ = value;
    if (key_ == "module") module_ = value;
    return true;
  }
  bool binary(Json::binary_t&) override { return true; }
  bool key(std::string& value) override {
    key_ = value;
    return true;
  }
  bool start_object(std::size_t) override {
    if (++depth_ == kThread) begin_thread();
    if (depth_ == kFrame) name_.clear(), file_.clear(), module_.clear(), line_.reset();
    return true;
  }
  bool end_object() override {
    if (depth_ == kFrame && !name_.empty()) frames_.push_back(frame());
    if (depth_ == kThread) end_thread();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    if (depth_ >= kThread) end_thread();
    draft_.not_understood();
    return false;
  }

 private:
  static constexpr int kThread = 2, kFrame = 4;  // [ { "frames": [ {

  void begin_thread() {
    thread_ = {};
    frames_.clear();
    pid_ = 0;
  }
  void end_thread() {
    if (!draft_.has_process() || draft_.process().pid != pid_) draft_.begin_process(pid_).python_version = "";
    if (thread_.tid == 0 && thread_.name == "MainThread") thread_.tid = pid_;
    ThreadSnapshot& added = draft_.begin_thread(thread_.tid, thread_.name);
    added.state = thread_.state;
    added.gil = thread_.gil;
    for (Frame& frame : frames_) draft_.add(std::move(frame));
    begin_thread();
  }
  Frame frame() const {
    if (module_.empty()) return python_frame(name_, file_, line_);
    Frame frame;
    frame.module = kept(module_);
    Cursor address(name_);
    const auto hex = address.hex();
    if (hex && address.rest().empty()) frame.address = *hex;
    else frame.function = kept(name_);
    if (file_ != module_) frame.file = kept(file_);
    if (line_ && *line_ > 0) frame.line = line_;
    return frame;
  }

  Draft& draft_;
  int depth_ = 0;
  std::string key_, name_, file_, module_;
  std::optional<int> line_;
  Pid pid_ = 0;
  ThreadSnapshot thread_;
  std::vector<Frame> frames_;
};

}  // namespace

void read_py_spy_json(std::string_view text, Draft& draft) {
  Threads threads(draft);
  Json::sax_parse(text, &threads);
}

}  // namespace rankstacks::dumps
