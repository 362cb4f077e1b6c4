// Models of the Hugging Face hub to checkpoints and back. Our tensors carry their names and layouts, so values are
// copied, never transposed.
#pragma once
#include <cstdint>
#include <string>

namespace trainer {

// SRC holds config.json (gpt2, llama, qwen2, qwen3, mistral) and safetensors of F32, BF16 or F16. Makes OUT/step-0 with
// fp32 weights and no moments, and returns its path. What the trainer cannot express is refused by name:
// Error(checkpoint).
std::string import_hugging_face(const std::string& source, const std::string& out);

// Makes OUT with config.json and model.safetensors, values bit for bit as stored; above `part_bytes` in parts with an
// index.
void export_hugging_face(const std::string& step_directory, const std::string& out,
                         uint64_t part_bytes = 5'000'000'000);

}  // namespace trainer
