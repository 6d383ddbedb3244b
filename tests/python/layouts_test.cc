#include <catch2/catch.hpp>
#include <cstring>

#include "debug_offsets.h"
#include "python/layouts.h"

using namespace rankstacks;
using namespace rankstacks::python;
using namespace rankstacks::testing;

namespace {

Layout layout_of(int minor, int micro = 50, bool free_threaded = false) {
  const auto layout = find_layout({3, minor, micro, ""}, free_threaded);
  REQUIRE(layout.has_value());
  return *layout;
}

template <std::size_t N>
std::vector<std::byte> bytes_of(const std::array<std::uint64_t, N>& words) {
  std::vector<std::byte> bytes(N * 8);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

// The sizes of whole structures depend on how CPython was configured, and only the table of a process states them.
bool same(Layout decoded, const Layout& measured) {
  const bool has_sizes = decoded.interp_size > decoded.interp_builtins && decoded.thread_size > decoded.thread_id;
  decoded.interp_size = measured.interp_size;
  decoded.thread_size = measured.thread_size;
  return has_sizes && std::memcmp(&decoded, &measured, sizeof decoded) == 0;
}

std::string error_of(std::span<const std::byte> bytes) {
  const auto layout = decode_debug_offsets(bytes);
  return layout ? "decoded" : layout.error().what;
}

}  // namespace

TEST_CASE("offsets that are known from other sources") {
  // shared/reference/cpython-frames.md and what peers' tables say, measured independently of gen-python-layouts.
  struct Row {
    int minor;
    Offset interpreters_head, threads_head, thread_id, frame_code, frame_previous, frame_instruction, filename, name,
        first_line, line_table;
  };
  const Row row =
      GENERATE(Row{7, 24, 8, 176, 32, 24, 104, 96, 104, 36, 112}, Row{8, 32, 8, 176, 32, 24, 104, 104, 112, 40, 120},
               Row{9, 32, 8, 176, 32, 24, 104, 104, 112, 40, 120}, Row{10, 32, 8, 176, 32, 24, 96, 104, 112, 40, 120},
               Row{11, 40, 16, 152, 32, 48, 56, 112, 120, 72, 136}, Row{12, 40, 72, 136, 0, 8, 56, 112, 120, 68, 136},
               Row{13, 632, 7344, 152, 0, 8, 56, 112, 120, 68, 136});
  const Layout l = layout_of(row.minor);
  CHECK(l.runtime_interpreters_head == row.interpreters_head);
  CHECK(l.interp_threads_head == row.threads_head);
  CHECK(l.thread_id == row.thread_id);
  CHECK(l.frame_code == row.frame_code);
  CHECK(l.frame_previous == row.frame_previous);
  CHECK(l.frame_instruction == row.frame_instruction);
  CHECK(l.code_filename == row.filename);
  CHECK(l.code_name == row.name);
  CHECK(l.code_first_line == row.first_line);
  CHECK(l.code_line_table == row.line_table);
  CHECK(l.string_ascii_data == (row.minor < 12 ? 48 : 40));
  CHECK(l.string_compact_data == (row.minor < 12 ? 72 : 56));
  CHECK(l.interp_next == (row.minor < 13 ? 0 : 7264));
}

TEST_CASE("fields that only some versions have") {
  CHECK(layout_of(8).runtime_tstate_current == 1368);
  CHECK(layout_of(10).runtime_tstate_current == 568);
  CHECK(layout_of(11).runtime_tstate_current == 576);
  CHECK(layout_of(12).runtime_tstate_current == kAbsent);
  CHECK(layout_of(9).thread_cframe == kAbsent);
  CHECK(layout_of(11).thread_cframe == 56);
  CHECK(layout_of(11).cframe_current_frame == 8);
  CHECK(layout_of(12).cframe_current_frame == 0);
  CHECK(layout_of(11).frame_is_entry == 68);
  CHECK(layout_of(11).frame_owner == 69);
  CHECK(layout_of(12).frame_owner == 70);
  CHECK(layout_of(12).interp_gil == 384);
  CHECK(layout_of(11).code_instructions == 184);
  CHECK(layout_of(12).code_instructions == 192);
  CHECK(layout_of(13).code_instructions == 200);
  CHECK(layout_of(10).code_qualname == kAbsent);
  CHECK(layout_of(11).code_qualname == 128);
  CHECK(layout_of(14).code_tlbc == kAbsent);
  CHECK(layout_of(14, 0, true).code_tlbc == 224);
}

TEST_CASE("3.7.4 moved what follows the collector's state") {
  CHECK(layout_of(7, 3).runtime_tstate_current == 1392);
  CHECK(layout_of(7, 4).runtime_tstate_current == 1480);
  CHECK(layout_of(7, 4).runtime_gil - layout_of(7, 3).runtime_gil == 88);
}

TEST_CASE("versions without a layout") {
  CHECK_FALSE(find_layout({3, 5, 0, ""}, false).has_value());
  CHECK_FALSE(find_layout({3, 99, 0, ""}, false).has_value());
  CHECK_FALSE(find_layout({3, 12, 0, "b2"}, false).has_value());
  CHECK(find_layout({3, 12, 0, "rc1"}, false).has_value());
  CHECK_FALSE(find_layout({3, 12, 0, ""}, true).has_value());
}

TEST_CASE("debug offsets of real builds say what was measured in the headers") {
  const auto a = decode_debug_offsets(bytes_of(kDebugOffsets_3_13_0));
  REQUIRE(a.has_value());
  CHECK(same(*a, layout_of(13)));
  const auto b = decode_debug_offsets(bytes_of(kDebugOffsets_3_14_10));
  REQUIRE(b.has_value());
  CHECK(same(*b, layout_of(14)));
  const auto c = decode_debug_offsets(bytes_of(kDebugOffsets_3_14_10t));
  REQUIRE(c.has_value());
  CHECK(same(*c, layout_of(14, 10, true)));
  CHECK(c->free_threaded);
  const auto d = decode_debug_offsets(bytes_of(kDebugOffsets_3_15_2));
  REQUIRE(d.has_value());
  CHECK(same(*d, layout_of(15)));
}

TEST_CASE("debug offsets take precedence over what was measured") {
  auto words = kDebugOffsets_3_13_0;
  words[9] = 4000;   // interpreter_state.threads_head
  words[43] = 216;   // code_object.co_code_adaptive: one more field before it
  words[34] = 224;   // code_object.size
  words[10] = 7408;  // interpreter_state.gc: one more field before it
  const auto layout = decode_debug_offsets(bytes_of(words));
  REQUIRE(layout.has_value());
  CHECK(layout->interp_threads_head == 4000);
  CHECK(layout->code_instructions == 216);
  CHECK(layout->code_first_traceable == 200);
  CHECK(layout->interp_collecting == 7608);
}

TEST_CASE("damaged debug offsets") {
  auto words = kDebugOffsets_3_14_10;
  SECTION("cookie") {
    words[0] ^= 1;
    CHECK(error_of(bytes_of(words)) == "no debug offsets: the cookie or the version is wrong");
  }
  SECTION("a version that is not CPython 3") {
    words[1] = 0x040000f0;
    CHECK(error_of(bytes_of(words)) == "no debug offsets: the cookie or the version is wrong");
  }
  SECTION("free-threaded flag") {
    words[2] = 7;
    CHECK(error_of(bytes_of(words)) == "no debug offsets: the cookie or the version is wrong");
  }
  SECTION("an alpha release, whose table has another layout") {
    words[1] = 0x030e00a6;
    CHECK(error_of(bytes_of(words)) == "the debug offsets of CPython 3.14.0a6 are not known");
  }
  SECTION("a future version") {
    words[1] = 0x031100f0;
    CHECK(error_of(bytes_of(words)) == "the debug offsets of CPython 3.17.0 are not known");
  }
  SECTION("cut off") {
    CHECK(error_of(std::span<const std::byte>(bytes_of(words)).first(400)) ==
          "the debug offsets have 400 bytes, 760 expected");
    CHECK(error_of({}) == "no debug offsets: the cookie or the version is wrong");
  }
  SECTION("an offset outside its structure") {
    words[9] = 225864 - 7;  // threads_head: the pointer would end behind the interpreter
    CHECK(error_of(bytes_of(words)) == "the debug offsets cannot be true: interpreter_state.threads_head is 225857");
  }
  SECTION("the collector's state outside of the collector") {
    words[words.size() - 13] = 264;  // gc.collecting; gc.size is 264
    CHECK(error_of(bytes_of(words)) == "the debug offsets cannot be true: gc.collecting is 264");
  }
  SECTION("an offset that overflows") {
    words[26] = ~std::uint64_t{0};
    CHECK(error_of(bytes_of(words)) ==
          "the debug offsets cannot be true: thread_state.current_frame is 18446744073709551615");
  }
  SECTION("a structure of no size") {
    words[31] = 0;
    CHECK(error_of(bytes_of(words)) == "the debug offsets cannot be true: interpreter_frame.size is 0");
  }
  SECTION("a structure of absurd size") {
    words[3] = std::uint64_t{1} << 40;
    CHECK(error_of(bytes_of(words)) == "the debug offsets cannot be true: runtime_state.size is 1099511627776");
  }
  SECTION("a GIL member outside of its structure: the holder of the GIL is unknown") {
    words[18] = 16;
    const auto layout = decode_debug_offsets(bytes_of(words));
    REQUIRE(layout.has_value());
    CHECK(layout->interp_gil == kAbsent);
  }
}

TEST_CASE("versions") {
  CHECK(version_from_hex(0x030e00f0)->to_string() == "3.14.0");
  CHECK(version_from_hex(0x030e00a7)->to_string() == "3.14.0a7");
  CHECK(version_from_hex(0x030d00c2)->to_string() == "3.13.0rc2");
  CHECK_FALSE(version_from_hex(0x030d0000).has_value());
  CHECK_FALSE(version_from_hex(0x020712f0).has_value());
  CHECK_FALSE(version_from_hex(0x1030d00f0).has_value());
  CHECK(parse_version("3.9.18")->to_string() == "3.9.18");
  CHECK(parse_version("3.10.0rc2+ (main")->to_string() == "3.10.0rc2+");
  CHECK(parse_version("3.8.0b4")->to_string() == "3.8.0b4");
  CHECK(parse_version("3.8.0-x")->to_string() == "3.8.0");
  for (const char* wrong : {"", "3", "3.9", "3.9.", "2.7.18", "x3.9.1", "3.900.1", "4.0.0"})
    CHECK_FALSE(parse_version(wrong).has_value());
}
