#include "symbolizers/rust_names.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "symbolizers/symbolizer.h"

namespace rankstacks::symbolizers {
namespace {

void check_all(const std::vector<std::pair<std::string, std::string>>& cases) {
  for (const auto& [mangled, text] : cases) CHECK(demangle(mangled) == text);
}

// Constants and types are tested as the only argument of the crate "a": a::<...>.
std::string constant(const std::string& mangled) { return demangle("_RIC1aK" + mangled + "E"); }
std::string type(const std::string& mangled) { return demangle("_RIC1a" + mangled + "E"); }

std::string repeat(std::size_t times, const std::string& text) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("Rust's v0 names are shown without hashes") {
  check_all({
      {"_RNvNtNtCsjrHSEGnQ3l9_3std6thread9functions5sleep", "std::thread::functions::sleep"},
      {"_RNvC6_123foo3bar", "123foo::bar"},
      {"_RNCNvNtCs1234_7mycrate3foo3bars_0", "mycrate::foo::bar::{closure#1}"},
      {"_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_", "cc::spawn::{closure#0}::{closure#0}"},
      {"_RNSNvC1a1b6vtable", "a::b::{shim:vtable#0}"},
      {"_RNvXs2_C3fooINtC5alloc3VechENtNtC4core3fmt5Debug3fmt", "<alloc::Vec<u8> as core::fmt::Debug>::fmt"},
      {"_RNvMs1_C3fooNtB5_3Bar3new", "<foo::Bar>::new"},
      {"_RNvYNtC3foo3BarNtC3foo5Trait4call", "<foo::Bar as foo::Trait>::call"},
      {"_RINvNtC4core3mem4swaphjECs4_3bin", "core::mem::swap::<u8, usize>"},
      {"_RNCINkXs25_NgCsbmNqQUJIY6D_4core5sliceINyB9_4IterhENuNgNoBb_4iter8iterator8Iterator9rpositionNCNgNpB9_"
       "6memchr7memrchrs_0E0Bb_",
       "<core::slice::Iter<u8> as "
       "core::iter::iterator::Iterator>::rposition::<core::slice::memchr::memrchr::{closure#1}>::{closure#0}"},
  });
}

TEST_CASE("what follows a v0 name is not part of it") {
  check_all({
      {"_RNvC9backtrace3foo.llvm.A5310EB9", "backtrace::foo"},
      {"_RNvC9backtrace3foo$cold", "backtrace::foo"},
      {"_RNvC9backtrace3foo@@V_2", "backtrace::foo@@V_2"},
      {"_RNvC9backtrace3foo!", "_RNvC9backtrace3foo!"},
  });
}

TEST_CASE("identifiers with other characters are decoded") {
  CHECK(demangle("_RNqCs4fqI2P2rA04_11utf8_identsu30____7hkackfecea1cbdathfdh9hlq6y") ==
        "utf8_idents::საჭმელად_გემრიელი_სადილი");
  CHECK(demangle("_RNvC1au9bcher_kva") == "a::bücher");
  CHECK(demangle("_RNvC1au2kv") == "a::punycode{kv}");              // ends within a number
  CHECK(demangle("_RNvC1au8abc_9999") == "a::punycode{abc-9999}");  // a character beyond Unicode
  CHECK(demangle("_RNvC1au4abc_") == "_RNvC1au4abc_");
  const std::string many(300, 'a');  // 300 characters: too many
  CHECK(demangle("_RNvC1au300_" + many) == "a::punycode{" + many + "}");
}

TEST_CASE("types of v0 names") {
  for (const auto& [mangled, text] : std::vector<std::pair<std::string, std::string>>{
           {"hstlmxynoijabcdefuzpv",
            "u8, i16, u16, i32, u32, i64, u64, i128, u128, isize, usize, i8, bool, char, f64, str, f32, (), !, _, ..."},
           {"RhQhPhOhRL_h", "&u8, &mut u8, *const u8, *mut u8, &u8"},
           {"Ahj8_ShTETuEThtE", "[u8; 8], [u8], (), ((),), (u8, u16)"},
           {"L_", "'_"},
           {"FEu", "fn()"},
           {"FhEt", "fn(u8) -> u16"},
           {"FUKCPhvEu", "unsafe extern \"C\" fn(*const u8, ...)"},
           {"FK10vector_abiEu", "extern \"vector-abi\" fn()"},
           {"FG0_RL1_hRL0_tERL0_h", "for<'a, 'b> fn(&'a u8, &'b u16) -> &'b u8"},
           {"DNtC1a1TEL_", "dyn a::T"},
           {"DG_INtC1a2FnTRL0_hEEp6OutputtNtC1a4SendEL_", "dyn for<'a> a::Fn<(&'a u8,), Output = u16> + a::Send"},
           {"DNtC1a1Tp1NKj0_EL_", "dyn a::T<N = 0>"},
           {"FG_EDNtC1a1TEL0_", "for<'a> fn() -> dyn a::T + 'a"},
           {"WmORm1_m2_Rm5_m6_E", "u32 is 1..=2 | 5..=6"},
           {"WPhN", "*const u8 is !null"},
           {"TTpB5_EB4_E", "((_, _), (_, _))"},
           {"FGq_RL0_hEu",
            "for<'a, 'b, 'c, 'd, 'e, 'f, 'g, 'h, 'i, 'j, 'k, 'l, 'm, 'n, 'o, 'p, 'q, 'r, 's, 't, 'u, 'v, 'w, 'x, 'y, "
            "'z, '_26, '_27> fn(&'_27 u8)"},
       }) {
    CHECK(type(mangled) == "a::<" + text + ">");
  }
}

TEST_CASE("constants of v0 names") {
  for (const auto& [mangled, text] : std::vector<std::pair<std::string, std::string>>{
           {"p", "_"},
           {"j7b_", "123"},
           {"anb_", "-11"},
           {"off00ff00ff00ff00ff_", "0xff00ff00ff00ff00ff"},
           {"yffffffffffffffff_", "18446744073709551615"},
           {"b0_", "false"},
           {"b1_", "true"},
           {"c76_", "'v'"},
           {"c22_", "'\"'"},
           {"c27_", "'\\''"},
           {"ca_", "'\\n'"},
           {"c0_", "'\\0'"},
           {"c1b_", "'\\u{1b}'"},
           {"c2202_", "'∂'"},
           {"c1f600_", "'😀'"},
           {"Re616263_", "\"abc\""},
           {"Re2227005c_", "\"\\\"'\\0\\\\\""},
           {"Ree28882c3bc_", "\"∂ü\""},
           {"e090a_", "{*\"\\t\\n\"}"},
           {"RRh7b_", "{&&123}"},
           {"QAE", "{&mut []}"},
           {"AAh1_h2_EAh3_h4_EE", "{[[1, 2], [3, 4]]}"},
           {"Tj0_E", "{(0,)}"},
           {"VNvINtNtC4core6option6OptionjE4NoneU", "{core::option::Option::<usize>::None}"},
           {"VNvINtNtC4core6option6OptionjE4SomeTj0_E", "{core::option::Option::<usize>::Some(0)}"},
           {"VNtC3foo3BarS1sRe616263_2chc78_5sliceRAh1_h2_h3_EE",
            "{foo::Bar { s: \"abc\", ch: 'x', slice: &[1, 2, 3] }}"}}) {
    CHECK(constant(mangled) == "a::<" + text + ">");
  }
}

TEST_CASE("invalid v0 names stay as they are") {
  for (const std::string name : {"_R",
                                 "_RC",
                                 "_RC0",
                                 "_R0",
                                 "_RNvC1a",
                                 "_RNvC1a2b",
                                 "_RN0C1a1b",
                                 "_Ra",
                                 "_Rb_tree_increment",
                                 "_RNvC1a1bx",
                                 "_RNvC1a1bX",
                                 "_RNvC1a1b_",
                                 "_R1NvC1a1b",
                                 "_RNvC99999999999999999999999999a1b",
                                 "_RNvC18446744073709551616a1b",
                                 "_RNvCs0123456789abcdefghijklmnop_1a1b",
                                 "_RNvCszzzzzzzzzzz_1a1b",
                                 "_RIC1aL0_E",
                                 "_RIC1aRL0_hE",
                                 "_RIC1aG_E",
                                 "_RIC1aDNtC1a1TEE",
                                 "_RIC1aFK0EuE",
                                 "_RIC1aWmZE",
                                 "_RNvC1a\xc3\xa9"}) {
    CHECK(demangle(name) == name);
  }
  for (const std::string name :
       {"b2_", "cd800_", "c110000_", "cffffffffffffffffff_", "e1_", "jG_", "j1", "z0_", "VNtC1a1bX"})
    CHECK(constant(name) == "_RIC1aK" + name + "E");
}

TEST_CASE("a v0 name that is truncated anywhere is invalid, or a shorter name") {
  const std::string whole =
      "_RINvXs2_C3fooINtC5alloc3VechENtNtC4core3fmt5Debug3fmtDG_INtC1a2FnTRL0_hEEp3OutFUKCPtEuEL_"
      "KVNtC3foo3BarS1sRe6162_2chc78_EAjj1f_u9bcher_kvaEC3bin";
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    CHECK((demangle(cut) == cut || !demangle_rust_v0(cut, 1000)->empty()));
  }
}

TEST_CASE("back references of v0 names lead to an earlier character, and end") {
  CHECK(demangle("_RNvB_1a") == "_RNvB_1a");    // to the path that it is part of
  CHECK(demangle("_RNvB1_1a") == "_RNvB1_1a");  // to itself
  CHECK(demangle("_RNvB9_1a") == "_RNvB9_1a");
  CHECK(demangle("_RNvBzzzzzzzzzzzzzz_1a") == "_RNvBzzzzzzzzzzzzzz_1a");
  const std::string around = "_RIC1aT" + repeat(50, "B3_") + "EE";  // 50^500 types
  CHECK(demangle(around) == around);
  // 20,000 times the path of an impl, which prints nothing but takes 1,200 characters.
  const std::string silent =
      "_RINvC1a1bMM" + repeat(400, "Nv") + "C1a" + repeat(400, "1a") + "uu" + repeat(20'000, "B8_") + "E";
  CHECK(demangle(silent) == silent);
}

TEST_CASE("v0 names have bounds on depth and text") {
  for (const std::string rule : {"N", "Nv", "I", "M", "X", "Y", "IC1aR", "IC1aA", "IC1aT", "IC1aF", "IC1aFG_E",
                                 "IC1aDG_", "IC1aW", "IC1aWhO", "IC1aKR", "IC1aKA", "IC1aKV"}) {
    const std::string deep = "_R" + repeat(200'000, rule);
    CHECK(demangle(deep) == deep);
  }
  CHECK(type(repeat(400, "R") + "h") == "a::<" + repeat(400, "&") + "u8>");
  CHECK(type(repeat(600, "R") + "h") == "_RIC1a" + repeat(600, "R") + "hE");
  CHECK(type(repeat(2'000, "Rh")).size() == 10'003);       // depth is not length
  const std::string lifetimes = "_RIC1aFGzzzzzzzzzz_EuE";  // for<'a, 'b, ...> of 8e17
  CHECK(demangle(lifetimes) == lifetimes);
  CHECK(demangle_rust_v0("_RNvC1a3foo", 6) == "a::foo");
  CHECK(demangle_rust_v0("_RNvC1a3foo", 5) == std::nullopt);
}

TEST_CASE("Rust's legacy mangling is demangled, without the hash") {
  check_all({
      {"_ZN4core3ptr42drop_in_place$LT$alloc..string..String$GT$17h0123456789abcdefE",
       "core::ptr::drop_in_place<alloc::string::String>"},
      {"_ZN45_$LT$foo..Bar$u20$as$u20$core..fmt..Debug$GT$3fmt17h0123456789abcdefE.llvm.99",
       "<foo::Bar as core::fmt::Debug>::fmt"},
      {"_ZN3std2rt10lang_start28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE@@V_2",
       "std::rt::lang_start::{{closure}}@@V_2"},
      {"_ZN1a39f$LT$$RF$$u5b$$BP$u8$u3b$8$u5d$$C$T$GT$17h0123456789abcdefE", "a::f<&[*u8;8],T>"},
      {"_ZN1a36f$LT$fn$LP$$RP$$u20$.$GT$$u20$u8$GT$17h0123456789abcdefE", "a::f<fn() -> u8>"},
      {"_ZN1a6$u7e$b17h0123456789abcdefE", "a::~b"},
      {"_ZN1a9b$ufffff$17h0123456789abcdefE", "a::b\xf3\xbf\xbf\xbf"},
      {"_ZN1a4b$u$17h0123456789abcdefE", "a::b$u$"},
      {"_ZN1a6b$u1b$17h0123456789abcdefE", "a::b$u1b$"},
      {"_ZN1a8b$ud800$17h0123456789abcdefE", "a::b$ud800$"},
      {"_ZN1a7$XY$..c17h0123456789abcdefE", "a::$XY$..c"},
      {"_ZN1a3$LT17h0123456789abcdefE", "a::$LT"},
  });
}

TEST_CASE("names that only resemble Rust's legacy mangling are demangled as C++ names, or stay as they are") {
  check_all({
      {"_ZN1a17h0000000000000000E", "a::h0000000000000000"},  // 16 equal digits are no hash
      {"_ZN1a17h0123456789abcdeEE", "a::h0123456789abcdeE"},
      {"_ZN1a17h0123456789abcdefEv", "a::h0123456789abcdef()"},
      {"_ZN1a17h0123456789abcdefIiE", "_ZN1a17h0123456789abcdefIiE"},
      {"_ZN17h0123456789abcdefE", "h0123456789abcdef"},
      {"_ZN1a17h0123456789abcdef", "_ZN1a17h0123456789abcdef"},
      {"_ZN99999999999999999999a17h0123456789abcdefE", "_ZN99999999999999999999a17h0123456789abcdefE"},
      {"_ZN", "_ZN"},
      {"_ZNE", "_ZNE"},
  });
  const std::string long_name = "_ZN" + repeat(200'000, "1a") + "17h0123456789abcdefE";
  CHECK(demangle(long_name) == long_name);
}

}  // namespace rankstacks::symbolizers
