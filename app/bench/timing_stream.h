// A stream that runs each operation at once on another and writes down what it took.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "core/device/stopwatch.h"

namespace trainer {

struct TimedPart {
  std::string name;
  Cost cost;
  double begin = 0, seconds = 0;  // since the stream was made
};

class TimingStream : public Stream {
 public:
  TimingStream(Stream& inner, Stopwatch& watch) : inner_(inner), watch_(watch) {}
  DeviceKind kind() const override { return inner_.kind(); }
  void* native() override { return inner_.native(); }
  void charge(std::string_view op, Cost cost, size_t) override { charged_ = {std::string(op), cost}; }
  void submit(void (*run)(Stream&, const void*), const void* args, size_t bytes) override {
    part(charged_.name, charged_.cost, [&] { inner_.submit(run, args, bytes); });
  }
  Event record() override { return inner_.record(); }
  void wait(Event e) override { inner_.wait(e); }
  std::span<std::byte> scratch() override { return inner_.scratch(); }

  template <class F>
  void part(const std::string& name, Cost cost, F&& launches) {
    const double begin = now();
    watch_.start();
    launches();
    parts_.push_back({name, cost, begin, watch_.stop()});
  }
  std::vector<TimedPart>& parts() { return parts_; }
  Stream& inner() { return inner_; }
  const std::string& charged() const { return charged_.name; }

 private:
  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  Stream& inner_;
  Stopwatch& watch_;
  TimedPart charged_;
  std::vector<TimedPart> parts_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace trainer
