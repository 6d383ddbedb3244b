#include "cli/tool.h"

int main(int argc, char** argv) { return rankstacks::run_tool(argc, argv, {}); }
