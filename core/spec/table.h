// The one list of the run spec's keys. The reader, the JSON Schema, docs/SPEC.md, resolved.yaml and the JSON in
// manifests are all made from it: a new key is a field in run_spec.h and one line in table.cpp.
#pragma once
#include <string>
#include <vector>

#include "core/spec/key.h"

namespace trainer {

const std::vector<Key<RunSpec>>& spec_table();  // in the order of the reference page; a section's keys stand together

struct Section {
  std::string path, about;
};
const std::vector<Section>& spec_sections();  // parents before children

// Keys whose names are taken, and which are refused as not built yet.
const std::vector<Section>& reserved_keys();

}  // namespace trainer
