#include "core/ops/control.h"

namespace trainer {

uint64_t data_hash_of(const Outcome& o) {
  uint64_t hash = 0;
  for (size_t i = 0; i < o.data_hash.size(); ++i) hash += uint64_t(o.data_hash[i]) << (16 * i);
  return hash;
}

void add_data_hash(Outcome& o, uint64_t hash) {
  for (size_t i = 0; i < o.data_hash.size(); ++i) o.data_hash[i] += double(hash >> (16 * i) & 0xffff);
}

}  // namespace trainer
