// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

extern "C" int piperOptMain(int argc, char **argv);

int main(int argc, char **argv) { return piperOptMain(argc, argv); }
