#include "cli/program.h"

int main(int argc, char** argv) {
  return quire::run_program(argc, argv);
}
