// What the emulator tells the sanitizers of the fibers, memory and copies they cannot know of. Without a sanitizer
// everything here is empty.
//
// The emulator's own files are built without -fsanitize=thread (then with EMU_TSAN): its queues and locks must create
// no order between CUDA threads, or they would hide the races that are looked for. Only what CUDA orders is announced.
#pragma once
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(EMU_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" {
void __tsan_read_range(void*, unsigned long);
void __tsan_write_range(void*, unsigned long);
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
}
#endif

namespace cuemu {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
inline void asan_poison(const void* p, size_t n) { ASAN_POISON_MEMORY_REGION(p, n); }
inline void asan_unpoison(const void* p, size_t n) { ASAN_UNPOISON_MEMORY_REGION(p, n); }
#else
inline constexpr bool kAddressSanitizer = false;
inline void asan_poison(const void*, size_t) {}
inline void asan_unpoison(const void*, size_t) {}
#endif

#if defined(EMU_TSAN)
inline constexpr bool kThreadSanitizer = true;
inline void tsan_release(void* token) { __tsan_release(token); }
inline void tsan_acquire(void* token) { __tsan_acquire(token); }
inline void tsan_read(const void* p, size_t n) { __tsan_read_range(const_cast<void*>(p), n); }
inline void tsan_write(void* p, size_t n) { __tsan_write_range(p, n); }
inline void tsan_ignore_begin() {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
inline void tsan_ignore_end() {
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}
#else
inline constexpr bool kThreadSanitizer = false;
inline void tsan_release(void*) {}
inline void tsan_acquire(void*) {}
inline void tsan_read(const void*, size_t) {}
inline void tsan_write(void*, size_t) {}
inline void tsan_ignore_begin() {}
inline void tsan_ignore_end() {}
#endif

// The calling fiber is in the emulator's own code: libc calls that the sanitizer intercepts are not the kernel's.
class Unwatched {
 public:
  Unwatched() { tsan_ignore_begin(); }
  ~Unwatched() { tsan_ignore_end(); }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;
};

}  // namespace cuemu
