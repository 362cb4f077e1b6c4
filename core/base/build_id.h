// Which build this is: the linker's hash over everything in the binary (an ELF note; CMake asks for it).
#pragma once
#include <string>

namespace trainer {

// 40 hexadecimal digits, or "unknown" where the binary was linked without the note.
std::string build_id();

}  // namespace trainer
