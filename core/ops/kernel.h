// An operation is a struct of named arguments; a kernel is a row in a table; `launch` brings them together.
//
// An op struct is trivially copyable and has `static constexpr const char* kName` and `Cost cost() const` (FLOPs and bytes moved
// from and to memory, each operand once). Tensors that are optional may be empty (`data == nullptr`).
#pragma once
#include <array>
#include <type_traits>

#include "core/device/device.h"

namespace trainer {

template <class Args>
struct Kernel {
  void (*run)(Stream&, const void* args) = nullptr;
  size_t (*scratch)(const Args&) = nullptr;         // bytes, asked at plan time: workspaces live in the arena
  void (*prepare)(Device&, const Args&) = nullptr;  // once per distinct shape, before step 0: JIT, heuristics
  static Kernel& on(DeviceKind kind) {
    static std::array<Kernel, 3> table;
    return table[size_t(kind)];
  }
};

// Throws Error(device): the operation has no kernel on the device it was launched on.
[[noreturn]] void refuse_launch(const char* op);

template <class Args>
void launch(Stream& stream, const Args& args) {
  static_assert(std::is_trivially_copyable_v<Args>);
  const auto& kernel = Kernel<Args>::on(stream.kind());
  stream.charge(Args::kName, args.cost(), kernel.scratch ? kernel.scratch(args) : 0);
  if (!kernel.run && stream.kind() != DeviceKind::meter) refuse_launch(Args::kName);
  stream.submit(kernel.run, &args, sizeof args);
}

}  // namespace trainer
