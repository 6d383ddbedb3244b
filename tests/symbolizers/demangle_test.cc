#include <catch2/catch.hpp>

#include "symbolizers/symbolizer.h"

namespace rankstacks::symbolizers {

TEST_CASE("names are demangled as c++filt does") {
  CHECK(demangle("_Z3fooi") == "foo(int)");
  CHECK(demangle("_ZN2at6native3addERKNS_6TensorES3_") == "at::native::add(at::Tensor const&, at::Tensor const&)");
  CHECK(demangle("_ZNSt6vectorIiSaIiEE9push_backEOi") == "std::vector<int, std::allocator<int> >::push_back(int&&)");
}

TEST_CASE("clones keep their suffix") {
  CHECK(demangle("_Z3fooi.cold") == "foo(int) [clone .cold]");
  CHECK(demangle("_Z3fooi.part.0.constprop.1") == "foo(int) [clone .part.0] [clone .constprop.1]");
  CHECK(demangle("_Z3fooi.llvm.1234567") == "foo(int) [clone .llvm.1234567]");
  CHECK(demangle("_Z3fooi.$odd$suffix") == "foo(int) [clone .$odd$suffix]");
  CHECK(demangle("foo.cold") == "foo.cold");
}

TEST_CASE("versions stay behind the name") {
  CHECK(demangle("_Z3fooi@@V_2") == "foo(int)@@V_2");
  CHECK(demangle("pthread_cond_wait@@GLIBC_2.3.2") == "pthread_cond_wait@@GLIBC_2.3.2");
}

TEST_CASE("a name whose text would exceed all memory stays as it is") {
  // g(P<int, int>, P<first, first>, P<second, second>, ...): each parameter is twice the one before.
  const std::string digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const auto doubled = [&](std::size_t times) {
    std::string name = "_Z1g1PIiiE";
    for (std::size_t i = 0; i < times; ++i) name += std::string("S_I") + "S" + digits[i] + "_S" + digits[i] + "_E";
    return name;
  };
  CHECK(demangle(doubled(1)) == "g(P<int, int>, P<P<int, int>, P<int, int> >)");
  CHECK(demangle(doubled(5)).size() == 1048);
  CHECK(demangle(doubled(36)) == doubled(36));  // a terabyte
}

TEST_CASE("other names stay as they are") {
  for (const char* name :
       {"", "i", "main", "_Z", "_Znonsense!", "_Zfoo.cold", "_GLOBAL__sub_I_x", "PyEval_EvalFrameDefault"}) {
    CHECK(demangle(name) == name);
  }
}

}  // namespace rankstacks::symbolizers
