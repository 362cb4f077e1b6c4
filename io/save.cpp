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

// Every tensor that the rank holds a part of, saved here or not: so one that no rank saves is noticed.
std::map<std::string, StoredTensor> held_tensors(const StateView& view) {
  std::map<std::string, StoredTensor> tensors;
  for (const NamedBox& b : boxes_of(view))
    tensors[b.tensor] = {b.tensor, stored_type_of(b.values.dtype), b.logical, 0, {}};
  return tensors;
}

struct Shard {
  std::map<std::string, const NamedBox*> boxes;  // by their names in the file
  std::vector<SafetensorsEntry> entries;
};

Shard shard_of(std::span<const NamedBox> boxes) {
  Shard shard;
  for (const NamedBox& b : boxes) {
    const std::string name = shard_tensor_name(b);
    check(shard.boxes.emplace(name, &b).second, Exit::checkpoint, "tensor {} is in two places of this rank's state",
          name);
    shard.entries.push_back({name, stored_type_of(b.values.dtype), extents(b)});
  }
  return shard;
}

// Where each box lies, per tensor.
std::vector<StoredTensor> stored_tensors(const StateView& view, const Shard& shard, const TensorHashes& hashes) {
  std::map<std::string, StoredTensor> tensors = held_tensors(view);
  for (const auto& [name, hash] : hashes) tensors.at(name).hash = hash;
  for (const SafetensorsEntry& e : shard.entries) {
    const NamedBox& b = *shard.boxes.at(e.name);
    tensors.at(b.tensor).boxes.push_back({0, e.begin, e.bytes(), b.box});
  }
  std::vector<StoredTensor> all;
  for (auto& [name, t] : tensors) all.push_back(std::move(t));
  return all;
}

// Rank 0 vouches for the files of all, so it must see them.
void check_shared(const std::string& directory, const std::vector<FileRecord>& files) {
  for (const FileRecord& f : files) {
    std::error_code error;
    const auto found = std::filesystem::file_size(directory + "/" + f.name, error);
    check(!error && found == f.bytes, Exit::disk,
          "{}/{}: rank 0 does not see the {} bytes that another rank wrote: put checkpoint.dir on a file system that "
          "all hosts share",
          directory, f.name, f.bytes);
  }
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

Manifest Saver::write_shard(const std::string& directory, const StateView& view, FailSite site) {
  const std::vector<NamedBox> boxes = boxes_to_save(view);
  Shard shard = shard_of(boxes);
  auto hashing = std::async(std::launch::async, [&boxes] { return tensor_hashes(boxes); });  // beside the writing
  pass_failpoint("snapshot_begin", site, directory);
  const std::string header = lay_out_safetensors(shard.entries, {{"format", "pt"}}, kBlockAlign);
  ShardWriter writer(staging_, directory, shard_file_name(site.rank), site);
  writer.append(std::as_bytes(std::span(header)));
  for (const SafetensorsEntry& e : shard.entries) append_values(writer, shard.boxes.at(e.name)->values);

  Manifest part;
  part.files.push_back(writer.finish());
  const TensorHashes hashes = hashing.get();
  part.state_hash = combined(hashes);
  part.tensors = stored_tensors(view, shard, hashes);
  pass_failpoint("vote", site, directory);
  return part;
}

std::string Saver::commit(const std::string& temporary, const std::vector<std::string>& parts, const RunState& run) {
  Manifest all;
  all.run = run;
  all.generation = options_.generation;
  for (size_t r = 0; r < parts.size(); ++r) merge(all, parse_part(parts[r], fmt::format("what rank {} saved", r)));
  check_cover(all, temporary);
  check_shared(temporary, all.files);
  commit_step(options_.directory, temporary, all, {run.step, 0});
  collect_garbage(options_.directory, options_.retention, {run.step, 0});
  uint64_t bytes = 0;
  for (const FileRecord& f : all.files) bytes += f.bytes;
  return nlohmann::json{bytes, all.state_hash}.dump();
}

SaveReport Saver::save(const StateView& view, const RunState& run) {
  const auto start = std::chrono::steady_clock::now();
  const FailSite site{run.step, votes_.rank};
  const std::string temporary =
      agree_on_first(votes_, [&] { return make_step_directory(options_.directory, run.step, options_.generation); });
  std::string outcome;
  try {
    const std::vector<std::string> parts = agree(votes_, [&] { return to_text(write_shard(temporary, view, site)); });
    failpoint("vote_counted", site);
    outcome = agree_on_first(votes_, [&] { return commit(temporary, parts, run); });
  } catch (const Error& e) {
    std::error_code ignored;  // the error on its way up is the one to report
    if (votes_.rank == 0 && e.code() != Exit::rank) std::filesystem::remove_all(temporary, ignored);
    throw;
  }
  failpoint("save_end", site);
  const auto report = nlohmann::json::parse(outcome);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return {step_path(options_.directory, run.step), report[0], report[1], seconds.count()};
}

}  // namespace trainer
