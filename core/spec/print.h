// What the table of keys is turned into: the schema, the reference page, and a spec's values as text.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "core/spec/read.h"

namespace trainer {

std::string json_schema();    // draft 2020-12; of the spec's YAML read as JSON
std::string spec_markdown();  // docs/SPEC.md

// Every value in effect, with a comment that says where it came from. Reads back as the same spec.
std::string resolved_yaml(const LoadedSpec&);

// As in the YAML, defaults included; keys that have no effect in this spec are left out.
nlohmann::json to_json(const RunSpec&);
nlohmann::json model_json(const ModelSpec&);

}  // namespace trainer
