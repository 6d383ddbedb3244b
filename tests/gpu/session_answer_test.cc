// What a session's client reports is untrusted data.
#include <catch2/catch.hpp>

#include "gpu/session_answer.h"

namespace rankstacks::gpu {
namespace {

using Bytes = std::vector<std::uint8_t>;

SessionAnswer an_answer() {
  SessionAnswer answer{.driver = "13.0", .core_bytes = 5};
  answer.frames.push_back({.kind = FrameKind::kGpu, .function = "spin", .address = 0x10});
  GpuSnapshot& gpu = answer.gpus.emplace_back();
  gpu.execution.emplace();
  gpu.execution->kernels.push_back({.grid_id = 1, .function = "spin", .places = {{0, 8}}, .frames = {0}});
  return answer;
}

std::optional<SessionAnswer> there_and_back(const SessionAnswer& answer) { return unpack_answer(pack(answer)); }

}  // namespace

TEST_CASE("an answer comes through as it is") {
  const auto answer = there_and_back(an_answer());
  REQUIRE(answer);
  CHECK(answer->gpus == an_answer().gpus);
  CHECK(answer->core_bytes == 5u);
}

TEST_CASE("an answer that no helper of ours gives is none") {
  SessionAnswer answer = an_answer();
  SECTION("a frame that is not there") { answer.gpus[0].execution->kernels[0].frames = {1}; }
  SECTION("a frame of another kind") { answer.frames[0].kind = FrameKind::kPython; }
  SECTION("a kind that is none") { answer.frames[0].kind = static_cast<FrameKind>(77); }
  SECTION("too many GPUs") { answer.gpus.resize(257); }
  SECTION("too many kernels") { answer.gpus[0].execution->kernels.resize(1025); }
  SECTION("too many problems") { answer.problems.resize(5000); }
  SECTION("a text that is too long") { answer.driver = std::string(300 << 10, 'x'); }
  SECTION("no number") { answer.attach_ms = std::numeric_limits<double>::quiet_NaN(); }
  CHECK_FALSE(there_and_back(answer));
}

TEST_CASE("what is nested without end, or claims to have no end, is given up at once") {
  const Bytes deep(50u << 20, 0x91);  // an array of one array of one array ...
  CHECK_FALSE(unpack_answer(deep));
  CHECK_FALSE(unpack_error(deep));
  CHECK_FALSE(unpack_answer(Bytes{0xdd, 0xff, 0xff, 0xff, 0xff}));  // an array of 4,294,967,295
  CHECK_FALSE(unpack_answer(Bytes{0xdf, 0xff, 0xff, 0xff, 0xff}));
  CHECK_FALSE(unpack_answer(Bytes{0xdb, 0xff, 0xff, 0xff, 0xff}));  // a string of as many bytes
  Bytes many{0xdd, 0x00, 0xff, 0xff, 0xff};
  many.resize(60u << 20, 0xc0);  // more values than any answer has
  CHECK_FALSE(unpack_answer(many));
  CHECK_FALSE(unpack_answer({}));
}

TEST_CASE("an error whose code is none is no error") {
  Error error{.code = static_cast<ErrorCode>(99), .subject = "x", .what = "y", .where = {}, .os_errno = 0, .hint = {}};
  CHECK_FALSE(unpack_error(pack(error)));
  error.code = ErrorCode::kLimit;
  CHECK(unpack_error(pack(error))->what == "y");
}

}  // namespace rankstacks::gpu
