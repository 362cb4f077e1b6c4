#include "tests/cuda/cubin.h"

#include <cxxabi.h>
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <span>
#include <stdexcept>

namespace trainer::test {
namespace {

using Bytes = std::span<const char>;

template <class T>
T at(Bytes bytes, size_t offset) {
  if (offset + sizeof(T) > bytes.size()) throw std::runtime_error("GPU code ends too early");
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}
Bytes cut(Bytes bytes, size_t offset, size_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) throw std::runtime_error("GPU code ends too early");
  return bytes.subspan(offset, size);
}
std::string string_at(Bytes table, size_t offset) {
  const Bytes rest = cut(table, offset, table.size() - std::min(offset, table.size()));
  return {rest.data(), strnlen(rest.data(), rest.size())};
}

std::string short_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  std::string name = status == 0 ? text.get() : mangled;
  name = std::regex_replace(name, std::regex(R"(\(anonymous namespace\)::|trainer::|cuda::|^void )"), "");
  name = name.substr(0, name.find('('));
  return std::regex_replace(name, std::regex(" >"), ">");
}

class Cubin {
 public:
  explicit Cubin(Bytes bytes) : bytes_(bytes), header_(at<Elf64_Ehdr>(bytes, 0)) {
    for (size_t i = 0; i < header_.e_shnum; ++i)
      sections_.push_back(at<Elf64_Shdr>(bytes, header_.e_shoff + i * sizeof(Elf64_Shdr)));
    for (const Elf64_Shdr& s : sections_) names_.push_back(string_at(content(header_.e_shstrndx), s.sh_name));
  }

  std::vector<KernelCode> kernels() const {
    std::map<std::string, KernelCode> found;  // by mangled name
    for (size_t i = 0; i < sections_.size(); ++i)
      if (names_[i].starts_with(kText)) {
        KernelCode k{.name = short_name(names_[i].substr(kText.size())), .sm = int(header_.e_flags >> 8 & 0xff)};
        count(content(i), k);
        found[names_[i].substr(kText.size())] = k;
      }
    for (size_t i = 0; i < sections_.size(); ++i) {
      if (names_[i].starts_with(kShared))
        if (const auto k = found.find(names_[i].substr(kShared.size())); k != found.end())
          k->second.shared = int(sections_[i].sh_size);
      if (names_[i] == ".nv.info") read_info(content(i), content(sections_[i].sh_link), sections_[i].sh_link, found);
    }
    std::vector<KernelCode> all;
    for (const auto& [mangled, kernel] : found) all.push_back(kernel);
    return all;
  }

 private:
  static constexpr std::string_view kText = ".text.", kShared = ".nv.shared.";

  Bytes content(size_t section) const {
    const Elf64_Shdr& s = sections_.at(section);
    return s.sh_type == SHT_NOBITS ? Bytes() : cut(bytes_, s.sh_offset, s.sh_size);
  }

  static void count(Bytes code, KernelCode& k) {
    constexpr int kLoad = 0x981, kStore = 0x986, kCopy = 0xfae, kMma = 0x23c, k16Bytes = 6;
    constexpr int kTile = 0x5b4, kWgmma = 0x9f0, kWgmmaOfRegisters = 0xdf0, kWarpGroup = 0x9c5, kWaitBit = 47;
    constexpr int kFunction = 0x308;  // MUFU
    int functions = 0;                // since the last wait or product
    bool behind_wait = false;
    for (size_t i = 0; i + 16 <= code.size(); i += 16) {
      const auto low = at<uint64_t>(code, i);
      const auto opcode = int(low & 0xfff), width = int(at<uint64_t>(code, i + 8) >> 9 & 7);
      k.loads16 += opcode == kLoad && width == k16Bytes;
      k.stores16 += opcode == kStore && width == k16Bytes;
      k.copies += opcode == kCopy || opcode == kTile;
      const bool product = opcode == kMma || opcode == kWgmma || opcode == kWgmmaOfRegisters;
      const bool wait = opcode == kWarpGroup && (low >> kWaitBit & 1);
      k.mma += product;
      k.mma_waits += wait;
      if (wait && behind_wait) k.beside_products = std::max(k.beside_products, functions);
      functions = product || wait ? 0 : functions + (opcode == kFunction);
      behind_wait = wait || (behind_wait && !product);
    }
  }

  // Attributes: a form, a name, a size; those of a function begin with its symbol.
  void read_info(Bytes info, Bytes symbols, size_t table, std::map<std::string, KernelCode>& found) const {
    constexpr uint8_t kSized = 4, kFrameSize = 0x11, kRegisters = 0x2f;
    const Bytes strings = content(sections_[table].sh_link);
    for (size_t i = 0; i + 4 <= info.size();) {
      const auto form = at<uint8_t>(info, i), name = at<uint8_t>(info, i + 1);
      const size_t size = form == kSized ? at<uint16_t>(info, i + 2) : 0;
      if (form == kSized && size == 8 && (name == kFrameSize || name == kRegisters)) {
        const auto symbol = at<Elf64_Sym>(symbols, at<uint32_t>(info, i + 4) * sizeof(Elf64_Sym));
        const auto kernel = found.find(string_at(strings, symbol.st_name));
        if (kernel != found.end())
          (name == kRegisters ? kernel->second.registers : kernel->second.stack) = at<int32_t>(info, i + 8);
      }
      i += 4 + size;
    }
  }

  const Bytes bytes_;
  const Elf64_Ehdr header_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<std::string> names_;
};

// A container of code for several GPUs: a header (magic number, version, its size, bytes that follow) and entries of a
// header (kind, version, its size, bytes that follow) and content.
void read_container(Bytes file, size_t begin, const std::string& path, std::vector<KernelCode>& all) {
  constexpr uint16_t kElf = 2;
  size_t i = begin + at<uint16_t>(file, begin + 6);
  const size_t end = i + at<uint64_t>(file, begin + 8);
  while (i + 16 <= end) {
    const size_t header = at<uint32_t>(file, i + 4), size = at<uint64_t>(file, i + 8);
    if (at<uint16_t>(file, i) == kElf) {
      const Bytes content = cut(file, i + header, size);
      if (content.size() < SELFMAG || std::memcmp(content.data(), ELFMAG, SELFMAG) != 0)
        throw std::runtime_error(path + ": its GPU code is compressed; compile it with --compress-mode=none");
      for (KernelCode& k : Cubin(content).kernels()) all.push_back(std::move(k));
    }
    i += header + size;
  }
}

}  // namespace

std::vector<KernelCode> kernels_in(const std::string& path) {
  constexpr std::string_view kMagic{"\x50\xed\x55\xba\x01\x00\x10\x00", 8};  // number, version 1, a header of 16 bytes
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw std::runtime_error(path + ": cannot be read");
  std::vector<KernelCode> all;
  for (size_t i = text.find(kMagic); i != std::string::npos; i = text.find(kMagic, i + 1))
    read_container(text, i, path, all);
  if (all.empty()) throw std::runtime_error(path + ": no GPU code");
  std::sort(all.begin(), all.end(),
            [](const KernelCode& a, const KernelCode& b) { return std::tie(a.name, a.sm) < std::tie(b.name, b.sm); });
  return all;
}

}  // namespace trainer::test
