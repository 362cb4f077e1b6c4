// How long a stream spends on what, by the device's own clock: sums in its memory, told to the host when the stream
// gets there. So no event is timed, graphs count as issued work does, and the host waits for nothing more.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <span>

namespace trainer::cuda {

class LaneClock {
 public:
  static constexpr int kPlaces = 32;
  LaneClock();
  ~LaneClock();
  LaneClock(const LaneClock&) = delete;
  LaneClock& operator=(const LaneClock&) = delete;
  // On the one stream that this clock is for. What is begun is ended before it is begun again; `place` < kPlaces.
  void begin(cudaStream_t, int place);
  void end(cudaStream_t, int place);
  // What has been spent by then, what is begun and not ended included, can be read once the host has waited for the
  // stream, until this is called again.
  void tell(cudaStream_t);
  double seconds(int place) const { return 1e-9 * double(told_[place]); }

 private:
  struct Sums {
    uint64_t begun[kPlaces], spent[kPlaces];  // nanoseconds; begun is 0 where nothing is
  };
  Sums* sums_ = nullptr;      // the device's
  uint64_t* told_ = nullptr;  // pinned: nanoseconds by place
};

}  // namespace trainer::cuda
