// The table of pipeline schedules. A new one is a file that defines `order`, and a row in schedules.cpp.
#pragma once
#include "core/plan/schedule.h"

namespace trainer {

// Throws Error(spec) for one that is not built.
const Schedule& find_schedule(PipelineKind);

// Orders. Each throws Error(spec) for a shape it cannot run.
std::vector<Action> gpipe(const PipeShape&, const Limits&, int stage);
std::vector<Action> one_f_one_b(const PipeShape&, const Limits&, int stage);
std::vector<Action> interleaved(const PipeShape&, const Limits&, int stage);
std::vector<Action> zb_h1(const PipeShape&, const Limits&, int stage);
std::vector<Action> zb_v(const PipeShape&, const Limits&, int stage);

// Placements: chunk after chunk over the stages, or there and back again.
int looped(const PipeShape&, int stage, int chunk);
int vee(const PipeShape&, int stage, int chunk);

// What orders are written with.
inline Action forward_of(int m, int chunk = 0) { return {Verb::forward, int16_t(m), int16_t(chunk)}; }
inline Action input_of(int m, int chunk = 0) { return {Verb::backward_input, int16_t(m), int16_t(chunk)}; }
inline Action weight_of(int m, int chunk = 0) { return {Verb::backward_weight, int16_t(m), int16_t(chunk)}; }
inline void push_backward(std::vector<Action>& a, int m, int chunk = 0) {
  a.push_back(input_of(m, chunk));
  a.push_back(weight_of(m, chunk));
}
void require_chunks(const PipeShape&, int wanted, std::string_view schedule);

}  // namespace trainer
