// config.json of Hugging Face's transformers and our model section.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "core/spec/run_spec.h"

namespace trainer {

// gpt2, llama, qwen2, qwen3 and mistral. Throws Error(checkpoint) naming the key whose value the trainer cannot
// express.
ModelSpec model_of_hf_config(const nlohmann::json& config, const std::string& path);

// The architecture that computes the same function: throws Error(checkpoint) where none has the combination of
// features.
nlohmann::ordered_json hf_config_of_model(const ModelSpec&);

}  // namespace trainer
