// How large a core would be, and what is kept of it.
#include "doctor/core_size.h"
#include "literal_system.h"

namespace rankstacks::doctor {
namespace {

constexpr std::uint64_t kPage = 4096, kMega = 1 << 20, kGiga = 1 << 30;

// Sizes in kB.
std::string mapping(const std::string& head, std::uint64_t size, std::uint64_t resident, std::uint64_t anonymous,
                    const std::string& flags) {
  return fmt::format(
      "{}\nSize:           {} kB\nRss:            {} kB\nPss:  0 kB\nAnonymous:      {} kB\nSwap:       0 kB\n"
      "THPeligible:           0\nVmFlags: {}\n",
      head, size, resident, anonymous, flags);
}

// A process of `gigabytes` of private memory, half of which was touched, and of `shared` GB of shared memory.
LiteralSystem with_process(std::uint64_t gigabytes, std::uint64_t shared = 0) {
  LiteralSystem s = LiteralSystem::sound();
  s.add_process(7, "python3", 1000);
  s.files["/proc/7/smaps"] =
      mapping("10000-20000 rw-p 00000000 00:00 0 ", gigabytes << 20, gigabytes << 19, gigabytes << 19, "rd wr mr") +
      mapping("20000-30000 rw-s 00000000 00:01 9   /dev/zero (deleted)", shared << 20, 0, 0, "rd wr sh mr");
  return s;
}

void pipe_to_systemd(LiteralSystem& s, const std::string& settings = "") {
  s.files["/proc/sys/kernel/core_pattern"] = "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h\n";
  s.present.insert("/usr/lib/systemd/systemd-coredump");
  s.files["/etc/systemd/coredump.conf"] = "[Coredump]\n" + settings;
  s.spaces["/var/lib/systemd/coredump"] = {.available = 500 * kGiga, .total = 1000 * kGiga, .device = 1};
}

const CoreOutlook& outlook(const Examination& e, std::size_t section = 1) {
  for (const Finding& f : e.sections.at(section).findings)
    if (f.core) return *f.core;
  throw std::runtime_error("no finding on the size");
}

const std::string kCapture = " -> rankstacks capture --pids {PID} -o DIR";
using Fate = CoreOutlook::Fate;

}  // namespace

TEST_CASE("which mappings a core holds") {
  const std::uint64_t notes = kPage + 3 * 4096;
  const auto size = [&](const std::string& smaps, unsigned filter = 0x33) {
    const CoreSize core = core_size_by_mappings(smaps, filter, 3);
    REQUIRE((core.bytes >= notes && core.data >= notes));
    return std::vector<std::uint64_t>{(core.bytes - notes) >> 10, (core.data - notes) >> 10, core.shared >> 10};
  };
  using Sizes = std::vector<std::uint64_t>;
  const std::string written = mapping("1000-2000 rw-p 00000000 00:00 0       [heap]", 100, 40, 30, "rd wr mr mw");
  CHECK(size(written) == Sizes{100, 40, 0});
  CHECK(size(written, 0x32) == Sizes{0, 0, 0});
  CHECK(size(mapping("1000-2000 ---p 00000000 00:00 0 ", 1 << 20, 0, 0, "mr mw")) == Sizes{0, 0, 0});  // reserved
  CHECK(size(mapping("1000-2000 rw-p 00000000 00:00 0 ", 100, 40, 40, "rd wr dd")) == Sizes{0, 0, 0});
  CHECK(size(mapping("1000-2000 rw-p 00000000 00:06 5 /dev/nvidia0", 100, 40, 40, "rd wr io pf")) == Sizes{0, 0, 0});
  // A library: its first page, the data that were written to with all their pages, none of its code.
  const std::string library = mapping("1000-2000 r--p 00000000 fe:00 9   /usr/lib/a.so", 100, 80, 0, "rd mr") +
                              mapping("2000-3000 r-xp 00010000 fe:00 9   /usr/lib/a.so", 1000, 500, 0, "rd ex mr") +
                              mapping("3000-4000 rw-p 00020000 fe:00 9   /usr/lib/a.so", 60, 30, 20, "rd wr mr");
  CHECK(size(library) == Sizes{64, 64, 0});
  CHECK(size(library, 0x23) == Sizes{60, 60, 0});
  CHECK(size(library, 0x37) == Sizes{1160, 1160, 0});
  // Shared memory without a name, or of a file.
  const std::string unnamed = mapping("1000-2000 rw-s 00000000 00:01 5 /dev/shm/x (deleted)", 100, 20, 0, "rd wr sh");
  CHECK(size(unnamed) == Sizes{100, 100, 100});
  CHECK(size(unnamed, 0x31) == Sizes{0, 0, 0});
  const std::string named = mapping("1000-2000 rw-s 00000000 00:01 5 /dev/shm/x", 100, 20, 0, "rd wr sh");
  CHECK(size(named) == Sizes{0, 0, 0});
  CHECK(size(named, 0x3b) == Sizes{100, 100, 100});
  const std::string huge = mapping("1000-2000 rw-p 00000000 00:0f 5 /anon_hugepage (deleted)", 2048, 0, 0, "rd wr ht");
  CHECK(size(huge) == Sizes{2048, 2048, 0});
  CHECK(size(huge, 0x13) == Sizes{0, 0, 0});
  CHECK(size(mapping("1000-2000 r-xp 00000000 00:00 0 [vdso]", 8, 8, 0, "rd ex mr de"), 0) == Sizes{8, 8, 0});
  CHECK(size("nonsense\nSize: 5 kB\n") == Sizes{0, 0, 0});
  CHECK(size("") == Sizes{0, 0, 0});
}

TEST_CASE("a core that the kernel writes to a file") {
  LiteralSystem s = with_process(20, 1);
  s.links["/proc/7/cwd"] = "/home/alice";
  s.spaces["/proc/7/cwd/"] = {.available = 100 * kGiga, .total = 200 * kGiga, .device = 4};
  CHECK(process_line(s, 7, "core-size") ==
        "ok core-size: its core would have about 21 GB (11 GB without the pages that were never touched); 100 GB are "
        "free in /home/alice");
  CHECK(outlook(examine(s, {.pids = {7}})).fate == Fate::kWhole);
  s.spaces["/proc/7/cwd/"].available = 2 * kGiga;
  CHECK(process_line(s, 7, "core-size") ==
        "problem core-size: its core would have about 21 GB (11 GB without the pages that were never touched): in "
        "/home/alice only 2048 MB are free, and it would be cut off there; a capture is a small core -> make room "
        "there, or name another directory: kernel.core_pattern=/DIR/core.%p" +
            kCapture);
  // The directory of a pattern is the one that the rank sees.
  s.files["/proc/sys/kernel/core_pattern"] = "/cores/core.%p\n";
  s.directories["/cores"] = {};
  s.spaces["/proc/7/root/cores/"] = {.available = kGiga, .total = 200 * kGiga, .device = 4};
  Examination e = examine(s, {.pids = {7}});
  CHECK((outlook(e).fate == Fate::kCut && outlook(e).limit == "free space" && outlook(e).limit_bytes == kGiga));
  CHECK(outlook(e).directory == "/cores");
  s.files["/proc/sys/kernel/core_pattern"] = "/cores/%h/core.%p\n";  // which one that is, only the kernel knows
  e = examine(s, {.pids = {7}});
  CHECK((outlook(e).fate == Fate::kWhole && outlook(e).directory.empty() && !outlook(e).free_bytes));
  s.files["/proc/7/limits"] = LiteralSystem::limits("1073741824", "unlimited");
  e = examine(s, {.pids = {7}});
  CHECK((outlook(e).fate == Fate::kCut && outlook(e).limit == "RLIMIT_CORE" && outlook(e).limit_bytes == kGiga));
  CHECK(line_of(e.sections[1], "core-limit") ==
        "problem core-limit: its limit is 1024 MB, it has 11 GB for a core: its core would be cut off -> prlimit "
        "--pid {PID} --core=unlimited");
  s.files["/proc/7/limits"] = LiteralSystem::limits("0", "unlimited");
  CHECK(outlook(examine(s, {.pids = {7}})).fate == Fate::kDropped);
  s.files["/proc/sys/kernel/core_pattern"] = "|/bin/false\n";
  s.files["/proc/7/limits"] = LiteralSystem::limits("unlimited", "unlimited");
  CHECK(outlook(examine(s, {.pids = {7}})).fate == Fate::kDropped);
  s.files["/proc/sys/kernel/core_pattern"] = "|/usr/bin/collector\n";
  CHECK(outlook(examine(s, {.pids = {7}})).fate == Fate::kUnknown);
  s.files.erase("/proc/7/smaps");
  CHECK(process_line(s, 7, "core-size") == "");
}

TEST_CASE("a core that systemd-coredump takes") {
  LiteralSystem s = with_process(20);
  pipe_to_systemd(s);
  const auto with = [&](const std::string& settings) {
    pipe_to_systemd(s, settings);
    return examine(s, {.pids = {7}});
  };
  Examination e = with("");
  CHECK((outlook(e).fate == Fate::kWhole && outlook(e).directory == "/var/lib/systemd/coredump"));
  CHECK(line_of(e.sections[0], "core-storage") ==
        "ok core-storage: systemd-coredump, of a version unknown here, takes 32 GB of a core (ExternalSizeMax) and "
        "keeps it as a file, packed; older cores are removed where all take more than 4096 MB (MaxUse)");
  // Cut: more than both sizes, as the pages that were never touched count as well.
  e = with("ProcessSizeMax=15G\nExternalSizeMax=15G\n");
  CHECK(
      (outlook(e).fate == Fate::kCut && outlook(e).limit == "ExternalSizeMax" && outlook(e).limit_bytes == 15 * kGiga));
  CHECK(line_of(e.sections[1], "core-size") ==
        "problem core-size: its core would have about 20 GB (10 GB without the pages that were never touched): "
        "ExternalSizeMax of systemd-coredump is 15 GB, and it would be cut off there; a capture is a small core -> "
        "ExternalSizeMax=32G, below [Coredump] in /etc/systemd/coredump.conf.d/50-rankstacks.conf" +
            kCapture);
  // Dropped: taken in, and too large to be kept; zeros are no matter where it is packed.
  CHECK(outlook(with("ExternalSizeMax=15G\n")).fate == Fate::kWhole);
  e = with("ExternalSizeMax=15G\nCompress=no\n");
  CHECK((outlook(e).fate == Fate::kDropped && outlook(e).limit == "ExternalSizeMax"));
  CHECK(outlook(with("ExternalSizeMax=9G\n")).fate == Fate::kDropped);
  CHECK(outlook(with("ExternalSizeMax=0\n")).fate == Fate::kDropped);
  CHECK(outlook(with("ExternalSizeMax=infinity\n")).fate == Fate::kWhole);
  e = with("Storage=journal\n");
  CHECK((outlook(e).fate == Fate::kDropped && outlook(e).limit == "JournalSizeMax" &&
         outlook(e).limit_bytes == 767 * kMega));
  e = with("Storage=none\n");
  CHECK((outlook(e).fate == Fate::kDropped && outlook(e).limit == "Storage"));
  CHECK(line_of(e.sections[0], "core-storage") ==
        "note core-storage: systemd-coredump, of a version unknown here, keeps no cores");
  // Its limit: systemd-coredump heeds it, though the kernel does not.
  s.files["/proc/7/limits"] = LiteralSystem::limits("1073741824", "unlimited");
  e = with("");
  CHECK((outlook(e).fate == Fate::kCut && outlook(e).limit == "RLIMIT_CORE" && outlook(e).limit_bytes == kGiga));
  s.files["/proc/7/limits"] = LiteralSystem::limits("0", "unlimited");
  CHECK(outlook(with("")).limit == "RLIMIT_CORE");
  s.files["/proc/7/limits"] = LiteralSystem::limits("unlimited", "unlimited");
  // Room: first as it comes.
  pipe_to_systemd(s);
  s.spaces["/var/lib/systemd/coredump"].available = 15 * kGiga;
  e = examine(s, {.pids = {7}});
  CHECK((outlook(e).fate == Fate::kDropped && outlook(e).limit == "free space"));
  s.spaces["/var/lib/systemd/coredump"].available = 3 * kGiga;
  e = examine(s, {.pids = {7}});
  CHECK(
      line_of(e.sections[0], "core-storage") ==
      "note core-storage: systemd-coredump, of a version unknown here, takes 32 GB of a core (ExternalSizeMax) and "
      "keeps it as a file, packed; older cores are removed where all take more than 4096 MB (MaxUse); only 3072 MB "
      "are free in /var/lib/systemd/coredump, less than 4096 MB (KeepFree): with each core all older ones are removed "
      "-> make room in /var/lib/systemd/coredump");
}

TEST_CASE("shared memory is what can be left out") {
  LiteralSystem s = with_process(20, 30);
  pipe_to_systemd(s);
  CHECK(process_line(s, 7, "core-size") ==
        "problem core-size: its core would have about 50 GB, 30 GB of it shared memory (40 GB without the pages that "
        "were never touched): ExternalSizeMax of systemd-coredump is 32 GB, and it would be cut off there; its "
        "coredump_filter can leave out the shared memory, and a capture is a small core -> ExternalSizeMax=64G, below "
        "[Coredump] in /etc/systemd/coredump.conf.d/50-rankstacks.conf -> echo 0x31 "
        "> /proc/{PID}/coredump_filter" +
            kCapture);
}

TEST_CASE("the machine's root directory is another one") {
  LiteralSystem s = with_process(20);
  s.in_docker();
  pipe_to_systemd(s);
  s.present.erase("/usr/lib/systemd/systemd-coredump");
  CHECK(machine_line(s, "core-pattern") ==
        "note core-pattern: cores go to the host's /usr/lib/systemd/systemd-coredump: they are found there, not in "
        "this container");
  s.present.insert("/host/usr/lib/systemd/systemd-coredump");
  s.files["/host/etc/systemd/coredump.conf"] = "[Coredump]\nExternalSizeMax=1G\nProcessSizeMax=0\n";
  s.spaces["/host/var/lib/systemd/coredump"] = {.available = 500 * kGiga, .total = 1000 * kGiga, .device = 1};
  const Examination e = examine(s, {.pids = {7}, .root = "/host"});
  CHECK(line_of(e.sections[0], "core-pattern") ==
        "ok core-pattern: systemd-coredump keeps cores: `coredumpctl dump PID -o core.PID` fetches one");
  CHECK((outlook(e).fate == Fate::kCut && outlook(e).limit_bytes == kGiga && outlook(e).free_bytes == 500 * kGiga));
}

TEST_CASE("a small core, by this tool") {
  LiteralSystem s = with_process(20);
  s.present.insert("/usr/bin/rankstacks");
  s.spaces["/var/cores"] = {.available = 100 * kGiga, .total = 1000 * kGiga, .device = 1};
  const auto with = [&](const std::string& options) {
    s.files["/proc/sys/kernel/core_pattern"] =
        "|/usr/bin/rankstacks core-handler %P %u %g %s %t %h --directory /var/cores" + options + "\n";
    return examine(s, {.pids = {7}});
  };
  Examination e = with("");
  CHECK(line_of(e.sections[0], "core-pattern") ==
        "ok core-pattern: rankstacks core-handler keeps a small core of each process in /var/cores");
  CHECK((outlook(e).fate == Fate::kSmall && outlook(e).directory == "/var/cores"));
  CHECK(outlook(with(" --full")).fate == Fate::kWhole);
  e = with(" --full --max-bytes 8G");
  CHECK((outlook(e).fate == Fate::kSmall && outlook(e).limit == "--max-bytes" && outlook(e).limit_bytes == 8 * kGiga));
  s.spaces["/var/cores"].available = 13 * kGiga;  // of which 4 GB have to stay free
  CHECK(outlook(with(" --full")).limit == "free space");
  CHECK(outlook(with(" --full --keep-free 2G")).fate == Fate::kWhole);
  CHECK(outlook(with(" --full --keep-free 4G")).fate == Fate::kSmall);
  s.spaces["/var/cores"].available = kGiga;
  e = with(" --full");
  CHECK((outlook(e).fate == Fate::kSmall && outlook(e).limit == "free space"));
  s.spaces["/var/cores"].available = kMega;
  CHECK(line_of(with("").sections[1], "core-size") ==
        "note core-size: a small core of it would be kept; in /var/cores only 1024 kB are free -> make room in "
        "/var/cores");
}

TEST_CASE("several processes") {
  LiteralSystem s = with_process(20);
  s.add_process(8, "python3", 1000);
  s.files["/proc/8/smaps"] = mapping("10000-20000 rw-p 00000000 00:00 0 ", 22 << 20, 11 << 20, 11 << 20, "rd wr mr");
  for (const char* cwd : {"/proc/7/cwd", "/proc/8/cwd"}) {
    s.links[cwd] = "/home/alice";
    s.spaces[std::string(cwd) + "/"] = {.available = 15 * kGiga, .total = 200 * kGiga, .device = 4};
  }
  const auto together = [&] { return line_of(examine(s, {.pids = {7, 8}}).sections[0], "cores-together"); };
  CHECK(together() ==
        "problem cores-together: the cores of these 2 processes would take about 21 GB, and in /home/alice only 15 GB "
        "are free -> make room in /home/alice -> rankstacks capture --job -o DIR   (small cores)");
  s.spaces["/proc/7/cwd/"].device = 5;
  CHECK(together() == "");
  pipe_to_systemd(s);
  CHECK(together() ==
        "note cores-together: the cores of these 2 processes hold about 21 GB: where they take more than 4096 MB when "
        "packed (MaxUse of systemd-coredump), the first ones are removed for the last ones -> MaxUse=32G, below "
        "[Coredump] in /etc/systemd/coredump.conf.d/50-rankstacks.conf");
  pipe_to_systemd(s, "MaxUse=0\n");
  CHECK(together() == "");
  // Shown as one, by the largest.
  const std::string text = text_of(examine(s, {.pids = {7, 8}}), {.width = 200});
  CHECK(text.find("2 processes (python3): 7, 8") != std::string::npos);
  CHECK(text.find("of the largest one, its core would have about 22 GB") != std::string::npos);
  const std::string json = json_of(examine(s, {.pids = {7, 8}}));
  CHECK(json.find("\"fate\": \"whole\", \"limit\": null, \"limit_bytes\": null, \"directory\": "
                  "\"/var/lib/systemd/coredump\", \"free_bytes\": 536870912000}") != std::string::npos);
}

}  // namespace rankstacks::doctor
