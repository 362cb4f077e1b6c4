#include <filesystem>
#include <map>
#include <set>

#include "app/ckpt_hf.h"
#include "app/ckpt_hf_config.h"
#include "core/model/model.h"
#include "core/plan/mesh.h"
#include "core/spec/print.h"
#include "io/commit.h"
#include "io/convert.h"
#include "io/safetensors_set.h"
#include "io/save.h"
#include "io/state_hash.h"
#include "io/strict_json.h"

namespace trainer {
namespace {

constexpr size_t kMaxConfig = 16 << 20, kChunk = 1 << 20;  // bytes, elements

struct Wanted {
  Shape shape;
  const SafetensorsSet::Place* source = nullptr;
};
using WantedTensors = std::map<std::string, Wanted>;

// The model itself says which tensors it consists of.
WantedTensors tensors_of(const ModelSpec& model) {
  RunSpec spec;
  spec.model = model;
  spec.data.seq_len = spec.train.micro_batch = 1;
  WantedTensors wanted;
  for (const Param& p : build_model(spec, Mesh{}).params)
    for (const Param::Piece& piece : p.pieces) wanted[piece.tensor].shape = piece.logical;
  return wanted;
}

// Saved by some versions, made anew by every reader: causal masks and rotary tables.
bool is_buffer(std::string_view name) {
  for (const std::string_view end : {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"})
    if (name.ends_with(end)) return true;
  return false;
}

// GPT-2 saved without its head has no prefix.
constexpr std::string_view kGpt2Prefix = "transformer.";

const SafetensorsSet::Place* find_source(const SafetensorsSet& set, const std::string& name) {
  auto at = set.tensors.find(name);
  if (at == set.tensors.end() && name.starts_with(kGpt2Prefix)) at = set.tensors.find(name.substr(kGpt2Prefix.size()));
  return at == set.tensors.end() ? nullptr : &at->second;
}

void read_part(const SafetensorsSet::Place& place, uint64_t from, std::span<std::byte> bytes) {
  read_exactly(place.part->file, bytes, place.entry->begin + from, Exit::checkpoint);
}

bool same_values(const SafetensorsSet::Place& a, const SafetensorsSet::Place& b) {
  if (a.entry->type != b.entry->type || a.entry->shape != b.entry->shape) return false;
  std::vector<std::byte> x(kChunk), y(kChunk);
  for (uint64_t at = 0; at < a.entry->bytes(); at += kChunk) {
    x.resize(std::min<uint64_t>(kChunk, a.entry->bytes() - at));
    y.resize(x.size());
    read_part(a, at, x);
    read_part(b, at, y);
    if (x != y) return false;
  }
  return true;
}

void match(WantedTensors& wanted, const SafetensorsSet& set, const std::string& source) {
  std::set<const SafetensorsSet::Place*> used;
  const SafetensorsSet::Place* embedding = nullptr;
  for (auto& [name, w] : wanted) {
    w.source = find_source(set, name);
    check(w.source, Exit::checkpoint, "{}: tensor '{}' is missing", source, name);
    const SafetensorsEntry& e = *w.source->entry;
    check(std::equal(e.shape.begin(), e.shape.end(), w.shape.dims.begin(), w.shape.dims.begin() + w.shape.rank),
          Exit::checkpoint, "{}: tensor '{}': config.json makes its shape [{}], found [{}]",
          w.source->part->file.path(), e.name,
          fmt::join(w.shape.dims.begin(), w.shape.dims.begin() + w.shape.rank, ", "), fmt::join(e.shape, ", "));
    check(can_convert(e.type), Exit::checkpoint, "{}: tensor '{}': wanted F32, BF16 or F16, found {}",
          w.source->part->file.path(), e.name, e.type->name);
    used.insert(w.source);
    if (name.ends_with("embed_tokens.weight") || name.ends_with("wte.weight")) embedding = w.source;
  }
  for (const auto& [name, place] : set.tensors) {
    if (used.contains(&place) || is_buffer(name)) continue;
    const bool tied_copy = name == "lm_head.weight" && embedding && same_values(place, *embedding);
    check(tied_copy, Exit::checkpoint, "{}: tensor '{}' has no place in this model", place.part->file.path(), name);
  }
}

// Appends the tensor as fp32 and returns its hash.
uint64_t copy_tensor(ShardWriter& writer, const std::string& name, const SafetensorsSet::Place& source) {
  const StoredType* type = source.entry->type;
  const int64_t size = type->bits / 8, elements = int64_t(source.entry->bytes()) / size;
  std::vector<std::byte> in(kChunk * size_t(size)), out(kChunk * sizeof(float));
  uint64_t hash = 0;
  for (int64_t at = 0; at < elements; at += int64_t(kChunk)) {
    const int64_t n = std::min(int64_t(kChunk), elements - at);
    read_part(source, uint64_t(at * size), std::span(in).first(size_t(n * size)));
    convert(in.data(), type, out.data(), DType::f32, n);
    hash += hash_elements(name, DType::f32, at, out.data(), n);
    writer.append(std::span(out).first(size_t(n) * sizeof(float)));
  }
  return hash;
}

Manifest write_shard(const std::string& directory, const WantedTensors& wanted) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, w] : wanted)
    entries.push_back({name, stored_type_of(DType::f32), w.source->entry->shape, 0, 0});
  const std::string header = lay_out_safetensors(entries, {{"format", "pt"}}, kBlockAlign);
  Staging staging(8);
  ShardWriter writer(staging, directory, shard_file_name(0), {});
  writer.append(std::as_bytes(std::span(header)));
  Manifest m;
  for (const SafetensorsEntry& e : entries) {
    const Wanted& w = wanted.at(e.name);
    const uint64_t hash = copy_tensor(writer, e.name, *w.source);
    m.tensors.push_back({e.name, e.type, w.shape, hash, {{0, e.begin, e.bytes(), whole_box(w.shape)}}});
    m.state_hash += hash;
  }
  m.files.push_back(writer.finish());
  return m;
}

ModelSpec read_config(const std::string& source) {
  const File directory = open_directory(source, Exit::checkpoint);
  const File file = open_beneath(directory, "config.json", Exit::checkpoint);
  const std::string text = read_text(file, kMaxConfig, Exit::checkpoint);
  return model_of_hf_config(parse_strict_json(text, file.path(), Exit::checkpoint), file.path());
}

}  // namespace

std::string import_hugging_face(const std::string& source, const std::string& out) {
  check(list_steps(out).empty(), Exit::checkpoint, "{}: holds checkpoints already; import into a new directory", out);
  const ModelSpec model = read_config(source);
  const SafetensorsSet set = open_safetensors_set(source);
  WantedTensors wanted = tensors_of(model);
  match(wanted, set, source);
  const std::string temporary = make_step_directory(out, /*step=*/0, /*generation=*/0);
  try {
    Manifest manifest = write_shard(temporary, wanted);
    manifest.run.tokenizer = "none";
    manifest.run.model = model_json(model);
    commit_step(out, temporary, manifest, {});
  } catch (const Error&) {
    std::error_code ignored;  // the error on its way up is the one to report
    std::filesystem::remove_all(temporary, ignored);
    throw;
  }
  return step_path(out, 0);
}

}  // namespace trainer
