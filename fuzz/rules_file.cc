// A file of rules: what was read can be printed, and reads back as the same; a job can be analysed with any rules.
#include "report/rules_file.h"
#include "analyzers/analysis.h"
#include "input.h"
#include "support/literal_job.h"

using namespace rankstacks;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto added = report::read_rules({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!added) {
    const std::string message = added.error().message();
    fuzz::require(!added.error().what.empty() && !added.error().hint.empty(),
                  "an error says what is wrong, and where the form is described");
    fuzz::require(message.find('\n') == std::string::npos && message.find('\x1b') == std::string::npos,
                  "in one line that does nothing to a terminal");
    return 0;
  }
  const std::string printed = report::json_of_rules(added->rules);
  const auto again = report::read_rules(printed, "again.json");
  fuzz::require(again.has_value() && report::json_of_rules(again->rules) == printed,
                "what is printed reads back as the same");
  report::text_of_rules(added->rules, known::built_in_programs(), {.color = true});
  known::install_added_programs(std::move(*added));
  testing::LiteralJob literal;
  literal.rank(0, 2, testing::waits_in_all_reduce());
  literal.rank(1, 2, testing::in_getitem());
  literal.thread(literal.job.ranks[1], 999, "acme-io",
                 {testing::libc("poll"), testing::nat("acme::loop()"), testing::libc("start_thread")});
  analyzers::analyze(literal.job);
  known::install_added_programs({});
  return 0;
}
