// Reading and writing the messages of the helper processes, which are untrusted data.
#include <unistd.h>
#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>

#include "gpu/helper_messages.h"

namespace rankstacks::gpu {
namespace {

using nlohmann::json;
using Bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t kLongest = 1000;

Bytes header(char kind, std::uint32_t length) {
  Bytes bytes{static_cast<std::uint8_t>(kind)};
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::uint8_t>(length >> 8 * i));
  return bytes;
}

}  // namespace

TEST_CASE("messages are read whole, however they arrive; after one that is too long none is read") {
  MessageReader reader(kLongest);
  Bytes bytes = header('p', 1);
  bytes.push_back(3);
  for (const std::uint8_t byte : bytes) {
    CHECK_FALSE(reader.next());
    reader.add(std::span(&byte, 1));
  }
  const auto message = reader.next();
  REQUIRE(message);
  CHECK(message->kind == 'p');
  CHECK(message->body == Bytes{3});
  CHECK_FALSE(reader.next());

  // Many small messages at once (8 million bytes) take linear time.
  Bytes flood;
  for (int i = 0; i < 1'600'000; ++i) flood.insert(flood.end(), {'d', 0, 0, 0, 0});
  reader.add(flood);
  std::size_t count = 0;
  while (reader.next()) ++count;
  CHECK(count == 1'600'000);

  reader.add(header('a', kLongest + 1));
  CHECK_FALSE(reader.next());
  CHECK(reader.is_broken());
  reader.add(header('d', 0));
  CHECK_FALSE(reader.next());
}

TEST_CASE("a message is read as it was sent, up to the longest one") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK(send(ends[1], 'g', Bytes(kLongest, 7)));
  CHECK(send(ends[1], 'd', {}));
  Bytes bytes(4096);
  const ssize_t n = read(ends[0], bytes.data(), bytes.size());
  REQUIRE(n > 0);
  bytes.resize(static_cast<std::size_t>(n));
  MessageReader reader(kLongest);
  reader.add(bytes);
  const auto first = reader.next(), second = reader.next();
  REQUIRE(first);
  CHECK(first->kind == 'g');
  CHECK(first->body == Bytes(kLongest, 7));
  REQUIRE(second);
  CHECK(second->kind == 'd');
  CHECK(second->body.empty());
  CHECK_FALSE(reader.next());
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("MessagePack is read within its limits") {
  constexpr PackedLimits kLimits{.depth = 2, .values = 6, .text = 4};
  const auto read = [&](const json& value) { return unpack_value(json::to_msgpack(value), kLimits); };
  CHECK(read(json{{"a", {1, 2}}}) == json{{"a", {1, 2}}});
  CHECK(read(json::array({json::array()})));
  CHECK_FALSE(read(json::array({json::array({json::array()})})));
  CHECK(read({1, 2, 3, 4, 5}));
  CHECK_FALSE(read({1, 2, 3, 4, 5, 6}));  // the array itself is one
  CHECK(read("text"));
  CHECK_FALSE(read("texts"));
  CHECK_FALSE(read(json{{"texts", 1}}));
  CHECK_FALSE(read(std::numeric_limits<double>::infinity()));
  CHECK_FALSE(unpack_value(Bytes{0xc4, 1, 0}, kLimits));  // binary
  CHECK_FALSE(unpack_value(Bytes{1, 1}, kLimits));        // more than one value
  CHECK_FALSE(unpack_value(Bytes{}, kLimits));
}

}  // namespace rankstacks::gpu
