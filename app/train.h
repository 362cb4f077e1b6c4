// THE LOOP.
#pragma once
#include "app/place.h"
#include "core/base/error.h"
#include "core/spec/read.h"
#include "parallel/comm/exchange.h"

namespace trainer {

// Trains, or resumes from the newest good checkpoint; all ranks of the world call it alike. Returns Exit::done, or
// Exit::preempted after a signal and a save; everything else is thrown.
Exit train(const LoadedSpec&, const Place&, Exchange&);

}  // namespace trainer
