#include "analyzers/names.h"

#include <catch2/catch.hpp>

using namespace rankstacks;
using namespace rankstacks::analyzers;

TEST_CASE("clone suffixes and symbol versions are stripped, dots that belong to a name stay") {
  CHECK(without_suffixes("f.cold") == "f");
  CHECK(without_suffixes("f.part.0") == "f");
  CHECK(without_suffixes("f.constprop.0.isra.0") == "f");
  CHECK(without_suffixes("f.lto_priv.12.cold") == "f");
  CHECK(without_suffixes("void f(int) [clone .cold] [clone .1]") == "void f(int)");
  CHECK(without_suffixes("pthread_cond_wait@@GLIBC_2.3.2") == "pthread_cond_wait");
  CHECK(without_suffixes("memcpy@plt") == "memcpy");
  CHECK(without_suffixes("uv.io_poll") == "uv.io_poll");
  CHECK(without_suffixes("main.main") == "main.main");
  CHECK(without_suffixes(".cold") == ".cold");
  CHECK(without_suffixes("") == "");
}

TEST_CASE("libc's internal aliases have one public name") {
  CHECK(public_libc_name("__GI___poll") == "poll");
  CHECK(public_libc_name("___pthread_cond_wait") == "pthread_cond_wait");
  CHECK(public_libc_name("___pthread_cond_timedwait64") == "pthread_cond_timedwait");
  CHECK(public_libc_name("pthread_cond_timedwait@@GLIBC_2.3.2") == "pthread_cond_timedwait");
  CHECK(public_libc_name("__libc_read") == "read");
  CHECK(public_libc_name("__GI___clock_nanosleep_time64") == "clock_nanosleep");
  CHECK(public_libc_name("__read_nocancel") == "read");
  CHECK(public_libc_name("__libc_start_call_main") == "__libc_start_call_main");
  CHECK(public_libc_name("____") == "____");
}

TEST_CASE("short functions have no arguments, template arguments or return types") {
  CHECK(short_function("c10d::Reducer::finalize_backward()") == "c10d::Reducer::finalize_backward()");
  CHECK(short_function(
            "c10d::Reducer::prepare_for_backward(std::vector<at::Tensor, std::allocator<at::Tensor> > const&)") ==
        "c10d::Reducer::prepare_for_backward(...)");
  CHECK(short_function("void at::native::f<float, int>(at::Tensor&) const") == "at::native::f<...>(...)");
  CHECK(short_function("gloo::(anonymous namespace)::allreduce(gloo::detail::Options const&)") ==
        "gloo::(anonymous namespace)::allreduce(...)");
  CHECK(short_function("<alloc::vec::Vec<u8> as core::fmt::Debug>::fmt") ==
        "<alloc::vec::Vec<...> as core::fmt::Debug>::fmt");
  CHECK(short_function("<bin::Pool>::run::<fn(u8) -> u8>::{closure#0}") == "<bin::Pool>::run::<...>::{closure#0}");
  CHECK(short_function(
            "std::_Function_handler<void (), X::f(unsigned long)::{lambda()#1}>::_M_invoke(std::_Any_data const&)") ==
        "std::_Function_handler<...>::_M_invoke(...)");
  CHECK(short_function("X::f(int)::{lambda(int)#1}::operator()(int) const") ==
        "X::f(int)::{lambda(int)#1}::operator()(...)");
  CHECK(short_function("bool operator< <int>(A<int> const&, A<int> const&)") == "bool operator< <...>(...)");
  CHECK(short_function("std::ostream::operator<<(int)") == "std::ostream::operator<<(...)");
  CHECK(short_function("Foo::operator->()") == "Foo::operator->()");
  CHECK(short_function("pthread_cond_wait@@GLIBC_2.3.2") == "pthread_cond_wait");
  CHECK(short_function("read") == "read");
  CHECK(short_function(")") == ")");
  CHECK(short_function("f<<<<") == "f<...");
}

TEST_CASE("modules are recognised by their base names") {
  CHECK(is_c_library("/lib/x86_64-linux-gnu/libc.so.6"));
  CHECK(is_c_library("/lib/libc-2.31.so"));
  CHECK(is_c_library("/usr/lib/libc.so.6 (deleted)"));
  CHECK(is_c_library("[vdso]"));
  CHECK_FALSE(is_c_library("/x/libc10.so"));
  CHECK(is_interpreter("/usr/bin/python3.11"));
  CHECK(is_interpreter("/opt/conda/lib/libpython3.13t.so.1.0"));
  CHECK(is_interpreter("/usr/bin/python3.11-dbg"));
  CHECK(is_interpreter("/usr/bin/python"));
  CHECK_FALSE(is_interpreter("/x/libpython_wrapper.so"));
  CHECK_FALSE(is_interpreter("/x/python3-config.so.d"));
  CHECK(is_opaque("/usr/lib/libcuda.so.535.54"));
  CHECK(is_opaque("/usr/lib/libgomp.so.1"));
  CHECK_FALSE(is_opaque("/x/libtorch_cpu.so"));
}

TEST_CASE("the user's files are those outside of packages and the standard library") {
  CHECK(known::is_library_file("/usr/lib/python3.11/threading.py"));
  CHECK(known::is_library_file("/usr/lib/python3/dist-packages/torch/_tensor.py"));
  CHECK(known::is_library_file("/home/u/.venv/lib/python3.12/site-packages/x.py"));
  CHECK(known::is_library_file("<frozen importlib._bootstrap>"));
  CHECK(known::is_library_file("/opt/conda/lib64/python3.9/queue.py"));
  CHECK_FALSE(known::is_library_file("/home/u/lib/train.py"));
  CHECK_FALSE(known::is_library_file("/home/u/libs/python_stuff/train.py"));
  CHECK_FALSE(known::is_library_file("train.py"));
}
