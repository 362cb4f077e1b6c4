#include "io/manifest.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/base/crc32c.h"
#include "io/boxes.h"
#include "io/strict_json.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kStart = "{\"crc32c\":\"", kZeros = "00000000";

uint32_t crc_of(std::string_view text) { return crc32c(0, std::as_bytes(std::span(text))); }

Json dims(const std::array<int64_t, 4>& values, int rank) {
  Json json = Json::array();
  for (int i = 0; i < rank; ++i) json.push_back(values[size_t(i)]);
  return json;
}

Json json_of(const FileRecord& file) {
  std::string crcs;  // eight digits each: an array of strings would be thrice as long
  for (const uint32_t crc : file.crcs) crcs += fmt::format("{:08x}", crc);
  return {{"name", file.name}, {"bytes", file.bytes}, {"block_bytes", kBlockBytes}, {"crc32c", crcs}};
}

Json json_of(const StoredTensor& t) {
  Json boxes = Json::array();
  for (const StoredBox& b : t.boxes)
    boxes.push_back({{"file", b.file},
                     {"offset", b.offset},
                     {"bytes", b.bytes},
                     {"lo", dims(b.box.lo, t.shape.rank)},
                     {"hi", dims(b.box.hi, t.shape.rank)}});
  return {{"name", t.name},
          {"dtype", t.type->name},
          {"shape", dims(t.shape.dims, t.shape.rank)},
          {"hash", hex(t.hash)},
          {"boxes", boxes}};
}

// Reads one manifest; every complaint names it and the tensor or file at hand.
class ManifestReader {
 public:
  explicit ManifestReader(const std::string& path) : path_(path) {}

  Manifest read(const nlohmann::json& json) {
    Manifest m;
    const int64_t format = json.at("format");
    check(format == kManifestFormat, Exit::checkpoint, "{}: format {}: this program reads format {}", path_, format,
          kManifestFormat);
    m.run.step = natural(json.at("step"));
    m.run.tokens = natural(json.at("tokens"));
    m.run.samples = natural(json.at("samples"));
    m.run.data_hash = number_of(json.at("data_hash"));
    m.run.plan_hash = number_of(json.at("plan_hash"));
    m.run.seed = json.at("seed");
    m.run.tokenizer = json.at("tokenizer");
    m.run.model = json.at("model");
    m.run.spec = json.at("spec");
    m.generation = json.at("generation");
    m.state_hash = number_of(json.at("state_hash"));
    for (const auto& f : json.at("files")) m.files.push_back(file_of(f));
    for (const auto& t : json.at("tensors")) m.tensors.push_back(tensor_of(t, m.files));
    const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
    std::sort(m.tensors.begin(), m.tensors.end(), by_name);
    for (size_t i = 1; i < m.tensors.size(); ++i)
      check(m.tensors[i - 1].name != m.tensors[i].name, Exit::checkpoint, "{}: tensor '{}' stands twice", path_,
            m.tensors[i].name);
    return m;
  }

 private:
  int64_t natural(const nlohmann::json& json) {
    check(json.is_number_unsigned() && json.get<uint64_t>() <= uint64_t(1) << 53, Exit::checkpoint,
          "{}: wanted an integer from 0 to 2^53, found {}", path_, json.dump());
    return json.get<int64_t>();
  }

  uint64_t number_of(const nlohmann::json& json) {
    const std::string text = json;
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    check(text.size() == 16 && error == std::errc{} && end == text.data() + 16, Exit::checkpoint,
          "{}: wanted 16 hexadecimal digits, found '{}'", path_, text);
    return value;
  }

  FileRecord file_of(const nlohmann::json& json) {
    FileRecord file;
    file.name = json.at("name");
    file.bytes = uint64_t(natural(json.at("bytes")));
    const std::string crcs = json.at("crc32c");
    check(json.at("block_bytes") == kBlockBytes && crcs.size() == (file.bytes + kBlockBytes - 1) / kBlockBytes * 8,
          Exit::checkpoint, "{}: file '{}': wanted a CRC for each {} bytes", path_, file.name, kBlockBytes);
    for (size_t i = 0; i < crcs.size(); i += 8) {
      uint32_t crc = 0;
      const auto [end, error] = std::from_chars(crcs.data() + i, crcs.data() + i + 8, crc, 16);
      check(error == std::errc{} && end == crcs.data() + i + 8, Exit::checkpoint, "{}: file '{}': bad CRC digits",
            path_, file.name);
      file.crcs.push_back(crc);
    }
    return file;
  }

  StoredTensor tensor_of(const nlohmann::json& json, const std::vector<FileRecord>& files) {
    StoredTensor t;
    t.name = json.at("name");
    const std::string type = json.at("dtype");
    t.type = find_stored_type(type);
    check(t.type && t.type->bits % 8 == 0, Exit::checkpoint, "{}: tensor '{}': unknown dtype '{}'", path_, t.name,
          type);
    t.hash = number_of(json.at("hash"));
    read_dims(json.at("shape"), t, t.shape.dims, t.shape.rank);
    int64_t elements = 1;
    for (int i = 0; i < t.shape.rank; ++i)
      check(!__builtin_mul_overflow(elements, t.shape[i], &elements) && elements <= int64_t(1) << 53, Exit::checkpoint,
            "{}: tensor '{}': its size overflows", path_, t.name);
    for (const auto& b : json.at("boxes")) t.boxes.push_back(box_of_json(b, t, files));
    return t;
  }

  void read_dims(const nlohmann::json& json, const StoredTensor& t, std::array<int64_t, 4>& values, int& rank) {
    check(json.is_array() && (json.size() == 1 || json.size() == 2), Exit::checkpoint,
          "{}: tensor '{}': wanted one or two dimensions, found {}", path_, t.name, json.dump());
    rank = 0;
    for (const auto& d : json) values[size_t(rank++)] = natural(d);
  }

  StoredBox box_of_json(const nlohmann::json& json, const StoredTensor& t, const std::vector<FileRecord>& files) {
    StoredBox b;
    int lo_rank = 0, hi_rank = 0;
    read_dims(json.at("lo"), t, b.box.lo, lo_rank);
    read_dims(json.at("hi"), t, b.box.hi, hi_rank);
    bool inside = lo_rank == t.shape.rank && hi_rank == t.shape.rank;
    for (int i = 0; i < t.shape.rank; ++i)
      inside = inside && b.box.lo[size_t(i)] < b.box.hi[size_t(i)] && b.box.hi[size_t(i)] <= t.shape[i];
    check(inside, Exit::checkpoint, "{}: tensor '{}': box {} lies outside of it", path_, t.name, json.dump());
    b.file = size_t(natural(json.at("file")));
    b.offset = uint64_t(natural(json.at("offset")));
    b.bytes = uint64_t(natural(json.at("bytes")));
    const uint64_t size = uint64_t(t.type->bits / 8);
    check(b.file < files.size() && b.offset + b.bytes <= files[b.file].bytes && b.offset % size == 0 &&
              b.bytes == uint64_t(rectangle_of(b.box, t.shape.rank).elements()) * size,
          Exit::checkpoint, "{}: tensor '{}': box {} does not fit its file", path_, t.name, json.dump());
    return b;
  }

  const std::string& path_;
};

// No gap and no overlap: no two boxes meet, and their sizes add up.
void check_cover(const StoredTensor& t, const std::string& path) {
  std::vector<Rectangle> all;
  int64_t sum = 0;
  for (const StoredBox& b : t.boxes) all.push_back(rectangle_of(b.box, t.shape.rank));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::pair(a.row_begin, a.column_begin) < std::pair(b.row_begin, b.column_begin);
  });
  for (size_t i = 0; i < all.size(); ++i) {
    sum += all[i].elements();
    for (size_t j = i + 1; j < all.size() && all[j].row_begin < all[i].row_end; ++j)
      check(intersection(all[i], all[j]).empty(), Exit::checkpoint, "{}: tensor '{}': two boxes overlap", path, t.name);
  }
  check(sum == t.shape.elements(), Exit::checkpoint, "{}: tensor '{}': its boxes hold {} of {} elements", path, t.name,
        sum, t.shape.elements());
}

}  // namespace

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

std::string to_text(const Manifest& m) {
  Json json;
  json["crc32c"] = kZeros;
  json["format"] = kManifestFormat;
  json["generation"] = m.generation;
  json["step"] = m.run.step;
  json["tokens"] = m.run.tokens;
  json["samples"] = m.run.samples;
  json["seed"] = m.run.seed;
  json["state_hash"] = hex(m.state_hash);
  json["data_hash"] = hex(m.run.data_hash);
  json["plan_hash"] = hex(m.run.plan_hash);
  json["tokenizer"] = m.run.tokenizer;
  json["model"] = m.run.model;
  json["spec"] = m.run.spec;
  json["files"] = Json::array();
  for (const auto& f : m.files) json["files"].push_back(json_of(f));
  json["tensors"] = Json::array();
  for (const auto& t : m.tensors) json["tensors"].push_back(json_of(t));
  std::string text = json.dump();
  text.replace(kStart.size(), kZeros.size(), fmt::format("{:08x}", crc_of(text)));
  return text;
}

Manifest parse_part(const std::string& text, const std::string& path) {
  const size_t head = kStart.size() + kZeros.size();
  check(text.size() > head && text.starts_with(kStart), Exit::checkpoint, "{}: wanted a manifest that begins with {}",
        path, kStart);
  const std::string wanted = text.substr(kStart.size(), kZeros.size());
  std::string zeroed = text;
  zeroed.replace(kStart.size(), kZeros.size(), kZeros);
  const std::string found = fmt::format("{:08x}", crc_of(zeroed));
  check(wanted == found, Exit::checkpoint, "{}: CRC32C of the manifest: wanted {}, found {}", path, wanted, found);
  try {
    return ManifestReader(path).read(parse_strict_json(text, path, Exit::checkpoint));
  } catch (const nlohmann::json::exception& e) { fail(Exit::checkpoint, "{}: {}", path, e.what()); }
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  Manifest m = parse_part(text, path);
  check_cover(m, path);
  return m;
}

void check_cover(const Manifest& m, const std::string& path) {
  for (const StoredTensor& t : m.tensors) check_cover(t, path);
}

void merge(Manifest& all, const Manifest& part) {
  const size_t files = all.files.size();
  all.files.insert(all.files.end(), part.files.begin(), part.files.end());
  all.state_hash += part.state_hash;
  for (const StoredTensor& t : part.tensors) {
    const auto at = std::lower_bound(all.tensors.begin(), all.tensors.end(), t.name,
                                     [](const StoredTensor& x, const std::string& name) { return x.name < name; });
    const bool known = at != all.tensors.end() && at->name == t.name;
    StoredTensor& to = known ? *at : *all.tensors.insert(at, {t.name, t.type, t.shape, 0, {}});
    check(to.type == t.type && to.shape == t.shape, Exit::checkpoint,
          "tensor '{}': ranks save it in two types or shapes", t.name);
    to.hash += t.hash;
    for (StoredBox b : t.boxes) {
      b.file += files;
      to.boxes.push_back(b);
    }
  }
}

const StoredTensor* find_tensor(const Manifest& m, const std::string& name) {
  const auto at = std::lower_bound(m.tensors.begin(), m.tensors.end(), name,
                                   [](const StoredTensor& t, const std::string& n) { return t.name < n; });
  return at != m.tensors.end() && at->name == name ? &*at : nullptr;
}

}  // namespace trainer
