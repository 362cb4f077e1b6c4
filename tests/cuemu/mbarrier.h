// mbarrier objects of sm_90: phases that end when so many arrivals and so many bytes have come.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/cuemu/fail.h"

namespace cuemu {

struct Thread;

// Of one block, by their addresses in shared memory.
class Mbarriers {
 public:
  void clear() { all_.clear(); }
  void init(const void* barrier, unsigned arrivals, const Location&);
  // One arrival, of which `expected_bytes` are still on their way.
  void arrive(const void* barrier, unsigned expected_bytes, const Location&);
  void complete_bytes(const void* barrier, unsigned bytes);
  // Until the phase of this parity is over.
  void wait(const void* barrier, unsigned parity, const Location&);
  // Of the thread sanitizer: what was released to it comes before those who waited.
  char* token(const void* barrier, const Location& where) { return &find(barrier, where).token; }

 private:
  struct Mbarrier {
    unsigned arrivals = 0, missing = 0;
    int64_t bytes = 0;  // expected and not yet there; below zero where they came first
    unsigned phase = 0;
    std::vector<const Thread*> waiting;
    char token = 0;
  };
  Mbarrier& find(const void* barrier, const Location&);
  static void end_phase_if_complete(Mbarrier&);

  std::map<const void*, Mbarrier> all_;
};

}  // namespace cuemu
