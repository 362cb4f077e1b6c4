// A vocabulary cut over ranks.
#pragma once
#include <cstdint>

namespace trainer {

// This rank's table holds rows [first, first + count) of `vocab` as its rows [0, count); what lies below is padding.
struct VocabularySlice {
  int64_t first = 0, count = 0, vocab = 0;
};

}  // namespace trainer
