#include <catch2/catch.hpp>

#include "known/counter_names.h"
#include "known/known_programs.h"
#include "python/string_hash.h"
#include "python/variable_names.h"

using namespace rankstacks;
using namespace rankstacks::python;

TEST_CASE("names of counters") {
  for (const char* name :
       {"step", "global_step", "STEP", "i", "batch_idx", "_epoch", "micro_batch", "it", "cur_iter", "n", "round_"}) {
    INFO(name);
    CHECK(known::is_counter_name(name));
  }
  for (const char* name : {"", "_", "steps", "stepper", "num_steps", "batch_size", "step_max", "n_total", "rank_idx",
                           "world", "index_dim", "every_n", "ii", "x_y"}) {
    INFO(name);
    CHECK_FALSE(known::is_counter_name(name));
  }
}

TEST_CASE("the user's files, and PyTorch's own") {
  for (const char* file :
       {"/home/me/train.py", "train.py", "<string>", "<stdin>", "/opt/lib/python/x.py", "/data/library/python3/x.py"}) {
    INFO(file);
    CHECK(is_user_file(file));
  }
  for (const char* file :
       {"/usr/lib/python3.11/threading.py", "/usr/lib64/python3.9/random.py", "<frozen importlib._bootstrap>",
        "/v/lib/python311.zip/os.py", "/usr/lib/python3/dist-packages/torch/nn/modules/module.py",
        "/v/lib/python3.9/site-packages/tqdm/std.py"}) {
    INFO(file);
    CHECK_FALSE(is_user_file(file));
  }
  CHECK(is_c10d_file("/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py"));
  CHECK_FALSE(is_c10d_file("/home/me/distributed_c10d.py"));
}

TEST_CASE("a user's rules take precedence for the owner of a file") {
  known::AddedPrograms added;
  added.rules.files = {{known::FileMatch::kContains, "/dist-packages/recipes/", false, "the user"},
                       {known::FileMatch::kSuffix, "/launch.py", true, "the user"}};
  known::install_added_programs(std::move(added));
  CHECK(is_user_file("/usr/lib/python3/dist-packages/recipes/llm.py"));
  CHECK_FALSE(is_user_file("/home/me/launch.py"));
  CHECK(is_user_file("/home/me/train.py"));
  CHECK(is_user_file("<string>"));
  known::install_added_programs({});
  CHECK(is_user_file("/home/me/launch.py"));
}

TEST_CASE("hashes of str, as PYTHONHASHSEED=0 and 1 give them") {
  // hash("...") % 2**64 of CPython 3.9.18 and 3.11.7; `seed` 1 means the secret that _Py_HashSecret then holds.
  const HashSecret none{};
  CHECK(hash_of("_pg_names", none, StringHash::kSip24) == 0x8c32594ebc2274c7);
  CHECK(hash_of("_pg_group_ranks", none, StringHash::kSip24) == 0x99054309bd995cc1);
  CHECK(hash_of("a", none, StringHash::kSip24) == 0x96c20860cd93a249);
  CHECK(hash_of("12345678", none, StringHash::kSip24) == 0x5de7ecc4ba81e998);
  CHECK(hash_of("_pg_names", none, StringHash::kSip13) == 0xb3561fb6470d4259);
  CHECK(hash_of("_pg_group_ranks", none, StringHash::kSip13) == 0xf4ed069d138b3a73);
  CHECK(hash_of("a", none, StringHash::kSip13) == 0x407448d2b89b1813);
  CHECK(hash_of("12345678", none, StringHash::kSip13) == 0x3489982430560a87);
  CHECK(hash_of("_pg_names", {0xaed66ce184be2329, 0xebe9bbf1f1499052}, StringHash::kSip13) == 0x3b02cb8d4d176c8a);
  CHECK(hash_of("", none, StringHash::kSip13) == 0);
}

TEST_CASE("names of positions, which are no counters that ranks have in common") {
  for (const char* name : {"number", "sample", "shard_number", "done", "Task", "file_offset"}) {
    INFO(name);
    CHECK(known::is_position_name(name));
    CHECK_FALSE(known::is_counter_name(name));
  }
  for (const char* name :
       {"attempt_number", "number_of_retries", "num_samples", "sample_size", "tries", "polls_done", "samples", "x"}) {
    INFO(name);
    CHECK_FALSE(known::is_position_name(name));
  }
}
