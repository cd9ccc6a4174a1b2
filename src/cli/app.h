// The program: finds the command, completes and parses its flags, runs it, turns its error into an exit code.
#pragma once

namespace snug::cli {

// Exit codes: 0 done, 1 failed while running, 2 wrong usage, 3 does not fit, 4 bad model, adapter or data
// file.
int run_app(int argc, char** argv);

}  // namespace snug::cli
