// What systemd-coredump is set up to keep: files of several directories, sizes, defaults by version.
#include "doctor/coredump_settings.h"
#include "literal_system.h"

namespace rankstacks::doctor {
namespace {

constexpr std::uint64_t kMega = 1 << 20, kGiga = 1 << 30;
using Storage = CoredumpSettings::Storage;

}  // namespace

TEST_CASE("sizes as systemd reads them") {
  CHECK(parse_coredump_size("512") == 512);
  CHECK(parse_coredump_size("0") == 0);
  CHECK(parse_coredump_size("3B") == 3);
  CHECK(parse_coredump_size("767M") == 767 * kMega);
  CHECK(parse_coredump_size(" 1.5 G ") == kGiga + kGiga / 2);
  CHECK(parse_coredump_size("1G 512M") == kGiga + kGiga / 2);
  CHECK(parse_coredump_size("2T1K") == 2048 * kGiga + 1024);
  CHECK(parse_coredump_size("15E") == std::uint64_t{15} << 60);
  for (const char* wrong :
       {"", "G", "-1", "1Q", "1g", "512M 1G", "1 2", "infinity", "inf", "nan", "16E", "1e5", "0x10"})
    CHECK_FALSE(parse_coredump_size(wrong));
}

TEST_CASE("defaults") {
  LiteralSystem s;
  CoredumpSettings now = read_coredump_settings(s, "");
  CHECK((now.storage == Storage::kExternal && now.compress && !now.version && now.files.empty()));
  CHECK((now.process_size_max == 32 * kGiga && now.external_size_max == 32 * kGiga));
  CHECK((now.taken() == 32 * kGiga && now.kept() == 32 * kGiga && now.taken_by() == "ExternalSizeMax"));
  CHECK(now.journal_size_max == 767 * kMega);
  // A tenth and three twentieths, 4 GB at most.
  CHECK((now.max_use_of(20 * kGiga) == 2 * kGiga && now.max_use_of(1000 * kGiga) == 4 * kGiga));
  CHECK((now.keep_free_of(20 * kGiga) == 3 * kGiga && now.keep_free_of(1000 * kGiga) == 4 * kGiga));
  CHECK(now.max_use_of(100) == kMega);
  s.directories["/usr/lib/x86_64-linux-gnu/systemd"] = {"system", "libsystemd-shared-250.so"};
  now = read_coredump_settings(s, "");
  CHECK((now.version == 250 && now.process_size_max == 2 * kGiga && now.external_size_max == 2 * kGiga));
  s.directories["/usr/lib/systemd"] = {"libsystemd-shared-251.fc36.so"};
  CHECK(read_coredump_settings(s, "").external_size_max == 32 * kGiga);
}

TEST_CASE("which files count") {
  LiteralSystem s;
  const auto main_file = [&](const char* place, const char* use) {
    s.files[std::string(place) + "/systemd/coredump.conf"] = std::string("[Coredump]\nMaxUse=") + use + "\n";
  };
  const auto drop_in = [&](const std::string& place, const char* name, const std::string& text) {
    s.directories[place + "/systemd/coredump.conf.d"].push_back(name);
    s.files[place + "/systemd/coredump.conf.d/" + name] = text;
  };
  const auto use = [&] { return read_coredump_settings(s, "").max_use; };
  main_file("/usr/lib", "1G");
  CHECK(use() == kGiga);
  main_file("/usr/local/lib", "2G");
  CHECK(use() == 2 * kGiga);
  main_file("/run", "3G");
  CHECK(use() == 3 * kGiga);
  main_file("/etc", "4G");
  CHECK(use() == 4 * kGiga);
  CHECK(read_coredump_settings(s, "").files == std::vector<std::string>{"/etc/systemd/coredump.conf"});
  // Any of these comes after the main file, and the last name counts, whichever directory it is in.
  drop_in("/usr/lib", "20-b.conf", "[Coredump]\nMaxUse=5G\n");
  CHECK(use() == 5 * kGiga);
  drop_in("/etc", "10-a.conf", "[Coredump]\nMaxUse=6G\n");
  CHECK(use() == 5 * kGiga);
  drop_in("/usr/local/lib", "20-b.conf", "[Coredump]\nMaxUse=7G\n");
  CHECK(use() == 7 * kGiga);
  drop_in("/run", "20-b.conf", "[Coredump]\nMaxUse=8G\n");
  CHECK(use() == 8 * kGiga);
  // An empty file of that name, as a link to /dev/null is one, hides the others.
  drop_in("/etc", "20-b.conf", "");
  CHECK(use() == 6 * kGiga);
  drop_in("/etc", "99-no.txt", "[Coredump]\nMaxUse=9G\n");
  drop_in("/etc", ".99-no.conf", "[Coredump]\nMaxUse=9G\n");
  CHECK(use() == 6 * kGiga);
  CHECK(read_coredump_settings(s, "").files == std::vector<std::string>{"/etc/systemd/coredump.conf",
                                                                        "/etc/systemd/coredump.conf.d/10-a.conf",
                                                                        "/etc/systemd/coredump.conf.d/20-b.conf"});
  CHECK(read_coredump_settings(s, "/host").files.empty());

  // Up to 255 the main file is the one in /etc alone.
  LiteralSystem old;
  old.files["/host/usr/lib/systemd/coredump.conf"] = "[Coredump]\nMaxUse=1G\n";
  CHECK(read_coredump_settings(old, "/host").max_use == kGiga);
  old.directories["/host/usr/lib/systemd"] = {"libsystemd-shared-255.so"};
  CHECK_FALSE(read_coredump_settings(old, "/host").max_use);
}

TEST_CASE("what is in a file") {
  LiteralSystem s;
  const auto with = [&](const std::string& text) {
    s.files["/etc/systemd/coredump.conf"] = text;
    return read_coredump_settings(s, "");
  };
  CHECK(with("Storage=none\n").storage == Storage::kExternal);  // in no section
  CHECK(with("[Journal]\nStorage=none\n").storage == Storage::kExternal);
  CHECK(with("[Coredump]\nStorage=none").storage == Storage::kNone);
  CHECK(with("  [Coredump]\r\n Storage = journal \r\n").storage == Storage::kJournal);
  CHECK(with("[Coredump]\n#Storage=none\n;Storage=none\n").storage == Storage::kExternal);
  CHECK(with("[Coredump]\nStorage=none\nStorage=elsewhere\n").storage == Storage::kNone);
  CHECK(with("[Coredump]\nMaxUse=1G \\\n# in between\n 512M\nStorage=none\n").max_use == kGiga + kGiga / 2);
  CHECK_FALSE(with("[Coredump]\nCompress=no\n").compress);
  CHECK(with("[Coredump]\nCompress=maybe\n").compress);
  CHECK(with("[Coredump]\nMaxUse=0\nKeepFree=0\n").max_use_of(kGiga) == 0);
  CHECK(with("[Coredump]\nKeepFree=0\n").keep_free_of(kGiga) == 0);
  // Only one of the sizes takes this word.
  CHECK(with("[Coredump]\nExternalSizeMax=infinity\n").external_size_max == CoredumpSettings::kInfinity);
  CHECK(with("[Coredump]\nProcessSizeMax=infinity\n").process_size_max == 32 * kGiga);
  CHECK(with("[Coredump]\nJournalSizeMax=2G\nStorage=journal\n").kept() == 767 * kMega);
  // What is processed and what is kept: the larger one is taken in.
  CoredumpSettings both = with("[Coredump]\nProcessSizeMax=8G\nExternalSizeMax=1G\n");
  CHECK((both.taken() == 8 * kGiga && both.taken_by() == "ProcessSizeMax" && both.kept() == kGiga));
  both = with("[Coredump]\nProcessSizeMax=1G\nExternalSizeMax=8G\n");
  CHECK((both.taken() == 8 * kGiga && both.taken_by() == "ExternalSizeMax" && both.kept_by() == "ExternalSizeMax"));
  both = with("[Coredump]\nProcessSizeMax=8G\nStorage=journal\n");
  CHECK((both.taken() == 8 * kGiga && both.kept_by() == "JournalSizeMax"));
}

}  // namespace rankstacks::doctor
