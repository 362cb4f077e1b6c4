// The tokenizer of a run, as its checkpoints carry it: "bytes", "none", a path, or "chars:" and the characters
// themselves.
#pragma once
#include <memory>
#include <string>

#include "core/spec/run_spec.h"
#include "io/tokenizer.h"

namespace trainer {

std::string tokenizer_description(const DataSpec&);
// Throws Error(data) for "none", and where a file is missing.
std::unique_ptr<Tokenizer> open_described_tokenizer(const std::string& description);

}  // namespace trainer
