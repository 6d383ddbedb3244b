// Jobs of four ranks of which one differs, and what the analysis says of them.
#pragma once

#include <catch2/catch.hpp>

#include <string>

#include "analyzers/analysis.h"
#include "support/literal_job.h"

namespace rankstacks::testing {

// Four ranks, of which all but rank 2 wait in DDP's backward pass; rank 2 has the stack `stack`.
inline LiteralJob one_differs(const Stack& stack, char state = 'S') {
  LiteralJob literal;
  for (int r = 0; r < 4; ++r) literal.rank(r, 4, r == 2 ? stack : waits_in_backward(), r == 2 ? state : 'S');
  return literal;
}

inline ThreadSnapshot& main_of_rank_2(LiteralJob& literal) { return literal.job.ranks[2].threads[0]; }

inline analyzers::Verdict verdict_of(const LiteralJob& literal) { return analyzers::analyze(literal.job).verdict; }

// "data-loading" if rank 2 is the only suspect for it; else a description of the verdict.
inline std::string only_rank_2(const LiteralJob& literal) {
  const analyzers::Verdict v = verdict_of(literal);
  if (v.status != analyzers::VerdictStatus::kCulprit || v.suspects.size() != 1 || v.suspects[0].rank != 2)
    return std::string(to_string(v.status)) + ": " + v.summary;
  CHECK(v.suspects[0].confidence > 0);
  CHECK(v.suspects[0].confidence < 1);
  CHECK_FALSE(v.suspects[0].advice.empty());
  CHECK_FALSE(v.suspects[0].evidence.empty());
  return std::string(to_string(v.suspects[0].reason));
}

inline const Stack kSleep = {libc("clock_nanosleep"), nat("time_sleep", "/usr/bin/python3.11"),
                             py("work", "/home/u/train.py", 40)};

}  // namespace rankstacks::testing
