#include <catch2/catch.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "python/line_table.h"
#include "stopped_python.h"

using namespace rankstacks::python;
using namespace rankstacks::testing;

using Bytes = std::vector<std::uint8_t>;

TEST_CASE("co_lnotab") {
  // def f():  (line 10)  x = 1 (11, at 0); loop back to 11 at 8; jump over 300 lines at 10; code of 300 bytes on one
  // line.
  const Bytes table = {0, 1, 4, 2, 4, 0xfe, 2, 127, 0, 127, 0, 46, 255, 0, 45, 1};
  CHECK(line_in_lnotab(table, 10, -1) == 10);
  CHECK(line_in_lnotab(table, 10, 0) == 11);
  CHECK(line_in_lnotab(table, 10, 3) == 11);
  CHECK(line_in_lnotab(table, 10, 4) == 13);
  CHECK(line_in_lnotab(table, 10, 8) == 11);
  CHECK(line_in_lnotab(table, 10, 10) == 311);
  CHECK(line_in_lnotab(table, 10, 309) == 311);
  CHECK(line_in_lnotab(table, 10, 310) == 312);
  CHECK(line_in_lnotab(table, 10, 100000) == 312);
  CHECK(line_in_lnotab({}, 10, 4) == 10);
  CHECK(line_in_lnotab(Bytes{2, 5, 2}, 10, 4) == 15);            // half an entry at the end
  CHECK(line_in_lnotab(Bytes{0, 0x80}, 10, 4) == std::nullopt);  // before line 0
}

TEST_CASE("co_linetable of 3.10") {
  // 4 bytes on line 10, 2 without line, 2 on 12, an empty entry that only moves the line, 6 on 11.
  const Bytes table = {4, 0, 2, 0x80, 2, 2, 0, 100, 6, 0x9b};
  CHECK(line_in_ranges(table, 10, -1) == 10);
  CHECK(line_in_ranges(table, 10, 0) == 10);
  CHECK(line_in_ranges(table, 10, 2) == 10);
  CHECK(line_in_ranges(table, 10, 4) == std::nullopt);
  CHECK(line_in_ranges(table, 10, 6) == 12);
  CHECK(line_in_ranges(table, 10, 8) == 11);
  CHECK(line_in_ranges(table, 10, 12) == 11);
  CHECK(line_in_ranges(table, 10, 14) == std::nullopt);  // past the end of the code
  CHECK(line_in_ranges({}, 10, 0) == std::nullopt);
  CHECK(line_in_ranges(Bytes{4}, 10, 0) == std::nullopt);
}

TEST_CASE("location table of 3.11 and later") {
  const Bytes table = {
      0xf8,                                // no location, 1 unit
      0x80, 0x11,                          // short form 0, 1 unit: line 10
      0xd1, 0x01, 0x02,                    // one line + 0, 2 units
      0xd8, 0x01, 0x02,                    // one line + 1, 1 unit: 11
      0xe0, 0x01, 0x02,                    // one line + 2, 1 unit: 13
      0xe8, 0x03,                          // no columns, signed varint -1, 1 unit: 12
      0xf0, 0x50, 0x03, 0x00, 0x01, 0x02,  // long form, signed varint 0x10 | 3 << 6 = 208: + 104, 1 unit: 116
      0xff,                                // no location, 8 units
      0xe8, 0x00,                          // no columns, + 0
  };
  CHECK(line_in_locations(table, 10, -1) == 10);
  CHECK(line_in_locations(table, 10, 0) == std::nullopt);
  CHECK(line_in_locations(table, 10, 2) == 10);
  CHECK(line_in_locations(table, 10, 4) == 10);
  CHECK(line_in_locations(table, 10, 6) == 10);
  CHECK(line_in_locations(table, 10, 8) == 11);
  CHECK(line_in_locations(table, 10, 10) == 13);
  CHECK(line_in_locations(table, 10, 12) == 12);
  CHECK(line_in_locations(table, 10, 14) == 116);
  CHECK(line_in_locations(table, 10, 16) == std::nullopt);
  CHECK(line_in_locations(table, 10, 31) == std::nullopt);
  CHECK(line_in_locations(table, 10, 32) == 116);
  CHECK(line_in_locations(table, 10, 34) == std::nullopt);
  CHECK(line_in_locations({}, 10, 0) == std::nullopt);
}

TEST_CASE("damaged line tables end") {
  CHECK(line_in_locations(Bytes(1000, 0x7f), 10, 1 << 20) == std::nullopt);  // a varint without an end
  CHECK(line_in_locations(Bytes{0xf0}, 10, 0) == 10);                        // cut off in the middle of an entry: + 0
  CHECK(line_in_locations(Bytes{0xe8, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f}, 10, 0) ==
        std::nullopt);                                                 // a delta beyond any file
  CHECK(line_in_locations(Bytes{0xe8, 0x17}, 10, 0) == std::nullopt);  // line -1
}

TEST_CASE("every line of real code is what PyCode_Addr2Line says", "[real]") {
  // Asks each interpreter for the line at every offset of all code in a module of its own library.
  const auto& pythons = installed_pythons();
  if (pythons.empty()) std::cerr << "skipped: no CPython found\n";
  for (const InstalledPython& interpreter : pythons) {
    INFO(interpreter.name());
    const std::string text = output_of(interpreter, "all_lines.py");
    REQUIRE(text != "");
    const auto all = nlohmann::json::parse(text);
    const int minor = all["minor"];
    std::size_t compared = 0, wrong = 0;
    for (const auto& code : all["codes"]) {
      const Bytes table = code["table"].get<Bytes>();
      const int first = code["first"];
      for (const auto& [at, line] : code["lines"].get<std::vector<std::pair<int, int>>>()) {
        const auto mine = minor >= 11   ? line_in_locations(table, first, at)
                          : minor == 10 ? line_in_ranges(table, first, at)
                                        : line_in_lnotab(table, first, at);
        const auto truth = line < 0 ? std::nullopt : std::optional(line);
        ++compared;
        if (mine != truth && ++wrong < 5) {
          UNSCOPED_INFO(code["name"] << " at " << at << ": " << mine.value_or(-1) << ", CPython says " << line);
        }
      }
    }
    CHECK(compared > 5000);
    CHECK(wrong == 0);
  }
}
