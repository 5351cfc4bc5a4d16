// SPDX-License-Identifier: Apache-2.0
// Libraries that are opened at run time, by whoever can do without them.
#pragma once

#include <string>

namespace baton {

// A library of that name beside the program, in ../lib, where builds and installs
// put ours, or wherever the system looks. Null: `problem` says why. Never closed:
// runtimes of GPUs do not like to be unloaded.
void* OpenLibrary(const std::string& name, std::string* problem);

}  // namespace baton
