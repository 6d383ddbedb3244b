#include "report/json_missing_files.h"

#include <cstdint>
#include <optional>

namespace rankstacks::report {
namespace {

constexpr WordTable<PackageFrom, 3> kPackageFromWords = {
    {{PackageFrom::kDpkg, "dpkg"}, {PackageFrom::kWheel, "wheel"}, {PackageFrom::kConda, "conda"}}};

std::optional<std::string> known(const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }

MissingFile read_file(const Node& node) {
  node.require_object();
  MissingFile file;
  node.required("path", [&](const Node& n) { file.path = n.text(); });
  node.optional("build_id", [&](const Node& n) { file.build_id = n.text(); });
  node.optional("package", [&](const Node& n) { file.package = n.text(); });
  node.optional("package_from", [&](const Node& n) { file.from = n.word(kPackageFromWords); });
  node.required("frames", [&](const Node& n) { file.frames = static_cast<std::size_t>(n.integer(0, INT64_MAX)); });
  return file;
}

}  // namespace

void write_missing_files(JsonText& json, const RankSnapshot& rank) {
  if (rank.missing_files.empty()) return;
  json.key("missing_files");
  json.open('[', true);
  for (const MissingFile& file : rank.missing_files) {
    json.open('{');
    json.field("path", file.path);
    json.field("build_id", known(file.build_id));
    json.field("package", known(file.package));
    if (file.from != PackageFrom::kUnknown)
      json.field("package_from", std::string(word_of(kPackageFromWords, file.from)));
    json.key("frames"), json.number(file.frames);
    json.close();
  }
  json.close();
}

void read_missing_files(const Node& rank_node, RankSnapshot& rank) {
  rank_node.optional("missing_files", [&](const Node& list) {
    list.each(kMaxMissingFiles, [&](const Node& n) { rank.missing_files.push_back(read_file(n)); });
  });
}

}  // namespace rankstacks::report
