#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

namespace trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian and read as they are");

constexpr uint64_t kMaxHeader = 100'000'000;
constexpr uint64_t kMaxNumber = uint64_t(1) << 53;
constexpr size_t kMaxRank = 16, kMaxName = 1024;
constexpr StoredType kTypes[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

// Reads the header as it streams by, so that a hostile one costs no more than its own size.
class HeaderReader {
 public:
  HeaderReader(const std::string& path, SafetensorsHeader& header) : path_(path), header_(header) {}

  bool null() { return wrong("null"); }
  bool boolean(bool) { return wrong("a boolean"); }
  bool number_integer(int64_t) { return wrong("a negative number"); }
  bool number_float(double, const std::string& text) { return wrong(text); }
  bool binary(std::vector<uint8_t>&) { return wrong("binary data"); }

  bool number_unsigned(uint64_t value) {
    if (place_ != Place::list) return wrong("a number");
    check(value <= kMaxNumber, Exit::checkpoint, "{}: tensor '{}': {} holds {}, wanted at most 2^53", path_,
          tensor_.name, field_, value);
    if (field_ == "shape") {
      check(tensor_.shape.size() < kMaxRank, Exit::checkpoint, "{}: tensor '{}': wanted at most {} dimensions", path_,
            tensor_.name, kMaxRank);
      tensor_.shape.push_back(int64_t(value));
    } else {
      if (++offsets_ > 2) return wrong("a third data offset");
      (offsets_ == 1 ? tensor_.begin : tensor_.end) = value;
    }
    return true;
  }

  bool string(std::string& value) {
    if (place_ == Place::metadata) {
      check(header_.metadata.emplace(field_, value).second, Exit::checkpoint, "{}: duplicate metadata key '{}'", path_,
            field_);
      return true;
    }
    if (place_ != Place::tensor || field_ != "dtype") return wrong("a string");
    tensor_.type = find_stored_type(value);
    check(tensor_.type, Exit::checkpoint, "{}: tensor '{}': unknown dtype '{}'", path_, tensor_.name, value);
    return true;
  }

  bool start_object(size_t) {
    if (place_ == Place::outside) place_ = Place::top;
    else if (place_ == Place::top) place_ = field_ == "__metadata__" ? Place::metadata : Place::tensor;
    else return wrong("an object");
    if (place_ == Place::tensor) start_tensor();
    return true;
  }

  bool key(std::string& name) {
    if (place_ == Place::tensor) {
      const int bit = name == "dtype" ? 1 : name == "shape" ? 2 : name == "data_offsets" ? 4 : 0;
      check(bit != 0, Exit::checkpoint, "{}: tensor '{}': unknown key '{}'", path_, tensor_.name, name);
      check(!(seen_ & bit), Exit::checkpoint, "{}: tensor '{}': duplicate key '{}'", path_, tensor_.name, name);
      seen_ |= bit;
    }
    if (place_ == Place::top && name == "__metadata__") {
      check(!has_metadata_, Exit::checkpoint, "{}: duplicate key '__metadata__'", path_);
      has_metadata_ = true;
    }
    field_ = std::move(name);
    return true;
  }

  bool end_object() {
    if (place_ == Place::tensor) end_tensor();
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(size_t) {
    if (place_ != Place::tensor || field_ == "dtype") return wrong("an array");
    place_ = Place::list;
    return true;
  }
  bool end_array() {
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& e) {
    fail(Exit::checkpoint, "{}: header is not valid JSON at byte {}: {}", path_, 8 + position, e.what());
  }

 private:
  enum class Place : uint8_t { outside, top, metadata, tensor, list };

  [[noreturn]] bool wrong(std::string_view found) {
    fail(Exit::checkpoint, "{}: header at '{}' ('{}'): found {} where it cannot stand", path_, tensor_.name, field_,
         found);
  }

  void start_tensor() {
    check(!field_.empty() && field_.size() <= kMaxName && field_.find('\0') == std::string::npos, Exit::checkpoint,
          "{}: tensor name of {} bytes: wanted 1 to {} without NUL", path_, field_.size(), kMaxName);
    tensor_ = {};
    tensor_.name = field_;
    seen_ = 0;
    offsets_ = 0;
  }

  void end_tensor() {
    check(seen_ == 7 && offsets_ == 2, Exit::checkpoint, "{}: tensor '{}': wanted dtype, shape and two data_offsets",
          path_, tensor_.name);
    header_.tensors.push_back(std::move(tensor_));
    tensor_ = {};
  }

  const std::string& path_;
  SafetensorsHeader& header_;
  Place place_ = Place::outside;
  std::string field_;  // the key whose value comes next
  SafetensorsEntry tensor_;
  int seen_ = 0, offsets_ = 0;
  bool has_metadata_ = false;
};

// Bytes of its values; throws where that overflows or is no whole number of bytes.
uint64_t value_bytes(const SafetensorsEntry& t, const std::string& path) {
  uint64_t bits = uint64_t(t.type->bits);
  for (const int64_t d : t.shape)
    check(!__builtin_mul_overflow(bits, uint64_t(d), &bits), Exit::checkpoint, "{}: tensor '{}': its size overflows",
          path, t.name);
  check(bits % 8 == 0, Exit::checkpoint, "{}: tensor '{}': {} bits are no whole number of bytes", path, t.name, bits);
  return bits / 8;
}

void check_names(std::vector<SafetensorsEntry>& tensors, const std::string& path) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const auto& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  check(twice == names.end(), Exit::checkpoint, "{}: duplicate tensor '{}'", path, twice == names.end() ? "" : *twice);
}

// Tensors cover the data back to back, and nothing else follows.
void check_offsets(SafetensorsHeader& header, uint64_t data_bytes, const std::string& path) {
  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t at = 0;
  for (auto& t : header.tensors) {
    check(t.begin == at && t.end >= t.begin, Exit::checkpoint,
          "{}: tensor '{}': wanted data_offsets from {} on, found [{}, {}]", path, t.name, at, t.begin, t.end);
    const uint64_t wanted = value_bytes(t, path);
    check(t.bytes() == wanted, Exit::checkpoint, "{}: tensor '{}': wanted {} bytes for its shape, found {}", path,
          t.name, wanted, t.bytes());
    at = t.end;
    t.begin += header.data_begin;
    t.end += header.data_begin;
  }
  check(at == data_bytes, Exit::checkpoint, "{}: wanted {} bytes of data after the header, found {}", path, at,
        data_bytes);
}

}  // namespace

const StoredType* find_stored_type(std::string_view name) {
  const auto* t = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& k) { return k.name == name; });
  return t == std::end(kTypes) ? nullptr : t;
}

SafetensorsHeader read_safetensors_header(const File& file) {
  const std::string& path = file.path();
  const uint64_t size = size_of(file);
  check(size >= 8, Exit::checkpoint, "{}: wanted a safetensors file of at least 8 bytes, found {}", path, size);
  uint64_t length = 0;
  read_exactly(file, std::as_writable_bytes(std::span(&length, 1)), 0, Exit::checkpoint);
  check(length <= std::min(kMaxHeader, size - 8), Exit::checkpoint,
        "{}: wanted a header of at most {} bytes, found {}; is this a safetensors file?", path,
        std::min(kMaxHeader, size - 8), length);
  std::string text(length, '\0');
  read_exactly(file, std::as_writable_bytes(std::span(text)), 8, Exit::checkpoint);

  std::string_view json = text;  // padded with spaces; some writers pad in front
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!json.empty() && is_space(json.back())) json.remove_suffix(1);
  while (!json.empty() && is_space(json.front())) json.remove_prefix(1);
  check(!json.empty() && json.front() == '{', Exit::checkpoint, "{}: wanted a header that begins with '{{'", path);

  SafetensorsHeader header;
  header.data_begin = 8 + length;
  HeaderReader reader(path, header);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  check_names(header.tensors, path);
  check_offsets(header, size - header.data_begin, path);
  return header;
}

std::string lay_out_safetensors(std::vector<SafetensorsEntry>& tensors,
                                const std::map<std::string, std::string>& metadata, size_t align) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return a.type->bits != b.type->bits ? a.type->bits > b.type->bits : a.name < b.name;
  });
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  uint64_t at = 0;
  for (auto& t : tensors) {
    t.begin = at;
    at = t.end = at + value_bytes(t, t.name);
    json[t.name] = {{"dtype", t.type->name}, {"shape", t.shape}, {"data_offsets", {t.begin, t.end}}};
  }
  std::string text = json.dump();
  text.resize((8 + text.size() + align - 1) / align * align - 8, ' ');
  const uint64_t length = text.size();
  for (auto& t : tensors) {
    t.begin += 8 + length;
    t.end += 8 + length;
  }
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + text;
}

}  // namespace trainer
