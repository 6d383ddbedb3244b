// Gives each word to real shells and compares what they make of it.
#include "report/shell_quoted.h"

#include <unistd.h>
#include <catch2/catch.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "report/sanitize.h"

using namespace rankstacks;
using namespace rankstacks::report;

namespace {

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  REQUIRE(pipe);
  std::string text;
  for (int c; (c = std::fgetc(pipe.get())) != EOF;) text += static_cast<char>(c);
  return text;
}

}  // namespace

TEST_CASE("a word for a shell is plain where it can be") {
  CHECK(shell_quoted("/usr/bin/python3.11") == "/usr/bin/python3.11");
  CHECK(shell_quoted("kernel.core_pattern=core.%p") == "kernel.core_pattern=core.%p");
  CHECK(shell_quoted("") == "''");
  CHECK(shell_quoted("a b") == "'a b'");
  CHECK(shell_quoted("it's") == "'it'\\''s'");
  CHECK(shell_quoted("$(id)") == "'$(id)'");
  CHECK(shell_quoted("-rf") == "-rf");
  CHECK(shell_quoted("漢字 é") == "'漢字 é'");
  CHECK(shell_quoted("two\nlines") == "$'two\\012lines'");
  CHECK(shell_quoted("\x1b[31m'\\1") == "$'\\033[31m\\047\\1341'");
  CHECK(shell_quoted("\xff") == "$'\\377'");
  CHECK(shell_quoted("\xe2\x80\xae") == "$'\\342\\200\\256'");
}

TEST_CASE("shells read back what was quoted, and run nothing of it") {
  if (access("/bin/bash", X_OK) != 0) {
    WARN("no bash on this machine");
    return;
  }
  const std::vector<std::string> words{
      "",         "a b",      "it's",          "$(id)",   "`id`",    "$HOME", "~",     "~root",    "*",       "?[a-z]",
      "!!",       "a;b",      "a&b",           "a|b>c<d", "#not",    "{a,b}", "\\",    "\\n",      "\"q\"",   "(sub)",
      "-rf",      "--x=y",    "a\tb",          "a\nb",    "\nend\n", "'",     "''",    "'; id; '", "\x1b[0m", "\x7f",
      "\xc2\x9b", "\xff\xfe", "\xe2\x80\xae'", "漢字",    "a\r",     "=x",    "a=b c", "/x/%h.%p", "1\0012"};
  for (const std::string& word : words) {
    const std::string quoted = shell_quoted(word);
    CAPTURE(word, quoted);
    CHECK(sanitize(quoted) == quoted);  // shown as it is
    CHECK(quoted.find('\n') == std::string::npos);
    // As a script on the standard input, like a pasted line, not through another shell's quoting.
    const std::string script = "printf %s " + std::string("x") + quoted + "x";
    std::string heredoc = "bash --norc --noprofile <<'END_OF_SCRIPT'\n" + script + "\nEND_OF_SCRIPT\n";
    CHECK(output_of(heredoc) == "x" + word + "x");
    if (!quoted.starts_with("$'"))
      CHECK(output_of("sh <<'END_OF_SCRIPT'\n" + script + "\nEND_OF_SCRIPT\n") == "x" + word + "x");
    CHECK(output_of("bash --norc --noprofile <<'END_OF_SCRIPT'\nset -- -- " + quoted +
                    "; shift; printf '%d %s' $# \"$1\"\nEND_OF_SCRIPT\n") == "1 " + word);
  }
}
