// What the verdict says of dumps of other tools: each shows one moment of one rank.
#include <catch2/catch.hpp>

#include "analyzers/analysis.h"
#include "support/literal_job.h"

using namespace rankstacks;
using namespace rankstacks::testing;
using analyzers::VerdictStatus;

namespace {

Stack in_user_code() { return Stack{py("simulate", "/home/u/physics.py", 12)} + in_main(15); }
Stack sleeps_in_user_code() { return Stack{libc("clock_nanosleep")} + in_user_code(); }
Stack waits_in(std::string call) {
  return Stack{py(std::move(call), kPackages + "torch/distributed/distributed_c10d.py", 1200)} + in_main(17);
}

// Four ranks, each with its stack; of dumps, which have no states unless they are given.
LiteralJob dumped(const std::vector<Stack>& stacks) {
  LiteralJob made;
  for (std::size_t r = 0; r < stacks.size(); ++r) {
    RankSnapshot& rank = made.rank(static_cast<int>(r), 4, stacks[r]);
    rank.source = Source::kDump;
    rank.world_size.reset();
    rank.threads[0].state.reset();
  }
  return made;
}

// Several dumps of each rank found it at the same place.
LiteralJob stood(LiteralJob made) {
  for (RankSnapshot& rank : made.job.ranks) rank.threads[0].motion = Motion{.samples = 2, .places = 1};
  return made;
}

// A queue of a thread of the same process has no item.
Stack waits_for_item(const std::string& library) {
  return Stack{py("wait", library + "threading.py", 320), py("get", library + "queue.py", 171)} + in_main(15);
}

analyzers::Verdict verdict_of(const LiteralJob& made) { return analyzers::analyze(made.job).verdict; }

}  // namespace

TEST_CASE("of dumps, a rank that sleeps or is blocked in its own code is accused, one that runs is not") {
  const Stack waits = waits_in_all_reduce();
  CHECK(verdict_of(dumped({waits, waits, sleeps_in_user_code(), waits})).status == VerdictStatus::kCulprit);
  LiteralJob made = dumped({waits, waits, in_user_code(), waits});
  CHECK(verdict_of(made).status == VerdictStatus::kUndecided);  // Python frames alone: not known
  ThreadSnapshot& thread = made.job.ranks[2].threads[0];
  SECTION("by its state") {
    thread.state = 'S';
    CHECK(verdict_of(made).status == VerdictStatus::kCulprit);
    thread.state = 'R';
    CHECK(verdict_of(made).status == VerdictStatus::kUndecided);
  }
  SECTION("by the interpreter's lock") {
    thread.gil = Gil::kHolds;
    const analyzers::Verdict verdict = verdict_of(made);
    CHECK(verdict.status == VerdictStatus::kUndecided);
    CHECK(verdict.summary.find("rank 2 runs its own code (simulate at physics.py:12") == 0);
    CHECK(verdict.summary.find("dumps of one moment do not show") != std::string::npos);
    REQUIRE(!verdict.candidates.empty());
    CHECK(verdict.candidates.front().rank == 2);
  }
  SECTION("by native frames outside of the C library") {
    LiteralJob in_blas = dumped({waits, waits, Stack{nat("sgemm_", "/usr/lib/libblas.so.3")} + in_user_code(), waits});
    CHECK(verdict_of(in_blas).status == VerdictStatus::kUndecided);
    in_blas.job.ranks[2].threads[0].state = 'S';  // "idle"
    CHECK(verdict_of(in_blas).status == VerdictStatus::kUndecided);
  }
  SECTION("a core's rank that runs is accused, as before") {
    for (RankSnapshot& rank : made.job.ranks) rank.source = Source::kCore;
    thread.state = 'R';
    CHECK(verdict_of(made).status == VerdictStatus::kCulprit);
  }
}

TEST_CASE("of dumps, ranks in different collectives are accused unless one is seen to run there") {
  const Stack waits = waits_in("all_reduce");
  LiteralJob made = dumped({waits, waits, waits_in("barrier"), waits});
  CHECK(verdict_of(made).status == VerdictStatus::kCulprit);
  made.job.ranks[0].threads[0].state = 'R';
  CHECK(verdict_of(made).status == VerdictStatus::kUndecided);
  const auto of_call = [&](std::string call) {
    return verdict_of(dumped({Stack{libc(std::move(call)), nat("c10d::Work::wait", "/x/libtorch_cpu.so")} + waits,
                              waits, waits_in("barrier"), waits}))
        .status;
  };
  CHECK(of_call("pthread_cond_wait") == VerdictStatus::kCulprit);
  CHECK(of_call("pthread_cond_signal") == VerdictStatus::kUndecided);
  // It sleeps for a moment, as free() gives memory back.
  LiteralJob frees = dumped({Stack{libc("free")} + waits_in("barrier"), waits, waits, waits});
  frees.job.ranks[0].threads[0].state = 'S';
  CHECK(verdict_of(frees).status == VerdictStatus::kUndecided);
  LiteralJob resolves = dumped({Stack{libc("poll"), libc("getaddrinfo")} + waits_in("barrier"), waits, waits, waits});
  resolves.job.ranks[0].threads[0].state = 'S';
  CHECK(verdict_of(resolves).status == VerdictStatus::kCulprit);
}

TEST_CASE("of dumps, a rank whose callers a tool has lost cannot be compared with the others") {
  const Stack waits = waits_in("all_reduce");
  const Stack cut = {py("all_gather", kPackages + "torch/distributed/distributed_c10d.py", 2277),
                     py("gather_all", kPackages + "deepspeed/comm/comm.py", 236)};
  LiteralJob made = dumped({cut, waits, waits, waits});
  CHECK(verdict_of(made).status == VerdictStatus::kUndecided);
  CHECK(verdict_of(made).summary.find("the stack of rank 0 lacks its callers") != std::string::npos);
  CHECK(verdict_of(dumped({cut + in_main(15), waits, waits, waits})).status == VerdictStatus::kCulprit);
  // Another thread of it waits, such as one of autograd's; its main thread is there.
  made.thread(made.job.ranks[0], 77, "python3", in_main(15));
  CHECK(verdict_of(made).status == VerdictStatus::kCulprit);
  // A function of the user's that others have called in the middle of their programs, and a hook.
  const Stack collective = waits_in("barrier");
  const auto cut_at = [&](const std::string& function) {
    return verdict_of(dumped({Stack{collective[0], py(function, "/home/u/train.py", 15)}, waits, waits, waits})).status;
  };
  CHECK(cut_at("main") == VerdictStatus::kUndecided);
  CHECK(cut_at("at_the_end") == VerdictStatus::kCulprit);
  CHECK(verdict_of(dumped({Stack{collective[0]}, waits, waits, waits})).status == VerdictStatus::kCulprit);
  // A program that embeds Python has no beginning in any rank.
  const Stack embedded = {py("all_reduce", kPackages + "torch/distributed/distributed_c10d.py", 1200)};
  CHECK(verdict_of(dumped({cut, embedded, embedded, embedded})).status == VerdictStatus::kCulprit);
}

TEST_CASE("of dumps, a rank that is in the very call of the others is on its way there or back") {
  const std::string zero = "deepspeed/runtime/zero/";  // as py-spy shortens it
  const Stack fetches = Stack{py("fetch_sub_module", zero + "partitioned_param_coordinator.py", 310)} + in_main(17);
  const Stack waits =
      Stack{libc("pthread_cond_wait"), nat("c10d::Work::wait", "/x/libtorch_cpu.so"),
            py("wrapped_fn", "deepspeed/utils/nvtx.py", 18), py("wait", zero + "partition_parameters.py", 671)} +
      fetches;
  const Stack in_wait = Stack{libc("pthread_cond_wait")} + fetches;
  CHECK(verdict_of(dumped({waits, waits, fetches, waits})).status == VerdictStatus::kUndecided);
  CHECK(verdict_of(dumped({waits, waits, in_wait, waits})).status == VerdictStatus::kCulprit);
}

TEST_CASE("several dumps: who moves is not accused, who stands is as before") {
  const Stack waits = waits_in_all_reduce();
  LiteralJob made = stood(dumped({waits, waits, sleeps_in_user_code(), waits}));
  CHECK(verdict_of(made).status == VerdictStatus::kCulprit);
  made.job.ranks[2].threads[0].motion->moved = true;
  CHECK(verdict_of(made).suspects.empty());
}

TEST_CASE("of dumps, several ranks in their own code are not accused, nor is rank 0, which has duties") {
  const Stack waits = waits_in_all_reduce();
  CHECK(verdict_of(dumped({waits, in_user_code(), in_user_code(), waits, waits})).status == VerdictStatus::kUndecided);
  CHECK(verdict_of(dumped({in_user_code(), waits, waits, waits})).status == VerdictStatus::kUndecided);
  CHECK(verdict_of(dumped({sleeps_in_user_code(), waits, waits, waits})).status == VerdictStatus::kCulprit);
}

TEST_CASE("dumps do not show whether what the threads of a rank hand over comes") {
  const Stack waits = waits_in_all_reduce();
  for (const std::string library : {"/usr/lib/python3.11/", ""}) {  // py-spy shortens names
    LiteralJob made = dumped({waits, waits, waits_for_item(library), waits});
    made.job.ranks[2].threads[0].state = 'S';
    const analyzers::Verdict verdict = verdict_of(made);
    CHECK(verdict.status == VerdictStatus::kUndecided);
    REQUIRE(!verdict.candidates.empty());
    CHECK(verdict.candidates.front().rank == 2);
    CHECK(verdict_of(stood(made)).status == VerdictStatus::kUndecided);  // there again, or still
  }
  // A loader's worker process.
  const Stack batch = Stack{py("select", "/usr/lib/python3.11/selectors.py", 415),
                            py("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113),
                            py("_try_get_data", kPackages + "torch/utils/data/dataloader.py", 1120)} +
                      in_main(15);
  const analyzers::Verdict loading = verdict_of(stood(dumped({waits, waits, batch, waits})));
  CHECK(loading.status == VerdictStatus::kUndecided);
  REQUIRE(!loading.candidates.empty());
  CHECK(loading.candidates.front().reason == analyzers::Reason::kDataLoading);
  // Without Python frames it may be a lock.
  const Stack locked{libc("sem_wait"), nat("PyThread_acquire_lock_timed", "/usr/bin/python3.11"),
                     nat("_start", "/usr/bin/python3.11")};
  CHECK(verdict_of(dumped({waits, waits, locked, waits})).status == VerdictStatus::kUndecided);
  // A lock of the program's own is another thing.
  const Stack own = Stack{libc("sem_wait"), nat("PyThread_acquire_lock_timed", "/usr/bin/python3.11")} + in_user_code();
  CHECK(verdict_of(dumped({waits, waits, own, waits})).status == VerdictStatus::kCulprit);
}

TEST_CASE("of dumps with shortened names, a function of a package may be a library's") {
  const Stack waits = waits_in_all_reduce();
  const auto of_file = [&](std::string file) {
    LiteralJob made = dumped({waits, waits, Stack{py("_communicate", std::move(file), 392)} + in_main(15), waits});
    made.job.ranks[2].threads[0].state = 'S';
    return verdict_of(made).status;
  };
  CHECK(of_file("core/pipeline_parallel/p2p_communication.py") == VerdictStatus::kUndecided);
  CHECK(of_file("exchange.py") == VerdictStatus::kCulprit);
  CHECK(of_file("/home/u/project/exchange.py") == VerdictStatus::kCulprit);
}

TEST_CASE("of dumps, rank 0 may wait for requests that it hands on") {
  const Stack looks = sleeps_in_user_code();  // for a request, every now and then
  const Stack waits = waits_in("broadcast");
  CHECK(verdict_of(dumped({looks, waits, waits, waits})).status == VerdictStatus::kUndecided);
  CHECK(verdict_of(dumped({waits, waits, looks, waits})).status == VerdictStatus::kCulprit);
  const Stack reduce = waits_in("all_reduce");
  CHECK(verdict_of(dumped({looks, reduce, reduce, reduce})).status == VerdictStatus::kCulprit);
  // Or a part of a server that has no rank, whatever number it was given.
  LiteralJob served = dumped({waits, waits, looks, waits});
  served.job.ranks[2].command = {"sglang::detokenizer"};
  CHECK(verdict_of(served).status == VerdictStatus::kCulprit);
  served.job.ranks[1].command = {"sglang::scheduler_TP0"};
  CHECK(verdict_of(served).status == VerdictStatus::kUndecided);
  served.job.ranks[2].command = {"sglang::scheduler_TP1"};
  CHECK(verdict_of(served).status == VerdictStatus::kCulprit);
}

TEST_CASE("dumps do not show whose messages ranks wait for") {
  const Stack reduce = waits_in("all_reduce"), receive = waits_in("recv");
  CHECK(verdict_of(dumped({reduce, receive, reduce, receive, reduce})).status == VerdictStatus::kUndecided);
  CHECK(verdict_of(dumped({receive, receive, receive, reduce})).status == VerdictStatus::kUndecided);
  const analyzers::Verdict verdict = verdict_of(dumped({reduce, receive, reduce, reduce}));
  CHECK(verdict.status == VerdictStatus::kUndecided);
  REQUIRE(!verdict.candidates.empty());
  CHECK(verdict.candidates.front().rank == 1);
}

TEST_CASE("dumps do not show whether a rank has not come to the set-up") {
  const Stack rendezvous =
      Stack{py("_create_c10d_store", kPackages + "torch/distributed/rendezvous.py", 177)} + in_main(10);
  const Stack group =
      Stack{py("_new_process_group_helper", kPackages + "torch/distributed/distributed_c10d.py", 862)} + in_main(10);
  CHECK(verdict_of(dumped({rendezvous, group, group})).status == VerdictStatus::kUndecided);
  const Stack reduce = waits_in("all_reduce");
  CHECK(verdict_of(dumped({reduce, group, reduce, reduce})).status == VerdictStatus::kCulprit);
}

TEST_CASE("of dumps, a pause in the very function in which others wait may be one between two steps") {
  const Stack waits = waits_in_all_reduce(), pauses = Stack{libc("clock_nanosleep")} + in_main(19);
  CHECK(verdict_of(dumped({waits, waits, pauses, waits})).status == VerdictStatus::kUndecided);
  CHECK(verdict_of(stood(dumped({waits, waits, pauses, waits}))).status == VerdictStatus::kCulprit);
  CHECK(verdict_of(dumped({waits, waits, sleeps_in_user_code(), waits})).status == VerdictStatus::kCulprit);
}

TEST_CASE("of dumps, a job whose data gloo is seen to move does not hang") {
  const Stack waits = waits_in_all_reduce();
  const auto status_with = [&](const std::string& name, const Stack& stack) {
    LiteralJob made = dumped({waits, waits, sleeps_in_user_code(), waits});
    made.thread(made.job.ranks[1], 900, name, stack);
    return verdict_of(made).status;
  };
  const Stack collective{nat("gloo::allgather(gloo::AllgatherOptions&)"), nat("c10d::ProcessGroupGloo::runLoop(int)")};
  const std::string tcp = "gloo::transport::tcp::";
  const Stack loop{nat(tcp + "Loop::run()")};
  CHECK(status_with("worker", Stack{libc("pthread_cond_wait"), nat(tcp + "UnboundBuffer::waitRecv(int*)")} +
                                  collective) == VerdictStatus::kCulprit);
  CHECK(status_with("worker", Stack{libc("writev"), nat(tcp + "Pair::write(gloo::transport::tcp::Op&)")} +
                                  collective) == VerdictStatus::kUndecided);
  CHECK(status_with("worker", Stack{libc("pthread_cond_wait"), collective.back()}) == VerdictStatus::kCulprit);
  CHECK(status_with("loop", Stack{libc("epoll_wait")} + loop) == VerdictStatus::kCulprit);
  CHECK(status_with("loop", Stack{libc("readv"), nat(tcp + "Pair::read()")} + loop) == VerdictStatus::kUndecided);
}
