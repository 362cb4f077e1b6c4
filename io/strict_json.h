// JSON from a file nobody vouches for: duplicate keys and deep nesting are refused, and every error names the file.
#pragma once
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace trainer {

nlohmann::json parse_strict_json(std::string_view text, const std::string& path, Exit code);

}  // namespace trainer
