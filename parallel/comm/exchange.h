// The control connection of a rank: how ranks tell each other small things beside the collectives, and how the death of
// one becomes known to all.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What every rank said, by rank. Collective: all ranks call it in the same order, each from its host thread. Throws
  // Error(rank) that names who is missing, dead, or gave up (and why).
  virtual std::vector<std::string> all_gather(std::string_view mine) = 0;
  // `handler` runs at most once, on another thread, when a rank died or gave up; at once where that has happened.
  // `why` is a sentence: "rank 3 (host n2, pid 77) died".
  using FailureHandler = std::function<void(const std::string& why)>;
  virtual void on_failure(FailureHandler handler) = 0;
  // This rank ends in order (`why` empty) or gives up (`why`: its message, told to all). A connection that closes
  // afterwards is no death.
  virtual void leave(std::string_view why) noexcept = 0;
  // Where the process of a rank can be reached from this one's host, in numbers.
  virtual std::string address_of(int /*rank*/) const { return "127.0.0.1"; }
};

// A world of one.
class SoloExchange final : public Exchange {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> all_gather(std::string_view mine) override { return {std::string(mine)}; }
  void on_failure(FailureHandler) override {}
  void leave(std::string_view) noexcept override {}
};

}  // namespace trainer
