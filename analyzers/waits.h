// Who waits for whom.
//
// A rank in a collective needs every member of its group that is not in the same collective; in a send or receive its peer, unless that does the
// matching one; in the store all that are not there. Where frames and memory do not name the group or the peer, all ranks are taken. Ranks that
// wait alike form one class, so that a thousand of them cost no more than a few:
//
//     class 0: ranks 0-6, all_reduce of group 0   needs {7}
//     rank 7: elsewhere                            a sink: the reason
//
//     class 0: ranks 0,2, all_reduce of group 1    needs class 1
//     class 1: ranks 1,3, all_reduce of group 2    needs class 0: a cycle
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "analyzers/standing.h"

namespace rankstacks {

struct WaitClass {
  std::vector<std::size_t> members;      // indices into the standings
  std::vector<std::size_t> classes;      // those that it needs, by index
  std::vector<std::size_t> elsewhere;    // standings that it needs and that do not wait
  std::vector<int> unseen;               // ranks that it needs and that were not looked at, or could not be read
  bool certain = false;                  // whom it needs is known: a group with its members, or a peer
  bool in_cycle = false;                 // it needs, through others, itself
};

class Waits {
 public:
  // Of standings that are readable and no strangers.
  Waits(const JobSnapshot& job, const std::vector<Standing>& standings);

  const std::vector<WaitClass>& classes() const { return classes_; }
  // Whether somebody that waits needs this one. What nobody needs holds up nobody.
  bool is_needed(std::size_t standing) const { return needed_[standing]; }
  // Each wait is for a group whose members are known, or for a known peer.
  bool all_certain() const {
    return std::all_of(classes_.begin(), classes_.end(), [](const WaitClass& c) { return c.certain; });
  }

 private:
  void find_cycles();

  std::vector<WaitClass> classes_;
  std::vector<bool> needed_;
};

// torch.distributed numbers its groups; this is the one of all ranks.
inline constexpr std::string_view kDefaultGroup = "0";

// What goes behind "waits": "in all_reduce", "in all_reduce of group 1 (ranks 0,2)", "in recv from rank 3", "for the GPU"
std::string describe_wait(const Standing& standing, std::size_t ranks_in_all);

}  // namespace rankstacks
