// Which legal name somebody may have meant.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// The nearest of `names` by edit distance (a swap of neighbours is one edit), or "" where none is near.
std::string nearest(std::string_view wrong, const std::vector<std::string>& names);

// The path of our key for a name that other systems use (`n_layers` -> `model.num_layers`), or "".
std::string_view path_of_alias(std::string_view name);

}  // namespace trainer
