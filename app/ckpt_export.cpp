#include <filesystem>

#include "app/ckpt_hf.h"
#include "app/ckpt_hf_config.h"
#include "io/model_json.h"
#include "io/restore.h"
#include "io/safetensors_set.h"
#include "io/shards.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

using Parts = std::vector<std::vector<const StoredTensor*>>;

uint64_t bytes_of(const StoredTensor& t) { return uint64_t(t.shape.elements()) * uint64_t(t.type->bits / 8); }

// In the order of names, a new part where the next tensor would not fit.
Parts divide(const Manifest& manifest, uint64_t part_bytes) {
  Parts parts(1);
  uint64_t filled = 0;
  for (const StoredTensor& t : manifest.tensors) {
    if (t.name.starts_with(kOptimizerPrefix)) continue;
    if (filled > 0 && filled + bytes_of(t) > part_bytes) {
      parts.emplace_back();
      filled = 0;
    }
    parts.back().push_back(&t);
    filled += bytes_of(t);
  }
  return parts;
}

std::string part_name(size_t part, size_t parts) {
  return parts == 1 ? kSafetensorsFile : fmt::format("model-{:05}-of-{:05}.safetensors", part + 1, parts);
}

void write_part(const Checkpoint& checkpoint, const std::vector<const StoredTensor*>& tensors,
                const std::string& directory, const std::string& name) {
  std::vector<SafetensorsEntry> entries;
  for (const StoredTensor* t : tensors)
    entries.push_back({t->name, t->type, {t->shape.dims.begin(), t->shape.dims.begin() + t->shape.rank}, 0, 0});
  const std::string header = lay_out_safetensors(entries, {{"format", "pt"}});
  Staging staging(4);
  ShardWriter writer(staging, directory, name, {});
  writer.append(std::as_bytes(std::span(header)));
  for (const SafetensorsEntry& e : entries) writer.append(read_tensor(checkpoint, e.name));
  writer.finish();
}

void write_json(const std::string& path, const nlohmann::ordered_json& json) {
  const File file = create_file(path);
  write_text(file, json.dump(2) + "\n");
  sync(file);
}

void write_index(const Parts& parts, const std::string& directory) {
  nlohmann::ordered_json index{{"metadata", {{"total_size", 0}}}, {"weight_map", nlohmann::ordered_json::object()}};
  uint64_t total = 0;
  for (size_t i = 0; i < parts.size(); ++i)
    for (const StoredTensor* t : parts[i]) {
      index["weight_map"][t->name] = part_name(i, parts.size());
      total += bytes_of(*t);
    }
  index["metadata"]["total_size"] = total;
  write_json(directory + "/" + kSafetensorsIndex, index);
}

}  // namespace

void export_hugging_face(const std::string& step_directory, const std::string& out, uint64_t part_bytes) {
  const Checkpoint checkpoint = open_checkpoint(step_directory);
  nlohmann::ordered_json config =
      hf_config_of_model(model_from_json(checkpoint.manifest.run.model, checkpoint.path + "/" + kManifestFile));
  const Parts parts = divide(checkpoint.manifest, part_bytes);
  check(!parts[0].empty(), Exit::checkpoint, "{}: holds no weights", step_directory);
  config["torch_dtype"] = parts[0][0]->type->name == "F32" ? "float32" : "bfloat16";
  std::error_code error;
  fs::create_directories(out, error);
  check(!error && fs::is_empty(out, error), Exit::checkpoint, "{}: wanted a new or empty directory to export into",
        out);
  for (size_t i = 0; i < parts.size(); ++i) write_part(checkpoint, parts[i], out, part_name(i, parts.size()));
  if (parts.size() > 1) write_index(parts, out);
  write_json(out + "/config.json", config);
  sync_directory(out);
}

}  // namespace trainer
