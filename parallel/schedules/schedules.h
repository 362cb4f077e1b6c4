// The table of pipeline schedules. A new one is a file that defines its orders, and a row in schedules.cpp.
#pragma once
#include "core/plan/schedule.h"
#include "parallel/schedules/text.h"

namespace trainer {

// What a run uses: a function of the spec alone, so zb_auto plans with the defaults of Limits.
Schedule find_schedule(const PipelineSpec&);

// By its name in the spec; `custom:FILE` reads the placement from the file. Throws Error(spec) for another name.
Schedule find_schedule(std::string_view name);

Orders gpipe(const PipeShape&, const Limits&);
Orders one_f_one_b(const PipeShape&, const Limits&);
Orders interleaved(const PipeShape&, const Limits&);
Orders zb_h1(const PipeShape&, const Limits&);
Orders zb_h2(const PipeShape&, const Limits&);
Orders zb_v(const PipeShape&, const Limits&);
Orders zb_auto(const PipeShape&, const Limits&);
Orders dualpipe_v(const PipeShape&, const Limits&);

Orders custom(const PipeShape&, const Limits&);
// Its file. Throws Error(spec) where it cannot be read, or is not in the form of text.h.
WrittenOrders read_orders(const std::string& file);

}  // namespace trainer
