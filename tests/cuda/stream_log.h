// Host functions on streams that write down that they ran.
#pragma once
#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace trainer::test {

class StreamLog {
 public:
  // One letter after the other.
  void note(cudaStream_t stream, const std::string& letters) {
    for (const char letter : letters) {
      notes_.push_back(std::make_unique<Note>(Note{this, letter}));
      REQUIRE(cudaLaunchHostFunc(stream, &Note::write, notes_.back().get()) == cudaSuccess);
    }
  }
  std::string text() const {
    const std::lock_guard hold(lock_);
    return text_;
  }
  // Of the text, those among `letters`.
  std::string only(const std::string& letters) const {
    std::string kept;
    for (const char c : text())
      if (letters.find(c) != std::string::npos) kept += c;
    return kept;
  }

 private:
  struct Note {
    StreamLog* log;
    char letter;
    static void write(void* self) {
      const auto* note = static_cast<Note*>(self);
      const std::lock_guard hold(note->log->lock_);  // streams write, and the host reads meanwhile
      note->log->text_ += note->letter;
    }
  };
  mutable std::mutex lock_;
  std::string text_;
  std::vector<std::unique_ptr<Note>> notes_;
};

inline bool comes_before(const std::string& text, char first, char second) {
  return text.find(first) < text.find(second);
}

}  // namespace trainer::test
