// What torch's debug server has fetched from all ranks (torch.distributed.debug, 2.10 and later): the files of its
// periodic dumps, its pages, and what is copied from them. Below a heading for each rank stands what its handler has
// answered, faulthandler's stacks or py-spy's.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace rankstacks::dumps {

struct RankAnswer {
  std::string host;                  // "" if the heading does not state it
  std::string text;                  // what the rank has answered
  std::optional<std::string> error;  // why it has not: "Error: 408"
};

struct RankAnswers {
  std::map<int, RankAnswer> of_rank;  // of several answers of one rank the last one
  std::optional<int> world_size;      // stated only where a rank has not answered
};

// Empty if the text has no such headings:
//
//     PARTIAL DATA: 2/3 workers responded
//       Rank 2: TimeoutError:
//
//     === Rank 0: http://node-a:58935/handler/dump_traceback? ===          <h2>Rank 0: http://...</h2> in a page
RankAnswers split_by_heading(std::string_view text);

}  // namespace rankstacks::dumps
