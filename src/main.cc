#include "cli/app.h"

int main(int argc, char** argv) {
  return snug::cli::run_app(argc, argv);
}
