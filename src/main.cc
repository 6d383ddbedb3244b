#include "cli/tool.h"

int main(int argc, char** argv) { return rankstacks::cli::run_tool(argc, argv, {}); }
