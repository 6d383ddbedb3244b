#include "small_core/archive.h"

#include <elf.h>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <iterator>

#include "small_core/core_files.h"
#include "small_core/new_file.h"
#include "small_core/secret_bytes.h"
#include "support/temporary_directory.h"

using namespace rankstacks;
using namespace rankstacks::small_core;

namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> archive_of(const std::vector<std::pair<std::string, std::string>>& files) {
  std::vector<std::byte> archive;
  const auto add = [&](const std::vector<std::byte>& part) { archive.insert(archive.end(), part.begin(), part.end()); };
  for (const auto& [name, text] : files) {
    add(tar_header(name, text.size(), 1'700'000'000));
    add(bytes_of(text));
    add(std::vector<std::byte>(tar_padding(text.size())));
  }
  add(tar_end());
  return archive;
}

std::string error_of(const std::vector<std::byte>& archive) {
  const auto read = read_tar(archive, "x.tar", 10);
  return read ? "none" : read.error().message();
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("files of an archive come back under their last names") {
  const auto archive =
      archive_of({{"rank-0.core", "abc"}, {"../../etc/rank-1.core", std::string(1000, 'x')}, {"e", ""}});
  CHECK(is_tar(archive));
  const auto read = read_tar(archive, "x.tar", 10);
  REQUIRE(read);
  REQUIRE(read->size() == 3);
  CHECK((*read)[0].name == "rank-0.core");
  CHECK((*read)[0].bytes.size() == 3);
  CHECK((*read)[1].name == "rank-1.core");
  CHECK((*read)[1].bytes.size() == 1000);
  CHECK((*read)[2].bytes.empty());
}

TEST_CASE("archives that are damaged are refused, with the place") {
  const auto whole = archive_of({{"a", "abc"}, {"b", "def"}});
  auto damaged = whole;
  CHECK(error_of(whole) == "none");
  damaged[1024] = std::byte{'c'};
  CHECK(error_of(damaged) == "x.tar: not the header of an archive's file (at 0x400)");
  damaged = whole;
  damaged.resize(1024);
  CHECK(error_of(damaged) == "x.tar: an archive without its end (at 0x400)");
  const auto huge = tar_header("a", 0777777777777, 0);
  CHECK(error_of(huge) == "x.tar: a file of an archive reaches past its end (at 0x0)");
  CHECK_FALSE(is_tar(bytes_of("{}")));
  CHECK_FALSE(is_tar(std::vector<std::byte>(512)));
  std::vector<std::pair<std::string, std::string>> many(11, {"a", ""});
  CHECK(error_of(archive_of(many)) == "x.tar: more than 10 files in an archive");
}

TEST_CASE("a new file has its name only when it is finished") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/x.core";
  std::ofstream(path) << "before";
  {
    auto file = NewFile::create(path);
    REQUIRE(file);
    REQUIRE(file->write(bytes_of("half")));
    CHECK(text_of(path) == "before");
  }
  CHECK(text_of(path) == "before");
  REQUIRE(write_core(path, {"x.core", bytes_of("whole")}));
  CHECK(text_of(path) == "whole");
  CHECK_FALSE(NewFile::create(directory.path() + "/none/x"));
  const auto device = NewFile::create("/dev/null");
  REQUIRE_FALSE(device);
  CHECK(device.error().message() == "/dev/null: exists, and is no regular file: it is not replaced");
}

TEST_CASE("secrets are overwritten wherever their bytes are, and nothing moves") {
  const std::string secret = "q8Zr2Wm5Xk9L";
  KeptProcess process;
  const auto piece = [&](const std::string& text) { process.pieces.push_back({0x1000, 0, bytes_of(text)}); };
  piece("A=" + secret + ";B=" + secret + ";");
  piece("ends in " + secret.substr(0, 7));  // the next page was not kept
  piece(secret.substr(5) + " begins");
  piece("q8Zr2 is too little of it");
  process.notes = bytes_of("run --key " + secret.substr(0, 9) + std::string(3, '\0') + "rest");
  process.symbols = bytes_of("f_" + secret);
  overwrite_secrets(process, {secret, "abc"});
  const auto text = [](const std::vector<std::byte>& bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  CHECK(text(process.pieces[0].bytes) == "A=xxxxxxxxxxxx;B=xxxxxxxxxxxx;");
  CHECK(text(process.pieces[1].bytes) == "ends in xxxxxxx");
  CHECK(text(process.pieces[2].bytes) == "xxxxxxx begins");
  CHECK(text(process.pieces[3].bytes) == "q8Zr2 is too little of it");
  CHECK(text(process.notes) == "run --key xxxxxxxxx" + std::string(3, '\0') + "rest");
  CHECK(text(process.symbols) == "f_xxxxxxxxxxxx");
}

TEST_CASE("what is left of a short secret in memory that was freed") {
  const std::string secret = "sid=q8Zr2Wm5Xk9LtB4nV7c";
  KeptProcess process;
  for (const std::size_t cut : {1, 4, 7})
    process.pieces.push_back({0x1000, 0, bytes_of("pointer" + secret.substr(cut) + ";")});
  process.pieces.push_back({0x1000, 0, bytes_of("else " + secret.substr(8) + ";")});
  overwrite_secrets(process, {secret});
  const auto text = [](const std::vector<std::byte>& bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  CHECK(text(process.pieces[0].bytes) == "pointer" + std::string(secret.size() - 1, 'x') + ";");
  CHECK(text(process.pieces[1].bytes) == "pointer" + std::string(secret.size() - 4, 'x') + ";");
  CHECK(text(process.pieces[2].bytes) == "pointer" + std::string(secret.size() - 7, 'x') + ";");
  CHECK(text(process.pieces[3].bytes) == "else " + secret.substr(8) + ";");
}

TEST_CASE("what is left of a secret in memory that was freed") {
  const std::string secret = "q8Zr2Wm5Xk9LtB4nV7cJpD6sYh3eGfA1uRbT0vKi";
  KeptProcess process;
  // The allocator has written two words to the beginning of it; and what only ends like it is something else.
  for (const std::string& text : {"pointer" + secret.substr(9) + ".", "other" + secret.substr(26) + "."})
    process.pieces.push_back({0x1000, 0, bytes_of(text)});
  overwrite_secrets(process, {secret});
  const auto text = [](const std::vector<std::byte>& bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  CHECK(text(process.pieces[0].bytes) == "pointer" + std::string(secret.size() - 9, 'x') + ".");
  CHECK(text(process.pieces[1].bytes) == "other" + secret.substr(26) + ".");
}

TEST_CASE("the lines of a private key are secrets of their own") {
  KeptProcess process;
  process.pieces.push_back(
      {0x1000, 0, bytes_of("-----BEGIN KEY-----\\nq8Zr2Wm5Xk9LtB4nV7cJ\\nabcd\\n-----END KEY-----")});
  overwrite_secrets(process, {"-----BEGIN KEY-----\nq8Zr2Wm5Xk9LtB4nV7cJ\nabcd\n-----END KEY-----"});
  const auto& bytes = process.pieces[0].bytes;
  CHECK(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) ==
        "-----BEGIN KEY-----\\nxxxxxxxxxxxxxxxxxxxx\\nabcd\\n-----END KEY-----");
}

TEST_CASE("pieces of secrets are overwritten in vector registers, and nowhere else") {
  const std::string secret = "q8Zr2Wm5Xk9LtB4nV7cJ", piece = "m5Xk9LtB4nV7";
  const auto note_of = [](std::uint32_t type, const std::string& body) {
    std::vector<std::byte> note;
    target::append_note(note, "CORE", type, bytes_of(body));
    return note;
  };
  const auto overwritten = [&](std::uint32_t type, const std::string& body) {
    KeptProcess process;
    process.notes = note_of(type, "before");
    const auto note = note_of(type, body);
    process.notes.insert(process.notes.end(), note.begin(), note.end());
    overwrite_secrets(process, {secret});
    return process.notes;
  };
  const auto expected = [&](std::uint32_t type, const std::string& body) {
    auto notes = note_of(type, "before"), note = note_of(type, body);
    notes.insert(notes.end(), note.begin(), note.end());
    return notes;
  };
  for (const std::uint32_t type : {NT_FPREGSET, NT_X86_XSTATE}) {
    CHECK(overwritten(type, "ab" + piece + "##" + piece.substr(2, 8) + "!") ==
          expected(type, "abxxxxxxxxxxxx##xxxxxxxx!"));
    CHECK(overwritten(type, piece.substr(0, 7)) == expected(type, piece.substr(0, 7)));
  }
  CHECK(overwritten(NT_PRSTATUS, piece) == expected(NT_PRSTATUS, piece));
  KeptProcess damaged;
  damaged.notes = note_of(NT_FPREGSET, piece);
  damaged.notes.resize(damaged.notes.size() - 4);
  overwrite_secrets(damaged, {secret});
}
