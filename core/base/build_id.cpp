#include "core/base/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>

namespace trainer {
namespace {

// Notes are {name bytes, description bytes, type}, then both, each padded to 4 bytes (elf(5)).
std::string find_note(const char* notes, size_t bytes) {
  const auto padded = [](size_t n) { return (n + 3) / 4 * 4; };
  for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof note);
    const char* name = notes + at + sizeof note;
    const char* description = name + padded(note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      std::string id;
      for (size_t i = 0; i < note.n_descsz; ++i)
        id += fmt::format("{:02x}", static_cast<unsigned char>(description[i]));
      return id;
    }
    at += sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
  }
  return "";
}

// The first object is the program itself.
int visit(dl_phdr_info* object, size_t, void* result) {
  auto& id = *static_cast<std::string*>(result);
  for (int i = 0; i < object->dlpi_phnum && id.empty(); ++i) {
    const auto& header = object->dlpi_phdr[i];
    if (header.p_type == PT_NOTE)
      id = find_note(reinterpret_cast<const char*>(object->dlpi_addr + header.p_vaddr), header.p_memsz);
  }
  return 1;
}

}  // namespace

std::string build_id() {
  std::string id;
  dl_iterate_phdr(visit, &id);
  return id.empty() ? "unknown" : id;
}

}  // namespace trainer
