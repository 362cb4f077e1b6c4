#include "io/save.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <map>

#include "io/convert.h"
#include "io/safetensors.h"
#include "io/state_hash.h"

namespace trainer {
namespace {

std::vector<int64_t> extents(const NamedBox& b) {
  std::vector<int64_t> shape;
  for (int i = 0; i < b.logical.rank; ++i) shape.push_back(b.box.hi[size_t(i)] - b.box.lo[size_t(i)]);
  return shape;
}

void append_values(ShardWriter& writer, const Tensor& values) {
  const size_t row_bytes = size_t(values.row_elements()) * size_of(values.dtype);
  if (values.dense()) return writer.append({values.data, values.bytes()});
  for (int64_t r = 0; r < values.rows(); ++r) writer.append({row_part(values, r, r + 1).data, row_bytes});
}

// Where each box lies, per tensor.
std::vector<StoredTensor> stored_tensors(std::span<const NamedBox> boxes, std::span<const SafetensorsEntry> entries,
                                         const TensorHashes& hashes) {
  std::map<std::string, const NamedBox*> by_name;
  for (const NamedBox& b : boxes) by_name[shard_tensor_name(b)] = &b;
  std::map<std::string, StoredTensor> tensors;
  for (const SafetensorsEntry& e : entries) {
    const NamedBox& b = *by_name.at(e.name);
    StoredTensor& t = tensors[b.tensor];
    t.name = b.tensor;
    t.type = e.type;
    t.shape = b.logical;
    t.hash = hashes.at(b.tensor);
    t.boxes.push_back({0, e.begin, e.bytes(), b.box});
  }
  std::vector<StoredTensor> all;
  for (auto& [name, t] : tensors) all.push_back(std::move(t));
  return all;
}

}  // namespace

std::string shard_tensor_name(const NamedBox& b) {
  if (b.box == whole_box(b.logical)) return b.tensor;
  std::string name = b.tensor + "[";
  for (int i = 0; i < b.logical.rank; ++i)
    name += fmt::format("{}{}:{}", i ? "," : "", b.box.lo[size_t(i)], b.box.hi[size_t(i)]);
  return name + "]";
}

std::string shard_file_name(int rank) { return fmt::format("shard-{:05}.safetensors", rank); }

Manifest Saver::write_shards(const std::string& directory, const StateView& view, const RunState& run) {
  const FailSite site{run.step, 0};
  const std::vector<NamedBox> boxes = boxes_of(view);
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, const NamedBox*> by_name;
  for (const NamedBox& b : boxes) {
    const std::string name = shard_tensor_name(b);
    check(by_name.emplace(name, &b).second, Exit::checkpoint, "tensor {} is in two places of this rank's state", name);
    entries.push_back({name, stored_type_of(b.values.dtype), extents(b)});
  }
  auto hashing = std::async(std::launch::async, [&boxes] { return tensor_hashes(boxes); });  // beside the writing
  pass_failpoint("snapshot_begin", site, directory);
  const std::string header = lay_out_safetensors(entries, {{"format", "pt"}}, kBlockAlign);
  ShardWriter writer(staging_, directory, shard_file_name(0), site);
  writer.append(std::as_bytes(std::span(header)));
  for (const SafetensorsEntry& e : entries) append_values(writer, by_name.at(e.name)->values);

  Manifest manifest;
  manifest.files.push_back(writer.finish());
  const TensorHashes hashes = hashing.get();
  manifest.run = run;
  manifest.generation = options_.generation;
  manifest.state_hash = combined(hashes);
  manifest.tensors = stored_tensors(boxes, entries, hashes);
  return manifest;
}

SaveReport Saver::save(const StateView& view, const RunState& run) {
  const auto start = std::chrono::steady_clock::now();
  const std::string temporary = make_step_directory(options_.directory, run.step, options_.generation);
  Manifest manifest;
  try {
    manifest = write_shards(temporary, view, run);
    commit_step(options_.directory, temporary, manifest, {run.step, 0});
  } catch (const Error&) {
    std::error_code ignored;  // the error on its way up is the one to report
    std::filesystem::remove_all(temporary, ignored);
    throw;
  }
  collect_garbage(options_.directory, options_.retention, {run.step, 0});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return {step_path(options_.directory, run.step), manifest.files[0].bytes, manifest.state_hash, seconds.count()};
}

}  // namespace trainer
