#include "io/restore.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "io/convert.h"
#include "io/shards.h"
#include "io/state_hash.h"

namespace trainer {
namespace {

constexpr size_t kMaxManifest = 256 << 20;

// Consecutive elements of a file that go to consecutive places.
struct Copy {
  uint64_t offset = 0;  // in the file
  int64_t elements = 0;
  const StoredType* from = nullptr;
  std::byte* to = nullptr;
  DType to_type = DType::f32;
  uint64_t element_bytes() const { return uint64_t(from->bits / 8); }
  uint64_t end() const { return offset + uint64_t(elements) * element_bytes(); }
};

// The part of a stored box that a wanted box needs, row by row; rows that lie back to back on both sides are one copy.
void add_copies(const StoredTensor& t, const StoredBox& stored, const NamedBox& wanted, std::vector<Copy>& copies) {
  const int rank = t.shape.rank;
  const Rectangle from = rectangle_of(stored.box, rank), to = rectangle_of(wanted.box, rank);
  const Rectangle r = intersection(from, to);
  if (r.empty()) return;
  const bool one = r.columns() == from.columns() && r.columns() == wanted.values.stride();
  const int64_t rows = one ? 1 : r.rows(), elements = one ? r.elements() : r.columns();
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = r.row_begin + i;
    Copy c{0, elements, t.type, nullptr, wanted.values.dtype};
    const int64_t skipped = (row - from.row_begin) * from.columns() + r.column_begin - from.column_begin;
    c.offset = stored.offset + uint64_t(skipped) * c.element_bytes();
    const int64_t place = (row - to.row_begin) * wanted.values.stride() + r.column_begin - to.column_begin;
    c.to = wanted.values.data + place * int64_t(size_of(wanted.values.dtype));
    copies.push_back(c);
  }
}

void copy_block(const std::vector<Copy>& copies, const ReadBlock& block) {
  const uint64_t end = block.offset + block.bytes.size();
  auto c = std::partition_point(copies.begin(), copies.end(), [&](const Copy& x) { return x.end() <= block.offset; });
  for (; c != copies.end() && c->offset < end; ++c) {
    const uint64_t first = std::max(c->offset, block.offset), last = std::min(c->end(), end);
    const int64_t skip = int64_t((first - c->offset) / c->element_bytes());
    convert(block.bytes.data() + (first - block.offset), c->from, c->to + skip * int64_t(size_of(c->to_type)),
            c->to_type, int64_t((last - first) / c->element_bytes()));
  }
}

std::string tensor_at(const Manifest& m, size_t file, uint64_t begin, uint64_t end) {
  for (const StoredTensor& t : m.tensors)
    for (const StoredBox& b : t.boxes)
      if (b.file == file && b.offset < end && b.offset + b.bytes > begin) return t.name;
  return "(header)";
}

using CopiesByFile = std::map<size_t, std::vector<Copy>>;

CopiesByFile plan_copies(const Checkpoint& checkpoint, const std::vector<NamedBox>& boxes) {
  CopiesByFile copies;
  for (const NamedBox& wanted : boxes) {
    const StoredTensor* t = find_tensor(checkpoint.manifest, wanted.tensor);
    check(t, Exit::checkpoint, "{}: tensor '{}' is missing; does the spec's model match?", checkpoint.path,
          wanted.tensor);
    check(t->shape == wanted.logical, Exit::checkpoint, "{}: tensor '{}': wanted shape [{}], found [{}]",
          checkpoint.path, t->name,
          fmt::join(wanted.logical.dims.begin(), wanted.logical.dims.begin() + wanted.logical.rank, ", "),
          fmt::join(t->shape.dims.begin(), t->shape.dims.begin() + t->shape.rank, ", "));
    check(t->type->name == "F32" || t->type->name == "BF16", Exit::checkpoint, "{}: tensor '{}': cannot load dtype {}",
          checkpoint.path, t->name, t->type->name);
    for (const StoredBox& stored : t->boxes) add_copies(*t, stored, wanted, copies[stored.file]);
  }
  std::erase_if(copies, [](const auto& file) { return file.second.empty(); });
  for (auto& [file, list] : copies)
    std::sort(list.begin(), list.end(), [](const Copy& a, const Copy& b) { return a.offset < b.offset; });
  return copies;
}

std::vector<size_t> blocks_of(const std::vector<Copy>& copies) {
  std::vector<size_t> blocks;
  for (const Copy& c : copies)
    for (uint64_t b = c.offset / kBlockBytes; b * kBlockBytes < c.end(); ++b)
      if (blocks.empty() || blocks.back() < b) blocks.push_back(b);
  return blocks;
}

struct Reading {
  int blocks = 2;  // in flight
  FailSite site;
};

void load_boxes(const Checkpoint& checkpoint, const std::vector<NamedBox>& boxes, const Reading& how) {
  const CopiesByFile copies = plan_copies(checkpoint, boxes);
  std::map<size_t, std::vector<size_t>> blocks;
  size_t longest = 1;
  for (const auto& [number, list] : copies) longest = std::max(longest, (blocks[number] = blocks_of(list)).size());
  const File directory = open_directory(checkpoint.path, Exit::checkpoint);
  Staging staging(int(std::min(size_t(how.blocks), longest)));
  for (const auto& [number, list] : copies) {
    const FileRecord& record = checkpoint.manifest.files[number];
    const File file = open_beneath(directory, record.name, Exit::checkpoint);
    read_blocks(staging, {file, record, blocks[number]}, how.site, [&, n = number, &l = list](const ReadBlock& block) {
      check(block.problem.empty(), Exit::checkpoint, "{}: tensor '{}', offset {}: {}", file.path(),
            tensor_at(checkpoint.manifest, n, block.offset, block.offset + block.bytes.size()), block.offset,
            block.problem);
      copy_block(l, block);
    });
  }
}

Checkpoint read_manifest(const std::string& path) {
  const File file = open_beneath(open_directory(path, Exit::checkpoint), kManifestFile, Exit::checkpoint);
  return {path, parse_manifest(read_text(file, kMaxManifest, Exit::checkpoint), file.path())};
}

bool is_wanted(const LoadOptions& options, const std::string& tensor) {
  return !options.weights_only || !tensor.starts_with(kOptimizerPrefix);
}

// What a rank knows after loading, about the boxes that it would save.
struct Loaded {
  int64_t elements = 0;
  uint64_t hash = 0;
  bool as_stored = true;  // no value was converted
};

Loaded load_part(const Checkpoint& checkpoint, const StateView& view, const LoadOptions& options, FailSite site) {
  if (const Fault fault = failpoint("load_begin", site); fault.error != 0)
    fail_errno(Exit::checkpoint, checkpoint.path, "load_begin", fault.error);
  const auto unwanted = [&](const NamedBox& b) { return !is_wanted(options, b.tensor); };
  std::vector<NamedBox> boxes = boxes_to_load(view), own = boxes_to_save(view);
  std::erase_if(boxes, unwanted);
  std::erase_if(own, unwanted);
  load_boxes(checkpoint, boxes, {options.blocks, site});
  refresh_weights(view);
  Loaded loaded;
  for (const NamedBox& b : own) {
    loaded.elements += rectangle_of(b.box, b.logical.rank).elements();
    if (find_tensor(checkpoint.manifest, b.tensor)->type != stored_type_of(b.values.dtype)) loaded.as_stored = false;
  }
  if (loaded.as_stored) loaded.hash = combined(tensor_hashes(own));
  return loaded;
}

void check_world(const Checkpoint& checkpoint, const LoadOptions& options, const Loaded& world) {
  int64_t elements = 0;
  uint64_t hash = 0;
  for (const StoredTensor& t : checkpoint.manifest.tensors) {
    if (!is_wanted(options, t.name)) continue;
    elements += t.shape.elements();
    hash += t.hash;
  }
  check(elements == world.elements, Exit::checkpoint,
        "{}: holds {} elements, the model {}: does the spec's model match?", checkpoint.path, elements, world.elements);
  check(!world.as_stored || hash == world.hash, Exit::checkpoint, "{}: state hash after loading: wanted {}, found {}",
        checkpoint.path, hex(hash), hex(world.hash));
}

std::string steps_text(const std::string& directory) {
  nlohmann::json steps = nlohmann::json::array();
  for (const StepPath& s : list_steps(directory)) steps.push_back(s.step);
  return steps.dump();
}

}  // namespace

Checkpoint open_checkpoint(const std::string& path) {
  Checkpoint checkpoint = read_manifest(path);
  const File directory = open_directory(path, Exit::checkpoint);
  for (const FileRecord& record : checkpoint.manifest.files) {
    const File shard = open_beneath(directory, record.name, Exit::checkpoint);
    check(size_of(shard) == record.bytes, Exit::checkpoint, "{}: wanted {} bytes, found {}", shard.path(), record.bytes,
          size_of(shard));
  }
  return checkpoint;
}

Checkpoint open_checkpoint(const std::string& path, const Votes& votes) {
  Checkpoint checkpoint;
  const auto seen = agree(votes, [&] {
    checkpoint = votes.rank == 0 ? open_checkpoint(path) : read_manifest(path);  // one rank looks for the files
    return fmt::format("generation {}, state {}", checkpoint.manifest.generation, hex(checkpoint.manifest.state_hash));
  });
  for (size_t r = 1; r < seen.size(); ++r)
    check(seen[r] == seen[0], Exit::checkpoint,
          "{}: rank 0 sees {}, rank {} sees {}: do all hosts share this file system?", path, seen[0], r, seen[r]);
  return checkpoint;
}

void load_state(const Checkpoint& checkpoint, const StateView& view, const LoadOptions& options, const Votes& votes) {
  const auto said = agree(votes, [&] {
    const Loaded l = load_part(checkpoint, view, options, {checkpoint.manifest.run.step, votes.rank});
    return nlohmann::json{l.elements, l.hash, l.as_stored}.dump();
  });
  Loaded world;
  for (const std::string& text : said) {
    const auto l = nlohmann::json::parse(text);
    world.elements += l[0].get<int64_t>();
    world.hash += l[1].get<uint64_t>();
    world.as_stored = world.as_stored && l[2].get<bool>();
  }
  check_world(checkpoint, options, world);
}

std::vector<std::byte> read_tensor(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor* t = find_tensor(checkpoint.manifest, name);
  check(t, Exit::checkpoint, "{}: tensor '{}' is missing", checkpoint.path, name);
  const DType type = t->type->name == "F32" ? DType::f32 : DType::bf16;
  const Rectangle r = rectangle_of(whole_box(t->shape), t->shape.rank);
  std::vector<std::byte> bytes(size_t(r.elements()) * size_of(type));
  load_boxes(checkpoint,
             {{name, t->shape, whole_box(t->shape), make_tensor(bytes.data(), type, {r.rows(), r.columns()})}}, {});
  return bytes;
}

std::optional<Resumed> resume_newest(const std::string& directory, const StateView& view, const Votes& votes) {
  const auto steps = nlohmann::json::parse(agree_on_first(votes, [&] { return steps_text(directory); }));
  std::vector<Refusal> refused;
  for (const int64_t step : steps) {
    const std::string path = step_path(directory, step);
    try {
      Checkpoint checkpoint = open_checkpoint(path, votes);
      check(checkpoint.manifest.run.step == step, Exit::checkpoint, "{}: its manifest is of step {}", path,
            checkpoint.manifest.run.step);
      load_state(checkpoint, view, {}, votes);
      return Resumed{std::move(checkpoint), std::move(refused)};
    } catch (const Error& e) {
      if (e.code() == Exit::rank) throw;  // of a rank that is gone, not of the step
      refused.push_back({step, e.what()});
    }
  }
  if (refused.empty()) return {};
  fail(Exit::checkpoint, "{}: none of {} steps can be loaded; the newest: {}", directory, refused.size(),
       refused[0].why);
}

std::vector<Problem> verify_checkpoint(const std::string& path) {
  std::vector<Problem> problems;
  Checkpoint checkpoint;
  try {
    checkpoint = open_checkpoint(path);
  } catch (const Error& e) { return {{path, "", 0, e.what()}}; }
  const File directory = open_directory(path, Exit::checkpoint);
  Staging staging(8);
  for (size_t i = 0; i < checkpoint.manifest.files.size(); ++i) {
    const FileRecord& record = checkpoint.manifest.files[i];
    const File file = open_beneath(directory, record.name, Exit::checkpoint);
    std::vector<size_t> blocks(record.crcs.size());
    std::iota(blocks.begin(), blocks.end(), size_t(0));
    read_blocks(staging, {file, record, blocks}, {}, [&](const ReadBlock& b) {
      if (b.problem.empty()) return;
      const std::string tensor = tensor_at(checkpoint.manifest, i, b.offset, b.offset + b.bytes.size());
      problems.push_back({record.name, tensor, b.offset, b.problem});
    });
  }
  return problems;
}

}  // namespace trainer
