#include "io/restore.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "io/convert.h"
#include "io/shards.h"

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

void load_boxes(const Checkpoint& checkpoint, const std::vector<NamedBox>& boxes, int blocks) {
  const CopiesByFile copies = plan_copies(checkpoint, boxes);
  const File directory = open_directory(checkpoint.path, Exit::checkpoint);
  Staging staging(blocks);
  for (const auto& [number, list] : copies) {
    const FileRecord& record = checkpoint.manifest.files[number];
    const File file = open_beneath(directory, record.name, Exit::checkpoint);
    read_blocks(staging, file, record, blocks_of(list), [&, n = number, &l = list](const ReadBlock& block) {
      check(block.problem.empty(), Exit::checkpoint, "{}: tensor '{}', offset {}: {}", file.path(),
            tensor_at(checkpoint.manifest, n, block.offset, block.offset + block.bytes.size()), block.offset,
            block.problem);
      copy_block(l, block);
    });
  }
}

}  // namespace

Checkpoint open_checkpoint(const std::string& path) {
  const File directory = open_directory(path, Exit::checkpoint);
  const File file = open_beneath(directory, kManifestFile, Exit::checkpoint);
  Checkpoint checkpoint{path, parse_manifest(read_text(file, kMaxManifest, Exit::checkpoint), file.path())};
  for (const FileRecord& record : checkpoint.manifest.files) {
    const File shard = open_beneath(directory, record.name, Exit::checkpoint);
    check(size_of(shard) == record.bytes, Exit::checkpoint, "{}: wanted {} bytes, found {}", shard.path(), record.bytes,
          size_of(shard));
  }
  return checkpoint;
}

void load_state(const Checkpoint& checkpoint, const StateView& view, const LoadOptions& options) {
  const FailSite site{checkpoint.manifest.run.step, 0};
  if (const Fault fault = failpoint("load_begin", site); fault.error != 0)
    fail_errno(Exit::checkpoint, checkpoint.path, "load_begin", fault.error);
  std::vector<NamedBox> boxes = boxes_of(view);
  if (options.weights_only)
    std::erase_if(boxes, [](const NamedBox& b) { return b.tensor.starts_with(kOptimizerPrefix); });
  load_boxes(checkpoint, boxes, options.blocks);
  refresh_weights(view);
}

std::vector<std::byte> read_tensor(const Checkpoint& checkpoint, const std::string& name) {
  const StoredTensor* t = find_tensor(checkpoint.manifest, name);
  check(t, Exit::checkpoint, "{}: tensor '{}' is missing", checkpoint.path, name);
  const DType type = t->type->name == "F32" ? DType::f32 : DType::bf16;
  const Rectangle r = rectangle_of(whole_box(t->shape), t->shape.rank);
  std::vector<std::byte> bytes(size_t(r.elements()) * size_of(type));
  load_boxes(checkpoint,
             {{name, t->shape, whole_box(t->shape), make_tensor(bytes.data(), type, {r.rows(), r.columns()})}},
             /*blocks=*/2);
  return bytes;
}

std::optional<Resumed> resume_newest(const std::string& directory, const StateView& view) {
  std::vector<Refusal> refused;
  for (const StepPath& s : list_steps(directory)) {
    try {
      Checkpoint checkpoint = open_checkpoint(s.path);
      check(checkpoint.manifest.run.step == s.step, Exit::checkpoint, "{}: its manifest is of step {}", s.path,
            checkpoint.manifest.run.step);
      load_state(checkpoint, view);
      return Resumed{std::move(checkpoint), std::move(refused)};
    } catch (const Error& e) { refused.push_back({s.step, e.what()}); }
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
    read_blocks(staging, file, record, blocks, [&](const ReadBlock& b) {
      if (b.problem.empty()) return;
      const std::string tensor = tensor_at(checkpoint.manifest, i, b.offset, b.offset + b.bytes.size());
      problems.push_back({record.name, tensor, b.offset, b.problem});
    });
  }
  return problems;
}

}  // namespace trainer
