#include "io/tensor_file.h"

#include <algorithm>
#include <fstream>

#include "core/base/error.h"
#include "io/safetensors.h"

namespace trainer {
namespace {

void write_rows(std::ofstream& out, const Tensor& t) {
  const auto row_bytes = std::streamsize(size_t(t.row_elements()) * size_of(t.dtype));
  for (int64_t r = 0; r < t.rows(); ++r) out.write(reinterpret_cast<const char*>(row_part(t, r, r + 1).data), row_bytes);
}

}  // namespace

void write_tensor_file(const std::string& path, std::vector<NamedTensor> tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const NamedTensor& t : tensors) {
    check(t.values.dtype == DType::f32, Exit::usage, "{}: {} is not fp32", path, t.name);
    SafetensorsEntry e;
    e.name = t.name;
    e.type = find_stored_type("F32");
    e.shape.assign(t.shape.dims.begin(), t.shape.dims.begin() + t.shape.rank);
    e.end = t.values.bytes();
    entries.push_back(std::move(e));
  }
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << lay_out_safetensors(entries, {});
  for (const SafetensorsEntry& e : entries) {
    const auto t = std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& n) { return n.name == e.name; });
    write_rows(out, t->values);
  }
  out.flush();
  check(out.good(), Exit::disk, "{}: cannot be written", path);
}

void write_boxes_file(const std::string& path, std::span<const NamedBox> boxes) {
  std::vector<NamedTensor> tensors;
  for (const NamedBox& b : boxes) tensors.push_back({b.tensor, b.logical, b.values});
  write_tensor_file(path, std::move(tensors));
}

}  // namespace trainer
