#include "analyzers/names.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/text.h"
#include "known/modules.h"

namespace rankstacks::analyzers {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

template <std::size_t N>
bool any_prefix(std::string_view text, const std::array<std::string_view, N>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return text.starts_with(p); });
}

// Strips one trailing suffix of the form .WORD or .WORD.DIGITS, which compilers add to clones of a function. Returns
// false if there is none.
bool strip_clone_suffix(std::string_view& name) {
  static constexpr std::array<std::string_view, 8> kWords = {"cold",     "part",       "constprop", "isra",
                                                             "lto_priv", "localalias", "llvm",      "clone"};
  std::string_view rest = name;
  std::size_t dot = rest.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return false;
  std::string_view last = rest.substr(dot + 1);
  if (!last.empty() && std::all_of(last.begin(), last.end(), is_digit)) {
    rest = rest.substr(0, dot);
    dot = rest.rfind('.');
    if (dot == std::string_view::npos || dot == 0) return false;
    last = rest.substr(dot + 1);
  }
  if (std::find(kWords.begin(), kWords.end(), last) == kWords.end()) return false;
  name = rest.substr(0, dot);
  return true;
}

bool ends_with_operator(std::string_view text) {
  constexpr std::string_view kWord = "operator";
  return text.ends_with(kWord) && (text.size() == kWord.size() ||
                                   !(std::isalnum(static_cast<unsigned char>(text[text.size() - kWord.size() - 1])) ||
                                     text[text.size() - kWord.size() - 1] == '_'));
}

// The index of the '(' that matches the final ')', or npos.
std::size_t matching_open(std::string_view text) {
  int depth = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    if (text[i] == ')') ++depth;
    if (text[i] == '(' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

std::string without_template_arguments(std::string_view text) {
  std::string out;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_operator =
        depth == 0 && (c == '<' || c == '>') &&
        (ends_with_operator(out) || (!out.empty() && (out.back() == '<' || out.back() == '>' || out.back() == '-') &&
                                     ends_with_operator(std::string_view(out).substr(0, out.size() - 1))));
    const bool is_arrow = c == '>' && i > 0 && text[i - 1] == '-';  // Rust's "f<fn() -> u32>"
    if (is_operator ||
        (i == 0 && c == '<')) {  // "<alloc::vec::Vec<...> as core::fmt::Debug>::fmt": what it is a function of
      out += c;
    } else if (c == '<') {
      if (depth++ == 0) out += "<...";
    } else if (c == '>' && depth > 0 && !is_arrow) {
      if (--depth == 0) out += '>';
    } else if (depth == 0) {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string_view base_name(std::string_view path) {
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool is_c_library(std::string_view module) {
  return known::module_kind(base_name(module)) == known::ModuleKind::kCLibrary;
}
bool is_cpp_library(std::string_view module) {
  return known::module_kind(base_name(module)) == known::ModuleKind::kCppLibrary;
}
bool is_opaque(std::string_view module) { return known::module_kind(base_name(module)).has_value(); }

bool is_interpreter(std::string_view module) {
  std::string_view name = base_name(module);
  if (name.starts_with("lib")) name.remove_prefix(3);
  if (!name.starts_with("python")) return false;
  name.remove_prefix(6);
  name = name.substr(0, name.find(".so"));
  if (name.ends_with("-dbg")) name.remove_suffix(4);
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return is_digit(c) || c == '.' || c == 'd' || c == 'm' || c == 't' || c == 'u'; });
}

bool is_place(const Frame& frame, known::Place place) {
  return frame.kind == FrameKind::kPython &&
         known::is_place(place, frame.function ? std::string_view(*frame.function) : std::string_view(),
                         frame.file ? std::string_view(*frame.file) : std::string_view());
}

bool is_thread_start(const Frame& frame) {
  if (frame.kind != FrameKind::kNative || !frame.function) return false;
  static constexpr std::array<std::string_view, 12> kNames = {"start_thread",
                                                              "clone",
                                                              "__clone",
                                                              "clone3",
                                                              "__clone3",
                                                              "__libc_start_call_main",
                                                              "__libc_start_main",
                                                              "__libc_start_main_impl",
                                                              "_start",
                                                              "execute_native_thread_routine",
                                                              "thread_start",
                                                              "_dl_start_user"};
  const std::string name = without_suffixes(*frame.function);
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

bool is_call_plumbing(std::string_view function) {
  // CPython's Objects/call.c, methodobject.c, descrobject.c, classobject.c, typeobject.c (slots), Python/ceval.c,
  // pythonrun.c, Modules/main.c.
  static constexpr std::array<std::string_view, 52> kPrefixes = {"_PyEval_",
                                                                 "PyEval_",
                                                                 "_PyObject_Call",
                                                                 "PyObject_Call",
                                                                 "_PyObject_FastCall",
                                                                 "_PyObject_MakeTpCall",
                                                                 "PyObject_Vectorcall",
                                                                 "_PyObject_Vectorcall",
                                                                 "_PyVectorcall_",
                                                                 "PyVectorcall_",
                                                                 "_PyFunction_",
                                                                 "cfunction_",
                                                                 "_PyCFunction",
                                                                 "method_vectorcall",
                                                                 "method_call",
                                                                 "_PyMethodDef",
                                                                 "vectorcall_",
                                                                 "vectorcall",
                                                                 "slot_tp_",
                                                                 "slot_nb_",
                                                                 "slot_sq_",
                                                                 "slot_mp_",
                                                                 "slot_am_",
                                                                 "type_call",
                                                                 "object_vacall",
                                                                 "do_call_core",
                                                                 "function_code_fastcall",
                                                                 "call_function",
                                                                 "_PyTuple_Call",
                                                                 "wrapper_call",
                                                                 "wrapperdescr_",
                                                                 "wrap_",
                                                                 "property_descr_",
                                                                 "partial_",
                                                                 "builtin___build_class__",
                                                                 "builtin_exec",
                                                                 "builtin_eval",
                                                                 "builtin_next",
                                                                 "gen_send_ex",
                                                                 "gen_iternext",
                                                                 "PyIter_Next",
                                                                 "PyObject_Get",
                                                                 "_PyObject_Generic",
                                                                 "PyNumber_",
                                                                 "PyObject_SetItem",
                                                                 "run_eval_code_obj",
                                                                 "run_mod",
                                                                 "pyrun_",
                                                                 "_PyRun_",
                                                                 "pymain_",
                                                                 "Py_RunMain",
                                                                 "Py_BytesMain"};
  return any_prefix(function, kPrefixes) || function == "main" || function == "Py_Main" || function == "thread_run" ||
         function == "pythread_wrapper" || function == "t_bootstrap";
}

std::string without_suffixes(std::string_view function) {
  // "f [clone .cold]" as demanglers write it, "f@@GLIBC_2.3.2" as symbol tables do.
  if (const std::size_t clone = function.find(" [clone "); clone != std::string_view::npos)
    function = function.substr(0, clone);
  if (const std::size_t version = function.find('@'); version != std::string_view::npos && version > 0)
    function = function.substr(0, version);
  while (strip_clone_suffix(function)) {}
  return std::string(function);
}

std::string public_libc_name(std::string_view function) {
  std::string stripped = without_suffixes(function);
  std::string_view name = stripped;
  if (name.starts_with("__GI_")) name.remove_prefix(5);
  if (name.starts_with("__libc_") && !name.starts_with("__libc_start")) name.remove_prefix(7);
  if (name.starts_with("__new_")) name.remove_prefix(6);
  // ___pthread_cond_wait, __poll, __clock_nanosleep: the public name has no leading underscores; start-up functions
  // keep theirs.
  if (name.starts_with("__") && !name.starts_with("__libc_start"))
    name.remove_prefix(name.find_first_not_of('_') == std::string_view::npos ? 0 : name.find_first_not_of('_'));
  if (name.ends_with("_time64")) name.remove_suffix(7);
  for (const std::string_view with_64 :
       {"pthread_cond_timedwait64", "pthread_cond_clockwait64", "pthread_clockjoin_np64", "clock_nanosleep64", "read64",
        "write64", "open64", "openat64"})
    if (name == with_64) name.remove_suffix(2);
  for (const std::string_view nocancel : {"_nocancel"})
    if (name.ends_with(nocancel)) name.remove_suffix(nocancel.size());
  return std::string(name);
}

std::string short_function(std::string_view function) {
  std::string plain = without_suffixes(function);
  std::string_view name = plain;
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view tail : {" const", " volatile", " &", " &&", " noexcept"})
      if (name.ends_with(tail)) {
        name.remove_suffix(tail.size());
        again = true;
      }
  }
  std::string_view arguments;
  if (name.ends_with(')')) {
    const std::size_t open = matching_open(name);
    if (open != std::string_view::npos && open > 0 && !name.substr(0, open).ends_with("operator") &&
        name.substr(open) != "(anonymous namespace)") {
      arguments = name.substr(open + 1) == ")" ? "()" : "(...)";
      name = name.substr(0, open);
    }
  }
  std::string result = without_template_arguments(name);
  // In template functions only, a return type precedes the last blank outside of brackets; "operator new" and "thunk
  // to f" keep theirs.
  if (!arguments.empty() && !contains(result, "operator") && !contains(result, " to ")) {
    int depth = 0;
    for (std::size_t i = result.size(); i-- > 0;) {
      if (result[i] == ')' || result[i] == '}' || result[i] == ']') ++depth;
      if (result[i] == '(' || result[i] == '{' || result[i] == '[') --depth;
      if (result[i] == ' ' && depth == 0) {
        result.erase(0, i + 1);
        break;
      }
    }
  }
  return result.append(arguments);
}

bool is_mpi_function(std::string_view function) {
  if (function.starts_with('P')) function.remove_prefix(1);
  return function.size() > 4 && function.starts_with("MPI_") && function[4] >= 'A' && function[4] <= 'Z';
}

}  // namespace rankstacks::analyzers
