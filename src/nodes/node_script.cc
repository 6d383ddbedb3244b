#include "nodes/node_script.h"

namespace rankstacks::nodes {
namespace {

// All are one line without ' and \ and ! and %, which some login shells or engines take for their own. Positional
// arguments keep what the user gave out of the text that is executed.
constexpr const char* kFind =
    R"~(n=$1 h=$2 l=$3 s=$4 p=$5; shift 5; w=${SLURMD_NODENAME:-$(uname -n)}; )~"
    R"~(for t in "$p" "$(command -v rankstacks)"; do )~"
    R"~(if [ -f "$t" ] && [ -x "$t" ] && [ "$(sha256sum <"$t" 2>/dev/null | cut -c1-64)" = "$h" ]; )~"
    R"~(then exec "$t" --internal-node "$n" "$l" "$s" - "$@"; fi; done; )~"
    R"~(echo "rankstacks-answer 1 $n $w lacks")~";

// "$d/x" is an empty script: where programs may not be started (noexec), it cannot be.
constexpr const char* kUnpackAll = R"~(u() { gzip -dc; }; )~";
constexpr const char* kCopy =
    R"~(n=$1 h=$2 l=$3 s=$4 k=$5; shift 5; w=${SLURMD_NODENAME:-$(uname -n)}; umask 077; d=; )~"
    R"~(c() { [ -z "$d" ] || rm -rf "$d"; }; )~"
    R"~(f() { c; echo "rankstacks-answer 1 $n $w fault $*"; exit 0; }; )~"
    R"~(trap "c; exit 1" HUP INT TERM; )~"
    R"~(command -v sha256sum >/dev/null || f cannot-copy no sha256sum; )~"
    R"~(for b in "$XDG_RUNTIME_DIR" "$TMPDIR" /tmp /var/tmp /dev/shm "$HOME"; do )~"
    R"~({ [ -n "$b" ] && d=$(mktemp -d "$b/rankstacks.XXXXXXXXXX" 2>/dev/null); } || { d=; continue; }; )~"
    R"~(a=$(df -Pk "$d" | { read -r x; read -r x1 x2 x3 x4 x5; echo "$x4"; }); )~"
    R"~(if [ "${a:-0}" -ge "$k" ] && : >"$d/x" && chmod 700 "$d/x" && "$d/x" 2>/dev/null; then break; fi; )~"
    R"~(c; d=; done; )~"
    R"~([ -n "$d" ] || f cannot-copy no directory with "$k" KiB of room, from which programs may be started; )~"
    R"~(u >"$d/rankstacks" 2>"$d/e" || f cannot-copy "$(head -n 1 "$d/e")"; )~"
    R"~([ "$(sha256sum <"$d/rankstacks" | cut -c1-64)" = "$h" ] || f cannot-copy the copy differs from the original; )~"
    R"~(chmod 700 "$d/rankstacks"; "$d/rankstacks" --version >/dev/null 2>"$d/e" || f cannot-run "$(head -n 1 "$d/e")"; )~"
    R"~(rm -f "$d/x" "$d/e"; exec "$d/rankstacks" --internal-node "$n" "$l" "$s" "$d" "$@")~";

constexpr const char* kAwait =
    R"~(read -r z; u() { head -c "$z" | gzip -dc; }; t=$(command -v rankstacks); )~"
    R"~(if [ -x "$t" ] && [ "$(sha256sum <"$t" 2>/dev/null | cut -c1-64)" = "$2" ]; )~"
    R"~(then n=$1 l=$3 s=$4; shift 5; exec "$t" --internal-node "$n" "$l" "$s" - "$@"; fi; )~";
constexpr const char* kLacks = R"~(echo "rankstacks-answer 1 $1 $(uname -n) lacks")~";

// Its input comes when kubectl has seen that it runs, and only then it ends by itself after the limit.
constexpr std::chrono::seconds kAfterLimit{60};

std::vector<std::string> words_of(const std::string& script, const ToolFile& tool, const NodeTask& task,
                                  std::string fifth) {
  using std::chrono::milliseconds;
  const auto start =
      task.start_at ? std::chrono::duration_cast<milliseconds>(task.start_at->time_since_epoch()) : milliseconds(0);
  std::vector<std::string> words = {"sh",
                                    "-c",
                                    script,
                                    "rankstacks",
                                    task.nonce,
                                    tool.sha256,
                                    std::to_string(task.limit.count()),
                                    std::to_string(start.count()),
                                    std::move(fifth)};
  words.insert(words.end(), task.words.begin(), task.words.end());
  return words;
}

}  // namespace

std::vector<std::string> find_and_run(const ToolFile& tool, const NodeTask& task) {
  return words_of(kFind, tool, task, tool.path);
}

std::vector<std::string> copy_and_run(const ToolFile& tool, const NodeTask& task) {
  return words_of(std::string(kUnpackAll) + kCopy, tool, task, std::to_string(tool.size / 1024 + 1));
}

std::vector<std::string> await_and_run(const ToolFile& tool, const NodeTask& task, bool copies) {
  std::vector<std::string> words =
      words_of(std::string(kAwait) + (copies ? kCopy : kLacks), tool, task, std::to_string(tool.size / 1024 + 1));
  // The container may be started when nobody wants its answer any more: it does not stay for that.
  const std::string limit = std::to_string((task.limit + kAfterLimit).count());
  words.insert(words.begin(), {"timeout", "-s", "KILL", limit});
  return words;
}

}  // namespace rankstacks::nodes
