#include "core_fixture.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace rankstacks::testing {
namespace {

constexpr const char* kLibrarySource = R"(
const char library_constant[] = "constant of the library";
volatile int library_value = 4711;
int library_function(int x) { return x + library_value; }
// So many names that .dynsym and .dynstr do not fit in the single page of a library that the kernel dumps.
#define A(n) int filler_##n(void) { return __LINE__; }
#define B(n) A(n##0) A(n##1) A(n##2) A(n##3) A(n##4) A(n##5) A(n##6) A(n##7) A(n##8) A(n##9)
#define C(n) B(n##0) B(n##1) B(n##2) B(n##3) B(n##4) B(n##5) B(n##6) B(n##7) B(n##8) B(n##9)
C(1) C(2) C(3) C(4)
)";

constexpr const char* kProgramSource = R"(
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
extern const char library_constant[];
int library_function(int);
unsigned char written[10000];
const char constant[] = "constant of the program";
static pthread_barrier_t all_there;
static void say_thread(void) {
  volatile int local = 0;
  printf("thread %ld %p %p\n", syscall(SYS_gettid), (void*)pthread_self(), (void*)&local);
}
static void* run(void* p) {
  say_thread();
  pthread_barrier_wait(&all_there);
  for (;;) pause();
  return p;
}
int main(int argc, char** argv) {
  const char* how = getenv("FIXTURE_HOW");
  pthread_t t;
  pthread_barrier_init(&all_there, NULL, 3);
  for (int i = 0; i < 10000; ++i) written[i] = (unsigned char)(i * 7);
  char* big = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  strcpy(big + (32 << 20), "in the middle of 64 MiB");
  setenv("RANK", "3", 1);
  setenv("CHANGED", "after", 1);
  say_thread();
  for (int i = 0; i < 2; ++i) pthread_create(&t, NULL, run, NULL);
  pthread_barrier_wait(&all_there);
  printf("written %p\nconstant %p\nbig %p\nlibrary_function %p\nlibrary_constant %p\n", (void*)written, (void*)constant, (void*)big,
         (void*)library_function, (void*)library_constant);
  printf("ready\n");
  fflush(stdout);
  if (how != NULL && strcmp(how, "abort") == 0) abort();
  if (how != NULL && strcmp(how, "fault") == 0) *(volatile int*)0x1230 = library_function(argc);
  for (;;) pause();
  return argv == NULL;
}
)";

class RunningFixture {
 public:
  RunningFixture(const BuiltFixture& built, const std::string& how, const std::string& core_directory) {
    std::array<int, 2> fds{};
    if (pipe2(fds.data(), O_CLOEXEC) != 0) return;
    std::vector<std::string> arguments{built.program()};
    arguments.insert(arguments.end(), kFixtureArguments.begin(), kFixtureArguments.end());
    std::vector<std::string> environment{"WORLD_SIZE=4", "CHANGED=before", "EMPTY=", "EQUALS=a=b",
                                         "FIXTURE_HOW=" + how};
    const auto pointers = [](std::vector<std::string>& strings) {
      std::vector<char*> all;
      for (std::string& s : strings) all.push_back(s.data());
      all.push_back(nullptr);
      return all;
    };
    auto argv = pointers(arguments), envp = pointers(environment);
    pid_ = fork();
    if (pid_ == 0) {
      const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
      setrlimit(RLIMIT_CORE, &unlimited);
      dup2(fds[1], STDOUT_FILENO);
      if (chdir(core_directory.c_str()) == 0) execve(argv[0], argv.data(), envp.data());
      _exit(127);
    }
    close(fds[1]);
    std::unique_ptr<FILE, int (*)(FILE*)> out(fdopen(fds[0], "r"), fclose);
    facts_.pid = pid_;
    std::array<char, 256> line{};
    while (!ready_ && fgets(line.data(), static_cast<int>(line.size()), out.get()) != nullptr) {
      std::istringstream words(line.data());
      std::string what;
      words >> what;
      if (what == "ready") {
        ready_ = true;
      } else if (what == "thread") {
        FixtureThread thread;
        words >> thread.tid >> std::hex >> thread.thread_pointer >> thread.local;
        facts_.threads.push_back(thread);
      } else {
        words >> std::hex >> facts_.addresses[what];
      }
    }
  }
  ~RunningFixture() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  bool ready() const { return ready_; }
  const FixtureFacts& facts() const { return facts_; }
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  pid_t pid_ = -1;
  bool ready_ = false;
  FixtureFacts facts_;
};

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

struct Made {
  std::optional<FixtureCore> core;
  std::string why_not;
  const FixtureCore* get(std::string& why) const {
    why = why_not;
    return core ? &*core : nullptr;
  }
};

Made make_gcore() {
  Made made;
  const BuiltFixture* built = built_fixture(made.why_not);
  if (built == nullptr) return made;
  if (!has_command("gcore")) return {std::nullopt, "gcore is not installed"};
  RunningFixture fixture(*built, "wait", built->directory.path());
  if (!fixture.ready()) return {std::nullopt, "the fixture program did not start"};
  const std::string stem = built->directory / "gcore";
  const std::string command =
      "timeout 120 gcore -o " + stem + " " + std::to_string(fixture.facts().pid) + " >" + stem + ".log 2>&1";
  if (!run_command(command)) return {std::nullopt, "gcore failed: " + first_line(stem + ".log")};
  made.core = FixtureCore{stem + "." + std::to_string(fixture.facts().pid), fixture.facts()};
  return made;
}

Made make_kernel_core(const std::string& how) {
  Made made;
  const BuiltFixture* built = built_fixture(made.why_not);
  if (built == nullptr) return made;
  const std::string pattern = first_line("/proc/sys/kernel/core_pattern");
  if (pattern.empty() || pattern.find_first_of("|/%") != std::string::npos)
    return {std::nullopt, "core_pattern is " + pattern};
  const std::string directory = built->directory / ("kernel-" + how);
  std::filesystem::create_directory(directory);
  RunningFixture fixture(*built, how, directory);
  if (!fixture.ready()) return {std::nullopt, "the fixture program did not start"};
  const int status = fixture.wait();
  if (!WIFSIGNALED(status) || !WCOREDUMP(status)) return {std::nullopt, "the kernel wrote no core"};
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    made.core = FixtureCore{entry.path().string(), fixture.facts()};
  if (!made.core) made.why_not = "the kernel wrote its core elsewhere";
  return made;
}

}  // namespace

bool run_command(const std::string& shell_command) { return std::system(shell_command.c_str()) == 0; }
bool has_command(const std::string& name) { return run_command("command -v " + name + " >/dev/null 2>&1"); }

const BuiltFixture* built_fixture(std::string& why_not) {
  static std::string why;
  static const std::unique_ptr<BuiltFixture> built = []() -> std::unique_ptr<BuiltFixture> {
    if (!has_command("cc")) {
      why = "no C compiler";
      return nullptr;
    }
    auto made = std::make_unique<BuiltFixture>();
    write_file(made->directory / "library.c", kLibrarySource);
    write_file(made->directory / "program.c", kProgramSource);
    const std::string in = "cd " + made->directory.path() + " && cc -g -O1 -Wl,--build-id ";
    if (!run_command(in + "-shared -fPIC -o libfixture.so library.c") ||
        !run_command(in + "-o fixture program.c -pthread -L. -lfixture -Wl,-rpath," + made->directory.path())) {
      throw std::runtime_error("the fixture program does not compile");  // if there is a compiler, this is a failure
    }
    return made;
  }();
  why_not = why;
  return built.get();
}

const FixtureCore* gcore_core(std::string& why_not) {
  static const Made made = make_gcore();
  return made.get(why_not);
}

const FixtureCore* kernel_core(const std::string& how, std::string& why_not) {
  static std::map<std::string, Made> made;
  if (!made.contains(how)) made.emplace(how, make_kernel_core(how));
  return made.at(how).get(why_not);
}

}  // namespace rankstacks::testing
