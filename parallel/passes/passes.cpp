#include "parallel/passes/passes.h"

#include <algorithm>

#include "core/model/model.h"

namespace trainer {

std::span<const CodePass> code_passes() {
  static constexpr CodePass kPasses[] = {expand, recompute, pipe, gather, reduce, update, snapshot};
  return kPasses;
}

std::vector<BlockLayout> layouts_of(const Model& model) {
  std::vector<BlockLayout> all;
  for (const auto& b : model.blocks) all.push_back(b->layout());
  return all;
}

std::vector<std::vector<int>> buckets_of_blocks(const std::vector<BlockLayout>& layouts, const Program& p) {
  std::vector<std::vector<int>> all;
  for (const BlockLayout& l : layouts) {
    auto& mine = all.emplace_back();
    for (ParamId id : l.params)
      if (const int k = bucket_of(p, id); std::find(mine.begin(), mine.end(), k) == mine.end()) mine.push_back(k);
  }
  return all;
}

Code Insertions::apply(const Code& code) const {
  Code out;
  for (size_t k = 0; k < code.size(); ++k) {
    out.insert(out.end(), before_[k].begin(), before_[k].end());
    out.push_back(code[k]);
    out.insert(out.end(), after_[k].begin(), after_[k].end());
  }
  return out;
}

}  // namespace trainer
