#include "report/sanitize.h"

#include <catch2/catch.hpp>

using namespace rankstacks;
using namespace rankstacks::report;

TEST_CASE("nothing that steers a terminal gets through") {
  CHECK(sanitize("plain") == "plain");
  CHECK(sanitize("\x1b[31mred\x1b]0;title\x07") == "\\x1b[31mred\\x1b]0;title\\x07");
  CHECK(sanitize("two\nlines\ttab\rback") == "two\\nlines\\ttab\\rback");
  CHECK(sanitize(std::string_view("nul\0nul", 7)) == "nul\\x00nul");
  CHECK(sanitize("\x7f") == "\\x7f");
  CHECK(sanitize("\xc2\x9b"
                 "31m") == "\\u009b31m");  // C1 as UTF-8
  CHECK(sanitize("\x9b"
                 "31m") == "\\x9b31m");  // C1 as a byte
  CHECK(sanitize("\xe2\x80\xaeleft") == "\\u202eleft");
  CHECK(sanitize("\xe2\x81\xa6x") == "\\u2066x");
  CHECK(sanitize("\xe2\x80\xa8") == "\\u2028");
  CHECK(sanitize("\xef\xbb\xbf") == "\\ufeff");
  CHECK(sanitize("\xf3\xa0\x81\x81") == "\\U000e0041");
}

TEST_CASE("invalid UTF-8 is shown byte by byte, valid text as it is") {
  CHECK(sanitize("\xff\xfe") == "\\xff\\xfe");
  CHECK(sanitize("\xc0\xaf") == "\\xc0\\xaf");           // overlong
  CHECK(sanitize("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // surrogate
  CHECK(sanitize("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(sanitize("\xe6\xbc") == "\\xe6\\xbc");  // cut short
  CHECK(sanitize("漢字 é …") == "漢字 é …");
}

TEST_CASE("what acts on a terminal is escaped in JSON, and means the same") {
  CHECK(escape_in_json("\"plain, 漢字 é\\n\"") == "\"plain, 漢字 é\\n\"");
  CHECK(escape_in_json("\"\x7f\"") == "\"\\u007f\"");
  CHECK(escape_in_json("\xc2\x9b"
                       "31m") == "\\u009b31m");
  CHECK(escape_in_json("\xe2\x80\xae") == "\\u202e");
  CHECK(escape_in_json("\xf3\xa0\x81\x81") == "\\udb40\\udc41");  // U+E0041: a surrogate pair
}

TEST_CASE("columns") {
  CHECK(columns_of("abc") == 3);
  CHECK(columns_of("漢字") == 4);
  CHECK(columns_of("é…") == 2);
  CHECK(columns_of("e\xcc\x81") == 1);
  CHECK(cut_end("abcdef", 6) == "abcdef");
  CHECK(cut_end("abcdef", 5) == "abcd…");
  CHECK(cut_end("漢字漢字", 5) == "漢字…");
  CHECK(cut_end("abc", 0).empty());
  CHECK(cut_start("abcdef", 4) == "…def");
  CHECK(cut_start("abc", 1) == "…");
}
