#include "report/py_spy_form.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "report/sanitize.h"

namespace rankstacks::report {
namespace {

using Json = nlohmann::ordered_json;

// A frame with what py-spy says of it.
struct PySpyFrame {
  std::string name, file;
  std::optional<std::string> module;  // native: the library
  int line = 0;                       // 0: not known
  bool is_entry = false, is_shim_entry = false;
  const std::vector<LocalVariable>* locals = nullptr;
};

bool has_python(const RankSnapshot& rank) { return rank.python_version && !rank.python_version->empty(); }

// The version of the interpreter as 100 * major + minor; 0: not known.
int version_of(const RankSnapshot& rank) {
  int major = 0, minor = 0;
  return rank.python_version && std::sscanf(rank.python_version->c_str(), "%d.%d", &major, &minor) == 2
             ? 100 * major + minor
             : 0;
}

std::vector<const ThreadSnapshot*> shown_threads(const RankSnapshot& rank) {
  std::vector<const ThreadSnapshot*> threads;
  for (const ThreadSnapshot& thread : rank.threads)
    if (!has_python(rank) || thread.python_thread) threads.push_back(&thread);
  return threads;
}

bool opens(char c) { return c == '(' || c == '<' || c == '{' || c == '['; }
bool closes(char c) { return c == ')' || c == '>' || c == '}' || c == ']'; }

// A C++ function without its parameters, qualifiers and return type, as py-spy names it:
// "void ns::f<int>(int) const" -> "ns::f<int>". A name that does not end in parameters stays as it is.
std::string without_parameters(const std::string& function) {
  constexpr std::string_view kOperator = "operator";
  const std::size_t end = function.rfind(')');
  const std::string_view qualifiers =
      end == std::string::npos ? std::string_view() : std::string_view(function).substr(end + 1);
  if (end == std::string::npos || !is_one_of(qualifiers, {"", " const", " volatile", " &", " &&", " const &"}))
    return function;
  std::size_t begin = end;
  for (int depth = 0;; --begin) {
    if (function[begin] == ')') ++depth;
    if (function[begin] == '(' && --depth == 0) break;
    if (begin == 0) return function;
  }
  // operator() itself; or "(anonymous namespace)".
  if (begin == 0 || std::string_view(function).substr(0, begin).ends_with(kOperator)) return function;
  std::string name = function.substr(0, begin);
  std::size_t start = 0;  // of the name: behind the last blank outside of brackets, but "operator new" is one name
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (depth == 0 && name.compare(i, kOperator.size(), kOperator) == 0 && (i == 0 || name[i - 1] == ':' || i == start))
      break;
    if (opens(name[i])) ++depth;
    else if (closes(name[i])) depth = std::max(0, depth - 1);
    else if (name[i] == ' ' && depth == 0) start = i + 1;
  }
  return name.substr(start);
}

PySpyFrame native_frame(const Frame& frame) {
  PySpyFrame shown;
  shown.name = frame.function ? without_parameters(frame.function->substr(0, frame.function->find('@')))
                              : fmt::format("{:#x}", frame.address);
  shown.module = frame.module.empty() ? "?" : frame.module;
  shown.file = frame.file && !frame.file->empty() ? *frame.file : *shown.module;
  shown.line = frame.file ? frame.line.value_or(0) : 0;
  shown.is_entry = shown.is_shim_entry = true;
  return shown;
}

// Whether the Python frame at `at` is the outermost one of its call of the interpreter's loop: what calls it is native
// code, or nothing.
bool is_outermost_of_call(const JobSnapshot& job, const ThreadSnapshot& thread, std::size_t at) {
  return at + 1 == thread.frames.size() || job.frames[thread.frames[at + 1]].kind != FrameKind::kPython;
}

std::vector<PySpyFrame> frames_of(const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread,
                                  const PySpyForm& form) {
  constexpr int kFirstWithRuns = 311, kFirstWithShims = 312;
  const int version = version_of(rank);
  std::vector<PySpyFrame> frames;
  auto locals = thread.locals.begin();
  for (std::size_t i = 0; i < thread.frames.size(); ++i) {
    const Frame& frame = job.frames[thread.frames[i]];
    if (frame.kind != FrameKind::kPython) {
      if (form.native || !has_python(rank)) frames.push_back(native_frame(frame));
      continue;
    }
    PySpyFrame shown;
    shown.name = frame.qualname.value_or(frame.function.value_or(""));
    shown.file = frame.file.value_or("");
    shown.line = frame.line.value_or(0);
    const bool outermost = is_outermost_of_call(job, thread, i);
    shown.is_entry = version < kFirstWithRuns || (version < kFirstWithShims && outermost);
    shown.is_shim_entry = version >= kFirstWithShims && outermost;
    while (locals != thread.locals.end() && locals->frame < i) ++locals;
    if (form.locals > 0 && locals != thread.locals.end() && locals->frame == i) shown.locals = &locals->variables;
    frames.push_back(std::move(shown));
  }
  // py-spy marks the end of the chain of frames in every version.
  const auto last = std::find_if(frames.rbegin(), frames.rend(), [](const PySpyFrame& f) { return !f.module; });
  if (last != frames.rend()) last->is_shim_entry = true;
  return frames;
}

// A wait of threading or selectors counts as idle even where the kernel has the thread as running.
bool waits_in_python(const std::vector<PySpyFrame>& frames) {
  const auto innermost = std::find_if(frames.begin(), frames.end(), [](const PySpyFrame& f) { return !f.module; });
  return innermost != frames.end() && ((innermost->name == "wait" && innermost->file.ends_with("threading.py")) ||
                                       (innermost->name == "select" && innermost->file.ends_with("selectors.py")));
}

bool is_active(const ThreadSnapshot& thread, const std::vector<PySpyFrame>& frames) {
  return (!thread.state || *thread.state == 'R') && !waits_in_python(frames);
}

bool owns_gil(const ThreadSnapshot& thread) { return thread.gil == Gil::kHolds; }

std::string shown_file(const std::string& file, const PySpyForm& form) {
  return form.short_name ? form.short_name(file) : file;
}

// Of a process without Python: the kernel's name of the thread.
std::optional<std::string> name_of(const RankSnapshot& rank, const ThreadSnapshot& thread) {
  if (thread.python_thread) return thread.python_thread->name;
  return has_python(rank) || thread.name.empty() ? std::nullopt : std::optional(thread.name);
}

std::string shown_value(const LocalVariable& variable, const PySpyForm& form) {
  return repr_of(variable.value, static_cast<std::ptrdiff_t>(form.locals));
}

void append_locals(std::string& text, const std::vector<LocalVariable>& variables, const PySpyForm& form) {
  for (const bool arguments : {true, false}) {
    bool is_first = true;
    for (const LocalVariable& variable : variables) {
      if (variable.is_argument != arguments) continue;
      if (std::exchange(is_first, false)) text += fmt::format("        {}:\n", arguments ? "Arguments" : "Locals");
      text += fmt::format("            {}: {}\n", sanitize(variable.name), sanitize(shown_value(variable, form)));
    }
  }
}

void append_thread(std::string& text, const JobSnapshot& job, const RankSnapshot& rank, const ThreadSnapshot& thread,
                   const PySpyForm& form) {
  const std::vector<PySpyFrame> frames = frames_of(job, rank, thread, form);
  const bool active = is_active(thread, frames);
  const char* const status = !active ? "idle" : owns_gil(thread) ? "active+gil" : "active";
  text += fmt::format("Thread {} ({})", thread.tid, status);
  if (const auto name = name_of(rank, thread)) text += fmt::format(": \"{}\"", sanitize(*name));
  text += '\n';
  for (const PySpyFrame& frame : frames) {
    text += fmt::format("    {} ({}", sanitize(frame.name), sanitize(shown_file(frame.file, form)));
    text += frame.line != 0 ? fmt::format(":{})\n", frame.line) : std::string(")\n");
    if (frame.locals != nullptr) append_locals(text, *frame.locals, form);
  }
}

Json json_of(const PySpyFrame& frame, const PySpyForm& form) {
  Json json = {{"name", frame.name}, {"filename", frame.file}};
  json["module"] = frame.module ? Json(*frame.module) : Json(nullptr);
  json["short_filename"] = shown_file(frame.file, form);
  json["line"] = frame.line;
  json["locals"] = nullptr;
  if (form.locals > 0 && !frame.module) {
    json["locals"] = Json::array();
    if (frame.locals != nullptr)
      for (const LocalVariable& variable : *frame.locals)
        json["locals"].push_back({{"name", variable.name},
                                  {"addr", variable.address},
                                  {"arg", variable.is_argument},
                                  {"repr", shown_value(variable, form)}});
  }
  json["is_entry"] = frame.is_entry;
  json["is_shim_entry"] = frame.is_shim_entry;
  return json;
}

}  // namespace

std::string py_spy_text(const JobSnapshot& job, const RankSnapshot& rank, const PySpyForm& form,
                        const RankSnapshot* parent) {
  std::string text = fmt::format("Process {}: {}\n", rank.pid, sanitize(joined(rank.command, " ")));
  if (has_python(rank))
    text += fmt::format("Python v{} ({})\n", sanitize(*rank.python_version), sanitize(rank.executable.value_or("?")));
  if (parent != nullptr)
    text += fmt::format("Parent Process {}: {}\n", parent->pid, sanitize(joined(parent->command, " ")));
  text += '\n';
  for (const ThreadSnapshot* thread : shown_threads(rank)) append_thread(text, job, rank, *thread, form);
  return text;
}

// The interpreter's list of threads, which py-spy prints as it is, begins with the newest one.
std::string py_spy_json(const JobSnapshot& job, const RankSnapshot& rank, const PySpyForm& form) {
  Json threads = Json::array();
  std::vector<const ThreadSnapshot*> shown = shown_threads(rank);
  std::reverse(shown.begin(), shown.end());
  for (const ThreadSnapshot* thread : shown) {
    const std::vector<PySpyFrame> frames = frames_of(job, rank, *thread, form);
    const auto name = name_of(rank, *thread);
    Json json = {{"pid", rank.pid}, {"thread_id", thread->python_thread ? thread->python_thread->id : 0}};
    json["thread_name"] = name ? Json(*name) : Json(nullptr);
    json["os_thread_id"] = thread->tid;
    json["active"] = is_active(*thread, frames);
    json["owns_gil"] = owns_gil(*thread);
    json["frames"] = Json::array();
    for (const PySpyFrame& frame : frames) json["frames"].push_back(json_of(frame, form));
    json["process_info"] = nullptr;
    threads.push_back(std::move(json));
  }
  return escape_in_json(threads.dump(2, ' ', false, Json::error_handler_t::replace)) + '\n';
}

std::vector<std::string> files_of(const JobSnapshot& job, const RankSnapshot& rank, const PySpyForm& form) {
  std::set<std::string> files;
  for (const ThreadSnapshot* thread : shown_threads(rank))
    for (const PySpyFrame& frame : frames_of(job, rank, *thread, form)) files.insert(frame.file);
  return {files.begin(), files.end()};
}

}  // namespace rankstacks::report
