// The tool on a node: runs itself, waits for a limited time, and prints the answer as lines (answer_lines.h).
#pragma once

namespace rankstacks::nodes {

// Does nothing unless the arguments are "--internal-node NONCE SECONDS START DIRECTORY|- WORD...", which node_script.h
// makes; START is when to begin, in ms since 1970, or 0. Otherwise it does not return. The directory, from which it was
// started, is removed first: the program runs on, and nothing is left there, however the agent ends. It ends if nobody
// reads its output any more.
void run_agent_if_asked(int argc, const char* const* argv);

}  // namespace rankstacks::nodes
